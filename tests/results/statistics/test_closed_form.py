"""The one engine against SciPy, naive loops and root finding; interval, test and insufficient data never contradict each other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from results.statistics.closed_form import Moments, all_differences, bands, means, paired
from results.statistics.intervals import (
    all_pairs,
    benjamini_hochberg,
    difference,
    differences,
    differences_together,
    estimate,
    estimates,
    holm,
)

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def methods(questions: int = 400, number: int = 6, seed: int = 0, gaps: float = 0.0) -> np.ndarray:
    """Graded scores of methods that find the same questions hard."""
    rng = np.random.default_rng(seed)
    hard = rng.random(questions)
    right = np.stack([0.6 * hard + 0.4 * rng.random(questions) < skill for skill in np.linspace(0.4, 0.6, number)])
    scores = np.where(rng.random(right.shape) < 0.2, rng.random(right.shape), right.astype(float))
    return np.where(rng.random(scores.shape) < gaps, np.nan, scores)


def labels(questions: int, seed: int) -> list[str | None]:
    clusters = np.random.default_rng(seed).integers(0, max(questions // 4, 1), questions)
    return [None if cluster % 7 == 0 else f"d{cluster}" for cluster in clusters]


def plainly(delta: np.ndarray, clusters: list[str | None]) -> tuple[float, float, float, float]:
    """Mean, standard error, skewness and degrees of freedom, cluster by cluster."""
    grouped: dict[object, list[float]] = {}
    for number, (value, label) in enumerate(zip(delta, clusters, strict=True)):
        if not math.isnan(value):
            grouped.setdefault(number if label is None else label, []).append(float(value))
    n = sum(map(len, grouped.values()))
    mean = sum(map(sum, grouped.values())) / n
    rest = [sum(values) - mean * len(values) for values in grouped.values()]
    sizes = [len(values) for values in grouped.values()]
    lost = 2 * sum(c**3 for c in sizes) / (n * sum(c**2 for c in sizes)) - sum(c**2 for c in sizes) / n**2
    square = sum(e**2 for e in rest)
    changed = sum(abs(sum(values)) > 1e-12 for values in grouped.values())
    freedom = min(n**2 / sum(c**2 for c in sizes), max(changed, 2)) - 1
    return mean, math.sqrt(square / (1 - lost)) / n, sum(e**3 for e in rest) / square**1.5, freedom


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_where_the_test_of_the_naive_sums_turns(seed: int, clustered: bool) -> None:
    a, b = methods(200, 2, seed, gaps=0.1)
    clusters = labels(200, seed) if clustered else [None] * 200
    mean, error, skew, freedom = plainly(a - b, clusters)

    def p_above(bar: float) -> float:
        t = (mean - bar) / error
        return float(stats.t.sf(min(t, t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6), freedom))

    result = difference(a, b, clusters=clusters)
    assert result.value == pytest.approx(mean)
    assert result.low == pytest.approx(optimize.brentq(lambda bar: p_above(bar) - 0.025, mean - 6 * error, mean))
    assert paired(a, b, clusters=clusters).p_above(-0.02)[0] == pytest.approx(p_above(-0.02))
    turned = difference(b, a, clusters=clusters)
    assert (turned.low, turned.high) == (pytest.approx(-result.high), pytest.approx(-result.low))


def test_without_skewness_and_ties_it_is_the_t_test() -> None:
    half = np.abs(np.random.default_rng(0).normal(size=40)) + 0.1
    delta = np.r_[half, -half] + 0.3
    result = difference(delta, 0 * delta)
    expected = stats.ttest_1samp(delta, 0)
    assert result.p == pytest.approx(expected.pvalue)
    assert (result.low, result.high) == pytest.approx(tuple(expected.confidence_interval()))


def test_shares_have_the_exact_binomial_interval_and_wins_the_exact_sign_test() -> None:
    for won, n in ((0, 30), (1, 12), (7, 20), (20, 20)):
        scores = np.repeat([1.0, 0.0], [won, n - won])
        expected = stats.binomtest(won, n).proportion_ci(0.95, method="exact")
        result = estimate(scores)
        assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    for wins, losses in ((9, 1), (14, 5), (30, 12)):
        delta = np.repeat([1.0, -1.0, 0.0], [wins, losses, 60])
        p = paired(delta.clip(0), (-delta).clip(0)).p[0]
        assert p == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)


@given(
    st.integers(0, 10_000), st.integers(2, 5), st.integers(12, 60), st.booleans(), st.sampled_from([0.0, 0.2]), st.sampled_from([2, 5, 50])
)
def test_an_interval_leaves_out_zero_exactly_where_the_corrected_test_rejects(
    seed: int, number: int, questions: int, clustered: bool, gaps: float, grades: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, grades, (number, questions)) / (grades - 1) * rng.choice([0.3, 0.7, 1.0], (number, 1))
    columns[rng.random(columns.shape) < gaps] = np.nan
    clusters = labels(questions, seed) if clustered else None
    together = all_pairs(columns, clusters=clusters)
    alone = dict(zip(itertools.combinations(range(number), 2), together.differences, strict=True))
    for (i, j), item in alone.items():
        one = difference(columns[i], columns[j], clusters=clusters)
        assert (item.value, item.p, item.insufficient_data) == (
            pytest.approx(one.value, nan_ok=True),
            pytest.approx(one.p, nan_ok=True),
            one.insufficient_data,
        )
        assert (math.isnan(one.p), math.isnan(one.low)) == ((one.insufficient_data != ""),) * 2 or not one.n
        if not one.insufficient_data and one.n:
            assert (one.p <= 0.05) == (one.low > 0 or one.high < 0)
    for item, p in zip(together.differences, together.p, strict=True):
        if not item.insufficient_data and item.n:
            assert (p <= 0.05) == (item.low > 0 or item.high < 0)
    compared = [(item, p) for item, p in zip(together.differences, together.p, strict=True) if item.n]
    corrected = holm([1.0 if item.insufficient_data else item.p for item, _ in compared])
    for (item, p), expected in zip(compared, corrected, strict=True):
        assert math.isnan(p) if item.insufficient_data else p == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 25), st.booleans())
def test_many_columns_at_once_are_each_on_its_own(seed: int, columns: int, questions: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random((2, columns, questions))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    clusters = labels(questions, seed) if clustered else None
    for item, column in zip(estimates(scores[0], clusters=clusters), scores[0], strict=True):
        assert repr(item) == repr(estimate(column, clusters=clusters))
    for item, a, b in zip(differences(*scores, clusters=clusters), *scores, strict=True):
        assert repr(item) == repr(difference(a, b, clusters=clusters))


def test_insufficient_data_has_a_reason() -> None:
    rng = np.random.default_rng(0)
    some = rng.random(200)
    cases = {
        "9 clusters, fewer than 10": (some[:9], 0 * some[:9], None),
        "hold most questions": (some, 0 * some, [f"u{max(number - 150, 0)}" for number in range(200)]),
        "nothing differs, yet up to 1.5% of new clusters may": (some, some, None),
        "too skewed": (np.r_[np.zeros(95), np.ones(5)] * some[:100], 0 * some[:100], None),
        "too few clusters differ (5, fewer than 6)": (np.r_[1, 1, 1, 0, 0, np.zeros(40)], np.r_[0, 0, 0, 1, 1, np.zeros(40)], None),
        "too rare": (np.r_[0.5 * np.ones(12), np.full(188, 0.4)], np.full(200, 0.4), None),
    }
    for reason, (a, b, clusters) in cases.items():
        result = difference(a, b, clusters=clusters)
        assert reason in result.insufficient_data, (reason, result)
        assert all(map(math.isnan, (result.low, result.high, result.p)))
        assert result.value == pytest.approx(float(np.mean(a - b)))
    assert difference(some, some[::-1]).insufficient_data == ""
    assert estimate([1.0, 1.0, 0.0]).insufficient_data == "", "a share has an exact interval however few there are"
    assert "2 clusters" in estimate([0.3, 0.4]).insufficient_data
    # Fifty gain much, ten little and nobody loses: however skewed, losses that are yet unseen cannot overturn it.
    gained = difference(np.r_[np.full(50, 0.9), np.full(10, 0.1)], np.zeros(60))
    assert (gained.insufficient_data, gained.p < 0.001, gained.low > 0) == ("", True, True)


def test_questions_of_one_cluster_count_once() -> None:
    per_cluster = np.random.default_rng(5).random((2, 12)) + np.array([[0.2], [0.0]])
    repeated = np.repeat(per_cluster, 20, axis=1)
    clusters = [f"d{number:02}" for number in range(12) for _ in range(20)]
    alone, clustered = difference(*per_cluster), difference(*repeated, clusters=clusters)
    assert (clustered.p, clustered.low, clustered.high) == pytest.approx((alone.p, alone.low, alone.high))
    assert (clustered.clusters, clustered.n) == (12, 240)


def test_unscorable_questions_leave_the_denominator_and_are_counted() -> None:
    result = estimate([1.0, 0.0, math.nan, 1.0])
    assert (result.value, result.n, result.unscorable) == (pytest.approx(2 / 3), 3, 1)
    assert math.isnan(estimate([math.nan]).value)
    assert math.isnan(estimate([]).value)
    pair = difference([1.0, 0.5, 0.0, math.nan], [0.0, 0.5, 1.0, 1.0])
    assert (pair.wins, pair.ties, pair.losses, pair.n, pair.value) == (1, 1, 1, 3, 0.0)
    with pytest.raises(ValueError, match="same questions"):
        difference([1.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="2 cluster labels for 3 questions"):
        estimate([1.0, 0.0, 1.0], clusters=["a", "b"])


@given(st.integers(2, 7), st.integers(1, 30), st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_all_pairs_are_antisymmetric_and_leave_their_input_alone(number: int, questions: int, seed: int) -> None:
    scores = methods(questions, number, seed, gaps=0.3)
    before = scores.copy()
    result = all_differences(scores, clusters=[f"d{n // 3}" for n in range(questions)])
    assert np.array_equal(scores, before, equal_nan=True)
    assert np.array_equal(result.value, -result.value.T, equal_nan=True)
    assert np.allclose(result.p, result.p.T, equal_nan=True)
    for one, other in zip(result.interval(), reversed(result.interval()), strict=True):
        assert np.allclose(one, -other.T, equal_nan=True)


def test_the_smallest_difference_that_could_be_shown_is_shown_four_times_in_five() -> None:
    rng = np.random.default_rng(3)
    delta = rng.normal(0, 0.3, 400)
    effect = difference(delta, 0 * delta).detectable
    draws = rng.choice(delta - delta.mean(), (2000, 400)) + effect
    assert np.mean(paired(draws, 0 * draws).p <= 0.05) == pytest.approx(0.8, abs=0.04)


def test_bands_are_those_of_the_corrected_tests() -> None:
    scores = methods(300, 6, seed=2)
    together = all_pairs(scores)
    certain = np.zeros((6, 6), dtype=bool)
    certain[np.triu_indices(6, 1)] = np.array(together.p) <= 0.05
    certain |= certain.T
    assert certain.any()
    values = scores.mean(axis=1)
    for row, band in enumerate(bands(all_differences(scores))):
        better = values > values[row]
        expected = (1 + better.sum(), 1 + (certain[row] & better).sum(), 6 - (certain[row] & ~better).sum())
        assert (band.rank, band.low, band.high) == expected
        assert band.best == (band.low == 1)


def test_less_can_be_better_and_too_few_clusters_separate_nobody() -> None:
    scores = np.stack([np.full(50, 0.0), np.full(50, 1.0)]) + np.random.default_rng(0).normal(0, 0.1, (2, 50))
    more, less = bands(all_differences(scores)), bands(all_differences(scores), higher_is_better=False)
    assert [(band.rank, band.best) for band in more] == [(2, False), (1, True)]
    assert [(band.low, band.high) for band in less] == [(1, 1), (2, 2)]
    few = bands(all_differences(scores[:, :9]))
    assert [(band.rank, band.low, band.high, band.best) for band in few] == [(2, 1, 2, False), (1, 1, 2, False)]
    assert bands(all_differences(np.empty((0, 3)))) == []


def test_a_rank_lies_within_its_band_where_methods_were_scored_on_other_questions() -> None:
    rng = np.random.default_rng(3)
    easy = np.where(rng.random(200) < 0.9, 1.0, 0.0)
    # Scored on the easiest questions alone, and worse on each of them than a method that was scored on all.
    lucky = np.where(np.arange(200) < 50, 0.9 - 0.05 * rng.random(200), np.nan)
    sound = np.where(np.arange(200) < 50, 1.0, 0.2 * easy)
    results = bands(all_differences(np.stack([lucky, sound])))
    assert np.nanmean(lucky) > np.nanmean(sound)
    assert [(band.rank, band.low, band.high, band.best) for band in results] == [(2, 2, 2, False), (1, 1, 1, True)]


@given(st.integers(0, 2**16), st.integers(2, 6), st.booleans())
def test_a_run_significantly_worse_than_any_other_is_not_among_the_best(seed: int, count: int, higher: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 1, (count, 30)) + rng.normal(0, 1, (count, 1))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    for band in bands(all_differences(scores), higher_is_better=higher):
        assert band.low <= band.rank <= band.high
        assert not (band.best and band.low > 1)


def test_difference_with_insufficient_data_counts_in_the_family_and_rejects_nothing() -> None:
    rng = np.random.default_rng(1)
    clear = rng.random(60) * 0.2 + 0.2
    candidates = np.stack([clear, np.full(60, 0.0)])
    together = differences_together(candidates, np.zeros((2, 60)))
    assert math.isnan(together.p[1])
    assert together.p[0] == pytest.approx(2 * together.differences[0].p)


@given(p_values)
def test_corrections_agree_with_their_definitions(p: list[float]) -> None:
    ordered, count = sorted(p), len(p)
    adjusted = {value: min(min(1.0, ordered[k] * count / (k + 1)) for k in range(ordered.index(value), count)) for value in p}
    assert benjamini_hochberg(p) == pytest.approx([adjusted[value] for value in p])
    step = [min(1.0, max(ordered[j] * (count - j) for j in range(k + 1))) for k in range(count)]
    assert sorted(holm(p)) == pytest.approx(step)


def test_corrections_ignore_what_could_not_be_tested() -> None:
    # Step-down: sorted p times the number of hypotheses left, made monotone.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    for correct in (holm, benjamini_hochberg):
        adjusted = correct([0.01, math.nan, 0.2])
        assert adjusted[0] == pytest.approx(0.02)
        assert math.isnan(adjusted[1])
        assert correct([]) == []


def test_moments_of_nothing_are_nothing() -> None:
    alone = means(np.array([[1.0], [np.nan]]))
    assert alone.value[0] == 1.0
    assert np.isnan(alone.interval()).all()
    assert isinstance(alone[:1], Moments)
