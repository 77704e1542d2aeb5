"""Embeddings of the tokens that the base does not have: M learnt memory tokens, and two marks that stay as drawn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from methods.clara.base import Tokens

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

    def __init__(self, embeddings: Any, tokens: Tokens, init: str, seed: int) -> None:
        super().__init__()
        self._first, self._count = tokens.first, tokens.count
        rows = _drawn(embeddings.weight, tokens.count + 2, 1.0 if init == "spread" else SMALL, seed)
        self.memory = nn.Parameter(rows[: tokens.count].clone(), requires_grad=False)
        self.register_buffer("marks", rows[tokens.count :].clone())
        # A tuple keeps the base out of this module's own parameters.
        self._embeddings = (embeddings,)

    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings of ids, new ones included: int64 [..., n] to [..., n, h] in the base's precision."""
        new = ids >= self._first
        vectors = self._embeddings[0](ids.masked_fill(new, 0))
        rows = torch.cat([self.memory, self.marks]).to(vectors.dtype)
        return vectors.masked_scatter(new.unsqueeze(-1), rows[ids[new] - self._first])

    def slots(self, ids: Tensor) -> Tensor:
        """Where memory tokens stand: bool, of the ids' shape."""
        return (ids >= self._first) & (ids < self._first + self._count)


def _drawn(weight: Tensor, count: int, spread: float, seed: int) -> Tensor:
    """Rows of a normal distribution fitted to the base's, its standard deviation scaled: float32 [count, h]."""
    table = weight.detach().float()
    mean = table.mean(0)
    generator = torch.Generator("cpu").manual_seed(seed)
    # Random sums of centred rows have the rows' covariance, without a matrix of h x h to factorise.
    draws = torch.randn(count, len(table), generator=generator).to(table.device)
    return mean + spread * (draws @ (table - mean)) / len(table) ** 0.5
