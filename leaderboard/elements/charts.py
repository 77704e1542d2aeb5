"""Charts, in Altair. Colours are from the Okabe–Ito palette, and no difference is shown by colour alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaderboard.elements import formats
from leaderboard.elements.chart_rows import data_of
from leaderboard.elements.columns import scale_of
from leaderboard.elements.nodes import Node, el
from results.board import Board, Row

if TYPE_CHECKING:
    import altair

METHOD, CONTROL, PARTIAL, APART = "method", "control", "unfinished", "not comparable"
_COLOURS = {METHOD: "#2a87c8", CONTROL: "#d55e00", PARTIAL: "#8a8f98", APART: "#8a8f98"}
_SHAPES = {METHOD: "circle", CONTROL: "diamond", PARTIAL: "square", APART: "cross"}
_ROW_PIXELS = 32


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
        found = cell.estimate
        kind = _kind(row, metric)
        data.append(
            {
                "run": row.run.run,
                "method": row.run.method,
                "kind": kind,
                "value": found.value * shown.factor,
                # A single question has no interval: the dot stands alone.
                "low": None if formats.missing(found.low) else found.low * shown.factor,
                "high": None if formats.missing(found.high) else found.high * shown.factor,
                "shown": f"{shown.value(found.value)} {shown.interval(found.low, found.high)}",
                "questions": found.n,
                "why": cell.apart if kind == APART else "",
            }
        )
        if row.run.method == board.reference and not row.control:
            baseline = found.value * shown.factor
    kinds = [kind for kind in _COLOURS if any(entry["kind"] == kind for entry in data)]
    # Two runs may bear one name: lines are told apart by the run, and labelled with the method.
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
    colours = alt.Scale(domain=kinds, range=[_COLOURS[kind] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[_SHAPES[kind] for kind in kinds])
    colour = alt.Color("kind:N", scale=colours, legend=None)
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
        x=alt.X("low:Q", scale=scale, axis=x_axis), x2=alt.X2("high:Q"), color=colour, tooltip=tooltip
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(
        x=alt.X("value:Q", scale=scale, axis=x_axis), color=colour, shape=shape, tooltip=tooltip
    )
    layers: list[Any] = [rule, dots]
    if baseline is not None:
        line = alt.Chart(data_of([{"value": baseline}]))
        layers.insert(0, line.mark_rule(strokeDash=[4, 4], color="#8a8f98").encode(x=alt.X("value:Q")))
    height = max(2, len(data)) * _ROW_PIXELS
    return alt.layer(*layers, data=data_of(data)).properties(height=height).configure_view(strokeWidth=0)


def key(board: Board, rows: Sequence[Row], metric: str) -> Node:
    """What the chart's marks mean; in text, where it wraps and is read aloud."""
    glyphs = {METHOD: ("●", METHOD), CONTROL: ("◆", CONTROL), PARTIAL: ("■", PARTIAL), APART: ("✚", PARTIAL)}
    drawn = [row for row in rows if metric in row.cells and not formats.missing(row.cells[metric].estimate.value)]
    kinds = {_kind(row, metric) for row in drawn}
    parts = [
        el("span", el("span", glyph, cls=f"key-{colour}"), f" {kind}", cls="fact")
        for kind, (glyph, colour) in glyphs.items()
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
