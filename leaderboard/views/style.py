"""Style robustness as page elements: style gaps by method and style, and curves over the mix and over depth."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT, PLAIN, Scale
from leaderboard.elements.marks import control_badge, is_better, significance
from leaderboard.elements.nodes import Node, line_of_facts, named, note, section
from leaderboard.elements.pictures import Picture, Point, forest, plot, point_of
from leaderboard.elements.tables import Cell, Column, NumberColumn, difference_cell, table, value_cell
from results.boards.style import Curve, CurveTable, Gap, GapTable, MethodGaps


def scale_of(factor: float) -> Scale:
    """Return the number format for values that are displayed with this factor."""
    return PERCENT if factor == PERCENT.factor else PLAIN


def gaps(result: GapTable, *, higher_is_better: bool = True) -> Node:
    """Build the table of style gaps (formal minus style): one row per method and style; `higher_is_better`: false if lower is better."""
    scale, unit = scale_of(result.scale), f"{scale_of(result.scale).difference_unit} [95 %]"

    def gap_cell(row: tuple[MethodGaps, Gap]) -> Cell:
        item = row[1].result
        mark = significance(is_better(-item.gap.value, item.p_holm, higher_is_better=higher_is_better))
        return difference_cell(item.gap, scale, mark=mark, tip="" if math.isnan(item.p_holm) else formats.p_value(item.p_holm))

    def beyond(row: tuple[MethodGaps, Gap]) -> Cell | None:
        item = row[1].beyond
        if item is None:
            return None
        mark = significance(is_better(-item.value, row[1].beyond_p, higher_is_better=higher_is_better))
        return difference_cell(item, scale, mark=mark, tip=formats.p_value(row[1].beyond_p))

    def changed(row: tuple[MethodGaps, Gap]) -> str:
        item = row[1].result.gap
        worse, better = (item.wins, item.losses) if higher_is_better else (item.losses, item.wins)
        return f"{worse:,} · {better:,}"

    def content(of: Callable[[Gap], Cell | str]) -> Callable[[tuple[MethodGaps, Gap]], Cell | str | None]:
        return lambda row: of(row[1]) if row[1].content_known else None

    loss, tests = "positive" if higher_is_better else "negative", "paired tests, Holm-corrected over"
    tips = {
        "gap": f"Formal minus style on the same questions: {loss} is a loss. ▼ significantly worse, ▲ significantly better "
        f"({tests} a method's styles, 5 %)",
        "beyond": f"How much larger the style gap is than that of {result.reference}, question by question. ▼ significantly larger, "
        f"▲ significantly smaller ({tests} the methods, 5 %)",
        "changed": "Number of questions that score worse and better in this style; the rest score the same. A small gap may hide many "
        "changes",
        "kept": "Share of the passages with a gold string that still have one after rewriting; mean over questions",
        "lost": "Questions whose evidence has no gold string left after rewriting; if no evidence is known, those with a candidate "
        "that lost it",
        "part": "The part of the gap that is due to those questions; no reranker can restore lost content",
        "rest": "The style gap over the other questions only: the effect of style itself",
    }
    columns: list[Column[tuple[MethodGaps, Gap]]] = [
        Column("Method", lambda row: named(row[0].method, control_badge(row[0].kind == "control"))),
        Column("Style", lambda row: row[1].styled.name),
        NumberColumn("Formal", lambda row: value_cell(row[0].formal, scale), f"{scale.unit} [95 %]", "Value over formal candidates"),
        NumberColumn("Style gap", gap_cell, unit, tips["gap"]),
        *([NumberColumn("Beyond", beyond, unit, tips["beyond"])] if result.reference else []),
        NumberColumn("Relative", lambda row: PERCENT.difference(row[1].relative), "% of formal"),
        NumberColumn("Questions", changed, "worse · better", tips["changed"]),
        NumberColumn("Answers kept", content(lambda gap: PERCENT.value(gap.answers_kept.value)), "% of passages", tips["kept"]),
        NumberColumn("Content lost", content(lambda gap: PERCENT.value(gap.result.content_lost.value)), "% of questions", tips["lost"]),
        NumberColumn(
            "of which content", content(lambda gap: scale.difference(gap.result.from_content.value)), scale.difference_unit, tips["part"]
        ),
        NumberColumn("Where it survived", content(lambda gap: difference_cell(gap.result.gap_where_survived, scale)), unit, tips["rest"]),
    ]
    rows = [(row, gap) for row in result.rows for gap in row.gaps]
    return table(f"Style gaps on {result.base}", "gaps-scroll", rows, columns, lambda row: "control" if row[0].kind == "control" else "")


def gaps_note(result: GapTable) -> str:
    """Return the legend below a table of style gaps."""
    every = [gap for row in result.rows for gap in row.gaps]
    text = "Formal minus style, paired by question. Brackets: 95 % interval."
    if any(gap.result.gap.insufficient_data for gap in every):
        text += " Insufficient data: no interval and no mark; point at the cell for the reason."
    if not all(gap.content_known for gap in every):
        text += " – under content: it is unknown which answers restyling lost."
    return text


def gap_section(result: GapTable, *, higher_is_better: bool) -> Node:
    """Build the style gaps of one metric: their mean over all ranked methods by style, a forest plot, and the table."""
    scale, seed = scale_of(result.scale), f" · seed {result.seed}" if result.seed else ""
    means = ["Mean style gap of the methods", *(f"{name} {scale.difference(value)}" for name, value in result.average.items())]
    title = f"Style gaps in {formats.metric_label(result.metric)} on {result.base} · {result.setting}{seed}"
    table = gaps(result, higher_is_better=higher_is_better)
    return section(title, line_of_facts(means), gap_chart(result), table, note(gaps_note(result)))


def gap_chart(result: GapTable) -> Picture | None:
    """Draw a forest plot of style gaps: one line per method, one mark per style, a dashed line at 0."""
    scale = scale_of(result.scale)

    def point(row: MethodGaps, gap: Gap) -> Point:
        item = gap.result.gap
        text = f"{scale.difference(item.value)} {scale.differences(item.low, item.high)}"
        return point_of(gap.styled.name, math.nan, item, scale, row.method, text)

    title = f"Style gap in {formats.metric_name(result.metric)[0]}, {scale.difference_unit}"
    label = "Style gap of each method in each style with its 95 % interval; the numbers are in the table"
    return forest([(row.method, [point(row, gap) for gap in row.gaps]) for row in result.rows], title, label, reference=0.0)


def curve_parts(result: CurveTable, title: str) -> tuple[Node, Picture | None, Node]:
    """Build the curves of one metric: what they are about, a chart with one curve per method, and the table."""
    x = "Formal candidates, %" if result.over == "formal" else "Passages given to the reader, k"
    y = f"{formats.metric_name(result.metric)[0]}, {scale_of(result.scale).unit}"
    chart = plot(curve_points(result), x, y, f"{title}, a curve for each method with 95 % intervals; the numbers are in the table")
    return note(result.title), chart, curve_table(result)


def curve_points(result: CurveTable) -> list[Point]:
    """Convert curves to chart points, in displayed units."""
    scale, factor = scale_of(result.scale), 100 if result.over == "formal" else 1
    return [
        point_of(curve.method, x * factor, item, scale, curve.method) for curve in result.curves for x, item in sorted(curve.points.items())
    ]


def curve_table(result: CurveTable) -> Node:
    """Build the table of curves, with the change from the first point to the last."""
    scale = scale_of(result.scale)

    def value(x: float, curve: Curve) -> Cell:
        return value_cell(curve.points.get(x), scale)

    def change(curve: Curve) -> Cell:
        return difference_cell(curve.change, scale, tip=formats.p_value(curve.change.p))

    names = {x: f"{100 * x:g} % formal" if result.over == "formal" else f"k = {x:g}" for x in result.positions}
    last = "Last minus first point of the method, paired by question"
    columns: list[Column[Curve]] = [
        Column("Method", lambda curve: named(curve.method)),
        *(NumberColumn(name, partial(value, x), f"{scale.unit} [95 %]") for x, name in names.items()),
        NumberColumn("Change", change, f"{scale.difference_unit} [95 %]", last),
    ]
    return table(result.title, f"{result.title}-scroll", result.curves, columns)
