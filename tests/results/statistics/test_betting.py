"""Bets against an own gambler, exact enumeration, and the closed form of clusters that are all equal."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from results.statistics.betting import Bets
from results.statistics.difference import Range, paired
from results.statistics.intervals import difference

STAKES = ((0.98, 0.4), (0.55, 0.3), (0.3, 0.3))
"""Parts of the capital that can be lost at once, and with how much of it each gambler begins."""


def capital(scores: list[float], bar: float) -> float:
    """Of gamblers who bet on a mean above the bar, of scores in [0, 1]."""
    return sum(begun * math.prod(1 + bet / bar * (score - bar) for score in scores) for bet, begun in STAKES)


def bets(scores: list[float]) -> Bets:
    return Bets.of(np.array([scores]), np.ones((1, len(scores))), np.array([0.0]), np.array([1.0]))


def test_bounds_are_where_the_capital_reaches_its_bar() -> None:
    scores = np.random.default_rng(3).beta(2, 2, 9).tolist()
    low, high = (float(end[0]) for end in bets(scores).bounds(np.array([0.95])))
    assert low == pytest.approx(optimize.brentq(lambda bar: capital(scores, bar) - 40, 1e-6, np.mean(scores)))
    mirrored = [1 - score for score in scores]
    assert high == pytest.approx(1 - optimize.brentq(lambda bar: capital(mirrored, bar) - 40, 1e-6, np.mean(mirrored)))
    again = [float(end[0]) for end in bets(scores[::-1]).bounds(np.array([0.95]))]
    assert again == pytest.approx([low, high])


@pytest.mark.parametrize(("best", "share"), [(1.0, 0.3), (0.6, 0.5), (1.0, 0.02)])
def test_false_rejections_of_a_true_mean_are_rarer_than_stated_by_enumeration(best: float, share: float) -> None:
    mean, expected, rejected = best * share, 0.0, 0.0
    for row in itertools.product((0.0, best), repeat=8):
        chance = math.prod(share if score else 1 - share for score in row)
        p = float(bets(list(row)).p(np.array([mean]), above=True)[0])
        expected += chance * capital(list(row), mean)
        rejected += chance * (p <= 0.025)
    assert expected == pytest.approx(1)
    assert rejected <= 0.025


@pytest.mark.parametrize("clusters", [4, 9])
def test_equal_clusters_leave_little_more_than_the_closed_form(clusters: int) -> None:
    # With the whole capital on each, (1 - half) ** n = alpha / 2: no test of bounded means leaves less.
    least = 1 - 0.025 ** (1 / clusters)
    result = difference(np.full(clusters, 0.5), np.full(clusters, 0.5), metric=Range())
    assert least <= result.high <= 1.25 * least
    assert result.low == pytest.approx(-result.high)


def test_more_clusters_narrow_an_interval_to_the_size_of_their_spread() -> None:
    halves = {}
    for clusters in (5, 9, 10, 20, 50):
        delta = np.random.default_rng(clusters).normal(0, 0.1, clusters).clip(-1, 1)
        low, high = paired(np.maximum(delta, 0), np.maximum(-delta, 0), metric=Range()).interval()
        halves[clusters] = float(high[0] - low[0]) / 2
    assert list(halves.values()) == sorted(halves.values(), reverse=True)
    assert halves[20] < 0.2
    assert halves[50] < 0.08
