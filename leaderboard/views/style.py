"""Style robustness as page elements: style gaps by method and style, and curves over the mix and over depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from shlex import quote

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT, PLAIN, Scale
from leaderboard.elements.marks import SIGNS, is_better
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, named, plain_table
from leaderboard.elements.pictures import Picture, Point, forest, point_of
from results.boards.style import CurveTable, Gap, GapTable, MethodGaps
from results.statistics.core import Difference, Estimate


def scale_of(factor: float) -> Scale:
    """Return the number format for values that are displayed with this factor."""
    return PERCENT if factor == PERCENT.factor else PLAIN


def signed(item: Estimate | Difference, scale: Scale, *, better: str = "", tip: str = "") -> Cell:
    """Make a cell with a signed value and its interval beneath."""
    if math.isnan(item.value):
        return Cell(formats.NOTHING, tip=tip)
    tip_text = "; ".join(part for part in (tip, item.insufficient_data) if part)
    return Cell(f"{better}{scale.difference(item.value)}", scale.differences(item.low, item.high), tip_text)


def gaps(table: GapTable, *, higher_is_better: bool = True) -> Node:
    """Build the table of style gaps (formal minus style): one row per method, one column per style.

    Args:
        table: Style gaps on one metric.
        higher_is_better: False if lower is better.
    """
    scale = scale_of(table.scale)
    loss = "positive" if higher_is_better else "negative"
    heads = [
        Head("Method"),
        Head("Style"),
        Head("Formal", f"{scale.unit} [95 %]", "Value over formal candidates", number=True),
        Head("Style gap", f"{scale.difference_unit} [95 %]", f"Formal minus style on the same questions: {loss} is a loss. "
             "▼ significantly worse, ▲ significantly better (paired tests, Holm-corrected over a method's styles, 5 %)",
             number=True),
        *([Head("Beyond", f"{scale.difference_unit} [95 %]", f"How much larger the style gap is than that of "
                f"{table.reference}, question by question. ▼ significantly larger, ▲ significantly smaller "
                "(paired tests, Holm-corrected over the methods, 5 %)", number=True)] if table.reference else []),
        Head("Relative", "% of formal", number=True),
        Head("Questions", "worse · better", "Number of questions that score worse and better in this style; the rest score the "
                                            "same. A small gap may hide many changes", number=True),
        Head("Answers kept", "% of passages", "Share of the passages with a gold string that still have one after rewriting; mean "
                                              "over questions", number=True),
        Head("Content lost", "% of questions", "Questions whose evidence has no gold string left after rewriting; if no evidence is "
                                               "known, those with a candidate that lost it",
             number=True),
        Head("of which content", scale.difference_unit, "The part of the gap that is due to those questions; no reranker can "
                                                        "restore lost content", number=True),
        Head("Where it survived", f"{scale.difference_unit} [95 %]", "The style gap over the other questions only: the effect of "
            "style itself", number=True),
    ]  # fmt: skip
    compared = table.reference is not None
    lines = [_gap_line(row, gap, scale, higher_is_better, compared) for row in table.rows for gap in row.gaps]
    return plain_table(f"Style gaps on {table.base}", heads, lines, "gaps-scroll")


def _gap_line(row: MethodGaps, gap: Gap, scale: Scale, higher_is_better: bool, held: bool) -> Line:
    control = row.kind == "control"
    result = gap.result
    worse, better = (result.gap.wins, result.gap.losses) if higher_is_better else (result.gap.losses, result.gap.wins)
    moved = f"{worse:,} · {better:,}"
    mark = SIGNS[is_better(-result.gap.value, result.p_holm, higher_is_better=higher_is_better)]
    content: list[Cell | Node | str] = [formats.NOTHING] * 4
    if gap.content_known:
        content = [
            PERCENT.value(gap.answers_kept.value),
            PERCENT.value(result.content_lost.value),
            scale.difference(result.from_content.value),
            signed(result.gap_where_survived, scale),
        ]
    name = named(row.method, badge("control", "control") if control else None)
    relative = formats.NOTHING if math.isnan(gap.relative) else PERCENT.difference(gap.relative)
    formal = Cell(scale.value(row.formal.value), scale.interval(row.formal.low, row.formal.high))
    tip = formats.p_value(result.p_holm) if not math.isnan(result.p_holm) else ""
    beyond: list[Cell | Node | str] = []
    if held and gap.beyond is None:
        beyond = [formats.NOTHING]
    elif held and gap.beyond is not None:
        how = SIGNS[is_better(-gap.beyond.value, gap.beyond_p, higher_is_better=higher_is_better)]
        beyond = [signed(gap.beyond, scale, better=how, tip=formats.p_value(gap.beyond_p))]
    shown = signed(result.gap, scale, better=mark, tip=tip)
    return Line(name, [gap.styled.name, formal, shown, *beyond, relative, moved, *content], "control" if control else "")


def gaps_note(table: GapTable) -> str:
    """Return the legend below a table of style gaps."""
    every = [gap for row in table.rows for gap in row.gaps]
    note = "Formal minus style, paired by question. Brackets: 95 % interval."
    if any(gap.result.gap.insufficient_data for gap in every):
        note += " Insufficient data: no interval and no mark; point at the cell for the reason."
    if not all(gap.content_known for gap in every):
        note += " – under content: it is unknown which answers restyling lost."
    return note


def average(table: GapTable) -> Node:
    """Build the table of the mean style gap over all ranked methods, by style."""
    scale = scale_of(table.scale)
    parts = [el("span", f"{name} {scale.difference(value)}", cls="fact") for name, value in table.average.items()]
    return el("p", el("span", "Mean style gap of the methods", cls="fact"), *parts, cls="facts")


def gap_chart(table: GapTable) -> Picture | None:
    """Draw a forest plot of style gaps: one line per method, one mark per style, a dashed line at 0."""
    scale = scale_of(table.scale)
    lines = []
    for row in table.rows:
        gaps = [(gap.styled.name, gap.result.gap) for gap in row.gaps]
        words = [f"{scale.difference(item.value)} {scale.differences(item.low, item.high)}" for _, item in gaps]
        points = [point_of(name, math.nan, item, scale, row.method, text) for (name, item), text in zip(gaps, words, strict=True)]
        lines.append((row.method, points))
    title = f"Style gap in {formats.metric_name(table.metric)[0]}, {scale.difference_unit}"
    label = "Style gap of each method in each style with its 95 % interval; the numbers are in the table"
    return forest(lines, title, label, reference=0.0)


def curve_points(table: CurveTable) -> list[Point]:
    """Convert curves to chart points, in displayed units."""
    scale = scale_of(table.scale)
    shares = table.over == "formal"
    return [
        point_of(curve.method, x * 100 if shares else x, item, scale, curve.method)
        for curve in table.curves
        for x, item in sorted(curve.points.items())
    ]


def curve_titles(table: CurveTable) -> tuple[str, str]:
    """Return the axis titles for a table of curves."""
    y = f"{formats.metric_name(table.metric)[0]}, {scale_of(table.scale).unit}"
    return ("Formal candidates, %" if table.over == "formal" else "Passages given to the reader, k"), y


def curve_table(table: CurveTable, key: str) -> Node:
    """Build the table of curves, with the change from the first point to the last."""
    scale = scale_of(table.scale)
    positions = [f"{100 * x:g} % formal" if table.over == "formal" else f"k = {x:g}" for x in table.positions]
    heads = [
        Head("Method"),
        *(Head(position, f"{scale.unit} [95 %]", number=True) for position in positions),
        Head("Change", f"{scale.difference_unit} [95 %]", "Last minus first point of the method, paired by question", number=True),
    ]
    lines = [
        Line(
            el("span", curve.method, cls="method"),
            [
                *(_value(curve.points.get(x), scale) for x in table.positions),
                signed(curve.change, scale, tip=formats.p_value(curve.change.p)),
            ],
        )
        for curve in table.curves
    ]
    return plain_table(table.title, heads, lines, key)


def _value(item: Estimate | None, scale: Scale) -> Cell:
    if item is None or math.isnan(item.value):
        return Cell(formats.NOTHING)
    return Cell(scale.value(item.value), scale.interval(item.low, item.high), item.insufficient_data)


def sensitivity_note(bases: Sequence[str], experiment: str) -> Node:
    """Build the note with the command that measures how far rerankers reorder the same candidates."""
    command = f"ragmeter results style sensitivity {_base(bases)} --experiment {quote(experiment)}"
    return el(
        "div",
        el(
            "p",
            "Scores show the cost of a reordering. How much style changes a reranker's order (Kendall's τ of its two orders "
            "of the same candidates, and the shift of its scores) can be measured only with its model, by this command:",
        ),
        el("p", el("span", command, cls="command")),
        cls="stack",
    )


def _base(bases: Sequence[str]) -> str:
    return quote(next(iter(bases))) if bases else "DATASET"
