"""Quality against cost as page elements: the Pareto front, and curves of compressors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale
from leaderboard.elements.nodes import Node, badge, named
from leaderboard.elements.pictures import APART, BEATEN, CONTROL, KINDS, ON, PARTIAL, POSSIBLE, Picture, Point, plot, point_of
from leaderboard.elements.tables import Cell, Column, NumberColumn, table, value_cell
from results.boards.budget import Axis, BudgetCurve, BudgetPoint, UsageCost
from results.store.cost_queries import AS_STATED
from results.store.queries import OURS

AXES: dict[Axis, str] = {
    "tokens": "Tokens per question, all",
    "delivered": "Delivered tokens per question",
    "memory": "Memory tokens per question",
    "seconds": "Seconds per question",
    "cost": "US$ per question",
    "parameters": "Parameters of all models",
}
_UNITS: dict[Axis, str] = {"seconds": "s / question", "cost": "US$ / question", "parameters": "all models"}
_TOKENS = "tokens / question"
_COUNTED: dict[Axis, str] = {
    "tokens": "Prompt, completion and memory tokens",
    "delivered": "Prompt and memory tokens that the reader gets",
    "memory": "Soft tokens in place of text",
    "seconds": "Wall time over all stages except waiting: mean, and below it its 95 % interval, and p50 to p95",
    "cost": "Price of the calls; local models cost nothing",
    "parameters": "As counted here or stated on a submission's card; unknown for models behind an endpoint",
}
DELIVERED, MEMORY, RATIO = "delivered", "memory", "ratio"
CURVE_AXES = {DELIVERED: "Delivered tokens per question", MEMORY: "Memory tokens per question", RATIO: "Compression ratio"}
_CURVES = 14
"""Maximum number of curves with distinct colors and shapes: two rounds of seven."""
ALONE = "one budget alone"
"""Label of runs without a curve, if there are several."""
_LABELS = {CONTROL: "control", PARTIAL: "running", APART: "failed", ON: "reference", POSSIBLE: ""}
"""Style of the label of each kind of run that has one."""
_SPREAD = 30.0
"""Ratio of the largest to the smallest value from which on an axis is logarithmic."""


def kind(item: UsageCost) -> str:
    """Return the series of a run in the chart: control, unfinished, not comparable, on the Pareto front, possibly on it, or dominated."""
    if item.row.control:
        return CONTROL
    if item.row.run.status != "finished":
        return PARTIAL
    if item.apart:
        return APART
    return ON if item.front else POSSIBLE if item.possible else BEATEN


def write_cost(x: float, axis: str, *, milliseconds: bool = False) -> str:
    """Format a cost on the given axis; a time in seconds, or in milliseconds."""
    if math.isnan(x):
        return formats.NOTHING
    if axis == "parameters":
        return formats.parameters(round(x))
    if axis == "seconds":
        return formats.seconds(x, milliseconds=milliseconds)
    if axis == "cost":
        return "0" if x == 0 else f"{x:.3g}"
    return f"{x:.3g}" if axis == RATIO else formats.count(x)


def pareto_table(rows: Sequence[UsageCost], axis: Axis, metric: str, scale: Scale) -> Node:
    """Build the table of quality and cost, cheapest first, with the Pareto front marked."""
    milliseconds = _quick(rows, axis)
    unit = "ms / question" if milliseconds else _UNITS.get(axis, _TOKENS)
    write = partial(write_cost, axis=axis, milliseconds=milliseconds)

    def cost(item: UsageCost) -> Cell:
        declared = item.row.run.origin != OURS and not math.isnan(item.x)
        between = "" if math.isnan(item.low) else f"[{write(item.low)}, {write(item.high)}]"
        middle = formats.percentiles(item.row.cost, write) if axis == "seconds" else ""
        return Cell(write(item.x), ", ".join(filter(None, (between, middle))), AS_STATED if declared else "")

    def name(item: UsageCost) -> Node:
        mark = kind(item)
        return named(item.row.run.method, badge(mark, _LABELS[mark], item.apart if mark == APART else "") if mark in _LABELS else None)

    columns: list[Column[UsageCost]] = [Column("Method", name), NumberColumn("Cost", cost, unit, _COUNTED[axis]), _quality(metric, scale)]
    return table("Quality and cost", "pareto-scroll", rows, columns, lambda row: "control" if row.row.control else "")


def _quick(rows: Sequence[UsageCost], axis: Axis) -> bool:
    """Return whether table and chart show milliseconds, because all times are under a second."""
    return axis == "seconds" and not any(row.x >= 1 for row in rows)


def _quality(metric: str, scale: Scale) -> Column[UsageCost | BudgetPoint]:
    return NumberColumn(formats.metric_name(metric)[0], lambda row: value_cell(row.value, scale), f"{scale.unit} [95 %]")


def logarithmic(xs: Sequence[float]) -> bool:
    """Return whether an axis over these values should be logarithmic; never if one is 0."""
    known = [x for x in xs if not math.isnan(x)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > _SPREAD


def pareto_chart(rows: Sequence[UsageCost], axis: Axis, metric: str, scale: Scale) -> Picture | None:
    """Draw quality against cost with intervals and the Pareto front; None if no run has both.

    Controls are left out: the cost of the gold answer is meaningless, and would stretch the axis.
    """
    quick = _quick(rows, axis)
    rows, factor = [row for row in rows if not (row.row.control or math.isnan(row.x))], 1000.0 if quick else 1.0

    def point(item: UsageCost) -> Point:
        drawn = point_of(kind(item), factor * item.x, item.value, scale, item.row.run.method)
        cost = formats.duration(item.x) if axis == "seconds" else write_cost(item.x, axis)
        return replace(drawn, shown=f"{drawn.shown} at {cost}", x_low=factor * item.low, x_high=factor * item.high)

    points = list(map(point, rows))
    front = [point for point, row in zip(points, rows, strict=True) if row.front]
    title = f"{formats.metric_name(metric)[0]}, {scale.unit}"
    cost = "Milliseconds per question" if quick else AXES[axis]
    label = f"{title} of each run against {cost}, with the Pareto front; the numbers are in the table"
    log = logarithmic([row.x for row in rows])
    return plot(points, cost, title, label, logarithmic=log, lines=False, named=True, front=front, looks=KINDS)


def curve_chart(curves: Sequence[BudgetCurve], axis: str, metric: str, scale: Scale) -> Picture | None:
    """Draw compression curves, one per method, over one of `CURVE_AXES`; None without points."""
    points = curve_points(curves, axis, scale)
    quality = f"{formats.metric_name(metric)[0]}, {scale.unit}"
    label = "Quality against delivered tokens, a curve for each method; the numbers are in the table"
    return plot(points, CURVE_AXES[axis], quality, label, logarithmic=logarithmic([point.x for point in points]))


def curve_points(curves: Sequence[BudgetCurve], axis: str, scale: Scale) -> list[Point]:
    """Convert compression curves to chart points; points at 0 memory tokens are left out on the memory axis.

    If there are too many curves to distinguish, all curves of a single point form one series.
    """
    crowd = len(curves) > _CURVES
    return [
        point_of(ALONE if crowd and len(curve.points) == 1 else curve.name, x, point.value, scale, point.row.run.method)
        for curve in curves
        for point in curve.points
        if (x := float(getattr(point, axis))) > 0
    ]


def curve_table(curves: Sequence[BudgetCurve], metric: str, scale: Scale, full: str | None) -> Node:
    """Build the table of compression curves; `full`: name of the uncompressed run that ratios are relative to."""
    relative = f"Relative to {full}, which is read in full" if full is not None else "No run is read in full"
    columns: list[Column[BudgetPoint]] = [
        Column("Method", lambda point: named(point.row.run.method)),
        _quality(metric, scale),
        NumberColumn("Delivered", lambda point: write_cost(point.delivered, DELIVERED), _TOKENS, _COUNTED["delivered"]),
        NumberColumn("Memory", lambda point: write_cost(point.memory, MEMORY), _TOKENS, _COUNTED["memory"]),
        NumberColumn("Ratio", lambda point: write_cost(point.ratio, RATIO), "times fewer", relative),
    ]
    return table("Compression", "compression-scroll", [point for curve in curves for point in curve.points], columns)
