"""A CLaRa model: one frozen base, three adapters, and the learned memory tokens.

clara = Clara.open(ClaraConfig(base="pocket", max_length=64, rate=4))
memory = clara.encode(documents).memory
scores = clara.similarity(clara.encode([question], "reasoner").memory, memory)
chosen = select(scores, k=5, tau=clara.config.tau)
clara.generate([answer(question, 5)], memory[chosen.ids], max_new_tokens=32)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from methods.clara.checkpoint import read_config, restore, save
from methods.clara.config import ADAPTERS, MEMORY, Adapter, ClaraConfig, Part
from methods.clara.generator import Generator, Memory, Reduction
from methods.clara.prompts import Layout, Request, layout_of
from methods.models.causal import Generation
from methods.models.likelihood import CPU_TOKENS, GPU_TOKENS, by_length, padded
from methods.prompts import ids_behind_bos, plain_ids
from methods.training.adapters import Adapters
from methods.training.pieces import recompute_activations, spread_positions
from methods.training.soft_prompts import MemoryRows, Tokens, add_tokens, decoder_of, harmless, load_base

# A text is `begin bos text eos`, followed by the memory tokens. A long text loses its end, eos included. Attention is causal
# and ignores later tokens, so right padding needs no mask.
#
# Source: paper, section 2.2 and equations 2.2 and 3.1.


@dataclass(frozen=True, slots=True)
class Encoded:
    """Texts encoded as memory.

    Attributes:
        memory: float32 [N, M, h].
        document_mean: Mean hidden state of each text's tokens, including marks: float32 [N, h].
        memory_mean: Mean of its memory vectors: float32 [N, h].
    """

    memory: Tensor
    document_mean: Tensor
    memory_mean: Tensor


class Compressor:
    """Encodes texts to memory vectors with the active adapter.

    Args:
        model: The causal language model below the adapters.
        tokenizer: Tokenizer with the added memory tokens.
        rows: Embeddings of the added tokens.
        tokens: Ids of the added tokens.
        layout: Format of documents.
        max_length: Maximum tokens of a text (L).
        spread: Whether memory tokens get position ids spread over the text instead of those after it.
        joined: Whether a text is tokenized together with the beginning-of-text token.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        rows: MemoryRows,
        tokens: Tokens,
        layout: Layout,
        max_length: int,
        spread: bool = False,
        joined: bool = False,
    ) -> None:
        self._spread, self._joined = spread, joined
        self._decoder = decoder_of(model)
        self._tokenizer, self._rows, self._tokens, self._layout = tokenizer, rows, tokens, layout
        self._before = [tokens.begin, *([tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else [])]
        self._after = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
        self._longest, self._room = max_length, max_length + len(self._before) + len(self._after)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts, without memory tokens. Special tokens in a text are treated as text, unless `joined`."""
        return [ids[: self._room] for ids in self._whole(texts)]

    def _whole(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Yield the token ids of whole texts."""
        for written in map(self._layout.document, texts):
            ids = ids_behind_bos(self._tokenizer, harmless(written)) if self._joined else plain_ids(self._tokenizer, written)
            yield [*self._before, *ids, *self._after]

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Measure how much of the documents is not encoded, as `checks.truncation` does."""
        # A token covers at least one byte, so most short texts need no tokenizer.
        long = [text for text in texts if len(self._layout.document(text).encode("utf-8", "replace")) >= self._longest]
        lost = [max(0.0, 1 - self._room / len(ids)) * len(text) for ids, text in zip(self._whole(long), long, strict=True)]
        share = sum(lost) / max(1, sum(map(len, texts)))
        return {"limit": self._longest, "passages": len(texts), "truncated": sum(map(bool, lost)), "share": round(share, 6)}

    def encode(self, texts: Sequence[str], token_budget: int) -> Encoded:
        """Encode texts; batches have similar lengths, which does not affect the result.

        Args:
            texts: Documents or questions, in any order.
            token_budget: Maximum tokens per batch, including padding.
        """
        ids = self.ids(texts)
        batches = by_length([len(identifier) for identifier in ids], token_budget, fixed=self._tokens.count)
        parts = [self._batch([ids[position] for position in batch]) for batch in batches]
        device = self._rows.memory.device
        order = torch.argsort(torch.tensor([position for batch in batches for position in batch], device=device))
        if not parts:
            width = self._rows.memory.shape[1]
            nothing = torch.zeros(0, width, device=device)
            return Encoded(nothing.reshape(0, self._tokens.count, width), nothing, nothing)
        memory, documents = (torch.cat(side)[order] for side in zip(*parts, strict=True))
        return Encoded(memory, documents, memory.mean(1))

    def _batch(self, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Encode a batch; returns memory [n, M, h], and mean states of the texts [n, h], float32."""
        count, device = self._tokens.count, self._rows.memory.device
        memory = list(range(self._tokens.first, self._tokens.first + count))
        filled, _ = padded([row + memory for row in rows], 0)
        ends = torch.tensor([len(row) for row in rows], device=device).unsqueeze(1)
        embedded = self._rows.embed(torch.tensor(filled, device=device))
        states = self._states(embedded, ends)
        positions = ends + torch.arange(count, device=device)
        kept = states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1])).float()
        own = torch.arange(states.shape[1], device=device) < ends
        return kept, (states.float() * own.unsqueeze(-1)).sum(1) / ends

    def _states(self, embedded: Tensor, ends: Tensor) -> Tensor:
        if not self._spread:
            return self._decoder(inputs_embeds=embedded, use_cache=False).last_hidden_state
        # Without a mask, positions that do not count up would be read as several texts in one row.
        return self._decoder(
            inputs_embeds=embedded,
            position_ids=spread_positions(ends, self._tokens.count, embedded.shape[1]),
            attention_mask=torch.ones(embedded.shape[:2], dtype=torch.long, device=embedded.device),
            use_cache=False,
        ).last_hidden_state


