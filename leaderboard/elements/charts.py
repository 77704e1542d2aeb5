"""Charts, in Altair. Colors are from the Okabe–Ito palette, and no difference is shown by color alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from leaderboard.elements import formats
from leaderboard.elements.formats import scale_of
from leaderboard.elements.nodes import Node, el
from results.boards.board import Board, Row
from results.boards.matrix import Matrix

if TYPE_CHECKING:
    import altair


class _Rows:
    """What Altair takes for one of its own objects: it neither copies it with every layer nor looks into every number.

    Both together were a third of what a page with two charts over a hundred runs took.
    """

    _schema: ClassVar[dict[str, Any]] = {}

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = [dict(row) for row in rows]

    def to_dict(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        """The rows."""
        return self._rows


def data_of(rows: Sequence[Mapping[str, Any]]) -> altair.Data:
    """The data of a chart.

    Args:
        rows: Plain values by column; None for none.
    """
    import altair as alt

    return alt.Data(values=_Rows(rows))


METHOD, CONTROL, PARTIAL, APART = "method", "control", "unfinished", "not comparable"
_COLORS = {METHOD: "#2a87c8", CONTROL: "#d55e00", PARTIAL: "#8a8f98", APART: "#8a8f98"}
_SHAPES = {METHOD: "circle", CONTROL: "diamond", PARTIAL: "square", APART: "cross"}
_ROW_PIXELS = 32
_AXIS_PIXELS = 48
"""Of the height, which the page gives to chart and axis together."""


def intervals(board: Board, rows: Sequence[Row], metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> altair.LayerChart:
    """A dot with its 95 % interval per run; a dashed line at the reference. `key` says which mark is which.

    Args:
        board: For its reference.
        rows: In the order to draw, top first.
        metric: What is drawn.
        definitions: Metric definitions by id.
    """
    import altair as alt

    shown = scale_of(metric, definitions)
    data, baseline = [], None
    for row in rows:
        cell = row.cells.get(metric)
        if cell is None or formats.missing(cell.estimate.value):
            continue
        result = cell.estimate
        kind = _kind(row, metric)
        data.append(
            {
                "run": row.run.run,
                "method": row.run.method,
                "kind": kind,
                "value": result.value * shown.factor,
                # A single question has no interval: the dot stands alone.
                "low": None if formats.missing(result.low) else result.low * shown.factor,
                "high": None if formats.missing(result.high) else result.high * shown.factor,
                "shown": f"{shown.value(result.value)} {shown.interval(result.low, result.high)}",
                "questions": result.n,
                "why": cell.apart if kind == APART else "",
            }
        )
        if row.run.method == board.reference and not row.control:
            baseline = result.value * shown.factor
    kinds = [kind for kind in _COLORS if any(entry["kind"] == kind for entry in data)]
    # Two runs may bear one name: lines are distinguished by the run, and labeled with the method.
    names = {entry["run"]: entry["method"] for entry in data}
    for entry in data:
        entry["line"] = f"{entry['run']}\x1f{names[entry['run']]}"
    label = r"split(datum.label, '\u001f')[1]"
    axis = alt.Axis(
        title=None, labelLimit=150, labelOverlap=False, labelFlush=False, labelExpr=label, ticks=False, domain=False, labelPadding=8
    )
    y = alt.Y("line:N", sort=None, axis=axis)
    x_axis = alt.Axis(title=f"{formats.metric_name(metric)[0]}, {shown.unit}", tickCount=6, domain=False)
    base = alt.Chart().encode(y=y)
    colors = alt.Scale(domain=kinds, range=[_COLORS[kind] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[_SHAPES[kind] for kind in kinds])
    color = alt.Color("kind:N", scale=colors, legend=None)
    shape = alt.Shape("kind:N", scale=shapes, legend=None)
    tooltip = [
        alt.Tooltip("method:N", title="Method"),
        alt.Tooltip("shown:N", title=formats.metric_label(metric)),
        alt.Tooltip("questions:Q", title="Questions"),
        alt.Tooltip("kind:N", title="Kind"),
    ]
    if APART in kinds:
        tooltip.append(alt.Tooltip("why:N", title="Why"))
    scale = alt.Scale(zero=False, nice=True)
    rule = base.mark_rule(strokeWidth=2.5, opacity=0.75).encode(
        x=alt.X("low:Q", scale=scale, axis=x_axis), x2=alt.X2("high:Q"), color=color, tooltip=tooltip
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=alt.X("value:Q", scale=scale, axis=x_axis), color=color, shape=shape, tooltip=tooltip
    )
    layers: list[Any] = [rule, dots]
    if baseline is not None:
        line = alt.Chart(data_of([{"value": baseline}]))
        layers.insert(0, line.mark_rule(strokeDash=[4, 4], color="#8a8f98").encode(x=alt.X("value:Q")))
    height = len(data) * _ROW_PIXELS + _AXIS_PIXELS
    return alt.layer(*layers, data=data_of(data)).properties(height=height).configure_view(strokeWidth=0)


def key(board: Board, rows: Sequence[Row], metric: str) -> Node:
    """What the chart's marks mean; in text, where it wraps and is read aloud."""
    glyphs = {METHOD: ("●", METHOD), CONTROL: ("◆", CONTROL), PARTIAL: ("■", PARTIAL), APART: ("✚", PARTIAL)}
    drawn = [row for row in rows if metric in row.cells and not formats.missing(row.cells[metric].estimate.value)]
    kinds = {_kind(row, metric) for row in drawn}
    parts = [
        el("span", el("span", glyph, cls=f"key-{color}"), f" {kind}", cls="fact")
        for kind, (glyph, color) in glyphs.items()
        if kind in kinds
    ]
    if board.reference is not None:
        parts.append(el("span", f"┆ {board.reference}", cls="fact"))
    return el("p", *parts, cls="facts note")


