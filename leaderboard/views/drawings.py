"""Charts as plain SVG, for pages that have no chart library: trees of elements, drawn by `assets/report.js`.

As in `leaderboard.elements.nodes` text is only ever a leaf, and elements and attributes come from short lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import scale_of
from leaderboard.elements.formats import Scale
from leaderboard.views import budget_view
from leaderboard.views.budget_view import AXES, kind, logarithmic, written
from results.board import Board, Row
from results.budgets import Axis, Spent

Drawing = list[Any]
"""`[tag, attributes, children]`; a child is a drawing or a text."""
TAGS = frozenset({"svg", "g", "line", "circle", "path", "text", "title"})
ATTRIBUTES = frozenset({"viewBox", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "d", "class", "text-anchor", "role", "aria-label"})
WIDTH = 860
_NAME = 190
_ROW = 30
_LONGEST = 26
_LETTER, _LETTERS_HIGH = 6.6, 14.0
"""Pixels of a letter of a name, generously, and of a line."""
METHOD, CONTROL, PARTIAL, APART, FRONT = "of-method", "of-control", "of-partial", "of-apart", "of-front"
_CLASSES = {budget_view.ON: FRONT, budget_view.BEATEN: METHOD, budget_view.CONTROL: CONTROL, budget_view.PARTIAL: PARTIAL}


def shape(tag: str, *children: Drawing | str, **attributes: str | float) -> Drawing:
    """An element; `cls` is its class, underscores in names stand for hyphens.

    Raises:
        ValueError: A tag or attribute that drawings do not use.
    """
    given = {"class" if name == "cls" else name.replace("_", "-"): value for name, value in attributes.items()}
    if tag not in TAGS or not given.keys() <= ATTRIBUTES:
        raise ValueError(f"drawings have no <{tag}> with {sorted(given)}")
    return [tag, {name: _number(value) for name, value in given.items()}, list(children)]


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.1f}"


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers from low to high, a step of 1, 2 or 5 times a power of ten apart.

    Args:
        low, high: The range; they may be equal.
        most: How many at most.
    """
    width = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next(power * by for by in (1, 2, 5, 10, 20) if width / (power * by) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [(first + number) * step for number in range(int(math.floor(high / step + 1e-9) - first) + 1)]


@dataclass(frozen=True, slots=True)
class _Line:
    """From values to places: linear, or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (min(max(at, low), high) - low) / ((high - low) or 1.0)
        return self.start + share * (self.end - self.start)

    def marks(self) -> list[float]:
        """Where to put grid lines."""
        if not self.log:
            return [tick for tick in ticks(self.low, self.high) if self.low <= tick <= self.high + 1e-9]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        return [10.0**power for power in powers if self.low <= 10.0**power <= self.high]


def _range(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    low, high = min(known), max(known)
    room = 0.04 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def intervals(board: Board, rows: Sequence[Row], metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Drawing | None:
    """A dot with its 95 % interval per run; a dashed line at the reference; None where no run has a value.

    Args:
        board: For its reference.
        rows: In the order to draw, top first.
        metric: What is drawn.
        definitions: Metric definitions by id.
    """
    scale = scale_of(metric, definitions)
    drawn = [row for row in rows if metric in row.cells and not formats.missing(row.cells[metric].estimate.value)]
    if not drawn:
        return None
    found = [row.cells[metric].estimate for row in drawn]
    low, high = _range([scale.factor * bound for one in found for bound in (one.value, one.low, one.high)])
    x = _Line(low, high, _NAME, WIDTH - 20)
    bottom = len(drawn) * _ROW + 8
    parts = [_grid_x(x, 4, bottom), _caption(x, bottom, f"{formats.metric_name(metric)[0]}, {scale.unit}")]
    for row, one in zip(drawn, found, strict=True):
        if row.run.method == board.reference and not row.control:
            at = x(one.value * scale.factor)
            parts.append(shape("line", cls="reference", x1=at, x2=at, y1=4.0, y2=float(bottom)))
    for number, (row, one) in enumerate(zip(drawn, found, strict=True)):
        y = number * _ROW + _ROW / 2 + 4
        words = f"{row.run.method}: {scale.value(one.value)} {scale.interval(one.low, one.high)}, n = {one.n:,}"
        why = row.cells[metric].apart
        cls = CONTROL if row.control else PARTIAL if row.run.status != "finished" else APART if why else METHOD
        if cls == APART:
            words += f"; not comparable: {why}"
        mark = [shape("title", words), shape("text", _short(row.run.method), cls="name", x=float(_NAME - 12), y=y + 4, text_anchor="end")]
        if not math.isnan(one.low):
            mark.append(shape("line", x1=x(one.low * scale.factor), x2=x(one.high * scale.factor), y1=y, y2=y))
        mark.append(_mark(cls, x(one.value * scale.factor), y))
        parts.append(shape("g", *mark, cls=f"mark {cls}"))
    return _picture(parts, bottom + 46, f"{formats.metric_label(metric)} with 95 % intervals")


def pareto(rows: Sequence[Spent], axis: Axis, metric: str, scale: Scale) -> Drawing | None:
    """Runs by cost and quality, with the step line of the front; None where no run has both.

    Controls are left out: what the gold answer costs says nothing, and would stretch the axis.

    Args:
        rows: As `results.budgets.quality_budget` gives them.
        axis: What cost is.
        metric: What quality is.
        scale: How it is written.
    """
    drawn = [one for one in rows if not math.isnan(one.x) and not one.row.control]
    if not drawn:
        return None
    log = logarithmic([one.x for one in drawn])
    xs = [one.x for one in drawn]
    low, high = (min(xs) / 1.3, max(xs) * 1.3) if log else _range(xs)
    x = _Line(low, high, 60, WIDTH - 120, log)
    bottom = 320.0
    bounds = [scale.factor * bound for one in drawn for bound in (one.value.value, one.value.low, one.value.high)]
    y = _Line(*_range(bounds), bottom, 12.0)
    parts = [_grid_x(x, 12, bottom), _caption(x, bottom, AXES[axis])]
    for tick in y.marks():
        parts.append(shape("line", cls="grid", x1=60.0, x2=float(WIDTH - 120), y1=y(tick), y2=y(tick)))
        parts.append(shape("text", f"{tick:g}", cls="tick", x=52.0, y=y(tick) + 4, text_anchor="end"))
    at = [(x(one.x), y(one.value.value * scale.factor)) for one in drawn]
    front = [place for one, place in zip(drawn, at, strict=True) if one.front]
    if len(front) > 1:
        path = f"M {front[0][0]:.1f} {front[0][1]:.1f}" + "".join(f" H {a:.1f} V {b:.1f}" for a, b in front[1:])
        parts.append(shape("path", cls="front", d=path))
    parts += [_spent(one, place, y, axis, scale) for one, place in zip(drawn, at, strict=True)]
    parts += _names([(_short(one.row.run.method), one.front, *place) for one, place in zip(drawn, at, strict=True)])
    return _picture(parts, int(bottom) + 46, f"{formats.metric_name(metric)[0]} ({scale.unit}); {AXES[axis]}")


def _spent(one: Spent, at: tuple[float, float], y: _Line, axis: Axis, scale: Scale) -> Drawing:
    value = one.value
    cls = _CLASSES[kind(one)]
    words = (
        f"{one.row.run.method}: {scale.value(value.value)} {scale.interval(value.low, value.high)} at {written(one.x, axis)} ({kind(one)})"
    )
    parts = [shape("title", words)]
    if not math.isnan(value.low):
        ends = y(value.low * scale.factor), y(value.high * scale.factor)
        parts.append(shape("line", x1=at[0], x2=at[0], y1=ends[0], y2=ends[1]))
    return shape("g", *parts, _mark(cls, *at), cls=f"mark {cls}")


def _names(points: Sequence[tuple[str, bool, float, float]]) -> list[Drawing]:
    """Names beside points (name, whether on the front, x, y), the front's first; those without room are left out.

    Every point says its name on hover, and stands in the table.
    """
    taken: list[tuple[float, float]] = []
    spans: list[tuple[float, float]] = []
    drawn = []
    for name, _, x, y in sorted(points, key=lambda point: (not point[1], point[3])):
        width = _LETTER * len(name)
        for left, anchor in ((x + 9, "start"), (x - 9 - width, "end")):
            span = (left, left + width)
            crossed = any(
                abs(y - other) < _LETTERS_HIGH and span[0] < end and start < span[1]
                for (_, other), (start, end) in zip(taken, spans, strict=True)
            )
            if span[0] >= 0 and span[1] <= WIDTH and not crossed:
                taken.append((x, y))
                spans.append(span)
                place = x + 9 if anchor == "start" else x - 9
                drawn.append(shape("text", name, cls="name", x=place, y=y - 6, text_anchor=anchor))
                break
    return drawn


def _mark(cls: str, x: float, y: float) -> Drawing:
    """A circle, and for what is not a plain method another shape: colour is never all."""
    if cls == CONTROL:
        return shape("path", cls="dot", d=f"M {x:.1f} {y - 6:.1f} l 6 6 l -6 6 l -6 -6 Z")
    if cls == PARTIAL:
        return shape("path", cls="dot", d=f"M {x - 5:.1f} {y - 5:.1f} h 10 v 10 h -10 Z")
    if cls == APART:
        cross = "h 4 v 4 h 4 v 4 h -4 v 4 h -4 v -4 h -4 v -4 h 4 Z"
        return shape("path", cls="dot", d=f"M {x - 2:.1f} {y - 6:.1f} {cross}")
    if cls == FRONT:
        return shape("path", cls="dot", d=f"M {x:.1f} {y - 6:.1f} l 6 11 h -12 Z")
    return shape("circle", cls="dot", cx=x, cy=y, r=5.0)


def _grid_x(x: _Line, top: float, bottom: float) -> Drawing:
    lines: list[Drawing] = []
    for tick in x.marks():
        lines.append(shape("line", cls="grid", x1=x(tick), x2=x(tick), y1=float(top), y2=float(bottom)))
        lines.append(shape("text", f"{tick:,.10g}", cls="tick", x=x(tick), y=bottom + 16, text_anchor="middle"))
    return shape("g", *lines)


def _caption(x: _Line, bottom: float, text: str) -> Drawing:
    return shape("text", text, cls="tick", x=(x.start + x.end) / 2, y=bottom + 36, text_anchor="middle")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _picture(parts: list[Drawing], height: float, label: str) -> Drawing:
    return shape("svg", *parts, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", aria_label=label)
