"""Quality against what it costs, off a board: who is on the Pareto front, and curves of compressors over their budgets.

What is *delivered* to a reader are its prompt tokens and the memory tokens (soft tokens) in place of text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from results.boards.board import Board, Row
from results.statistics.core import Estimate
from results.statistics.pareto import pareto_front
from results.store.queries import Cost

Axis = Literal["tokens", "delivered", "memory", "seconds", "cost"]
_KNOB = re.compile(r"[\s,:]*\(?(?:\d+(?:\.\d+)?\s*[x×]|(?:k|budget|rate|ratio|tokens)\s*=\s*[\d.]+)\)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UsageCost:
    """One run: what it is worth and what it takes.

    Attributes:
        row: Of the board.
        value: Of the metric.
        x: On the axis asked for, per question; NaN where it is not known.
        front: Whether no other finished method is at least as good and as cheap, and better in one. Controls and
            unfinished runs are on no front.
    """

    row: Row
    value: Estimate
    x: float
    front: bool


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """A point of a curve.

    Attributes:
        row: Of the board.
        value: Of the metric.
        delivered, memory: Mean tokens per question.
        ratio: How many times fewer tokens are delivered than by the run read in full; NaN where there is none.
    """

    row: Row
    value: Estimate
    delivered: float
    memory: float
    ratio: float


@dataclass(frozen=True, slots=True)
class BudgetCurve:
    """Runs that differ in their budget alone, fewest delivered tokens first."""

    name: str
    points: tuple[BudgetPoint, ...]


def spent(row: Row, axis: Axis, questions: int) -> float:
    """Return what a run costs per question; NaN if it was not measured.

    Args:
        row: The run.
        axis: tokens (all), delivered, memory (tokens), seconds, or cost (US dollars).
        questions: Answered; the cost is stored as a sum.
    """
    cost = row.cost
    if cost is None:
        return math.nan
    ways: dict[Axis, Callable[[Cost], float]] = {
        "tokens": lambda item: item.tokens,
        "delivered": lambda item: item.delivered,
        "memory": lambda item: item.memory_tokens,
        "seconds": lambda item: item.seconds,
        "cost": lambda item: item.cost_usd / questions if questions else math.nan,
    }
    return float(ways[axis](cost))


def informative_axis(board: Board) -> Axis:
    """Tokens, where methods differ in them; else time: retrievers alone spend no tokens."""
    tokens = {spent(row, "tokens", row.run.done) for row in board.rows if not row.control and row.cost is not None}
    return "tokens" if len({token for token in tokens if not math.isnan(token)}) > 1 else "seconds"


def quality_budget(board: Board, metric: str, axis: Axis, *, higher_is_better: bool = True) -> list[UsageCost]:
    """Runs with their quality and cost, cheapest first, and which of them are on the Pareto front.

    Args:
        board: Its rows.
        metric: What quality is.
        axis: What cost is.
        higher_is_better: The metric's direction.
    """
    results = [
        (row, row.cells[metric].estimate, spent(row, axis, row.run.done))
        for row in board.rows
        if metric in row.cells and not math.isnan(row.cells[metric].estimate.value)
    ]
    sign = 1.0 if higher_is_better else -1.0
    able = np.array([not row.cells[metric].apart for row, _, _ in results], dtype=bool)
    quality = np.where(able, [sign * value.value for _, value, _ in results], np.nan)
    front = pareto_front(quality, [x for _, _, x in results]) if results else ()
    rows = [UsageCost(row, value, x, bool(on)) for (row, value, x), on in zip(results, front, strict=True)]
    return sorted(rows, key=lambda item: (math.isnan(item.x), item.x))


def _rankable(row: Row) -> bool:
    return not row.control and row.run.status == "finished"


def read_in_full(board: Board) -> Row | None:
    """The run that delivers the most tokens without a compressor: what compression is measured against."""
    plain = [row for row in board.rows if _rankable(row) and not _compresses(row) and spent(row, "delivered", 1) > 0]
    return max(plain, key=lambda row: spent(row, "delivered", 1), default=None)


def _compresses(row: Row) -> bool:
    return bool(row.run.description.get("compressor")) or bool(row.cost and row.cost.memory_tokens > 0)


def budget_curves(board: Board, metric: str, full: str | None = None) -> list[BudgetCurve]:
    """Curves of the runs whose reader is handed tokens: those of one name but for a ratio or budget at its end.

    Args:
        board: Its rows; controls and retrievers, to which nothing is delivered, are left out.
        metric: What quality is.
        full: The run that ratios are relative to; None: `read_in_full`.

    Returns:
        In the board's order; methods that stand alone are curves of one point.
    """
    base = next((row for row in board.rows if row.run.run == full), None) if full else read_in_full(board)
    whole = spent(base, "delivered", 1) if base is not None else math.nan
    groups: dict[str, list[BudgetPoint]] = {}
    for row in board.rows:
        delivered = spent(row, "delivered", 1)
        if row.control or metric not in row.cells or not delivered > 0:
            continue
        value = row.cells[metric].estimate
        if not math.isnan(value.value):
            point = BudgetPoint(row, value, delivered, spent(row, "memory", 1), whole / delivered)
            groups.setdefault(_KNOB.sub("", row.run.method) or row.run.method, []).append(point)
    return [BudgetCurve(name, tuple(_ordered(points))) for name, points in groups.items()]


def _ordered(points: Sequence[BudgetPoint]) -> list[BudgetPoint]:
    return sorted(points, key=lambda point: point.delivered)
