"""Several exchanges over one reading in one row: what their prompts share stands once, and each continues as if alone.

A row is `shared own_1 reply_1 own_2 reply_2 …`. An own part and its reply see what is shared and themselves, and their
positions count on from what is shared, so that each is read as if the others were not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.models.likelihood import padded

IMPLEMENTATIONS = ("sdpa", "eager")
"""Kinds of attention that take a mask of who sees whom."""
_PADDING = -1


@dataclass(frozen=True, slots=True)
class PackedRow:
    """A row in token ids.

    Attributes:
        ids: Tokens.
        labels: The replies' ids, -100 elsewhere.
        positions: Of each token, as if its exchange stood alone.
        block: 0 for what is shared, else the number of the exchange.
        shared: How many tokens are shared.
    """

    ids: list[int]
    labels: list[int]
    positions: list[int]
    block: list[int]
    shared: int


def row_of(prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> PackedRow:
    """Return exchanges over one reading as a row.

    Args:
        prompts: Token ids of each prompt. What all begin with is shared, but for at least the last token of each, from
            which its reply continues.
        replies: Token ids of each reply.
    """
    shared = min(map(len, prompts)) - 1
    for position, tokens in enumerate(zip(*prompts, strict=False)):
        if len({*tokens}) > 1:
            shared = min(shared, position)
            break
    row = PackedRow(list(prompts[0][:shared]), [-100] * shared, list(range(shared)), [0] * shared, shared)
    for number, (prompt, reply) in enumerate(zip(prompts, replies, strict=True), start=1):
        own = [*prompt[shared:], *reply]
        row.ids.extend(own)
        row.labels.extend([*([-100] * (len(prompt) - shared)), *reply])
        row.positions.extend(range(shared, shared + len(own)))
        row.block.extend([number] * len(own))
    return row


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of equal length, padded at their end.

    Attributes:
        ids, labels, positions: As of rows, int64 [B, n].
        seen: Who sees whom, bool [B, 1, n, n]: True where the second place is seen by the first.
    """

    ids: Tensor
    labels: Tensor
    positions: Tensor
    seen: Tensor


def batch_of(rows: Sequence[PackedRow], pad: int, device: torch.device | str) -> Batch:
    """Return rows together.

    Args:
        rows: At least one.
        pad: Token to fill up with.
        device: Where to put them.
    """

    def filled(values: Sequence[list[int]], fill: int) -> Tensor:
        return torch.tensor(padded(values, fill)[0], device=device)

    block = filled([row.block for row in rows], _PADDING)
    own = block[:, None, :] == block[:, :, None]
    seen = (own | (block[:, None, :] == 0)).tril()
    return Batch(
        filled([row.ids for row in rows], pad),
        filled([row.labels for row in rows], -100),
        filled([row.positions for row in rows], 0),
        seen[:, None],
    )
