"""Charts of the comparison page: questions won, tied and lost, and one run's scores against another's.

Drawn as page elements: loading a chart library took longer than all else that the page does before it stands there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leaderboard.elements import formats
from leaderboard.elements.formats import Scale
from leaderboard.elements.nodes import Node, el
from leaderboard.views.compare_view import names
from leaderboard.views.drawings import ticks
from results.comparison import Comparison

OUTCOMES = ("won", "tied", "lost")
_SAID = {"won": "first better", "tied": "equal", "lost": "second better"}
_ROOM = 0.04
"""Share of a bar from which on its count fits in."""
_LEAST, _LARGEST = 60.0, 900.0
"""Square pixels of a mark of one question, and of the mark of the most."""
_EXAMPLE = 200


@dataclass(frozen=True, slots=True)
class Point:
    """A pair of scores that occurs, as shown.

    Attributes:
        x, y: The scores of one run and of the other.
        questions: On how many questions they occur.
        example: One of those.
        side: Of the diagonal: `above`, `on` or `below`.
    """

    x: float
    y: float
    questions: int
    example: str
    side: str


def shares(found: Comparison, *, higher_is_better: bool) -> Node:
    """One bar a pair: the shares of questions on which the first is better, equal, or worse, with their counts."""
    called, lines = names(found), []
    for pair in found.pairs:
        one = pair.difference
        won, lost = (one.wins, one.losses) if higher_is_better else (one.losses, one.wins)
        parts = []
        for outcome, count in zip(OUTCOMES, (won, one.ties, lost), strict=True):
            share = count / one.n
            told = f"{_SAID[outcome]}: {count:,} of {one.n:,} questions in common"
            parts.append(el("span", f"{count:,}" if share > _ROOM else None, cls=f"{outcome} hover", numbers={"share": share}, tip=told))
        lines.append(
            el(
                "div",
                el("span", f"{called[pair.first]} / {called[pair.second]}", cls="bar-name"),
                el("span", *parts, cls="bar"),
                cls="bar-line",
            )
        )
    marks = [el("span", f"{percent}%", numbers={"at": percent / 100}) for percent in (0, 25, 50, 75, 100)]
    axis = el("div", el("span", "share of questions", cls="bar-name"), el("span", *marks, cls="bar-axis"), cls="bar-line")
    alt = "Shares of questions on which the first run of each pair is better, equal or worse; the numbers are in the table above"
    return el("div", *lines, axis, cls="bars", role="img", label=alt)


def scatter(drawn: Sequence[Point], first: str, second: str, shown: Scale) -> Node:
    """One mark for each pair of scores that occurs; its area says on how many questions.

    Args:
        drawn: What `points` found; what is infinite has no place.
        first: The run along the x axis, by name.
        second: The run along the y axis.
        shown: The metric's scale.
    """
    placed = [point for point in drawn if math.isfinite(point.x) and math.isfinite(point.y)]
    ends = [value for point in placed for value in (point.x, point.y)] or [0.0, 1.0]
    low, high = min(ends), max(ends)
    high = high if high > low else low + 1
    most = max((point.questions for point in placed), default=1)

    def place(value: float) -> float:
        return (value - low) / (high - low)

    grid: list[Node] = []
    for tick in ticks(low, high):
        label = f"{tick:,.10g}".replace("-", "−")
        grid += [el("span", el("span", label), cls=f"grid-{axis}", numbers={"at": place(tick)}) for axis in "xy"]
    marks = [
        el(
            "span",
            cls=f"point {point.side} hover",
            tip=_told(point, first, second),
            numbers={"x": place(point.x), "y": place(point.y), "size": _width(point, most)},
        )
        # Those of few questions last: they would vanish behind the others.
        for point in sorted(placed, key=lambda point: -point.questions)
    ]
    inner = el("div", *grid, el("span", cls="diagonal"), *marks, cls="plot-inner")
    return el(
        "div",
        el("span", f"{second}, {shown.unit}", cls="plot-y"),
        el("div", inner, cls="plot-area"),
        el("span", f"{first}, {shown.unit}", cls="plot-x"),
        cls="plot",
        role="img",
        label="Scores of one run against the other's, one mark for each pair of scores that occurs",
    )


def _told(point: Point, first: str, second: str) -> str:
    text = point.example if len(point.example) <= _EXAMPLE else f"{point.example[:_EXAMPLE]}…"
    questions = "1 question" if point.questions == 1 else f"{point.questions:,} questions"
    return f"{questions}: {first} {point.x:.1f}, {second} {point.y:.1f}. For example: {text}"


def _width(point: Point, most: int) -> float:
    """Pixels; a circle and a triangle of the same questions have the same area."""
    area = max(_LEAST, _LARGEST * point.questions / most)
    return math.sqrt(4 * area / math.pi) if point.side == "on" else math.sqrt(2 * area)


def points(found: Comparison, first: int, second: int, shown: Scale) -> list[Point]:
    """Every pair of scores that occurs, with the number of questions, an example, and its side of the diagonal."""
    scored = [
        (float(x), float(y), row.text)
        for x, y, row in zip(found.values[first], found.values[second], found.questions, strict=True)
        if not formats.missing(x) and not formats.missing(y)
    ]
    examples = {(x, y): text for x, y, text in reversed(scored)}
    return [
        Point(x * shown.factor, y * shown.factor, count, examples[x, y], "above" if y > x else "below" if y < x else "on")
        for (x, y), count in Counter((x, y) for x, y, _ in scored).items()
    ]
