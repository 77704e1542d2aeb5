"""The closed form says what resampling says, and what enumerating says where everything can be enumerated."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_rel

from results.statistics.closed_form import Moments, all_differences, bands, holm_array, means
from results.statistics.intervals import differences, estimates, holm, sign_flip_all_pairs


def methods(questions: int = 400, number: int = 6, seed: int = 0, gaps: float = 0.0) -> np.ndarray:
    """Graded scores of methods that find the same questions hard."""
    rng = np.random.default_rng(seed)
    hard = rng.random(questions)
    right = np.stack([0.6 * hard + 0.4 * rng.random(questions) < skill for skill in np.linspace(0.4, 0.6, number)])
    scores = np.where(rng.random(right.shape) < 0.2, rng.random(right.shape), right.astype(float))
    return np.where(rng.random(scores.shape) < gaps, np.nan, scores)


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [0.0, 0.1])
@pytest.mark.parametrize("clustered", [False, True])
def test_means_and_differences_are_those_of_resampling(gaps: float, clustered: bool) -> None:
    scores = methods(gaps=gaps)
    clusters = [f"d{n // 4}" if n % 9 else None for n in range(scores.shape[1])] if clustered else None
    own, pairs = means(scores, clusters=clusters), all_differences(scores, clusters=clusters)
    for row, result in enumerate(estimates(scores, clusters=clusters)):
        assert own.value[row] == pytest.approx(result.value)
        assert own.n[row] == result.n
        assert own.units[row] == result.units
        assert own.half[row] == pytest.approx((result.high - result.low) / 2, rel=0.06)
    for row, result in enumerate(differences(scores[1:], scores[:-1], clusters=clusters)):
        at = row + 1, row
        assert pairs.value[at] == pytest.approx(result.value)
        assert pairs.n[at] == result.n
        assert pairs.half[at] == pytest.approx((result.high - result.low) / 2, rel=0.06)
        assert pairs.p[at] == pytest.approx(result.p, abs=0.015)


def test_a_paired_difference_without_clusters_is_the_paired_t_test() -> None:
    scores = methods(number=3)
    pairs = all_differences(scores)
    expected = ttest_rel(scores[2], scores[0])
    assert pairs.p[2, 0] == pytest.approx(expected.pvalue, rel=1e-9)
    low, high = expected.confidence_interval()
    assert pairs.value[2, 0] - pairs.half[2, 0] == pytest.approx(low)
    assert pairs.value[2, 0] + pairs.half[2, 0] == pytest.approx(high)


def test_what_is_right_or_wrong_is_the_exact_sign_test() -> None:
    rng = np.random.default_rng(1)
    scores = (rng.random((4, 60)) < np.array([[0.4], [0.5], [0.7], [0.9]])).astype(float)
    pairs = all_differences(scores)
    for i, j in itertools.combinations(range(4), 2):
        wins, losses = int((scores[i] > scores[j]).sum()), int((scores[i] < scores[j]).sum())
        assert pairs.changed[i, j] == wins + losses
        assert pairs.p[i, j] == pytest.approx(binomtest(wins, wins + losses).pvalue)


@pytest.mark.slow
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=10))
@settings(deadline=None)
def test_no_p_value_is_below_what_all_sign_flips_could_give(deltas: list[int]) -> None:
    column = np.array(deltas, dtype=float)
    result = all_differences(np.stack([column, np.zeros(len(column))]))
    sums = [abs(float(np.dot(signs, column))) for signs in itertools.product((-1, 1), repeat=len(column))]
    least = 2 * min(sum(item >= max(sums) for item in sums) // 2, 1) / len(sums)
    assert result.p[0, 1] >= least - 1e-12
    sizes = {abs(delta) for delta in deltas} - {0}
    if len(sizes) <= 1:  # coin tosses: the exact value
        exact = sum(item >= abs(column.sum()) - 1e-9 for item in sums) / len(sums)
        assert result.p[0, 1] == pytest.approx(exact)


@given(st.integers(2, 7), st.integers(1, 30), st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_all_pairs_are_antisymmetric_and_leave_their_input_alone(number: int, questions: int, seed: int) -> None:
    scores = methods(questions, number, seed, gaps=0.3)
    before = scores.copy()
    result = all_differences(scores, clusters=[f"d{n // 3}" for n in range(questions)])
    assert np.array_equal(scores, before, equal_nan=True)
    assert np.array_equal(result.value, -result.value.T, equal_nan=True)
    assert np.array_equal(result.p, result.p.T, equal_nan=True)
    known = result.p[~np.isnan(result.p)]
    assert ((known >= 0) & (known <= 1)).all()
    assert (result.p.diagonal() == 1).all()


def test_equal_methods_do_not_differ_and_one_question_has_no_interval() -> None:
    same = all_differences(np.array([[1.0, 0.5, 0.0]] * 2))
    assert (same.p == 1).all()
    assert (same.value == 0).all()
    alone = means(np.array([[1.0], [np.nan]]))
    assert alone.value[0] == 1.0
    assert np.isnan(alone.half).all()
    assert np.isnan(alone.value[1])
    assert list(alone.n) == [1, 0]


def test_a_test_of_equal_methods_rejects_no_more_often_than_it_says() -> None:
    rng = np.random.default_rng(5)
    rejected = 0
    for _ in range(30):
        hard = rng.random(200)
        scores = np.where(rng.random((12, 200)) < 0.3, rng.random((12, 200)), (hard < 0.5).astype(float))
        p = all_differences(scores).p[np.triu_indices(12, 1)]
        rejected += int((p < 0.05).sum())
    assert 0.03 < rejected / (30 * 66) < 0.07


def test_bands_are_those_of_sign_flips() -> None:
    scores = methods(300, 6, seed=2)
    means_, p = scores.mean(axis=1), sign_flip_all_pairs(scores)
    upper = np.triu_indices(6, 1)
    certain = np.zeros((6, 6), dtype=bool)
    certain[upper] = np.array(holm(list(p[upper]))) <= 0.05
    certain |= certain.T
    assert certain.any()
    for row, band in enumerate(bands(all_differences(scores))):
        better = means_ > means_[row]
        assert band.rank == 1 + better.sum()
        assert abs(band.low - (1 + (certain[row] & better).sum())) <= 1
        assert abs(band.high - (6 - (certain[row] & ~better).sum())) <= 1
        assert band.best == (not (certain[row] & better).any())


def test_less_can_be_better_and_the_best_is_never_separable_from_itself() -> None:
    scores = np.stack([np.full(50, 0.0), np.full(50, 1.0)]) + np.random.default_rng(0).normal(0, 0.1, (2, 50))
    pairs = all_differences(scores)
    more, less = bands(pairs), bands(pairs, higher_is_better=False)
    assert [band.rank for band in more] == [2, 1]
    assert [band.rank for band in less] == [1, 2]
    assert (more[1].best, more[0].best) == (True, False)
    assert (less[0].low, less[0].high, less[1].low, less[1].high) == (1, 1, 2, 2)
    nobody = Moments(*(np.zeros((0, 0)) for _ in Moments.__slots__))
    assert bands(nobody) == []


def test_a_rank_lies_within_its_band_where_methods_were_scored_on_other_questions() -> None:
    rng = np.random.default_rng(3)
    easy = np.where(rng.random(200) < 0.9, 1.0, 0.0)
    # Scored on the easiest questions alone, and worse on each of them than a method that was scored on all.
    lucky = np.where(np.arange(200) < 50, 0.9, np.nan)
    sound = np.where(np.arange(200) < 50, 1.0, 0.2 * easy)
    results = bands(all_differences(np.stack([lucky, sound])))
    assert np.nanmean(lucky) > np.nanmean(sound)
    assert [(band.rank, band.low, band.high, band.best) for band in results] == [(2, 2, 2, False), (1, 1, 1, True)]
    apart = bands(all_differences(np.array([[1.0, np.nan], [np.nan, 0.0]])))
    assert [(band.rank, band.best) for band in apart] == [(1, True), (1, True)]


@given(st.integers(0, 2**16), st.integers(2, 6), st.booleans())
def test_a_run_significantly_worse_than_any_other_is_not_among_the_best(seed: int, count: int, higher: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 1, (count, 30)) + rng.normal(0, 1, (count, 1))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    for band in bands(all_differences(scores), higher_is_better=higher):
        assert band.low <= band.rank <= band.high
        assert band.best == (band.low == 1)


@given(st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), max_size=12))
def test_holm_of_an_array_is_holm(p: list[float]) -> None:
    assert np.allclose(holm_array(np.array(p, dtype=float)), np.array(holm(p)), equal_nan=True)
