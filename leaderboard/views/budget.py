"""Quality against cost as page elements: the Pareto front, and curves of compressors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from leaderboard.elements import formats
from leaderboard.elements.charts import LEFT, RIGHT, Point, data_of, front, placed, rows_of
from leaderboard.elements.formats import Scale
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, plain_table
from results.boards.budget import Axis, BudgetCurve, UsageCost
from results.statistics.core import Estimate
from results.store.queries import AS_STATED, OURS

if TYPE_CHECKING:
    import altair


AXES: dict[Axis, str] = {
    "tokens": "Tokens per question, all",
    "delivered": "Delivered tokens per question",
    "memory": "Memory tokens per question",
    "seconds": "Seconds per question",
    "cost": "US$ per question",
}
UNITS: dict[Axis, str] = {
    "tokens": "tokens / question",
    "delivered": "tokens / question",
    "memory": "tokens / question",
    "seconds": "s / question",
    "cost": "US$ / question",
}
COUNTED: dict[Axis, str] = {
    "tokens": "Prompt, completion and memory tokens",
    "delivered": "Prompt and memory tokens: what the reader is given",
    "memory": "Soft tokens in place of text",
    "seconds": "Wall time over all stages but waiting for a slot: mean, and below it p50 to p95",
    "cost": "Price of the calls; local models cost nothing",
}
DELIVERED, MEMORY, RATIO = "delivered", "memory", "ratio"
CURVE_AXES = {DELIVERED: "Delivered tokens per question", MEMORY: "Memory tokens per question", RATIO: "Compression ratio"}
ON, BEATEN, CONTROL, PARTIAL = "on the front", "beaten", "control", "unfinished"
_COLORS = {ON: "#009e73", BEATEN: "#2a87c8", CONTROL: "#d55e00", PARTIAL: "#8a8f98"}
_SHAPES = {ON: "triangle-up", BEATEN: "circle", CONTROL: "diamond", PARTIAL: "square"}
_NAMED, _NEAR = 8, 2.0
"""Of more runs than these some go unnamed; lines that a name may then stand below its point."""
_CURVES = 14
"""Colors and shapes tell so many curves apart: two rounds of seven."""
ALONE = "one budget alone"
"""What is written of all runs without a curve where there are more."""
_SPREAD = 30.0
"""From this ratio of the largest to the smallest on, an axis is logarithmic."""


def kind(item: UsageCost) -> str:
    """What a run is on the chart."""
    if item.row.control:
        return CONTROL
    if item.row.run.status != "finished":
        return PARTIAL
    return ON if item.front else BEATEN


def written(x: float, axis: str) -> str:
    """A cost as text."""
    if math.isnan(x):
        return formats.NOTHING
    if axis == "seconds":
        return formats.seconds(x)
    if axis == "cost":
        return "0" if x == 0 else f"{x:.3g}"
    return f"{x:.3g}" if axis == RATIO else formats.count(x)


def _value(value: Estimate, scale: Scale) -> Cell:
    return Cell(scale.value(value.value), scale.interval(value.low, value.high), value.insufficient_data)


def pareto_table(rows: Sequence[UsageCost], axis: Axis, metric: str, scale: Scale) -> Node:
    """The runs, cheapest first, with what is on the front."""
    heads = [
        Head("Method"),
        Head("Cost", UNITS[axis], COUNTED[axis], number=True),
        Head(formats.metric_name(metric)[0], f"{scale.unit} [95 %]", number=True),
        Head(
            "Front",
            tip="No other finished method is at least as good and as cheap, and better in one. By the values "
            "alone: intervals that overlap say that the order may be luck",
        ),
    ]
    lines = [
        Line(
            _named(row),
            [_cost(row, axis), _value(row.value, scale), badge(ON, "reference") if row.front else ""],
            "control" if row.row.control else "",
        )
        for row in rows
    ]
    return plain_table("Quality and cost", heads, lines, "pareto-scroll")


def _cost(item: UsageCost, axis: Axis) -> Cell | str:
    text = written(item.x, axis)
    stated = item.row.run.origin != OURS and not math.isnan(item.x)
    below = formats.percentiles(item.row.cost) if axis == "seconds" and item.row.cost else ""
    return Cell(text, below, AS_STATED if stated else "")


def _named(item: UsageCost) -> Node:
    mark = kind(item)
    tag = badge(mark, "control" if mark == CONTROL else "running") if mark in (CONTROL, PARTIAL) else None
    return el("span", el("span", item.row.run.method, cls="method"), tag)


def logarithmic(xs: Sequence[float]) -> bool:
    """Whether an axis over these is better drawn logarithmically; never where one is 0."""
    known = [x for x in xs if not math.isnan(x)]
    return bool(known) and min(known) > 0 and max(known) / min(known) > _SPREAD


def pareto_chart(rows: Sequence[UsageCost], axis: Axis, metric: str, scale: Scale) -> altair.LayerChart:
    """Runs by cost and quality with intervals, and the step line of the front.

    Controls are left out: what the gold answer costs says nothing, and would stretch the axis. Where there are many
    runs only those on the front bear their names, as far as there is room beside them; all say them on hover.
    """
    import altair as alt

    rows = [row for row in rows if not row.row.control]
    points = [_point(row, axis, scale) for row in rows]
    known = [name for name in _COLORS if any(point.series == name for point in points)]
    legend = alt.Legend(title=None, orient="bottom", columns=2, symbolOpacity=1)
    color = alt.Color("series:N", legend=legend, scale=alt.Scale(domain=known, range=[_COLORS[name] for name in known]))
    shape = alt.Shape("series:N", legend=legend, scale=alt.Scale(domain=known, range=[_SHAPES[name] for name in known]))
    x_scale = alt.Scale(type="log", nice=True) if logarithmic([row.x for row in rows]) else alt.Scale(nice=True)
    y_title = f"{formats.metric_name(metric)[0]}, {scale.unit}"
    base = alt.Chart().encode(
        x=alt.X("x:Q", scale=x_scale, axis=alt.Axis(title=AXES[axis], tickCount=6, domain=False)),
        color=color,
        tooltip=[
            alt.Tooltip("name:N", title="Method"),
            alt.Tooltip("shown:N", title=y_title),
            alt.Tooltip("x:Q", title=AXES[axis], format=",.4~r"),
            alt.Tooltip("series:N", title="Kind"),
        ],
    )
    y_scale, y_axis = alt.Scale(zero=False, nice=True), alt.Axis(title=y_title, tickCount=6, domain=False)
    value = alt.Y("value:Q", scale=y_scale, axis=y_axis)
    bars = base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("low:Q", scale=y_scale, axis=y_axis), y2=alt.Y2("high:Q"))
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(y=value, shape=shape)
    crowd = len(points) > _NAMED
    named = [point for point in points if point.series == ON] if crowd else points
    labels = placed(named, logarithmic=logarithmic([row.x for row in rows]), within=_NEAR if crowd else math.inf)
    names = [
        base.mark_text(align=side, dx=dx, dy=-7, fontSize=11, limit=170)
        .encode(y=alt.Y("label:Q", scale=y_scale, axis=y_axis), text=alt.Text("name:N"))
        .properties(data=data_of([row for row in labels if row["align"] == side]))
        for side, dx in ((LEFT, 9), (RIGHT, -9))
    ]
    step = front([_point(row, axis, scale) for row in rows if row.front])
    return alt.layer(step, bars, dots, *names, data=data_of(rows_of(points))).properties(height=420).configure_view(strokeWidth=0)


def _point(item: UsageCost, axis: Axis, scale: Scale) -> Point:
    value = item.value
    return Point(
        kind(item),
        item.x,
        value.value * scale.factor,
        value.low * scale.factor,
        value.high * scale.factor,
        item.row.run.method,
        f"{scale.value(value.value)} {scale.interval(value.low, value.high)}",
    )


def curve_points(curves: Sequence[BudgetCurve], axis: str, scale: Scale) -> list[Point]:
    """Points of compression curves, in the units shown; those at 0 memory tokens are of no compressor of memory.

    Of more curves than can be distinguished, those of a single point are one series.
    """
    crowd = len(curves) > _CURVES
    return [
        Point(
            ALONE if crowd and len(curve.points) == 1 else curve.name,
            x,
            point.value.value * scale.factor,
            point.value.low * scale.factor,
            point.value.high * scale.factor,
            point.row.run.method,
            f"{scale.value(point.value.value)} {scale.interval(point.value.low, point.value.high)}",
        )
        for curve in curves
        for point in curve.points
        if (x := float(getattr(point, axis))) > 0
    ]


def curve_table(curves: Sequence[BudgetCurve], metric: str, scale: Scale, full: str | None) -> Node:
    """The numbers of compression curves.

    Args:
        curves: In the order of the chart.
        metric: What quality is.
        scale: How it is written.
        full: The name of the run that ratios are relative to.
    """
    relative = f"Relative to {full}, which is read in full" if full is not None else "No run is read in full"
    heads = [
        Head("Method"),
        Head(formats.metric_name(metric)[0], f"{scale.unit} [95 %]", number=True),
        Head("Delivered", "tokens / question", "Prompt and memory tokens that the reader gets", number=True),
        Head("Memory", "tokens / question", "Soft tokens in place of text", number=True),
        Head("Ratio", "times fewer", relative, number=True),
    ]
    lines = [
        Line(
            el("span", point.row.run.method, cls="method"),
            [_value(point.value, scale), written(point.delivered, DELIVERED), written(point.memory, MEMORY), written(point.ratio, RATIO)],
        )
        for curve in curves
        for point in curve.points
    ]
    return plain_table("Compression", heads, lines, "compression-scroll")
