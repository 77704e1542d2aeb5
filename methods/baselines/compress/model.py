"""Model of a soft compressor: the base that answers, its adapters, optionally a separate encoder, and other trained tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage
from methods.baselines.compress.soft import CARD, ENCODER, LANGUAGE_MODEL, LAYOUT, WEIGHTS, System, require_checkpoint
from methods.models.causal import QUIET, Generation, chat_text
from methods.models.formats import own_format
from methods.models.likelihood import CPU_TOKENS, GPU_TOKENS, TextEncoder
from methods.models.pretrained import device_of, load_pretrained
from methods.models.remote_code import check_remote_code, remote_code_refused
from methods.models.weights import weights_hash
from methods.prompts import Prompt, plain_ids, whole_ids
from methods.readers.prompts import PROMPTS, numbered
from methods.training.adapters import MARK as LORA
from methods.training.adapters import Adapters
from methods.training.pieces import Piece, Taught, last_states, size, taught_together, write
from methods.training.soft_prompts import SMALL, decoder_of, drawn
from methods.training.stages import write_json

PLACE = "<|passage_memory|>"
"""Placeholder for a passage's memory in a prompt's text."""


class SoftModel(nn.Module):
    """A soft compressor for inference and training. The constructor creates an untrained one; `load` loads a checkpoint.

    Args:
        system: The system and its options.
        device: Device; None chooses one.
        folder: Checkpoint whose fully trained models replace the published ones.
        seed: Random seed for initialization.

    Attributes:
        tokenizer: The base's tokenizer with `PLACE` added; `plain_tokenizer` is without it.
        encoder, encoder_tokenizer: Separate encoder, if it is not the base.
        parts: Other trained modules.
        width: Width of a vector (h).
        nothing: The memory of an empty passage: [0, h].
        budget: Maximum positions per batch.
        room: Maximum tokens of prompt and answer.
        begin: Special tokens that the tokenizer puts before a text.
        bos: Beginning-of-text token, if the base has one, whether or not it is in `begin`.
        end: The token that ends a reply.
        hash: Hash of everything that determines a passage's vectors; only for loaded checkpoints.

    Raises:
        UserError: A model cannot be loaded or needs remote code, or the base has no end-of-sequence token.
    """

    hash = ""

    def __init__(self, system: System, device: str | None = None, folder: Path | None = None, seed: int = 0) -> None:
        super().__init__()
        self.system, self.config, self.seed = system, system.config, seed

        def load(name: str, kind: str, source: str, revision: str | None) -> tuple[Any, Any]:
            own = folder / name if folder is not None else None
            source, revision = (str(own), None) if own is not None and own.is_dir() else (source, revision)
            check_remote_code(source, False)
            with remote_code_refused(source):
                words, model = load_pretrained(
                    name.replace("_", " "), kind, source, revision, self.config.dtype, device_of(device), own=True
                )
            model.requires_grad_(False)
            return words, model

        self.tokenizer, base = load(LANGUAGE_MODEL, "AutoModelForCausalLM", self.config.base, self.config.revision)
        self.plain_tokenizer = deepcopy(self.tokenizer)
        self.tokenizer.add_tokens([AddedToken(PLACE, special=True, normalized=False)], special_tokens=True)
        if self.tokenizer.eos_token_id is None:
            raise UserError(
                "the base has no end-of-sequence token", code="missing-end-token", where="base", try_this="a base with an eos token"
            )
        # A tuple keeps it from being counted twice: the adapters' model holds it.
        self._base = (base,)
        self.adapters = Adapters(base, self.config.lora, system.adapters, seed, self.config.base) if system.adapters else None
        self.language_model = self.adapters.model if self.adapters else base
        weight = base.get_input_embeddings().weight.detach()
        self.device, self.width = weight.device, int(weight.shape[1])
        if system.encoder is not None:
            self.encoder_tokenizer, self.encoder = load(ENCODER, *system.encoder, None)
        self._words = TextEncoder(self.tokenizer)
        self.begin, self.end = self._words.before, int(self.tokenizer.eos_token_id)
        self.bos = [] if self.tokenizer.bos_token_id is None else [self.tokenizer.bos_token_id]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.parts = nn.ModuleDict(system.parts(self)).to(self.device).requires_grad_(False)
        self.nothing = torch.zeros(0, self.width, device=self.device)
        self.budget = CPU_TOKENS if self.device.type == "cpu" else GPU_TOKENS
        positions = getattr(base.config.get_text_config(), "max_position_embeddings", None)
        self.room = min(self.config.max_prompt, positions or self.config.max_prompt)
        self._own = own_format(self.config.base, self.config.template)
        self._length = float(weight.float().norm(dim=-1).mean()) if self.config.memory_length == "embedding" else None
        self.eval()

    @property
    def base(self) -> Any:
        """Return the causal language model that answers, including adapters."""
        return self._base[0]

    def new_rows(self, count: int, embeddings: nn.Embedding | None = None, draw: int = 0) -> nn.Embedding:
        """Create new embedding rows distributed like those of an embedding (default: the base's), for `System.parts`."""
        weight = (embeddings or self.base.get_input_embeddings()).weight
        made = nn.Embedding(count, weight.shape[1])
        made.weight.data.copy_(drawn(weight, count, 1.0 if self.config.memory_init == "spread" else SMALL, self.seed + draw))
        return made

    def part(self, name: str) -> Tensor:
        """Return the rows of a trained part by name."""
        rows: Tensor = self.parts[name].weight
        return rows

    def mark(self, which: int) -> Tensor:
        """Return one row of `marks`, [1, h]."""
        return self.part("marks")[which : which + 1]

    def turn_text(self, text: str) -> str:
        """Format a passage as this base model reads passages."""
        return self._own.document(text) if self._own else text

    def ids(self, text: str, tokenizer: Any = None) -> list[int]:
        """Tokenize a passage (with the base's tokenizer by default); [] if it is empty."""
        return plain_ids(tokenizer or self.tokenizer, self.turn_text(text)) if text.strip() else []

    def prompt(self, question: str, blocks: Sequence[Sequence[Piece]]) -> list[Piece]:
        """Build the prompt for a question, with one block of pieces per passage."""
        return self.filled(self._asking(question, [PLACE] * len(blocks)), blocks)

    def prompt_of_text(self, question: str, texts: Sequence[str]) -> list[Piece]:
        """Build the prompt with passages as text, for the uncompressed baseline and for teachers."""
        return self.filled(self._asking(question, [_harmless(text) for text in texts]), [])

    def message(self, text: str, blocks: Sequence[Sequence[Piece]]) -> list[Piece]:
        """Build a user message with a block in place of each `PLACE`."""
        chat = text if self._own or self.config.template == "plain" else chat_text(self.tokenizer, [{"role": "user", "content": text}])
        return self.filled(chat, blocks)

    def _asking(self, question: str, passages: Sequence[str]) -> str:
        question = _harmless(question)
        if self._own:
            shown = [passage if passage == PLACE else self.turn_text(passage) for passage in passages]
            return self._own.numbered(shown) + self._own.asking(question)
        template = PROMPTS["passages" if passages else "closed_book"].load()
        system, user = template.pair(question=question, passages=numbered([Passage("", "", item) for item in passages]))
        if self.config.template == "plain":
            return f"{system}\n\n{user}\n\nReply:"
        return chat_text(self.tokenizer, [{"role": "system", "content": system}, {"role": "user", "content": user}])

    def asked(self, prompt: Prompt, question: str, blocks: Sequence[Sequence[Piece]]) -> list[Piece]:
        """Build the prompt for a question from a template, with one block per passage in place of `$passages`.

        Raises:
            UserError: The base supports only its own format, or its chat template changes the input.
        """
        if self._own:
            raise UserError(
                "the base supports only one prompt format", code="prompt-of-one-format", where="option prompt", try_this="prompt: ours"
            )
        options = prompt.options
        values = {"passages": options.memories.join([PLACE] * len(blocks)), "question": _harmless(question)}
        values["bos"] = self.tokenizer.bos_token or ""
        if prompt.parts[0].role == "text":
            texts = [part.fill(values) for part in prompt.parts]
        elif self.config.template == "plain":
            texts = ["\n\n".join([*(message["content"] for message in prompt.messages(**values)), "Reply:"])]
        else:
            texts = [chat_text(self.tokenizer, prompt.messages(**values), QUIET, options.joined)]
        return self._with_blocks(whole_ids(self.tokenizer, texts, options.bos), blocks)

    def filled(self, text: str, blocks: Sequence[Sequence[Piece]]) -> list[Piece]:
        """Split a text at each `PLACE` and insert the blocks."""
        (ids,) = self._words.prompts([text])
        return self._with_blocks(ids, blocks)

    def _with_blocks(self, ids: Sequence[int], blocks: Sequence[Sequence[Piece]]) -> list[Piece]:
        place = self.tokenizer.convert_tokens_to_ids(PLACE)
        positions = [at for at, identifier in enumerate(ids) if identifier == place]
        if len(positions) != len(blocks):
            raise UserError(
                f"a prompt has {len(positions)} places for memory, but {len(blocks)} are expected",
                code="memory-place-mismatch",
                where="template",
                try_this="template: plain, because this base's chat template changes its input",
            )
        pieces: list[Piece] = []
        for start, end, block in zip([0, *(at + 1 for at in positions)], [*positions, len(ids)], [*blocks, []], strict=True):
            pieces += [list(ids[start:end]), *block]
        return [piece for piece in pieces if len(piece)]

    def reply(self, text: str) -> list[int]:
        """Return a reply's token ids, including the end token."""
        chats = not self._own and self.config.template != "plain" and getattr(self.tokenizer, "chat_template", None)
        return [*self._words.target(text if chats else f" {text}"), self.end]

    def fits(self, prompt: Sequence[Piece], reply: int) -> bool:
        """Return whether a prompt leaves room for a reply of this many tokens."""
        return size(prompt) + reply <= self.room

    def through(self, adapter: str | None) -> AbstractContextManager[None]:
        """Context manager in which the base uses one adapter, or none (None)."""
        return self.adapters.use(adapter) if self.adapters else nullcontext()

    def encode(self, texts: Sequence[str], queries: Sequence[str] | None = None) -> list[Tensor]:
        """Encode passages to memory as used in prompts, float32 [m, h] each."""
        return [self.placed(item) for item in self.raw(texts, queries)]

    def placed(self, memory: Tensor) -> Tensor:
        """Rescale memory vectors to the norm used in prompts; see `SoftConfig.memory_length`."""
        return memory if self._length is None else functional.normalize(memory, dim=-1) * self._length

    def raw(self, texts: Sequence[str], queries: Sequence[str] | None = None) -> list[Tensor]:
        """Encode passages with `System.encode`; equal texts are encoded once."""
        keys = list(zip(texts, queries if queries is not None and self.system.queried else [""] * len(texts), strict=True))
        first = list(dict.fromkeys(keys))
        made = self.system.encode(self, [text for text, _ in first], [query for _, query in first]) if first else []
        known = dict(zip(first, made, strict=True))
        return [known[key] for key in keys]

    def states(self, rows: Sequence[Sequence[Piece]], count: int, adapter: str | None = None, model: Any = None) -> Tensor:
        """Return the hidden states at the last `count` positions of rows, from the base or a causal encoder: float32 [N, count,
        h].
        """
        chosen = model or self.base
        embeddings, spread = chosen.get_input_embeddings(), self.config.positions == "spread"
        if not rows:
            return torch.zeros(0, count, embeddings.weight.shape[1], device=self.device)
        with self.through(adapter):
            return last_states(decoder_of(chosen), embeddings, rows, count, self.budget, spread)

    def joined(self, parts: Sequence[Sequence[Any]], vectors: Iterable[Tensor]) -> list[Tensor]:
        """Concatenate the vectors of each passage's segments: [m, h] per passage."""
        vectors = iter(vectors)
        return [torch.cat([next(vectors) for _ in own]) if own else self.nothing for own in parts]

    def taught(
        self, prompts: Sequence[Sequence[Sequence[Piece]]], replies: Sequence[Sequence[Sequence[int]]], adapter: str | None
    ) -> Taught:
        """Compute logits at the tokens of replies to each example's prompts, with an adapter."""
        with self.through(adapter):
            return taught_together(self.base, prompts, replies)

    def generate(self, prompts: Sequence[Sequence[Piece]], max_new_tokens: int, batch_size: int, adapter: str | None) -> list[Generation]:
        """Generate replies greedily with an adapter."""
        pad = self.tokenizer.pad_token_id
        with self.through(adapter):
            return write(self.base, self.tokenizer, prompts, [self.end], 0 if pad is None else pad, max_new_tokens, batch_size)

    def set_trainable(self, wanted: set[str]) -> None:
        """Make exactly these parts trainable and freeze everything else; see `System.trained`."""
        for name, parameter in self.named_parameters():
            adapter = name.partition(LORA)[2]
            opened = any(f".{item}." in adapter for item in wanted) if adapter else any(name.startswith(f"{item}.") for item in wanted)
            parameter.requires_grad_(opened)

    def _kept(self) -> dict[str, Tensor]:
        return {name: item for name, item in self.state_dict().items() if name.startswith("parts.") or LORA in name}

    def save(self, folder: Path) -> None:
        """Write the checkpoint; equal models produce identical files."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: item.detach().cpu().contiguous() for name, item in self._kept().items()}, str(folder / WEIGHTS))
        whole = self.system.whole
        for name in whole:
            model, words = (self.base, self.plain_tokenizer) if name == LANGUAGE_MODEL else (self.encoder, self.encoder_tokenizer)
            if hasattr(words, "legacy"):  # transformers does not write it
                words.init_kwargs["legacy"] = words.legacy
            model.save_pretrained(folder / name)
            words.save_pretrained(folder / name)
        hashes = {name: None if name in whole else weights_hash(*item) for name, item in self.system.models.items()}
        card = {"layout": LAYOUT, "system": self.system.name, "config": self.config.model_dump(mode="json"), "models": hashes}
        write_json(folder / CARD, card)

    @classmethod
    def load(cls, folder: Path, device: str | None = None, dtype: str | None = None) -> SoftModel:
        """Load a checkpoint with all parameters frozen.

        Raises:
            UserError: The folder is not a checkpoint or is damaged, or a base model is not the one it was trained on.
        """
        folder, system = require_checkpoint(str(folder), where="model")
        if dtype is not None:
            system.config = system.config.model_copy(update={"dtype": dtype})
        model, path = cls(system, device, folder), str(folder / WEIGHTS)
        try:
            tensors = load_file(path, device=str(model.device))
        except Exception as error:
            raise UserError(f"a file cannot be read: {error}", code="unreadable-file", where=path, try_this="its original files") from error
        model.take(tensors, path)
        model.hash = fingerprint(weights_hash(str(folder)), str(model.base.dtype))
        return model

    def take(self, tensors: dict[str, Tensor], where: str) -> None:
        """Load the checkpoint's tensors by name.

        Raises:
            UserError: A tensor is missing, unexpected, or has another shape.
        """
        own = self._kept()
        present, wanted = ({name: tuple(item.shape) for name, item in some.items()} for some in (tensors, own))
        if present != wanted:
            name = min(name for name in present.keys() | wanted.keys() if present.get(name) != wanted.get(name))
            raise UserError(
                f"{name} is {present.get(name) or 'missing'}, but the model expects {wanted.get(name) or 'none'}",
                code="model-option-mismatch",
                where=where,
                try_this="its own base",
            )
        with torch.no_grad():
            for name, item in own.items():
                item.copy_(tensors[name])


def _harmless(text: str) -> str:
    """Escape a text so that it does not contain the placeholder `PLACE`."""
    return text.replace(PLACE, PLACE.replace("|", " "))