def _kind(row: Row, metric: str) -> str:
    if row.control:
        return CONTROL
    if row.run.status != "finished":
        return PARTIAL
    return APART if row.cells[metric].apart else METHOD


# Charts of several methods over one quantity: curves with intervals, and dots that a front runs through.
# Methods are distinguished by color (Okabe–Ito) and by shape; the numbers are always in a table beside the chart.


COLORS = ("#2a87c8", "#d55e00", "#009e73", "#cc79a7", "#c79500", "#56b4e9", "#8a8f98")
SHAPES = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "triangle-right")
_HEIGHT = 420


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a chart, in the units shown.

    Attributes:
        series: Which curve it is on; what the legend says.
        x, value: Where.
        low, high: Of the interval; NaN without one.
        name: What it is, for its hover text.
        shown: Its value and interval in words.
    """

    series: str
    x: float
    value: float
    low: float
    high: float
    name: str
    shown: str


def rows_of(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Points as rows of data, without those that have no value; None stands for "no bound"."""
    return [
        {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in asdict(point).items()}
        for point in points
        if not math.isnan(point.value) and not math.isnan(point.x)
    ]


def curves(points: Sequence[Point], x_title: str, y_title: str, *, logarithmic: bool = False, lines: bool = True) -> altair.LayerChart:
    """A curve per series with the interval of each point.

    Args:
        points: In the order of the legend.
        x_title, y_title: With units.
        logarithmic: Whether x is drawn so; points at 0 have no place then and must not be given.
        lines: Whether points of one series are joined.
    """
    import altair as alt

    names = list(dict.fromkeys(point.series for point in points))
    kinds = [number % len(COLORS) for number in range(len(names))]
    # The second round of seven has the colors again, with other shapes.
    shapes = [SHAPES[(number + number // len(SHAPES)) % len(SHAPES)] for number in range(len(names))]
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=150, symbolOpacity=1)
    color = alt.Color("series:N", scale=alt.Scale(domain=names, range=[COLORS[kind] for kind in kinds]), legend=legend)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)
    x_scale = alt.Scale(type="log", nice=True) if logarithmic else alt.Scale(zero=False, nice=True)
    base = alt.Chart().encode(
        x=alt.X("x:Q", scale=x_scale, axis=alt.Axis(title=x_title, tickCount=6, domain=False)),
        color=color,
        tooltip=[
            alt.Tooltip("name:N", title="Method"),
            alt.Tooltip("shown:N", title=y_title),
            alt.Tooltip("x:Q", title=x_title, format=",.4~r"),
        ],
    )
    y_axis = alt.Axis(title=y_title, tickCount=6, domain=False)
    scale = alt.Scale(zero=False, nice=True)
    layers: list[Any] = [
        base.mark_rule(strokeWidth=2, opacity=0.55).encode(y=alt.Y("low:Q", scale=scale, axis=y_axis), y2=alt.Y2("high:Q"))
    ]
    value = alt.Y("value:Q", scale=scale, axis=y_axis)
    if lines:
        layers.append(base.mark_line(strokeWidth=2.5).encode(y=value))
    layers.append(base.mark_point(filled=True, size=80, opacity=1).encode(y=value, shape=shape))
    return alt.layer(*layers, data=data_of(rows_of(points))).properties(height=_HEIGHT).configure_view(strokeWidth=0)


def front(points: Sequence[Point]) -> altair.Chart:
    """The step line through points of a Pareto front: what can be had for at most so much.

    Args:
        points: Of the front, in any order.
    """
    import altair as alt

    data = rows_of(sorted(points, key=lambda point: point.x))
    return (
        alt.Chart(data_of(data))
        .mark_line(interpolate="step-after", strokeDash=[5, 4], strokeWidth=1.8, color="#8a8f98")
        .encode(x=alt.X("x:Q"), y=alt.Y("value:Q"))
    )


LEFT, RIGHT = "left", "right"
_WIDE, _HIGH = 0.16, 0.045
"""What a name takes of the chart's width and height."""
_EDGE = 0.82
"""From this share of the width on a name stands left of its point."""


def placed(points: Sequence[Point], *, logarithmic: bool = False, within: float = math.inf) -> list[dict[str, Any]]:
    """The points' rows of data with `label`, where the name stands on the y axis, and `align`, left or right.

    Names stand at the height of their points, right of them unless another point or interval is there and none on the
    left; one that would stand on another name moves down until it is free.

    Args:
        points: To be named.
        logarithmic: Whether x is drawn so.
        within: How many lines down a name may move; those that would have to move further are left out.
    """
    rows = sorted(rows_of(points), key=lambda row: -float(row["value"]))
    if not rows:
        return []
    across = [math.log(row["x"]) if logarithmic else float(row["x"]) for row in rows]
    width = max(across) - min(across) or 1.0
    ends = [float(row[key]) for row in rows for key in ("low", "value", "high") if row[key] is not None]
    step = _HIGH * (max(ends) - min(ends) or 1.0)
    shares = [(x - min(across)) / width for x in across]
    taken: list[tuple[float, float]] = []
    kept = []
    for row, share in zip(rows, shares, strict=True):
        height = float(row["value"])
        row["align"] = _side(row, share, shares, rows, step)
        middle = share + _WIDE / 2 * (-1 if row["align"] == RIGHT else 1)
        for other, at in taken:  # from top to bottom, so one pass is enough
            if abs(middle - other) < _WIDE and abs(height - at) < step:
                height = at - step
        if float(row["value"]) - height > within * step:
            continue
        taken.append((middle, height))
        taken.sort(key=lambda item: -item[1])
        row["label"] = height
        kept.append(row)
    return kept


def _side(row: dict[str, Any], share: float, shares: Sequence[float], rows: Sequence[dict[str, Any]], step: float) -> str:
    """The edge of a name that is at its point: the left one where the name may stand right of it."""
    if share > _EDGE:
        return RIGHT
    height = float(row["value"])

    def crossed(start: float, end: float) -> bool:
        return any(
            start < other < end and _end(item, "low") - step < height < _end(item, "high") + step
            for item, other in zip(rows, shares, strict=True)
            if item is not row
        )

    return RIGHT if share > _WIDE and crossed(share, share + _WIDE) and not crossed(share - _WIDE, share) else LEFT


def _end(row: dict[str, Any], side: str) -> float:
    return float(row["value"] if row[side] is None else row[side])


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

    def whisker(self, value: float, low: float, high: float, *, best: bool = False) -> Node | None:
        """Draw a dot at the value on a line as long as its interval; None if there is no interval.

        Args:
            value, low, high: Mean and interval.
            best: Whether it stands out, as the best does.
        """
        if formats.missing(value) or formats.missing(low) or formats.missing(high):
            return None
        positions = {"low": self.position(low), "high": self.position(high), "value": self.position(value)}
        return el("span", cls="whisker leading" if best else "whisker", numbers=positions)

    def position(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        return round(min(max((value - self.low) / (self.high - self.low), 0.0), 1.0), _DIGITS)


def axis(intervals: Iterable[tuple[float, float]]) -> Axis | None:
    """Return the axis on which all of a column's intervals have room; None if there is nothing to tell apart.

    Args:
        intervals: Their ends, NaN for none.
    """
    ends = [end for low, high in intervals if not (formats.missing(low) or formats.missing(high)) for end in (low, high)]
    return Axis(min(ends), max(ends)) if ends and min(ends) < max(ends) else None


def axes(board: Matrix) -> dict[str, Axis]:
    """Axes of the columns whose values may be compared, by their keys, and of the means by `MEAN`; the same on every
    page of a long table. Controls are left out: what sees the gold would leave no room for the others."""
    rows = [row for row in board.rows if not row.control]
    results: dict[str, Axis | None] = {}
    for column in board.columns:
        cells = [cell for row in rows if (cell := board.cells.get((row.key, column.key))) and not cell.apart]
        results[column.key] = axis((cell.low, cell.high) for cell in cells) if column.ranked else None
    means = [mean for row in rows if (mean := board.mean(row)) is not None]
    results[MEAN] = axis((mean.value - mean.half, mean.value + mean.half) for mean in means)
    return {key: item for key, item in results.items() if item is not None}
