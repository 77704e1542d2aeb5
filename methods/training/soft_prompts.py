"""Frozen base language model for soft prompts, with added tokens for document boundaries and memory.

The base's embeddings are never changed: the embeddings of added tokens are separate (`MemoryRows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.core.errors import UserError
from methods.models.pretrained import device_of, load_pretrained
from methods.models.remote_code import check_remote_code, remote_code_refused

PREFIX = "<|clara_"
BEGIN, BETWEEN = f"{PREFIX}document|>", f"{PREFIX}separator|>"
"""Token before a document, and token after each document's memory in a prompt."""


def harmless(text: str) -> str:
    """Escape a text so that names of added tokens in it are not parsed as these tokens."""
    return text.replace(PREFIX, f"< {PREFIX[1:]}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens added to a tokenizer.

    Attributes:
        memory: Text of all memory tokens, as inserted into a prompt.
        first: Id of the first memory token, followed by the others, `begin` and `between`.
        count: Number of memory tokens (M).
    """

    memory: str
    first: int
    count: int

    @property
    def begin(self) -> int:
        """Return the id of the token before a document."""
        return self.first + self.count

    @property
    def between(self) -> int:
        """Return the id of the token after a memory in a prompt."""
        return self.first + self.count + 1


def load_base(
    base: str, revision: str | None, dtype: str | None, max_length: int, memory_tokens: int, device: str | None
) -> tuple[Any, Any]:
    """Load a base model and its tokenizer, frozen and in evaluation mode.

    Args:
        base: Folder or hub id of a causal language model.
        revision: Revision of a hub id.
        dtype: Data type of its weights; None for the default of `load_pretrained`.
        max_length: Maximum document length in tokens.
        memory_tokens: Memory tokens per document (M).
        device: Device; None chooses one.

    Raises:
        UserError: The model cannot be loaded, needs remote code, or its context is too short for a document and its memory.
    """
    check_remote_code(base, False)
    with remote_code_refused(base):
        tokenizer, model = load_pretrained("language model", "AutoModelForCausalLM", base, revision, dtype, device_of(device), own=True)
    model.requires_grad_(False)
    length = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = max_length + memory_tokens + 3
    if length is not None and needed > length:
        raise UserError(
            f"{base!r} reads {length} tokens; a document of {max_length} with its memory takes {needed}",
            code="document-too-long",
            where="max_length",
            try_this="a lower max_length",
        )
    return tokenizer, model


def add_tokens(tokenizer: Any, count: int) -> Tokens:
    """Add memory and boundary tokens to a tokenizer.

    Args:
        tokenizer: Tokenizer of the base; it is modified.
        count: Number of memory tokens (M).
    """
    from tokenizers import AddedToken

    memory = [f"{PREFIX}memory_{number}|>" for number in range(count)]
    names = [*memory, BEGIN, BETWEEN]
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in names], special_tokens=True)
    ids = tokenizer.convert_tokens_to_ids(names)
    if ids != list(range(ids[0], ids[0] + len(names))):
        raise UserError(
            "the tokenizer already has tokens of CLaRa", code="tokenizer-of-clara", where="base", try_this="the base without them"
        )
    return Tokens("".join(memory), ids[0], count)


def decoder_of(model: Any) -> nn.Module:
    """Return a causal language model without its output layer; its last hidden states are those after the final norm."""
    decoder = model.get_decoder()
    if decoder is None or decoder is model:
        raise UserError(
            f"{type(model).__name__} has no decoder that can be used without the output layer",
            code="hidden-layers",
            where="base",
            try_this="a causal language model of transformers",
        )
    return decoder


SMALL = 1e-9**0.5
"""Fraction of the embeddings' standard deviation with which `resize_token_embeddings` initializes new rows."""


class MemoryRows(nn.Module):
    """Embeddings of the added tokens, and a combined embedding of old and new ids.

    Attributes:
        memory: Parameter [M, h]: one row per memory token.
        marks: Buffer [2, h]: the tokens before a document and after a memory.

    Args:
        embeddings: The base's input embeddings: a module from ids to vectors.
        tokens: The new tokens.
        init: Initialization around the mean of the base's embeddings: `mean` with almost no variance (as
            `resize_token_embeddings` does), `spread` with their full variance.
        seed: Random seed.
    """

    marks: Tensor

    def __init__(self, embeddings: nn.Embedding, tokens: Tokens, init: str, seed: int) -> None:
        super().__init__()
        self._first, self._count = tokens.first, tokens.count
        rows = drawn(embeddings.weight, tokens.count + 2, 1.0 if init == "spread" else SMALL, seed)
        self.memory = nn.Parameter(rows[: tokens.count].clone(), requires_grad=False)
        self.register_buffer("marks", rows[tokens.count :].clone())
        # A tuple keeps the base out of this module's own parameters.
        self._embeddings = (embeddings,)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed ids, including added tokens: int64 [..., n] to [..., n, h] in the base's precision."""
        new = ids >= self._first
        vectors = self._embeddings[0](ids.masked_fill(new, 0))
        rows = torch.cat([self.memory, self.marks]).to(vectors.dtype)
        return vectors.masked_scatter(new.unsqueeze(-1), rows[ids[new] - self._first])

    def slots(self, ids: Tensor) -> Tensor:
        """Return a boolean mask of memory tokens, in the shape of `ids`."""
        return (ids >= self._first) & (ids < self._first + self._count)


def drawn(weight: Tensor, count: int, spread: float, seed: int) -> Tensor:
    """Sample rows from a normal distribution fitted to the base's embeddings, with scaled standard deviation: float32 [count,
    h].
    """
    table = weight.detach().float()
    mean = table.mean(0)
    generator = torch.Generator("cpu").manual_seed(seed)
    # Random sums of centered rows have the rows' covariance, without a matrix of h x h to factorize.
    draws = torch.randn(count, len(table), generator=generator).to(table.device)
    return mean + spread * (draws @ (table - mean)) / len(table) ** 0.5
