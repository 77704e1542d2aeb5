"""Pictures: names are complete where there is room, and the picture for phones is as wide as a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leaderboard.elements import pictures
from leaderboard.elements.pictures import NARROW, WIDTH, Picture, Point, forest, plot

LONG = "Whole passages, as many tokens"
NAMES = (LONG, "ARK", "n" * 200)


def texts(drawing: list[Any]) -> Iterator[tuple[float, str, str]]:
    """Yield position, alignment and content of each text."""
    for part in drawing[2]:
        if isinstance(part, list):
            if part[0] == "text":
                yield float(part[1]["x"]), part[1].get("text-anchor", "start"), part[2][0]
            yield from texts(part)


def points() -> list[Point]:
    return [Point(name, 10.0 ** (number + 1), 50.0 + number, 40.0, 60.0, name, "50") for number, name in enumerate(NAMES)]


def in_lines() -> Picture:
    drawn = forest([(point.name, [point]) for point in points()], "F1, × 100", "label", reference=50.0)
    assert drawn is not None
    return drawn


def against_cost() -> Picture:
    drawn = plot(points(), "tokens", "F1, × 100", "label", logarithmic=True, lines=False, named=True, front=points())
    assert drawn is not None
    return drawn


@pytest.mark.parametrize("draw", [in_lines, against_cost])
@pytest.mark.parametrize("width", [WIDTH, NARROW])
def test_texts_are_within_the_picture_and_long_names_are_complete(draw: Any, width: int) -> None:
    picture = draw()
    drawing = picture if width == WIDTH else picture.narrow
    assert drawing[1]["viewBox"].startswith(f"0 0 {width} ")
    shown = list(texts(drawing))
    assert LONG in [text for _, _, text in shown]
    assert "n" * 200 not in [text for _, _, text in shown]
    for x, anchor, text in shown:
        room = pictures._width(text)
        left = x - {"start": 0.0, "middle": room / 2, "end": room}[anchor]
        # Numbers at the ends of an axis may reach over its edge by half a digit.
        assert left >= -1
        assert left + room <= width + pictures._LETTER


def test_phone_gets_the_same_points_in_a_narrow_drawing() -> None:
    picture = in_lines()
    assert picture.to_json() == ["div", "chart", [picture, picture.narrow], {"title": "F1, × 100", "csv": picture.csv()}]
    for drawing in (picture, picture.narrow):
        marks = [part for part in drawing[2] if part[1].get("class", "").startswith("mark")]
        assert len(marks) == len(picture.points) == len(NAMES)
