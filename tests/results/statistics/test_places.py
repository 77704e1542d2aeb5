"""A compared pair counts as insufficient data exactly if the board says so of its second method."""

from __future__ import annotations

import numpy as np
import pytest

from results.statistics.difference import all_pairs as square_of
from results.statistics.intervals import all_pairs
from results.statistics.places import Standing, bands

SCORES = {
    "few clusters": np.array([[1.0] * 9, [0.0] + [1.0] * 8]),
    "one side": np.array([np.full(12, 0.25), np.linspace(0.0, 0.2, 12)]),
    "no difference": np.array([[1.0, 0.0] * 20, [0.0, 1.0] * 19 + [0.0, 0.0]]),
    "apart": np.array([np.ones(60), np.zeros(60)]),
}
STANDINGS = {"no difference": Standing.NO_DIFFERENCE, "apart": Standing.BEHIND}


@pytest.mark.parametrize("name", SCORES)
def test_pair_has_a_doubt_exactly_if_the_board_marks_it_untested(name: str) -> None:
    together = all_pairs(SCORES[name])
    standing = bands(square_of(SCORES[name]))[1].standing
    assert standing is STANDINGS.get(name, Standing.UNTESTED)
    assert bool(together.differences[0].doubt(together.p[0])) == (standing is Standing.UNTESTED)
