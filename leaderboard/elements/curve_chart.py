"""Charts of several methods over one quantity: curves with intervals, and dots that a front runs through.

Methods are told apart by colour (Okabe–Ito) and by shape; the numbers are always in a table beside the chart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from leaderboard.elements.chart_rows import data_of

if TYPE_CHECKING:
    import altair

COLOURS = ("#2a87c8", "#d55e00", "#009e73", "#cc79a7", "#c79500", "#56b4e9", "#8a8f98")
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
    kinds = [number % len(COLOURS) for number in range(len(names))]
    # The second round of seven has the colours again, with other shapes.
    shapes = [SHAPES[(number + number // len(SHAPES)) % len(SHAPES)] for number in range(len(names))]
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=150, symbolOpacity=1)
    colour = alt.Color("series:N", scale=alt.Scale(domain=names, range=[COLOURS[kind] for kind in kinds]), legend=legend)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)
    x_scale = alt.Scale(type="log", nice=True) if logarithmic else alt.Scale(zero=False, nice=True)
    base = alt.Chart().encode(
        x=alt.X("x:Q", scale=x_scale, axis=alt.Axis(title=x_title, tickCount=6, domain=False)),
        color=colour,
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
