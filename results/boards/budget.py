"""Quality against cost, from a board: the Pareto front, and curves of compressors over their budgets.

The tokens *delivered* to a reader are its prompt tokens and its memory tokens (soft tokens in place of text).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from results.boards.board import Board, Row
from results.boards.systems import parameters_of
from results.statistics.core import Estimate
from results.statistics.difference import Range
from results.statistics.intervals import estimates
from results.statistics.pareto import certainly_dominated, pareto_front
from results.store.cost_queries import Cost
from results.store.queries import OURS
from results.store.store import FINISHED, Store

Axis = Literal["tokens", "delivered", "memory", "seconds", "cost", "parameters"]
USED: dict[Axis, str] = {
    "tokens": "prompt_tokens + completion_tokens + memory_tokens",
    "delivered": "prompt_tokens + memory_tokens",
    "memory": "memory_tokens",
    "seconds": "seconds",
    "cost": "cost_usd",
}
"""Costs that are measured per question; parameters are exact."""
_KNOB = re.compile(r"[\s,:]*\(?(?:\d+(?:\.\d+)?\s*[x×]|(?:k|budget|rate|ratio|tokens)\s*=\s*[\d.]+)\)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UsageCost:
    """Point of the quality–cost plot: one run's score and its cost per question.

    Attributes:
        row: The run's row on the board.
        value: Mean score on the chosen metric.
        x: Cost per question on the requested axis; NaN if unknown.
        front: Whether it is Pareto-optimal among finished methods. Controls and unfinished runs are never on the front.
        low, high: The 95 % interval of x; NaN if x is exact or its interval is not known.
        possible: Whether it is off the front by point estimates, but could be on it within the intervals.
        apart: Why the score must not be compared with others; empty if it may be.
    """

    row: Row
    value: Estimate
    x: float
    front: bool
    low: float = math.nan
    high: float = math.nan
    possible: bool = False
    apart: str = ""


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """Point of a compression curve: one run's score at the number of tokens that its reader received.

    Attributes:
        row: The run's row on the board.
        value: Mean score on the chosen metric.
        delivered, memory: Mean number of delivered tokens and of memory tokens per question.
        ratio: Compression ratio: tokens of the uncompressed baseline divided by delivered tokens; NaN without a baseline.
    """

    row: Row
    value: Estimate
    delivered: float
    memory: float
    ratio: float


@dataclass(frozen=True, slots=True)
class BudgetCurve:
    """Compression curve: runs of one method that differ only in ratio or token budget, fewest delivered tokens first."""

    name: str
    points: tuple[BudgetPoint, ...]


def spent(row: Row, axis: Axis, questions: int) -> float:
    """Return what a run costs per question; NaN if it was not measured.

    Args:
        row: The run's row.
        axis: What to measure: tokens (all kinds), delivered (tokens the reader received), memory (memory tokens), seconds, cost
            (US dollars) or parameters (summed over models; not per question).
        questions: Number of answered questions, to divide a total by.
    """
    if axis == "parameters":
        number = parameters_of([row.run])
        return math.nan if number is None else float(number)
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
    """Choose the default cost axis: tokens if the methods differ in them, else seconds (retrieval-only runs use no tokens)."""
    tokens = {spent(row, "tokens", row.run.done) for row in board.rows if not row.control and row.cost is not None}
    return "tokens" if len({token for token in tokens if not math.isnan(token)}) > 1 else "seconds"


def cost_intervals(store: Store, board: Board, axis: Axis) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each run's cost per question, over the same clusters as its quality.

    Args:
        store: The store to read.
        board: The table with the runs. Two kinds of row get no interval: combined rows, and runs whose cost is the same for
            every question.
        axis: The kind of cost, as in `spent`; `parameters` has no interval.
    """
    if axis not in USED:
        return {}
    runs = [row.run.run for row in board.rows if not math.isnan(spent(row, axis, row.run.done))]
    if not runs:
        return {}
    with store.database.reading() as connection:
        table = connection.execute(
            f"""SELECT w.member, q.position, CAST({USED[axis]} AS DOUBLE) AS value
                FROM (SELECT unnest($1) AS run, unnest(range(len($1))) AS member) w JOIN usage u ON u.run = w.run
                JOIN questions q ON q.question = u.question AND q.dataset_fingerprint = $2""",
            [runs, board.dataset_fingerprint],
        ).fetchnumpy()
    used = np.full((len(runs), board.questions), np.nan)
    used[table["member"], table["position"]] = np.ma.filled(table["value"], np.nan)
    results = dict(zip(runs, estimates(used, clusters=board.sampled.labels, metric=Range(0.0, None)), strict=True))
    known = {row.run.run: spent(row, axis, row.run.done) for row in board.rows}
    varies = dict(zip(runs, np.nanmax(used, axis=1) > np.nanmin(used, axis=1), strict=True))
    return {
        run: (max(item.low, 0.0), item.high)
        for run, item in results.items()
        if varies[run] and math.isclose(item.value, known[run], rel_tol=1e-6)
    }


