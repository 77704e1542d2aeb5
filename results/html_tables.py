"""Boards and other tables as pieces of HTML for notebooks: no script, no style sheet, every text escaped.

Leaderboard and report build their own pages (`leaderboard/elements/nodes.py`); this is for a cell of a notebook, which
puts what it is given into its page as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from results.board import Board, Cell
from results.tables import badge, footnotes, labels, mark, plus_minus, title_of

_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def to_html(columns: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", notes: Sequence[str] = ()) -> str:
    """A table; the first column is aligned left, the others right.

    Args:
        columns, rows: Plain texts; a line feed breaks the line.
        caption: Stands above.
        notes: Stand below.
    """
    head = _cells("th", columns)
    body = "".join(f"<tr>{_cells('td', row)}</tr>\n" for row in rows)
    named = f"<caption{_LEFT}>{_text(caption)}</caption>\n" if caption else ""
    said = "".join(f"<li>{_text(note)}</li>\n" for note in notes)
    below = f"<ul>\n{said}</ul>\n" if said else ""
    return f"<table>\n{named}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n{below}"


def board_html(board: Board) -> str:
    """A board: value × 100 ± half its interval, below it the paired difference to the reference, notes at the end."""
    heads = labels(board.metrics)
    rows = [[row.run.method + badge(board, row), *(_cell(row.cells.get(metric)) for metric in board.metrics)] for row in board.rows]
    wrong = [f"{heads.get(metric, metric)} {'; '.join(flags)}" for metric, flags in board.flags.items()]
    return to_html(
        ["method", *(heads[metric] for metric in board.metrics)], rows, caption=title_of(board), notes=[*footnotes(board), *wrong]
    )


def _cell(cell: Cell | None) -> str:
    if cell is None or math.isnan(cell.estimate.value):
        return "–"
    value, found = cell.estimate, cell.difference
    text = plus_minus(value.value, value.low, value.high, scale=cell.scale) + ("†" if value.doubt else "")
    if found is None or math.isnan(found.value):
        return text
    below = plus_minus(found.value, found.low, found.high, "{:+.1f}", cell.scale)
    return f"{text}\n({below}{mark(cell)})" + ("†" if found.doubt else "")


def _cells(tag: str, texts: Sequence[str]) -> str:
    """One row's cells, the first aligned left."""
    return "".join(f"<{tag}{_RIGHT if place else _LEFT}>{_text(text)}</{tag}>" for place, text in enumerate(texts))


def _text(text: str) -> str:
    return "<br>".join(map(escape, text.splitlines()))
