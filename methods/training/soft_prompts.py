"""The frozen language model below the adapters, with the tokens that mark documents and memory in its tokenizer.

The base's own embeddings are left as they are: the new tokens' rows are kept apart (below), so the base is
byte for byte the published one, before and after training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.core.errors import UserError
from methods.models.weights import check_remote_code, device_of, load_pretrained, remote_code_refused

PREFIX = "<|clara_"
BEGIN, BETWEEN = f"{PREFIX}document|>", f"{PREFIX}separator|>"
"""Token before a document, and token after each memory in a prompt."""


def harmless(text: str) -> str:
    """Return a text of others in which no name of a new token is read as the token."""
    return text.replace(PREFIX, f"< {PREFIX[1:]}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The new tokens.

    Attributes:
        memory: Text of the memory tokens one after another, as it is in a prompt.
        first: Id of the first memory token; the others follow it, then `begin` and `between`.
        count: Memory tokens (M).
    """

    memory: str
    first: int
    count: int

    @property
    def begin(self) -> int:
        """Return id of the token that a document begins with."""
        return self.first + self.count

    @property
    def between(self) -> int:
        """Return id of the token that follows a memory in a prompt."""
        return self.first + self.count + 1


def load_base(
    base: str, revision: str | None, dtype: str | None, max_length: int, memory_tokens: int, device: str | None
) -> tuple[Any, Any]:
    """Return tokenizer and model; all weights frozen, in evaluation mode.

    Args:
        base: A causal language model: a folder or hub id.
        revision: Of a hub id.
        dtype: Of its weights; None: as `load_pretrained` has it.
        max_length: Longest document in tokens.
        memory_tokens: Memory tokens of a document (M).
        device: Where it runs; None: the best there is.

    Raises:
        UserError: It cannot be loaded, needs code of its own, or has no room for a document and its memory.
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
    """Add the new tokens behind the tokenizer's own.

    Args:
        tokenizer: Of the base; it is changed.
        count: Memory tokens (M).
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
    """Return the part of a causal language model below its output layer; its last states are those after the final norm."""
    decoder = model.get_decoder()
    if decoder is None or decoder is model:
        raise UserError(
            f"a {type(model).__name__} does not show its layers apart from its output",
            code="hidden-layers",
            where="base",
            try_this="a causal language model of transformers",
        )
    return decoder


SMALL = 1e-9**0.5
"""Part of the spread of embeddings that `resize_token_embeddings` gives new rows."""


class MemoryRows(nn.Module):
    """The rows, and the embedding of ids with them.

    Attributes:
        memory: Parameter [M, h]: one row per memory token.
        marks: Buffer [2, h]: what a document begins with, and what follows a memory in a prompt.

    Args:
        embeddings: The base's input embeddings: a module from ids to vectors.
        tokens: The new tokens.
        init: mean: all rows begin at the mean of the base's, with a trace of their spread (what
            `resize_token_embeddings` does); spread: with all of it.
        seed: Decides the draw.
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
        """Return embeddings of ids, new ones included: int64 [..., n] to [..., n, h] in the base's precision."""
        new = ids >= self._first
        vectors = self._embeddings[0](ids.masked_fill(new, 0))
        rows = torch.cat([self.memory, self.marks]).to(vectors.dtype)
        return vectors.masked_scatter(new.unsqueeze(-1), rows[ids[new] - self._first])

    def slots(self, ids: Tensor) -> Tensor:
        """Return the mask of memory tokens: bool, in the ids' shape."""
        return (ids >= self._first) & (ids < self._first + self._count)


def drawn(weight: Tensor, count: int, spread: float, seed: int) -> Tensor:
    """Return rows of a normal distribution fitted to the base's, its standard deviation scaled: float32 [count, h]."""
    table = weight.detach().float()
    mean = table.mean(0)
    generator = torch.Generator("cpu").manual_seed(seed)
    # Random sums of centered rows have the rows' covariance, without a matrix of h x h to factorize.
    draws = torch.randn(count, len(table), generator=generator).to(table.device)
    return mean + spread * (draws @ (table - mean)) / len(table) ** 0.5
