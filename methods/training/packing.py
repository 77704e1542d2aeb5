"""Pack several prompts about the same documents into one row: the shared prefix is computed once, and each reply is
independent.

A row is `shared own_1 reply_1 own_2 reply_2 …`. An own part and its reply attend to the shared part and themselves, and their
positions continue from the shared part, so that each exchange is computed as if it were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.models.likelihood import padded

IMPLEMENTATIONS = ("sdpa", "eager")
"""Attention implementations that support custom masks."""
_PADDING = -1


@dataclass(frozen=True, slots=True)
class PackedRow:
    """A packed row of token ids.

    Attributes:
        ids: Tokens.
        labels: The replies' ids, -100 elsewhere.
        positions: Position of each token, as if its exchange were alone.
        block: 0 for the shared part, else the number of the exchange.
        shared: Number of shared tokens.
    """

    ids: list[int]
    labels: list[int]
    positions: list[int]
    block: list[int]
    shared: int


def row_of(prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> PackedRow:
    """Pack prompts with their replies into one row.

    Args:
        prompts: Token ids of each prompt. Their common prefix is shared, except for at least the last token of each.
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
    """Packed rows padded to equal length.

    Attributes:
        ids, labels, positions: As in `PackedRow`, int64 [B, n].
        seen: Attention mask, bool [B, 1, n, n]: True if position i attends to position j.
    """

    ids: Tensor
    labels: Tensor
    positions: Tensor
    seen: Tensor


def batch_of(rows: Sequence[PackedRow], pad: int, device: torch.device | str) -> Batch:
    """Pad packed rows to a batch.

    Args:
        rows: Packed rows, at least one.
        pad: Padding token.
        device: Device of the tensors.
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
