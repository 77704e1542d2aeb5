"""Pooled differences against the plain stratified t interval, and against simulations with known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from results.statistics import tested
from results.statistics.difference import Range, paired
from results.statistics.holm import holm
from results.statistics.pooled import borda, pooled


def strata(gains: list[list[float]], questions: int = 50, seed: int = 0) -> list[tested.Tested]:
    """One stratum per inner list, of one row per gain: 30 % of 0/1 scores change."""
    rng, results = np.random.default_rng(seed), []
    for row in gains:
        up = (1 + np.array(row)[:, None] / 0.3) / 2
        change = rng.random((len(row), questions)) < 0.3
        delta = np.where(change, np.where(rng.random(change.shape) < up, 1.0, -1.0), 0.0)
        results.append(paired(np.maximum(delta, 0), np.maximum(-delta, 0), metric=Range()))
    return results


def test_strata_of_many_questions_pool_as_independent_means_do() -> None:
    parts = strata([[0.02], [0.0], [0.03]], 2000)
    (result,) = pooled(parts, [0, 1, 2])
    means = np.array([part.value[0] for part in parts])
    error = math.sqrt(sum(part.variance[0] for part in parts)) / 3
    assert result.value == pytest.approx(means.mean())
    assert (result.low, result.high) == pytest.approx(means.mean() + np.array([-1.96, 1.96]) * error, abs=0.02 * error)
    assert result.p == pytest.approx(2 * stats.norm.sf(abs(means.mean()) / error), rel=0.25)
    assert result.strata == 3


def test_strata_that_share_questions_are_taken_to_err_alike() -> None:
    (part,) = strata([[0.05]], 500)
    (once,), (alike,), (apart,) = (pooled(*part) for part in (([part], [0]), ([part] * 2, [3, 3]), ([part] * 2, [0, 1])))
    assert (alike.low, alike.high) == pytest.approx((once.low, once.high))
    assert apart.high - apart.low == pytest.approx((once.high - once.low) / math.sqrt(2))
    assert (once.low, once.high) == pytest.approx([float(end[0]) for end in part.interval()])


def test_a_method_that_is_better_everywhere_is_found_and_equal_ones_are_not() -> None:
    sets = 400
    better, equal = (strata([[gain] * sets for _ in range(8)], seed=3) for gain in (0.1, 0.0))
    # Each set is a family of its own here: uncorrected p-values.
    hits, false = ([row.p <= 0.05 for row in pooled(parts, range(8))] for parts in (better, equal))
    assert np.mean(hits) > 0.9
    assert np.mean([part.p <= 0.05 for part in better]) < 0.3
    assert np.mean(false) <= 0.05 + 3 * math.sqrt(0.05 / sets)


def test_intervals_leave_out_zero_exactly_if_the_corrected_test_rejects() -> None:
    results = pooled(strata([[gain / 100 for gain in range(0, 20, 2)] for _ in range(4)], seed=1), [0, 1, 2, 2])
    assert {row.p_holm <= 0.05 for row in results} == {True, False}
    assert [row.p_holm for row in results] == pytest.approx(holm([row.p for row in results]))
    for row in results:
        assert (row.p_holm <= 0.05) == (row.low > 0 or row.high < 0)


def test_strata_without_common_questions_or_numbers_are_not_tested() -> None:
    nothing = paired(np.full((1, 20), np.nan), np.zeros((1, 20)), metric=Range())
    (result,) = pooled([*strata([[0.1]]), nothing], [0, 1])
    assert math.isnan(result.p)
    assert math.isnan(result.value)
    with pytest.raises(ValueError, match="kin"):
        pooled([nothing], [0, 1])


def test_borda_counts_methods_that_are_beaten_on_each_benchmark_and_ties_as_half() -> None:
    values = np.array([[0.9, 0.5, 0.5], [0.1, 0.2, 0.3]])
    assert borda(values, higher_is_better=[True, True]).tolist() == [2.0, 1.5, 2.5]
    assert borda(values, higher_is_better=[True, False]).tolist() == [4.0, 1.5, 0.5]
