"""Print the cost of style in a terminal: tables of style gaps, and values against shares and depth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from ragmeter.show.console import listing, out
from results.boards.style import CurveTable, Gap, GapTable, MethodGaps
from results.boards.tables import labels, minus, plus_minus, stars
from results.statistics.core import Difference, Estimate

ABSENT = "–"

_HEADS = (
    "method", "style", "formal", "gap", "beyond", "relative", "p", "answers kept", "content lost", "of which content",
    "where it survived",
)  # fmt: skip

_NOTES = (
    "values × 100 ± half their 95 % interval, or [low, high]; gap: formal minus style, paired by question; Holm over a method's styles",
    "beyond: gap minus the reference's gap, question by question; * p < .05, ** p < .01 (paired tests, Holm over the methods)",
    "answers kept: share (%) of passages with a gold string that still have one, mean over questions; content lost: questions (%) "
    "whose evidence lost the gold string or, if no evidence is known, with a candidate that lost it; "
    "of which content: the part of the gap on these; where it survived: the gap over the other questions",
)


def show_gaps(tables: Sequence[GapTable]) -> None:
    """Print the style gaps of each method."""
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(f"{heads[table.metric]}", style="bold") + Text(f"  {table.base}, setting {table.setting}"))
        average = [("(mean gap)", name, "", minus(f"{table.scale * value:+.1f}"), *[""] * 7) for name, value in table.average.items()]
        lines = [_gap_line(table, row, gap) for row in table.rows for gap in row.gaps]
        listing(_HEADS, [*lines, *average], empty="no method was scored on this metric", keys=2)
        out.print()
    notes, gaps = list(_NOTES), [gap for table in tables for row in table.rows for gap in row.gaps]
    reasons = {gap.result.gap.insufficient_data for gap in gaps if gap.result.gap.insufficient_data}
    if reasons:
        more = f" (and {len(reasons) - 1} more reasons: --json)" if len(reasons) > 1 else ""
        notes.append(f"no verdict: {min(reasons)}{more}")
    if not all(gap.content_known for gap in gaps):
        notes.append("– under content: it is unknown which answers restyling lost")
    for note in notes:
        out.print(Text(note, style="dim"))


def _gap_line(table: GapTable, row: MethodGaps, gap: Gap) -> tuple[str, ...]:
    result, scale = gap.result, table.scale
    # Of the questions scored in both, so that formal minus gap is the value in the style.
    content = [ABSENT] * 4
    if gap.content_known:
        content = [
            ABSENT if math.isnan(gap.answers_kept.value) else f"{100 * gap.answers_kept.value:.1f}",
            f"{100 * result.content_lost.value:.1f}",
            _signed(result.from_content, scale),
            _signed(result.gap_where_survived, scale),
        ]
    beyond = ABSENT
    if gap.beyond is not None:
        beyond = _signed(gap.beyond, scale) + stars(gap.beyond_p)
    return (
        row.method + (" (control)" if row.kind == "control" else ""),
        gap.styled.name,
        plus_minus(row.formal.value, row.formal.low, row.formal.high, scale=scale),
        _signed(result.gap, scale),
        beyond,
        ABSENT if math.isnan(gap.relative) else minus(f"{100 * gap.relative:+.1f} %"),
        ABSENT if math.isnan(result.p_holm) else f"{result.p_holm:.3f}",
        *content,
    )


def _signed(item: Estimate | Difference, scale: float) -> str:
    return ABSENT if math.isnan(item.value) else plus_minus(item.value, item.low, item.high, "{:+.1f}", scale)


def show_curves(tables: Sequence[CurveTable]) -> None:
    """Print the curves of methods over the share of formal candidates, or over k."""
    heads = labels([table.metric for table in tables])
    for table in tables:
        out.print(Text(heads[table.metric], style="bold") + Text(f"  {table.title}"))
        lines = []
        for item in table.curves:
            cells = [item.points.get(x) for x in table.positions]
            values = [
                ABSENT if cell is None or math.isnan(cell.value) else plus_minus(cell.value, cell.low, cell.high, scale=table.scale)
                for cell in cells
            ]
            lines.append((item.method, *values, _signed(item.change, table.scale)))
        points = [f"{100 * x:g} % formal" if table.over == "formal" else f"K={x:g}" for x in table.positions]
        listing(("method", *points, "change"), lines, empty="no method was scored on this metric", keys=1)
        out.print()
    note = "values × 100 ± half their 95 % interval, or [low, high]; change: last minus first value of a row, paired by question"
    out.print(Text(note, style="dim"))