def alignment(encoded: Encoded, over: str = "mean") -> Tensor:
    """Compute the alignment loss (equation 2.2): squared distance between mean memory and mean document state, averaged over
    documents.

    Args:
        encoded: Documents.
        over: `mean` divides by the width, as in the released code, for which λ = 0.1 is meant; `sum` is equation 2.2 as
            printed.
    """
    loss = functional.mse_loss(encoded.document_mean, encoded.memory_mean)
    return loss if over == "mean" else loss * encoded.memory_mean.shape[-1]


def similarity(queries: Tensor, memory: Tensor) -> Tensor:
    """Compute the cosine similarity between flattened memories of questions and documents (equation 3.1).

    Args:
        queries: [B, M, h].
        memory: [B, D, M, h], or [D, M, h] if all questions share the documents.

    Returns:
        float32 [B, D] (float64 for float64).
    """
    wanted = torch.float64 if queries.dtype == torch.float64 else torch.float32
    with torch.autocast(queries.device.type, enabled=False):
        q = functional.normalize(queries.flatten(1).to(wanted), dim=-1)
        d = functional.normalize(memory.flatten(-2).to(wanted), dim=-1)
        return q @ d.T if d.dim() == 2 else torch.einsum("bn,bdn->bd", q, d)


class ClaraModule(nn.Module):
    """Module with all tensors: the base model with its adapters (a `PeftModel`), and the memory tokens."""

    def __init__(self, language_model: nn.Module, rows: MemoryRows) -> None:
        super().__init__()
        self.language_model = language_model
        self.rows = rows


