"""Values and their intervals as small pictures in the cells of a table, all of a column on one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, el
from results.boards.matrix import Matrix

MEAN = "mean"
"""Key of the means among the axes of a matrix."""
_DIGITS = 3
"""Digits of a position on an axis from 0 to 1; a thousandth of a column's width is invisible."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of the small interval plots in a table column, from the lowest to the highest end of any interval (not always from 0)."""

    low: float
    high: float

    def whisker(self, value: float, low: float, high: float, *, best: bool = False) -> Node | None:
        """Draw a small interval plot: a dot at the value on a line as long as its interval; None without an interval."""
        numbers = {"low": low, "high": high, "value": value}
        if any(map(formats.missing, numbers.values())):
            return None
        shares = {name: min(max((number - self.low) / (self.high - self.low), 0.0), 1.0) for name, number in numbers.items()}
        rounded = {name: round(share, _DIGITS) for name, share in shares.items()}
        return el("span", cls="whisker leading" if best else "whisker", numbers=rounded)


def axis(intervals: Iterable[tuple[float, float]]) -> Axis | None:
    """Make an axis that fits all (low, high) intervals of a column, NaN left out; None if all values are equal."""
    ends = [end for low, high in intervals if not (formats.missing(low) or formats.missing(high)) for end in (low, high)]
    return Axis(min(ends), max(ends)) if ends and min(ends) < max(ends) else None


def axes(board: Matrix) -> dict[str, Axis]:
    """Make the axes of all ranked columns, by key, and of the means (`MEAN`); without controls, which would compress the others."""
    rows = [row for row in board.rows if not row.control]
    results: dict[str, Axis | None] = {}
    for column in board.columns:
        cells = [cell for row in rows if (cell := board.cells.get((row.key, column.key))) and not cell.apart]
        results[column.key] = axis((cell.low, cell.high) for cell in cells) if column.ranked else None
    means = [mean for row in rows if (mean := board.mean(row)) is not None]
    results[MEAN] = axis((mean.low, mean.high) for mean in means)
    return {key: item for key, item in results.items() if item is not None}
