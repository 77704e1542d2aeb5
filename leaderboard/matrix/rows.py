"""Which rows of a matrix are drawn, in which order: sorting, pinning, hiding, searching, a page of so many rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from leaderboard.matrix.filters import matches
from results.contestants import Contestant
from results.matrix import Matrix

PAGE = 25
"""Rows drawn at a time; a browser lays out a hundred methods × twenty datasets too slowly."""
FIXED = ("method", "mean", "tokens", "seconds", "cost", "parameters")


@dataclass(frozen=True, slots=True)
class Order:
    """By which column rows are sorted: a column's key or one of `FIXED`."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class Drawn:
    """The rows to draw.

    Attributes:
        pinned: First, in the order in which they were pinned.
        rows: Of this page, sorted.
        controls: Below, on every page.
        first: Place of the page's first row among all that match.
        total: Rows that match, pinned ones and controls not counted.
        hidden_keys: Of the rows that were hidden by hand.
    """

    pinned: tuple[Contestant, ...]
    rows: tuple[Contestant, ...]
    controls: tuple[Contestant, ...]
    first: int
    total: int
    hidden_keys: tuple[str, ...]


def sort_columns(board: Matrix) -> list[str]:
    """What a matrix can be sorted by."""
    return [*FIXED, *(column.key for column in board.columns)]


def default_order(board: Matrix) -> Order:
    """By the mean where rows have one, else by the first column that has values; the best first."""
    if any(board.mean(row) is not None for row in board.rows):
        return Order("mean", _best_first(board, "mean"))
    first = next((column.key for column in board.columns if any((row.key, column.key) in board.cells for row in board.rows)), "method")
    return Order(first, _best_first(board, first))


def _best_first(board: Matrix, column: str) -> bool:
    """Whether the best comes first when a column's values descend."""
    if column == "mean":
        return bool(board.columns) and board.columns[0].higher_is_better
    return any(one.key == column and one.higher_is_better for one in board.columns)


def first_direction(board: Matrix, column: str) -> str:
    """How a column is sorted at its first click."""
    return "desc" if _best_first(board, column) else "asc"


def ordered(board: Matrix, order: Order) -> list[Contestant]:
    """All rows, methods before controls, those without a value last whichever way; what is not ranked after the rest.

    A value that must not be compared never stands among those that may.
    """
    key = _key(board, order.column)
    rows = []
    for control in (False, True):
        part = [(key(row), row) for row in board.rows if row.control is control]
        known = [(value, row) for value, row in part if value is not None and value == value]
        known.sort(key=lambda pair: pair[0], reverse=order.descending)
        known.sort(key=lambda pair: _apart(board, pair[1], order.column))
        rows += [row for _, row in known] + [row for value, row in part if value is None or value != value]
    return rows


def _apart(board: Matrix, row: Contestant, column: str) -> bool:
    cell = board.cells.get((row.key, column))
    return cell is not None and bool(cell.apart)


def _key(board: Matrix, column: str) -> Callable[[Contestant], str | float | None]:
    if column == "method":
        return lambda row: row.name.casefold()
    if column == "mean":
        return lambda row: found.value if (found := board.mean(row)) else None
    if column == "parameters":
        return lambda row: row.parameters
    if column in FIXED:
        return lambda row: cost_of(board, row, column)
    return lambda row: cell.value if (cell := board.cells.get((row.key, column))) else None


def cost_of(board: Matrix, row: Contestant, column: str) -> float | None:
    """Tokens or seconds per question, or US dollars in all."""
    cost = board.cost(row)
    if cost is None:
        return None
    found = {"tokens": cost.tokens, "seconds": cost.seconds, "cost": cost.cost_usd}[column]
    return None if math.isnan(found) else found


def drawn(board: Matrix, order: Order, pinned: Collection[str], hidden: Collection[str], words: str, first: int, page: int = PAGE) -> Drawn:
    """What is drawn of a matrix; nothing here changes a number.

    Args:
        board: All of it.
        order: The sorting.
        pinned: Keys of rows that stay on top, whatever is searched for.
        hidden: Keys of rows that are left out.
        words: Of the search.
        first: Place of the first row; the nearest page is drawn.
        page: Rows on a page.
    """
    rows = ordered(board, order)
    known = {row.key: row for row in rows}
    top = [known[key] for key in dict.fromkeys(pinned) if key in known]
    out = [key for key in dict.fromkeys(hidden) if key in known and key not in {row.key for row in top}]
    left = [row for row in rows if row not in top and row.key not in out and matches(row, words)]
    able = [row for row in left if not row.control]
    start = min(max(first, 0), max(len(able) - 1, 0)) // page * page
    return Drawn(tuple(top), tuple(able[start : start + page]), tuple(row for row in left if row.control), start, len(able), tuple(out))
