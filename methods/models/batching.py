"""Batches of like length under a budget of tokens: memory is bounded by tokens, not by a number of rows."""

from __future__ import annotations

from collections.abc import Sequence

UNBOUNDED = 1 << 62
"""A budget that never binds, where rows alone are counted."""


def by_length(lengths: Sequence[int], budget: int, rows: int | None = None, fixed: int = 0) -> list[list[int]]:
    """Partition items into batches whose padded size stays within a budget.

    Items are taken from the longest to the shortest (ties in order), so that padding is small and a shortage of
    memory shows at once. A batch of r rows whose longest is w tokens costs r · (fixed + w).

    Args:
        lengths: Tokens of each item.
        budget: Tokens per batch, padding included; an item longer than that gets a batch of its own.
        rows: Most rows per batch; None: as many as the budget holds.
        fixed: Tokens that every row costs besides its own, such as a shared prefix.

    Returns:
        Batches of places in `lengths`; each place is in exactly one batch.
    """
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    batches: list[list[int]] = []
    room = 0
    for place in order:
        if room == 0:
            batches.append([])
            # The first of a batch is its longest, so it decides how many fit.
            room = max(1, budget // max(1, fixed + lengths[place]))
            room = room if rows is None else min(room, rows)
        batches[-1].append(place)
        room -= 1
    return batches
