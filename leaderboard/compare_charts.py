"""Charts of the comparison page: questions won, tied and lost, and one run's scores against another's."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leaderboard import formats
from leaderboard.compare_view import names
from leaderboard.formats import Scale
from results.comparison import Comparison

if TYPE_CHECKING:
    import altair

OUTCOMES = {"first better": "#2a87c8", "equal": "#696f79", "second better": "#d55e00"}
_ROW_PIXELS = 34
_AXIS_PIXELS = 45


def shares(found: Comparison, *, higher_is_better: bool) -> altair.LayerChart:
    """One bar a pair: the shares of questions on which the first is better, equal, or worse, with their counts."""
    import altair as alt

    called, data = names(found), []
    for number, pair in enumerate(found.pairs):
        one = pair.difference
        won, lost = (one.wins, one.losses) if higher_is_better else (one.losses, one.wins)
        start = 0.0
        for outcome, count in zip(OUTCOMES, (won, one.ties, lost), strict=True):
            data.append({
                "pair": f"{number}\x1f{called[pair.first]} / {called[pair.second]}", "outcome": outcome,
                "from": start, "to": start + count / one.n, "count": count or None,
                "middle": start + count / one.n / 2 if count / one.n > 0.04 else None, "questions": one.n,
            })  # fmt: skip
            start += count / one.n
    axis = alt.Axis(title=None, labelLimit=260, ticks=False, domain=False, labelPadding=8,
                    labelExpr=r"split(datum.label, '\u001f')[1]")  # fmt: skip
    base = alt.Chart().encode(y=alt.Y("pair:N", sort=None, axis=axis))
    colours = alt.Scale(domain=list(OUTCOMES), range=list(OUTCOMES.values()))
    bars = base.mark_bar(height=18).encode(
        x=alt.X("from:Q", axis=alt.Axis(title="share of questions", format="%", domain=False),
                scale=alt.Scale(domain=[0, 1])),
        x2=alt.X2("to:Q"),
        color=alt.Color("outcome:N", scale=colours, legend=None),
        tooltip=[alt.Tooltip("outcome:N", title="Outcome"), alt.Tooltip("count:Q", title="Questions"),
                 alt.Tooltip("questions:Q", title="In common")],
    )  # fmt: skip
    counts = base.mark_text(color="#ffffff", fontWeight="bold").encode(x=alt.X("middle:Q"), text=alt.Text("count:Q"))
    height = max(2, len(found.pairs)) * _ROW_PIXELS + _AXIS_PIXELS
    return alt.layer(bars, counts, data=alt.Data(values=data)).properties(height=height).configure_view(strokeWidth=0)


def scatter(found: Comparison, first: int, second: int, shown: Scale) -> altair.LayerChart:
    """One circle for each pair of scores that occurs; its area says on how many questions.

    Args:
        found: The comparison.
        first: The run along the x axis, by position.
        second: The run along the y axis.
        shown: The metric's scale.
    """
    import altair as alt

    called = names(found)
    data = points(found, first, second, shown)
    ends = [value for entry in data for value in (entry["x"], entry["y"])] or [0.0, 1.0]
    scale = alt.Scale(domain=[min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1], nice=False, padding=14)
    line = alt.Chart(alt.Data(values=[{"at": min(ends)}, {"at": max(ends)}])).mark_line(
        strokeDash=[4, 4], color="#8a8f98"
    ).encode(x=alt.X("at:Q", scale=scale), y=alt.Y("at:Q", scale=scale))  # fmt: skip
    colours = alt.Scale(domain=["above", "on", "below"], range=["#d55e00", "#8a8f98", "#2a87c8"])
    shapes = alt.Scale(domain=["above", "on", "below"], range=["triangle-up", "circle", "triangle-down"])
    dots = alt.Chart().mark_point(filled=True, opacity=0.75).encode(
        x=alt.X("x:Q", scale=scale, axis=alt.Axis(title=f"{called[first]}, {shown.unit}", domain=False, tickCount=6)),
        y=alt.Y("y:Q", scale=scale, axis=alt.Axis(title=f"{called[second]}, {shown.unit}", domain=False, tickCount=6)),
        size=alt.Size("questions:Q", scale=alt.Scale(type="sqrt", range=[30, 900]), legend=None),
        color=alt.Color("side:N", scale=colours, legend=None), shape=alt.Shape("side:N", scale=shapes, legend=None),
        tooltip=[alt.Tooltip("questions:Q", title="Questions"), alt.Tooltip("x:Q", title=called[first], format=".1f"),
                 alt.Tooltip("y:Q", title=called[second], format=".1f"),
                 alt.Tooltip("example:N", title="For example")],
    )  # fmt: skip
    return alt.layer(line, dots, data=alt.Data(values=data)).properties(height=360).configure_view(strokeWidth=0)


def points(found: Comparison, first: int, second: int, shown: Scale) -> list[dict[str, Any]]:
    """Every pair of scores that occurs, with the number of questions, an example, and its side of the diagonal."""
    scored = [
        (float(x), float(y), row.text)
        for x, y, row in zip(found.values[first], found.values[second], found.questions, strict=True)
        if not formats.missing(x) and not formats.missing(y)
    ]
    examples = {(x, y): text for x, y, text in reversed(scored)}
    return [
        {"x": x * shown.factor, "y": y * shown.factor, "questions": count, "example": examples[x, y],
         "side": "above" if y > x else "below" if y < x else "on"}
        for (x, y), count in Counter((x, y) for x, y, _ in scored).items()
    ]  # fmt: skip
