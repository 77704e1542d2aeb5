"""Values and their intervals as small pictures in the cells of a table, all of a column on one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, el
from results.boards.matrix import Matrix

MEAN = "mean"
"""The means' key among the axes of a matrix."""
_DIGITS = 3
"""Of a place on an axis of 0 to 1: a thousandth of a column's width cannot be seen."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From the lowest end of any interval to the highest: places of points are compared, not lengths of bars, so that
    the axis need not begin at 0."""

    low: float
    high: float

    def whisker(self, value: float, half: float, *, best: bool = False) -> Node | None:
        """A dot at the value on a line as long as its interval; None where there is no interval.

        Args:
            value, half: Mean, and half its interval.
            best: Whether it stands out, as what may be the best does.
        """
        if formats.missing(value) or formats.missing(half):
            return None
        positions = {"low": self.position(value - half), "high": self.position(value + half), "value": self.position(value)}
        return el("span", cls="whisker leading" if best else "whisker", numbers=positions)

    def position(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        return round(min(max((value - self.low) / (self.high - self.low), 0.0), 1.0), _DIGITS)


def axis(estimates: Iterable[tuple[float, float]]) -> Axis | None:
    """The axis on which all of a column's intervals have room; None where there is nothing to tell apart.

    Args:
        estimates: Value and half its interval, NaN where there is none.
    """
    ends = [
        end for value, half in estimates if not (formats.missing(value) or formats.missing(half)) for end in (value - half, value + half)
    ]
    return Axis(min(ends), max(ends)) if ends and min(ends) < max(ends) else None


def axes(board: Matrix) -> dict[str, Axis]:
    """Axes of the columns whose values may be compared, by their keys, and of the means by `MEAN`; the same on every
    page of a long table. Controls are left out: what sees the gold would leave no room for the others."""
    rows = [row for row in board.rows if not row.control]
    results: dict[str, Axis | None] = {}
    for column in board.columns:
        cells = [cell for row in rows if (cell := board.cells.get((row.key, column.key))) and not cell.apart]
        results[column.key] = axis((cell.value, cell.half) for cell in cells) if column.ranked else None
    means = [mean for row in rows if (mean := board.mean(row)) is not None]
    results[MEAN] = axis((mean.value, mean.half) for mean in means)
    return {key: item for key, item in results.items() if item is not None}
