from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from results.statistics.bootstrap import sign_flip_ps
from results.statistics.intervals import difference, differences, estimate, estimates, holm

scores = st.lists(st.floats(0, 1), min_size=2, max_size=40)


@pytest.mark.slow
def test_interval_agrees_with_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(3).random(400)
    ours = estimate(values, seed=1)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=9999, rng=2).confidence_interval
    assert ours.value == pytest.approx(values.mean(), abs=1e-12)
    assert ours.low == pytest.approx(theirs.low, abs=2e-3)
    assert ours.high == pytest.approx(theirs.high, abs=2e-3)


def test_interval_of_a_binary_score_is_close_to_the_normal_one() -> None:
    values = np.repeat([0.0, 1.0], [300, 700])
    ours = estimate(values)
    half = 1.96 * math.sqrt(0.7 * 0.3 / 1000)
    assert ours.high - ours.low == pytest.approx(2 * half, rel=0.05)


def test_unscorable_questions_leave_the_denominator_and_are_counted() -> None:
    result = estimate([1.0, 0.0, float("nan"), 1.0])
    assert (result.value, result.n, result.unscorable) == (pytest.approx(2 / 3), 3, 1)


def test_a_single_question_has_a_value_but_no_interval() -> None:
    result = estimate([0.5])
    assert result.value == 0.5
    assert math.isnan(result.low)
    assert math.isnan(result.high)


def test_no_scorable_question_gives_no_value() -> None:
    assert math.isnan(estimate([float("nan")]).value)
    assert math.isnan(estimate([]).value)


def test_questions_of_one_document_are_resampled_together() -> None:
    # Ten documents of twenty equal scores each say as much as ten questions.
    per_document = np.random.default_rng(0).integers(0, 2, 10).astype(float)
    repeated = np.repeat(per_document, 20)
    documents = [f"d{number}" for number in range(10) for _ in range(20)]
    alone = estimate(per_document, seed=5)
    clustered = estimate(repeated, clusters=documents, seed=5)
    naive = estimate(repeated, seed=5)
    assert (clustered.low, clustered.high) == (pytest.approx(alone.low), pytest.approx(alone.high))
    assert naive.high - naive.low < 0.5 * (clustered.high - clustered.low)


def test_clusters_of_one_are_no_clusters() -> None:
    values = np.random.default_rng(1).random(30)
    assert estimate(values, clusters=[None] * 30).n == 30
    lone = estimate(values, clusters=[None] * 30)
    plain = estimate(values)
    assert lone.high - lone.low == pytest.approx(plain.high - plain.low, rel=0.1)


def test_sign_flip_p_agrees_with_full_enumeration() -> None:
    units = np.array([0.3, -0.1, 0.25, 0.4, -0.05, 0.15, 0.2, -0.3, 0.35, 0.1])
    observed = abs(units.sum())
    flips = [abs(np.dot(signs, units)) >= observed - 1e-12 for signs in itertools.product((-1, 1), repeat=len(units))]
    assert sign_flip_ps(units[:, None], 0, 40_000) == pytest.approx(np.mean(flips), abs=0.01)


def test_p_is_never_zero_and_identical_methods_have_p_one() -> None:
    assert sign_flip_ps(np.ones((500, 1)), 0, 999) == pytest.approx(1 / 1000)
    assert difference([0.3, 0.7, 1.0], [0.3, 0.7, 1.0]).p == 1.0


def test_difference_counts_wins_ties_and_losses_on_shared_questions_only() -> None:
    result = difference([1.0, 0.5, 0.0, float("nan")], [0.0, 0.5, 1.0, 1.0])
    assert (result.wins, result.ties, result.losses, result.n) == (1, 1, 1, 3)
    assert result.value == 0.0


def test_scores_of_different_question_sets_are_never_paired() -> None:
    with pytest.raises(ValueError, match="same questions"):
        difference([1.0, 0.0], [1.0])


def test_holm_agrees_with_the_textbook_table() -> None:
    # Step-down: sorted p times the number of hypotheses left, made monotone.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_ignores_what_could_not_be_tested() -> None:
    adjusted = holm([0.01, float("nan"), 0.2])
    assert adjusted[0] == pytest.approx(0.02)
    assert math.isnan(adjusted[1])


@settings(max_examples=30, deadline=None)
@given(scores)
def test_interval_holds_the_value_and_stays_in_the_range_of_the_scores(values: list[float]) -> None:
    result = estimate(values, resamples=500)
    assert min(values) - 1e-9 <= result.low <= result.high <= max(values) + 1e-9
    assert min(values) - 1e-9 <= result.value <= max(values) + 1e-9


@settings(max_examples=30, deadline=None)
@given(scores, st.integers(0, 5))
def test_equal_seeds_give_equal_results_and_swapping_flips_the_sign(values: list[float], seed: int) -> None:
    other = values[::-1]
    item = difference(values, other, seed=seed, resamples=300)
    again = difference(values, other, seed=seed, resamples=300)
    swapped = difference(other, values, seed=seed, resamples=300)
    assert item == again
    assert swapped.value == pytest.approx(-item.value, abs=1e-12)
    assert swapped.p == pytest.approx(item.p)
    assert (swapped.wins, swapped.losses) == (item.losses, item.wins)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 25), st.booleans())
def test_many_columns_at_once_are_each_on_its_own(seed: int, columns: int, questions: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random((2, columns, questions))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    clusters = [f"d{number}" for number in rng.integers(0, 4, questions)] if clustered else None
    options = {"clusters": clusters, "resamples": 200}
    together = estimates(scores[0], **options)
    for item, column in zip(together, scores[0], strict=True):
        alone = estimate(column, **options)
        assert (item.n, item.unscorable) == (alone.n, alone.unscorable)
        assert np.allclose([item.value, item.low, item.high], [alone.value, alone.low, alone.high], equal_nan=True)
    for pair, a, b in zip(differences(*scores, **options), *scores, strict=True):
        alone_pair = difference(a, b, **options)
        assert (pair.wins, pair.ties, pair.losses, pair.p) == (alone_pair.wins, alone_pair.ties, alone_pair.losses, alone_pair.p)
        assert np.allclose([pair.value, pair.low], [alone_pair.value, alone_pair.low], equal_nan=True)
