"""The matrix as a picture: what a paper or a slide shows of it."""

from __future__ import annotations

from collections.abc import Mapping

from leaderboard.elements import formats
from leaderboard.elements.whiskers import MEAN, Axis, axes
from leaderboard.matrix.cells import Shown, better, doubted, rank, value
from leaderboard.matrix.exports import HEADS, Export, facts, notes
from leaderboard.views.drawings import METHOD, PARTIAL, Drawing, shape
from results.contestants import Contestant
from results.matrix import Cell, Column

_NAME, _CELL, _FACT, _LINE, _HEAD, _TOP = 230.0, 148.0, 96.0, 44.0, 52.0, 73.0
_NAMED, _HEADED, _BELOW = 34, 18, 22
"""Letters that fit."""
_LINES = 3
"""Of a benchmark's name."""
_SPAN, _DOT = 120.0, 3.5
"""How wide a column's axis is, and how large the dots on it, in pixels."""


def picture(export: Export) -> Drawing:
    """The rows and columns shown, with values, intervals, ranks and marks."""
    shown = export.shown
    columns = shown.board.columns
    mean = len(columns) > 1
    width = _NAME + _CELL * (len(columns) + mean) + _FACT * len(HEADS) + 16
    parts = [shape("text", export.title, cls="title", x=12.0, y=26.0)]
    for number, column in enumerate(columns):
        name, below = shown.names[column.key]
        unit = ", ".join(filter(None, (shown.metric(column), below)))
        parts += _head(number, name, unit, doubted(shown, column))
    if mean:
        parts += _head(len(columns), "Mean", "of benchmarks")
    start = _at(len(columns) + mean - 1)
    for place, (name, unit) in enumerate(HEADS):
        at = start + _FACT * (place + 1)
        parts += [_text("head", at, _TOP + 18, name), _text("small", at, _TOP + 34, unit)]
    y, known = _TOP + _HEAD, axes(shown.board)
    for row in export.rows:
        parts.append(_rule(y, width))
        parts += _row(shown, row, y, known)
        parts += [_text("value", start + _FACT * (place + 1), y + 16, fact) for place, fact in enumerate(facts(shown, row))]
        y += _LINE
    for one in export.papers:
        parts.append(_rule(y, width))
        parts += [
            _text("apart", 12.0, y + 16, _short(one.method, _NAMED), "start"),
            _text("small", 12.0, y + 29, _short(one.said, _NAMED + 10), "start"),
        ]
        for number, column in enumerate(columns):
            figure = one.figures.get(column.key)
            if figure is not None:
                parts += [
                    _text("apart", _at(number), y + 16, shown.scale(column).value(figure.fraction)),
                    _text("small", _at(number), y + 29, "published"),
                ]
        y += _LINE
    parts.append(_rule(y, width))
    drawn = "dot on a line: the same, each column from its lowest method to its highest"
    first, *others = notes(shown, apart="grey")
    for note in (first, *([drawn] if known else []), *others):
        y += 16
        parts.append(_text("small", 12.0, y, note, "start"))
    return shape("svg", *parts, viewBox=f"0 0 {max(width, 560.0):.0f} {y + 14:.0f}", role="img", aria_label=export.title)


def _row(shown: Shown, row: Contestant, y: float, known: Mapping[str, Axis]) -> list[Drawing]:
    said = "control" if row.control else "reference" if row.name == shown.board.reference else ""
    parts = [_text("name", 12.0, y + 16, _short(row.name, _NAMED), "start")]
    if said:
        parts.append(_text("small", 12.0, y + 29, said, "start"))
    for number, (column, cell) in enumerate(zip(shown.board.columns, shown.board.line(row), strict=True)):
        parts += _cell(shown, row, column, cell, number, y)
        if cell is not None and column.key in known and not (cell.apart or row.control):
            best = cell.band is not None and cell.band.best
            parts += _whisker(known[column.key], cell.value, cell.half, number, y, best=best)
    if len(shown.board.columns) > 1 and (mean := shown.board.mean(row)) is not None:
        scale = shown.scale(shown.board.columns[0])
        text = f"{scale.value(mean.value)} ± {scale.value(mean.half)}"
        parts.append(_text("value", _at(len(shown.board.columns)), y + 16, text))
        if MEAN in known and not row.control:
            parts += _whisker(known[MEAN], mean.value, mean.half, len(shown.board.columns), y, best=True)
    return parts


def _whisker(axis: Axis, value: float, half: float, number: int, y: float, *, best: bool) -> list[Drawing]:
    """A dot at the value on a line as long as its interval, beneath the numbers."""
    if formats.missing(value) or formats.missing(half):
        return []
    low, middle, high = (_at(number) - _SPAN * (1 - axis.place(one)) for one in (value - half, value, value + half))
    line = shape("line", x1=low, x2=high, y1=y + 24, y2=y + 24)
    return [shape("g", line, shape("circle", cls="dot", cx=middle, cy=y + 24, r=_DOT), cls=f"mark {METHOD if best else PARTIAL}")]


def _cell(shown: Shown, row: Contestant, column: Column, cell: Cell | None, number: int, y: float) -> list[Drawing]:
    if cell is None:
        return [_text("small", _at(number), y + 16, formats.NOTHING)]
    if cell.apart and not row.control:
        return [
            _text("apart", _at(number), y + 16, value(shown, column, cell) + doubted(shown, column, cell)),
            _text("small", _at(number), y + 29, _short(cell.apart.partition(":")[0], _BELOW)),
        ]
    won = better(column, cell)
    best = cell.band is not None and cell.band.best
    parts = [
        _text(
            "best" if best else "value",
            _at(number),
            y + 16,
            value(shown, column, cell) + doubted(shown, column, cell) + (" ●" if best else ""),
        )
    ]
    below = " ".join(filter(None, ("" if won is None else "▲" if won else "▼", rank(cell))))
    if below:
        parts.append(_text("small" if won is None else "small better" if won else "small worse", _at(number), y + 38, below))
    return parts


def _head(number: int, name: str, unit: str, doubt: str = "") -> list[Drawing]:
    lines = _broken(name, _HEADED - len(doubt))
    lines[-1] += doubt
    found = [
        shape("text", shape("title", name), line, cls="head", x=_at(number), y=_TOP + 18 - 15 * above, text_anchor="end")
        for above, line in enumerate(reversed(lines))
    ]
    return [*found, _text("small", _at(number), _TOP + 34, _short(unit, _BELOW))]


def _broken(name: str, most: int) -> list[str]:
    """A name in up to three lines, parted behind a sign that joins its parts where there is one; the end may be cut."""
    lines: list[str] = []
    while len(name) > most and len(lines) < _LINES - 1:
        joints = [place + 1 for place, sign in enumerate(name[:most]) if sign in "/:(,_- " and place > 2]
        at = joints[-1] if joints else most
        lines.append(name[:at])
        name = name[at:]
    return [*lines, _short(name, most)]


def _at(number: int) -> float:
    """Where a column's text ends."""
    return _NAME + _CELL * (number + 1)


def _text(cls: str, x: float, y: float, text: str, anchor: str = "end") -> Drawing:
    return shape("text", text, cls=cls, x=x, y=y, text_anchor=anchor)


def _rule(y: float, width: float) -> Drawing:
    return shape("line", cls="grid", x1=8.0, x2=width - 8, y1=y, y2=y)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
