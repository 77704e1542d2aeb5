"""Summarize methods over all benchmarks of a matrix: pooled differences, Borda counts, means by task."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.elements.formats import missing, p_value
from leaderboard.elements.marks import row_marks
from leaderboard.elements.nodes import Node, el, grid, note, section
from leaderboard.matrix.table import Shown
from results.boards.matrix import Overall
from results.boards.tables import plus_minus, stars


def heads(shown: Shown) -> list[str]:
    """Return the column heads of the summary table over all benchmarks; empty if there is nothing to show."""
    lines = shown.board.overall
    if not lines:
        return []
    pooled = [f"pooled difference from {shown.board.reference}"] if any(line.pooled for line in lines) else []
    return ["method", *pooled, "Borda count", *lines[0].by_task]


def rows(shown: Shown) -> list[list[str]]:
    """Return the rows of the summary table, highest Borda count first."""
    lines = shown.board.overall
    pooled = any(line.pooled for line in lines)
    return [_row(line, shown.scale(shown.board.columns[0]).factor, pooled=pooled) for line in lines]


def _row(line: Overall, factor: float, *, pooled: bool) -> list[str]:
    result = line.pooled
    difference = "–" if result is None else plus_minus(result.value, result.low, result.high, "{:+.1f}", factor) + stars(result.p_holm)
    means = [f"{factor * mean:.1f}" for mean in line.by_task.values()]
    return [line.row.name, *([difference] if pooled else []), f"{line.borda:g}", *means]


def notes(shown: Shown) -> list[str]:
    """Return the notes that explain the summary table."""
    lines = shown.board.overall
    if not lines:
        return []
    number, first = len(shown.board.columns), f"over {len(shown.board.columns)} benchmarks, equal weights"
    results = [f"Borda count: over {number} benchmarks, number of methods shown here that a method beats; ties count half"]
    if any(line.pooled for line in lines):
        results.append(f"pooled difference: {first}; * p < .05, ** p < .01 (stratified by benchmark, Holm-corrected over the methods)")
    holds = dict.fromkeys(line.generalizes for line in lines if line.pooled is not None and stars(line.pooled.p_holm))
    results += [f"marks hold for {'; '.join(holds)}"] if holds else []
    if lines[0].by_task:
        results.append("means by task: of its benchmarks, equal weights")
    return results


def overall(shown: Shown) -> Node | None:
    """Build the summary table over all benchmarks with its notes; None if there is nothing to show."""
    if not (names := heads(shown)):
        return None
    if "overall" not in shown.drawn:
        shown.drawn["overall"] = _draw(shown, names)
    return shown.drawn["overall"]


def _draw(shown: Shown, names: Sequence[str]) -> Node:
    first = [el("th", names[0].capitalize(), scope="col", cls="stick")]
    others = [el("th", el("span", f"{name[0].upper()}{name[1:]}", cls="name"), scope="col", cls="number") for name in names[1:]]
    body = [_line(shown, line, cells) for line, (_, *cells) in zip(shown.board.overall, rows(shown), strict=True)]
    table = grid("Methods over all benchmarks", [*first, *others], body, "overall-scroll", "board matrix", "Results over all benchmarks")
    return section("Over all benchmarks", table, el("div", *(note(f"{text[0].upper()}{text[1:]}.") for text in notes(shown))))


def _line(shown: Shown, line: Overall, cells: Sequence[str]) -> Node:
    marks = row_marks((), reference=line.row.name == shown.board.reference)
    p = None if line.pooled is None else line.pooled.p_holm
    tips = ["" if missing(p) else f"{p_value(p)} after Holm's correction over the methods", *[""] * len(cells)]
    figures = (el("td", cell, cls="number", tip=tip) for cell, tip in zip(cells, tips, strict=False))
    return el("tr", el("th", line.row.name, *marks, scope="row", cls="stick"), *figures)