def quality_budget(
    board: Board,
    metric: str,
    axis: Axis,
    *,
    higher_is_better: bool = True,
    intervals: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> list[UsageCost]:
    """List runs with score and cost, cheapest first, and mark the Pareto front.

    Args:
        board: The table with the runs.
        metric: Id of the metric on the quality axis.
        axis: The kind of cost, as in `spent`.
        higher_is_better: False for a metric where lower is better.
        intervals: Cost intervals by run, from `cost_intervals`.
    """
    results = [
        (row, row.cells[metric].estimate, spent(row, axis, row.run.done))
        for row in board.rows
        if metric in row.cells and not math.isnan(row.cells[metric].estimate.value)
    ]
    sign = 1.0 if higher_is_better else -1.0
    able = np.array([row.run.may_win and not row.cells[metric].apart for row, _, _ in results], dtype=bool)
    quality = np.where(able, [sign * value.value for _, value, _ in results], np.nan)
    front = pareto_front(quality, [x for _, _, x in results]) if results else ()
    bounds = [intervals.get(row.run.run, (math.nan, math.nan)) for row, _, _ in results]
    good = np.array([sorted((sign * v.low, sign * v.value, sign * v.high)) for _, v, _ in results]).reshape(-1, 3)
    paid = np.array([(low, x, high) for (_, _, x), (low, high) in zip(results, bounds, strict=True)]).reshape(-1, 3)
    good[~able] = np.nan
    beaten = certainly_dominated(good, paid)
    possible = able & ~np.isnan(paid[:, 1]) & ~beaten & ~np.asarray(front, dtype=bool)
    rows = [
        UsageCost(row, value, x, bool(on), low, high, bool(may), row.cells[metric].apart)
        for (row, value, x), on, (low, high), may in zip(results, front, bounds, possible, strict=True)
    ]
    return sorted(rows, key=lambda item: (math.isnan(item.x), item.x))


def read_in_full(board: Board) -> Row | None:
    """Return the row that delivers the most tokens without a compressor, the baseline of compression ratios; None if there is
    none.

    Submissions are left out: their tokens are only stated, and whether they compress is unknown.
    """
    able = [row for row in board.rows if row.run.may_win and row.run.status == FINISHED and row.run.origin == OURS]
    plain = [row for row in able if not _compresses(row) and spent(row, "delivered", 1) > 0]
    return max(plain, key=lambda row: spent(row, "delivered", 1), default=None)


def _compresses(row: Row) -> bool:
    return bool(row.run.description.get("compressor")) or bool(row.cost and row.cost.memory_tokens > 0)


def budget_curves(board: Board, metric: str, full: str | None = None) -> list[BudgetCurve]:
    """Group runs into compression curves: runs whose names differ only in the ratio or token budget at the end form one curve.

    Args:
        board: The table with the runs; controls and runs without a reader are left out.
        metric: Id of the metric on the quality axis.
        full: Id of the uncompressed run that ratios are relative to; None uses `read_in_full`.

    Returns:
        Curves in the board's order; a method without variants is a curve of one point.
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
