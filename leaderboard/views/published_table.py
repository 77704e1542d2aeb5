"""The papers' figures beside ours: for each of our cells and each paper the figure whose setting is the closest."""

from __future__ import annotations

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, badge, el
from results.beside import Comparison, on_board
from results.board import Board

_TIPS = {
    "reproduced": "The published value lies within our 95 % interval, in the same setting",
    "not reproduced": "The same setting, and the published value lies outside our 95 % interval",
    "other setting": "The settings differ, so neither agreement nor disagreement says much",
    "undecided": "The same setting, but we have no interval yet",
}
_STYLES = {"reproduced": "verified", "not reproduced": "failed"}
_HEADS = ("method", "metric", "ours", "published", "gap", "status", "what differs", "source")


def published_table(board: Board) -> Node | None:
    """The table, or None where the papers print no figure of these methods on this dataset."""
    lines = [
        _line(names, run, metric, one)
        for names in [{row.run.run: row.run.method for row in board.rows}]
        for (run, metric), found in on_board(board).items()
        for one in _closest(found)
    ]
    if not lines:
        return None
    head = el("tr", *(el("th", text, scope="col") for text in _HEADS))
    return el("div", el("table", el("thead", head), el("tbody", *lines), cls="board"), cls="scroll")


def _closest(found: list[Comparison]) -> list[Comparison]:
    """The first of each paper: comparisons come closest first."""
    return list({one.figure.paper: one for one in reversed(found)}.values())[::-1]


def _line(names: dict[str, str], run: str, metric: str, one: Comparison) -> Node:
    ours, shown = formats.NOTHING, formats.PERCENT
    if one.ours is not None:
        ours = f"{shown.value(one.ours.value)} {shown.interval(one.ours.low, one.ours.high)}"
    note = f" ({one.figure.note})" if one.figure.note else ""
    # "8" is a table; "figure 5" and "text 4.2" say what they are.
    place = f"table {one.figure.table}" if one.figure.table.isdigit() else one.figure.table
    return el(
        "tr",
        el("th", names[run], scope="row"),
        el("td", formats.metric_label(metric)),
        el("td", ours, cls="number"),
        el("td", f"{one.figure.value} {one.figure.unit}", cls="number"),
        el("td", formats.NOTHING if one.gap is None else f"{100 * one.gap:+.1f}", cls="number"),
        el("td", badge(one.status, _STYLES.get(one.status, ""), _TIPS.get(one.status, ""))),
        el("td", "; ".join(map(str, one.differs)) or "nothing"),
        el("td", f"{one.figure.paper.upper()}, {place}{note}"),
    )
