"""What methods come to over all benchmarks of a matrix: pooled differences, Borda counts, means by task."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.elements.nodes import Node, el
from leaderboard.matrix.table import Shown
from results.boards.matrix import Overall
from results.boards.tables import plus_minus, stars


def heads(shown: Shown) -> list[str]:
    """Return the heads of the table; none if there is nothing to show."""
    lines = shown.board.overall
    if not lines:
        return []
    pooled = [f"pooled difference from {shown.board.reference}"] if any(line.pooled for line in lines) else []
    return ["method", *pooled, "Borda count", *lines[0].by_task]


def rows(shown: Shown) -> list[list[str]]:
    """Return one row per method, the highest Borda count first."""
    lines = shown.board.overall
    pooled = any(line.pooled for line in lines)
    return [_row(line, shown.scale(shown.board.columns[0]).factor, pooled=pooled) for line in lines]


def _row(line: Overall, factor: float, *, pooled: bool) -> list[str]:
    result = line.pooled
    difference = "–" if result is None else plus_minus(result.value, result.low, result.high, "{:+.1f}", factor) + stars(result.p_holm)
    means = [f"{factor * mean:.1f}" for mean in line.by_task.values()]
    return [line.row.name, *([difference] if pooled else []), f"{line.borda:g}", *means]


def notes(shown: Shown) -> list[str]:
    """Return what the numbers mean, one line each."""
    lines = shown.board.overall
    if not lines:
        return []
    number, first = len(shown.board.columns), f"over {len(shown.board.columns)} benchmarks, each weighing the same"
    results = [f"Borda count: over {number} benchmarks, how many of the methods shown here a method is better than, ties as half"]
    if any(line.pooled for line in lines):
        results.append(f"pooled difference: {first}; * p < .05, ** p < .01 (stratified by benchmark, Holm's correction over the methods)")
    if lines[0].by_task:
        results.append("means by task: of its benchmarks, each weighing the same")
    return results


def overall(shown: Shown) -> Node | None:
    """Return the table with its notes; None if there is nothing to show."""
    if not (names := heads(shown)):
        return None
    return el(
        "section",
        el("h2", "Over all benchmarks"),
        el("table", el("thead", _line("th", names)), el("tbody", *(_line("td", row) for row in rows(shown)))),
        *(el("p", f"{note[0].upper()}{note[1:]}.", cls="note") for note in notes(shown)),
    )


def _line(tag: str, cells: Sequence[str]) -> Node:
    return el("tr", *(el(tag, cell, cls="number" if position else "method") for position, cell in enumerate(cells)))
