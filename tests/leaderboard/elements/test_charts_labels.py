"""Names of points on a chart do not stand on each other."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from leaderboard.elements.charts import LEFT, RIGHT, Point, placed

numbers = st.integers(0, 400).map(float)


def point(x: float, value: float, name: str = "m") -> Point:
    return Point("on the front", x, value, value - 1, value + 1, name, "shown")


@given(st.lists(st.tuples(numbers, numbers), max_size=8), st.booleans())
def test_names_of_near_points_stand_apart(at: list[tuple[float, float]], logarithmic: bool) -> None:
    rows = placed([point(x + 1, value, str(n)) for n, (x, value) in enumerate(at)], logarithmic=logarithmic)
    assert sorted(row["name"] for row in rows) == sorted(str(n) for n in range(len(at)))
    if not rows:
        return
    xs = [math.log(row["x"]) if logarithmic else row["x"] for row in rows]
    width = (max(xs) - min(xs)) or 1.0
    height = max(row["high"] for row in rows) - min(row["low"] for row in rows)
    for (item, x), (other, y) in combinations(zip(rows, xs, strict=True), 2):
        if abs(x - y) / width < 0.001 and item["align"] == other["align"]:
            assert abs(item["label"] - other["label"]) > 0.04 * height
    assert all(row["label"] <= row["value"] for row in rows)


def test_a_name_at_the_right_edge_stands_left_of_its_point_and_what_has_no_value_has_no_name() -> None:
    rows = placed([point(0, 1, "a"), point(10, 2, "b"), point(5, math.nan, "c")])
    assert {row["name"]: row["align"] for row in rows} == {"a": LEFT, "b": RIGHT}


def test_in_a_crowd_a_name_that_would_stand_far_from_its_point_is_left_out() -> None:
    crowd = [point(5, 10 + n / 100, str(n)) for n in range(20)] + [point(0, 0, "low"), point(10, 100, "high")]
    assert len(placed(crowd)) == len(crowd)
    rows = placed(crowd, within=2)
    assert {"low", "high", "19"} < {row["name"] for row in rows}
    assert len(rows) == 5
    assert all(row["value"] - row["label"] <= 2 * 0.045 * 102 + 1e-9 for row in rows)


def test_a_name_stands_left_of_its_point_where_an_interval_is_on_the_right_alone() -> None:
    tall = Point("beaten", 148, 90, 80, 98, "tall", "shown")
    rows = placed([point(137, 93, "beside"), tall, point(16, 0, "first"), point(250, 79, "last")])
    sides = {row["name"]: row["align"] for row in rows}
    assert sides == {"beside": RIGHT, "tall": LEFT, "first": LEFT, "last": RIGHT}
    # With another on its left, too, nothing is won.
    crowd = placed([point(137, 93, "beside"), tall, point(130, 93, "before"), point(16, 0, "a"), point(250, 79, "z")])
    assert {row["name"]: row["align"] for row in crowd}["beside"] == LEFT
