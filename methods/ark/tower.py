"""Encoder in training: texts to vectors with gradients, in batches that fit into memory, on one or several devices.

Dropout is seeded by (seed, stage, step, batch of texts), so encoding a text again in the same step or in a resumed run gives
the same vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.ark.config import TrainConfig
from methods.ark.loss import Batch, info_nce
from methods.models.checks import cut_texts
from methods.models.encoder_config import EncoderConfig
from methods.models.likelihood import UNBOUNDED, by_length
from methods.models.pretrained import device_of
from methods.models.remote_code import check_models
from methods.models.towers import sentence_transformer
from methods.training.parts import MicroBatch, TooLarge, agreed

if TYPE_CHECKING:
    from torch import Tensor


class _Micro(NamedTuple):
    """Texts of one side that are encoded together, with their positions."""

    side: str
    positions: list[int]
    texts: list[str]


@dataclass(frozen=True)
class Prompts:
    """Prefixes of queries and passages."""

    query: str
    passage: str


def prompts_of(config: EncoderConfig, model: Any, instruction: bool = True) -> Prompts:
    """Return an encoder's prompts: those of its options, else the model's own. Without `instruction`, queries get none."""
    own = model.prompts or {}
    query, passage = config.prompt("query"), config.prompt("passage")
    if query is None:
        query = own.get("query") or ""
    if passage is None:
        passage = own.get("document") or own.get("passage") or ""
    return Prompts(query if instruction else "", passage)


def load_tower(config: EncoderConfig, device: str | None) -> Any:
    """Load a `SentenceTransformer` for training, in float32.

    Raises:
        UserError: The model cannot be loaded.
    """
    check_models(config)
    plain = config.model_copy(update={"dtype": "float32"})
    return sentence_transformer(plain, config.model, config.revision, device_of(device))


def freeze_all_but_last(model: Any, layers: int) -> None:
    """Freeze a transformer except its last layers and everything after them.

    Args:
        model: A `SentenceTransformer`.
        layers: Number of trainable layers.

    Raises:
        UserError: The model's layers cannot be determined.
    """
    from torch.nn import ModuleList

    transformer = model[0]
    lists = [(name, part) for name, part in transformer.named_modules() if isinstance(part, ModuleList)]
    name, stack = max(lists, key=lambda item: len(item[1]), default=("", ()))
    if layers > len(stack):
        raise UserError(
            f"the encoder has {len(stack)} layers, of which {layers} cannot be trained",
            code="too-few-encoder-layers",
            where="train.trainable_layers",
            try_this="use fewer, or null for all",
        )
    first = f"{name}.{len(stack) - layers}."
    reached = False
    # Parameters come in the order in which a text passes them.
    for parameter_name, parameter in transformer.named_parameters():
        reached = reached or parameter_name.startswith(first)
        parameter.requires_grad_(reached)


class Tower:
    """Encoder for the loss, with gradient caching.

    Args:
        model: A `SentenceTransformer`.
        prompts: Prefixes of texts.
        config: Batch size, and maximum tokens with activations in memory.
        accelerator: `accelerate` process; None for a single process in the model's precision.
    """

    def __init__(self, model: Any, prompts: Prompts, config: TrainConfig, accelerator: Any = None) -> None:
        self.model, self.prompts, self.config, self.accelerator = model, prompts, config, accelerator
        self.micro = MicroBatch(config.micro_batch, "train.micro_batch")
        if config.max_length is not None:
            model.max_seq_length = config.max_length
        if config.trainable_layers is not None:
            freeze_all_but_last(model, config.trainable_layers)
        if config.recompute:
            from methods.training.pieces import recompute_activations

            recompute_activations(model[0].auto_model)
        self._lengths: dict[str, int] = {}

    def length(self, text: str) -> int:
        """Return the number of tokens of a text after truncation, without a prompt."""
        if text not in self._lengths:
            # Texts longer than the model reads are cut when they are encoded, so the tokenizer's warning about them is off.
            tokens = self.model.tokenizer.tokenize(text, verbose=False)
            self._lengths[text] = min(len(tokens), self.model.max_seq_length or UNBOUNDED)
        return self._lengths[text]

    def cut(self, queries: Iterable[str], passages: Iterable[str]) -> dict[str, float]:
        """Return the numbers of distinct texts that are longer than the model reads (`queries_cut`, `passages_cut`), without zeros."""
        sides = ("queries_cut", queries, self.prompts.query), ("passages_cut", passages, self.prompts.passage)
        return {name: float(count) for name, texts, prompt in sides if (count := cut_texts(self.model, texts, prompt))}

    @property
    def _ranks(self) -> int:
        return self.accelerator.num_processes if self.accelerator else 1

    def _micros(self, batch: Batch) -> list[_Micro]:
        """Return this process's batches of texts."""
        results = []
        for side, texts, first in (("query", batch.queries, 0), ("passage", batch.documents, len(batch.queries))):
            for positions in by_length([len(text) for text in texts], UNBOUNDED, self.micro.size):
                results.append(_Micro(side, [first + position for position in positions], [texts[position] for position in positions]))
        rank = self.accelerator.process_index if self.accelerator else 0
        return results[rank :: self._ranks]

    def _encode(self, micro: _Micro, seed: Sequence[str | int]) -> Tensor:
        """Encode texts as unit vectors: shape (texts, dimension)."""
        import torch

        prompt = self.prompts.query if micro.side == "query" else self.prompts.passage
        features = self.model.preprocess(micro.texts, prompt=prompt or None)
        features = {name: value.to(self.model.device) if hasattr(value, "to") else value for name, value in features.items()}
        torch.manual_seed(int(fingerprint(*seed, micro.positions[0]), 16) % 2**63)
        if self.accelerator is None:
            vectors = self.model(features)["sentence_embedding"]
        else:
            with self.accelerator.autocast():
                vectors = self.model(features)["sentence_embedding"]
        return torch.nn.functional.normalize(vectors.float(), dim=1)

    def backward(self, batch: Batch, temperature: float, seed: Sequence[str | int], scale: float = 1.0) -> float:
        """Compute the gradient of a batch's loss and add it to the parameters; each process handles its own texts.

        If the batch is too large for memory, its texts are first encoded without activations; the loss gives the gradient of
        each vector, and the texts are encoded again in parts to backpropagate it. The result is the same.

        Args:
            batch: The rows.
            temperature: Temperature of the loss.
            seed: Seed parts for dropout: seed, stage, step …
            scale: Factor of the gradient.

        Returns:
            The loss, unscaled.

        Raises:
            TooLarge: Memory ran out in one of the processes. Later calls only hold the activations of one `micro_batch`, which
                changes neither loss nor negatives.

        Source:
            Gao et al. 2021, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (GradCache).
        """
        import torch

        micros = self._micros(batch)
        tokens = sum(self.length(text) for micro in micros for text in micro.texts)
        hold = self.micro.size == self.config.micro_batch and tokens <= self.config.held_tokens
        encoded: list[Tensor] = []
        with torch.set_grad_enabled(hold), self._within_memory(batch):
            encoded += [self._encode(micro, seed) for micro in micros]
        leaf = self._gathered(micros, encoded, len(batch.queries) + len(batch.documents))
        questions = len(batch.queries)
        loss = info_nce(leaf[:questions], leaf[questions:], batch, temperature)
        if self.accelerator is None:
            (loss * scale).backward()
        else:
            self.accelerator.backward(loss * scale)
        with self._within_memory(batch):
            for number, micro in enumerate(micros):
                vectors = encoded[number] if hold else self._encode(micro, seed)
                vectors.backward(leaf.grad[micro.positions])
        return float(loss.detach())

    @contextmanager
    def _within_memory(self, batch: Batch) -> Iterator[None]:
        """Raise `TooLarge` in all processes if a block runs out of memory in one of them."""
        import torch

        full = False
        try:
            yield
        except torch.OutOfMemoryError:
            full = True
        if any(agreed(full, self.accelerator)):
            raise TooLarge(max(len(batch.queries), len(batch.documents)), self.micro.size == 1)

    def _gathered(self, micros: Sequence[_Micro], encoded: Sequence[Tensor], count: int) -> Tensor:
        """Gather the vectors of all processes as one leaf tensor."""
        import torch

        width = self.model.get_embedding_dimension()
        everything = torch.zeros(count, width, device=self.model.device)
        for micro, vectors in zip(micros, encoded, strict=True):
            everything[micro.positions] = vectors.detach()
        if self._ranks > 1:
            everything = self.accelerator.reduce(everything, "sum")
        return everything.requires_grad_()