class Clara:
    """A CLaRa model for inference and training; create it with `open` or `load`.

    Args:
        config: Model options.
        tokenizer: The base's tokenizer; memory tokens are added.
        base: The base model; it is frozen, and adapters are added.
        adapters: Names of the adapters.
        seed: Random seed for initializing adapters and memory tokens.
    """

    def __init__(self, config: ClaraConfig, tokenizer: Any, base: Any, adapters: Sequence[Adapter] = ADAPTERS, seed: int = 0) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.tokens = add_tokens(tokenizer, config.memory_tokens)
        rows = MemoryRows(base.get_input_embeddings(), self.tokens, config.memory_init, seed)
        self.adapters = Adapters(base, config.lora, adapters, seed, config.base)
        self.module = ClaraModule(self.adapters.model, rows.to(base.device)).eval()
        self.layout = layout_of(config, tokenizer)
        parts = base, tokenizer, rows, self.tokens, self.layout
        self.compressor = Compressor(*parts, config.max_length, config.positions == "spread", config.joined)
        self.generator = Generator(*parts, config.max_prompt, config.max_length, config.memory_length == "embedding")
        self._base = base

    @classmethod
    def open(cls, config: ClaraConfig, adapters: Sequence[Adapter] = ADAPTERS, device: str | None = None, seed: int = 0) -> Clara:
        """Create an untrained model: the base with newly initialized adapters, which do not change its output.

        Raises:
            UserError: The base cannot be loaded, or is incompatible with the options.
        """
        tokenizer, base = load_base(config.base, config.revision, config.dtype, config.max_length, config.memory_tokens, device)
        return cls(config, tokenizer, base, adapters, seed)

    @property
    def hidden_size(self) -> int:
        """Return the width of a memory vector (h)."""
        return int(self.module.rows.memory.shape[1])

    @property
    def memory_tokens(self) -> int:
        """Return the number of memory vectors per document (M)."""
        return self.tokens.count

    @property
    def device(self) -> torch.device:
        """Return the device of the model."""
        return self.module.rows.memory.device

    @property
    def base(self) -> Any:
        """Return the base causal language model, including adapter layers."""
        return self._base

    def use(self, name: str | None) -> AbstractContextManager[None]:
        """Context manager that activates an adapter for forward passes; None disables all. Trainability is unchanged."""
        return self.adapters.use(name)

    def set_trainable(self, parts: Iterable[Part]) -> None:
        """Make exactly these parts trainable and freeze everything else.

        Raises:
            KeyError: The model has no such part.
            AssertionError: The trainable parameters are not those requested.
        """
        wanted = set(parts)
        if unknown := wanted - {*self.adapters.names, MEMORY}:
            raise KeyError(sorted(unknown)[0])
        expected = self._names(wanted)
        for name, parameter in self.module.named_parameters():
            parameter.requires_grad_(name in expected)
        results = set(self.trainable_parameters())
        if results != expected:
            raise AssertionError(f"trainable and requested parameters differ: {sorted(results ^ expected)[:4]} …")

    def _names(self, parts: set[Part]) -> set[str]:
        names = {"rows.memory"} if MEMORY in parts else set()
        for part in parts - {MEMORY}:
            names |= {f"language_model.{name}" for name in self.adapters.of(part)}
        return names

    def trainable_parameters(self) -> dict[str, nn.Parameter]:
        """Return the trainable parameters by name in `module`."""
        return {name: item for name, item in self.module.named_parameters() if item.requires_grad}

    def recompute_activations(self, on: bool) -> None:
        """Enable or disable activation checkpointing: slower, less memory.

        Another adapter may be active during the backward pass, so each layer is recomputed with the adapter of its forward
        pass. The base's own gradient checkpointing would not do that.
        """
        recompute_activations(self._base, on, context_fn=lambda: (nullcontext(), self.use(self.adapters.active)))

    def encode(self, texts: Sequence[str], adapter: Adapter | None = "compressor", token_budget: int | None = None) -> Encoded:
        """Encode texts to memory vectors; gradients flow unless disabled by the caller.

        Args:
            texts: Documents (compressor) or questions (reasoner).
            adapter: Adapter to use; None for the bare base.
            token_budget: Maximum tokens per batch, including padding; None for 4,096 on CPU and 32,768 elsewhere.
        """
        budget = token_budget or (CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS)
        # Nothing is read of no text, by models too that have no such adapter.
        with self.use(adapter) if texts else nullcontext():
            return self.compressor.encode(texts, budget)

    def alignment(self, encoded: Encoded, over: str = "mean") -> Tensor:
        """Compute the alignment loss (equation 2.2); see `alignment`."""
        return alignment(encoded, over)

    def similarity(self, query_memory: Tensor, memory: Tensor) -> Tensor:
        """Compute the scores of documents for questions, float32 [B, D]; see `similarity`."""
        return similarity(query_memory, memory)

    def cross_entropy(
        self,
        prompts: Sequence[Request],
        memory: Memory,
        targets: Sequence[str],
        reduction: Reduction = "tokens",
        adapter: Adapter | None = "generator",
    ) -> Tensor:
        """Compute the cross-entropy of replies, in nats; see `Generator.cross_entropy`."""
        with self.use(adapter):
            return self.generator.cross_entropy(prompts, memory, targets, reduction)

    def packed_cross_entropy(self, prompts: Sequence[Sequence[Request]], memory: Memory, targets: Sequence[Sequence[str]]) -> Tensor | None:
        """Compute the cross-entropy of several replies about the same documents; see `Generator.packed_cross_entropy`."""
        with self.use("generator"):
            return self.generator.packed_cross_entropy(prompts, memory, targets)

    def generate(
        self, prompts: Sequence[Request], memory: Memory, max_new_tokens: int, batch_size: int = 8, adapter: Adapter | None = "generator"
    ) -> list[Generation]:
        """Generate replies without dropout; see `Generator.generate`."""
        with self.use(adapter), self.evaluating():
            return self.generator.generate(prompts, memory, max_new_tokens, batch_size)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context manager that disables dropout and restores the previous mode on exit."""
        training = self.module.training
        self.module.eval()
        try:
            yield
        finally:
            self.module.train(training)

    def save(self, folder: Path) -> None:
        """Write the checkpoint: see `checkpoint.py`."""
        save(self.adapters, self.module.rows, self.config, folder)

    @classmethod
    def load(cls, folder: Path, device: str | None = None, dtype: str | None = None) -> Clara:
        """Load a checkpoint with all parameters frozen.

        Args:
            folder: Checkpoint folder.
            device: Device; None chooses one.
            dtype: Data type of the base's weights; None for the checkpoint's option.

        Raises:
            UserError: The folder is not a checkpoint or is damaged, or its base model is not the one it was trained on.
        """
        config, adapters = read_config(folder)
        if dtype is not None:
            config = config.model_copy(update={"dtype": dtype})
        clara = cls.open(config, adapters, device)
        restore(clara.adapters, clara.module.rows, folder)
        return clara
