"""Intervals as small charts: positions on one axis per column."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.elements.marks import MEAN, Axis, axes, axis

VALUES = st.floats(-1e6, 1e6)
ESTIMATES = st.lists(st.tuples(VALUES, st.floats(0, 1e6)), min_size=1, max_size=20)


@given(ESTIMATES)
def test_axis_contains_every_interval_of_a_column_in_order(estimates: list[tuple[float, float]]) -> None:
    intervals = [(value - half, value + half) for value, half in estimates]
    result = axis(intervals)
    ends = {end for interval in intervals for end in interval}
    assert (result is None) == (len(ends) == 1)
    if result is None:
        return
    drawn = [result.whisker(value, *interval) for (value, _), interval in zip(estimates, intervals, strict=True)]
    positions = [node.numbers for node in drawn if node is not None]
    assert len(positions) == len(estimates)
    for position in positions:
        assert 0 <= position["low"] <= position["value"] <= position["high"] <= 1
    assert min(position["low"] for position in positions) == 0
    assert max(position["high"] for position in positions) == 1
    by_value = sorted(zip((value for value, _ in estimates), positions, strict=True), key=lambda pair: pair[0])
    assert all(a[1]["value"] <= b[1]["value"] for a, b in itertools.pairwise(by_value))


def test_whisker_positions_are_linear() -> None:
    node = Axis(10.0, 30.0).whisker(15.0, 10.0, 20.0, best=True)
    assert node is not None
    assert node.numbers == {"low": 0.0, "value": 0.25, "high": 0.5}
    assert "leading" in node.classes.split()


@pytest.mark.parametrize(("low", "high"), [(math.nan, 0.1), (0.5, math.nan)])
def test_cell_without_interval_is_not_drawn_and_does_not_widen_the_axis(low: float, high: float) -> None:
    assert Axis(0.0, 1.0).whisker(0.3, low, high) is None
    assert axis([(low, high), (0.4, 0.5), (0.6, 0.7)]) == axis([(0.4, 0.5), (0.6, 0.7)])
    assert axis([(low, high)]) is None


def test_controls_and_incomparable_cells_do_not_widen_the_axis() -> None:
    def cell(value: float, apart: str = "") -> SimpleNamespace:
        return SimpleNamespace(value=value, low=value - 0.05, high=value + 0.05, apart=apart)

    rows = [SimpleNamespace(key=key, control=key == "gold") for key in ("a", "b", "cheat", "gold")]
    columns = [SimpleNamespace(key="c", ranked=True), SimpleNamespace(key="cost", ranked=False)]
    cells = {
        ("a", "c"): cell(0.2),
        ("b", "c"): cell(0.4),
        ("cheat", "c"): cell(0.9, "contaminated"),
        ("gold", "c"): cell(1.0),
        ("a", "cost"): cell(3.0),
    }
    means = {"a": SimpleNamespace(value=0.3, low=0.2, high=0.4), "b": SimpleNamespace(value=0.5, low=0.4, high=0.6), "gold": cell(1.0)}
    board = SimpleNamespace(rows=rows, columns=columns, cells=cells, mean=lambda row: means.get(row.key))
    result = axes(board)  # type: ignore[arg-type]  # what it reads of a matrix
    assert set(result) == {"c", MEAN}
    assert (result["c"].low, result["c"].high) == pytest.approx((0.15, 0.45))
    assert (result[MEAN].low, result[MEAN].high) == pytest.approx((0.2, 0.6))
