"""The one difference against SciPy, naive loops and root finding; interval and test never contradict each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from results.statistics.core import Difference, Estimate
from results.statistics.difference import Range, Side, compared, generalizes, means, p_at_both_ends, paired
from results.statistics.difference import all_pairs as square_of
from results.statistics.holm import benjamini_hochberg, holm, holm_levels
from results.statistics.intervals import all_pairs, compared_together, difference, differences, estimate, estimates
from results.statistics.places import Standing, bands

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
    freedom = min(n**2 / sum(c**2 for c in sizes), max(changed, 10)) - 1
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
    bar = mean - 1.5 * error
    assert paired(a, b, clusters=clusters).p_above(bar)[0] == pytest.approx(p_above(bar))
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


@pytest.mark.slow
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
        assert (item.value, item.p) == (pytest.approx(one.value, nan_ok=True), pytest.approx(one.p, nan_ok=True))
        assert (math.isnan(one.p), math.isnan(one.low)) == (not one.n, not one.n)
        if one.n:
            assert (one.p <= 0.05) == (one.low > 0 or one.high < 0)
            assert -1 <= one.low <= one.value <= one.high <= 1
    for item, p in zip(together.differences, together.p, strict=True):
        assert not item.n or (p <= 0.05) == (item.low > 0 or item.high < 0)
    compared_pairs = [(item.p, p) for item, p in zip(together.differences, together.p, strict=True) if item.n]
    assert [p for _, p in compared_pairs] == pytest.approx(holm([p for p, _ in compared_pairs]))


def numbers(item: Estimate | Difference) -> dict[str, float]:
    values = asdict(item)
    low, high = values.pop("alone", (math.nan, math.nan))
    return {name: value for name, value in values.items() if not isinstance(value, str)} | {"alone_low": low, "alone_high": high}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(2, 25), st.booleans())
def test_many_columns_at_once_are_each_on_its_own(seed: int, columns: int, questions: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random((2, columns, questions))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    clusters = labels(questions, seed) if clustered else None
    for item, column in zip(estimates(scores[0], clusters=clusters), scores[0], strict=True):
        assert numbers(item) == pytest.approx(numbers(estimate(column, clusters=clusters)), nan_ok=True)
    for item, a, b in zip(differences(*scores, clusters=clusters), *scores, strict=True):
        assert numbers(item) == pytest.approx(numbers(difference(a, b, clusters=clusters)), nan_ok=True)


def test_scores_without_bounds_have_an_interval_and_a_reason_for_no_mark() -> None:
    rng = np.random.default_rng(0)
    some = rng.normal(1, 1, 200)
    cases = {
        "9 clusters, fewer than 10": (some[:9], 0 * some[:9], None),
        "have most questions": (some, 0 * some, [f"u{max(number - 150, 0)}" for number in range(200)]),
        "too skewed": (np.r_[np.zeros(95), 9 * np.ones(5)], np.zeros(100), None),
    }
    for reason, (a, b, clusters) in cases.items():
        result = difference(a, b, clusters=clusters, metric=Range(None, None))
        assert reason in result.insufficient_data, (reason, result)
        assert math.isnan(result.p)
        assert result.value == pytest.approx(float(np.mean(a - b)))
        assert result.low < result.value < result.high


def test_bounded_scores_are_tested_however_few_or_skewed_they_are() -> None:
    some = np.random.default_rng(0).random(9)
    for a, b in ((some, 0 * some), (np.r_[np.zeros(95), np.ones(5)], np.zeros(100)), (some, some)):
        result = difference(a, b, metric=Range())
        assert (result.insufficient_data, math.isnan(result.p)) == ("", False)
        assert -1 <= result.low <= result.value <= result.high <= 1
    # Nothing differs: a loss that happens to 1 in 200 may still be unseen.
    assert difference(np.ones(200), np.ones(200)).low == pytest.approx(0.025 ** (1 / 200) - 1)
    # Nobody loses in 12 worlds, and losses that are yet unseen cannot overturn it.
    gained = difference(np.full(12, 0.9) + np.linspace(0, 0.1, 12), np.zeros(12))
    assert (gained.p < 0.001, gained.low > 0.4) == (True, True)


def test_gain_in_all_clusters_needs_no_more_than_a_method_that_fails_in_one_could_lose() -> None:
    rng = np.random.default_rng(0)
    worlds = np.repeat(np.arange(12), 20)
    level = rng.uniform(0.35, 0.6, 12)[worlds]
    gain = rng.uniform(0.15, 0.25, 12)[worlds] + rng.uniform(-0.15, 0.15, 240)
    large, small = (difference(level + part, level, clusters=worlds) for part in (gain, gain / 4))
    # The reference scores 47 on average. A method that is 20 points above it and fails in so many worlds that both are equal
    # fails in 30 % of them, and 12 worlds rarely contain none. With 5 points, it fails in 10 %.
    assert (large.p < 0.01, large.low > 0.05, small.p > 0.2) == (True, True, True)
    # Whether a metric counts successes or failures makes no difference.
    errors = difference(1 - level - gain, 1 - level, clusters=worlds)
    assert (errors.p, errors.low, errors.high) == pytest.approx((large.p, -large.high, -large.low))


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
    result = square_of(scores, clusters=[f"d{n // 3}" for n in range(questions)])
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
    for row, band in enumerate(bands(square_of(scores))):
        better = values > values[row]
        expected = (1 + better.sum(), 1 + (certain[row] & better).sum(), 6 - (certain[row] & ~better).sum())
        assert (band.rank, band.low, band.high) == expected
        assert (band.standing in (Standing.BEST, Standing.NO_DIFFERENCE)) == (band.low == 1)


def test_less_can_be_better_and_too_few_clusters_separate_nobody() -> None:
    rng = np.random.default_rng(0)
    scores = np.stack([0.3 * rng.random(50), 1 - 0.3 * rng.random(50)])
    more, less = bands(square_of(scores)), bands(square_of(scores), higher_is_better=False)
    assert [(band.rank, band.standing) for band in more] == [(2, Standing.BEHIND), (1, Standing.BEST)]
    assert [(band.low, band.high) for band in less] == [(1, 1), (2, 2)]
    few = bands(square_of(scores[:, :4]))
    assert [(band.rank, band.low, band.high, band.standing) for band in few] == [(2, 1, 2, Standing.UNTESTED), (1, 1, 2, Standing.BEST)]


def test_method_far_behind_changes_nobody_elses_place() -> None:
    scores = methods(300, 6, seed=2)
    alone, with_another = bands(square_of(scores)), bands(square_of(np.vstack([scores, np.zeros(300)])))
    assert [(band.rank, band.low, band.standing) for band in with_another[:-1]] == [(band.rank, band.low, band.standing) for band in alone]
    assert with_another[-1].standing is Standing.BEHIND


@given(st.integers(0, 1000), st.integers(2, 40))
def test_method_that_is_worse_in_every_cluster_is_never_called_not_different(seed: int, questions: int) -> None:
    best = 0.5 + 0.5 * np.random.default_rng(seed).random(questions)
    worse = best - 0.01 - 0.3 * np.random.default_rng(seed + 1).random(questions)
    assert bands(square_of(np.stack([best, worse])))[1].standing in (Standing.BEHIND, Standing.UNTESTED)


def test_a_rank_lies_within_its_band_where_methods_were_scored_on_other_questions() -> None:
    rng = np.random.default_rng(3)
    easy = np.where(rng.random(200) < 0.9, 1.0, 0.0)
    # Scored on the easiest questions alone, and worse on each of them than a method that was scored on all.
    lucky = np.where(np.arange(200) < 50, 0.9 - 0.05 * rng.random(200), np.nan)
    sound = np.where(np.arange(200) < 50, 1.0, 0.2 * easy)
    results = bands(square_of(np.stack([lucky, sound])))
    assert np.nanmean(lucky) > np.nanmean(sound)
    assert [(band.rank, band.low, band.high) for band in results] == [(2, 2, 2), (1, 1, 1)]
    assert [band.standing for band in results] == [Standing.BEHIND, Standing.BEST]


@given(st.integers(0, 2**16), st.integers(2, 6), st.booleans())
def test_a_run_significantly_worse_than_any_other_is_not_among_the_best(seed: int, count: int, higher: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 1, (count, 30)) + rng.normal(0, 1, (count, 1))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    for band in bands(square_of(scores), higher_is_better=higher):
        assert band.low <= band.rank <= band.high
        assert not (band.standing is Standing.BEST and band.low > 1)


@given(p_values)
def test_corrections_agree_with_their_definitions(p: list[float]) -> None:
    ordered, count = sorted(p), len(p)
    adjusted = {value: min(min(1.0, ordered[k] * count / (k + 1)) for k in range(ordered.index(value), count)) for value in p}
    assert benjamini_hochberg(p) == pytest.approx([adjusted[value] for value in p])
    step = [min(1.0, max(ordered[j] * (count - j) for j in range(k + 1))) for k in range(count)]
    assert sorted(holm(p)) == pytest.approx(step)


def test_corrections_ignore_nan_p_values() -> None:
    # Step-down: sorted p times the number of hypotheses left, made monotone.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    for correct in (holm, benjamini_hochberg):
        adjusted = correct([0.01, math.nan, 0.2])
        assert adjusted[0] == pytest.approx(0.02)
        assert math.isnan(adjusted[1])
        assert correct([]) == []


def test_equal_p_values_are_tested_at_one_level() -> None:
    assert holm_levels(np.array([0.02, 0.5, 0.01, 0.01]), 0.95) == pytest.approx([0.975, 0.95, 0.9875, 0.9875])
    assert holm_levels(np.array([0.02, 0.02]), 0.95) == pytest.approx([0.975, 0.975])
    assert holm_levels(np.array([0.03, 0.03]), 0.95) == pytest.approx([0.975, 0.975])


def test_one_question_says_nothing_of_others() -> None:
    alone = means(np.array([[1.0], [np.nan]]))
    low, high = alone.interval()
    assert (alone.value[0], low[0], high[0]) == pytest.approx((1.0, 0.025, 1.0))
    assert np.isnan([low[1], high[1]]).all()
    assert type(alone[:1]) is type(alone)


def test_trainings_widen_the_interval_and_repeated_answers_do_not() -> None:
    rng = np.random.default_rng(2)
    base = (rng.random(900) < 0.5).astype(float)
    rows = np.stack([np.where(rng.random(900) < shift, 1.0, base) for shift in (0.02, 0.1, 0.18)])
    as_repeats, as_trainings = Side.of(rows), Side.of(rows, trainings=[0, 1, 2])
    repeats, trainings = difference(as_repeats, base), difference(as_trainings, base)
    assert repeats.value == pytest.approx(trainings.value)
    assert repeats.p < 0.001
    assert trainings.p > 0.05
    assert trainings.low < 0 < repeats.low
    spread = (rows.mean(axis=1) - base.mean()).var(ddof=1) / 3
    tested = compared([as_trainings], [base])
    assert tested.seeds.spread[:, 0].tolist() == pytest.approx([spread, 0.0])
    # Draws of one training are averaged before trainings are compared.
    twice = Side.of(np.repeat(rows, 2, axis=0), trainings=[0, 0, 1, 1, 2, 2])
    assert difference(twice, base).p == pytest.approx(trainings.p)
    pairs = square_of([as_trainings, Side.of(base)])
    assert pairs.p[0, 1] == pytest.approx(trainings.p)


@pytest.mark.parametrize("level", [0.95, 0.99, 0.999])
@pytest.mark.parametrize("freedom", [2.0, 4.0])
def test_trainings_however_much_they_vary_give_no_more_false_stars_than_stated(level: float, freedom: float) -> None:
    # Exact but for the grid: a normal mean, seeds' variance times chi-square, and a known variance of the questions.
    steps = (np.arange(2000) + 0.5) / 2000
    spread = np.concatenate([stats.chi2.ppf(steps, freedom) / freedom])
    for share in (0.02, 0.2, 0.5, 0.8, 0.95, 1.0):
        half = np.sqrt((1 - share) * stats.norm.ppf((1 + level) / 2) ** 2 + share * spread * stats.t.ppf((1 + level) / 2, freedom) ** 2)
        assert 2 * stats.norm.cdf(-half).mean() <= 1.02 * (1 - level)


def test_trainings_and_questions_add_up_as_squares_of_their_own_half_intervals() -> None:
    rng = np.random.default_rng(4)
    rows = (rng.random((3, 400)) < np.array([[0.5], [0.56], [0.6]])).astype(float)
    base = (rng.random(400) < 0.5).astype(float)
    result = difference(Side.of(rows, trainings=range(3)), base)
    own = rows.mean(axis=0) - base
    rest = rows - rows.mean(axis=0) - rows.mean(axis=1, keepdims=True) + rows.mean()
    spread, shared = rows.mean(axis=1).var(ddof=1) / 3, (rest**2).sum() / (3 * 2 * 400**2)
    questions = own.var(ddof=1) / 400 - shared
    half = math.sqrt(questions * stats.t.ppf(0.975, 399) ** 2 + spread * stats.t.ppf(0.975, 2) ** 2)
    # Hall's correction for skewness is small here.
    assert (result.high - result.low) / 2 == pytest.approx(half, rel=0.02)
    turned = compared([Side.of(rows, trainings=range(3))], [base])
    assert 2 * float(turned.p_above(result.low)[0]) == pytest.approx(0.05, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 60), st.floats(0, 1), st.booleans(), st.sampled_from([0.95, 0.99]))
def test_detectable_difference_is_never_below_half_the_interval_nor_above_the_metric(
    seed: int, questions: int, ties: float, graded: bool, level: float
) -> None:
    rng = np.random.default_rng(seed)
    base = rng.random(questions) if graded else (rng.random(questions) < 0.5).astype(float)
    other = np.where(rng.random(questions) < ties, base, rng.permutation(base))
    result = difference(other, base, level=level, metric=Range())
    assert -1 <= result.low <= result.value <= result.high <= 1
    if not math.isnan(result.detectable):
        assert result.detectable >= (result.high - result.low) / 2 - 1e-12
        assert result.detectable <= 1 or math.isinf(result.detectable)


def test_marks_state_what_they_generalize_to() -> None:
    rows = np.zeros((3, 4))
    plain, three, one = Side.of(rows[0]), Side.of(rows, trainings="abc"), Side.of(rows[0], trainings="a")
    assert generalizes(plain, plain) == "new questions"
    assert generalizes(three, plain) == "new questions and new trainings"
    assert generalizes(one, three) == "new questions, this checkpoint only"
    assert difference(three, plain).generalizes == generalizes(three, plain)
    labeled = Side.of(rows[0], labels=rows[0])
    assert generalizes(plain, labeled, judged=True) == "new questions, for this judge only"
    assert generalizes(labeled, labeled, judged=True) == "new questions"


def test_labels_remove_a_judges_bias_between_equal_methods() -> None:
    rng = np.random.default_rng(4)
    truth = (rng.random((2, 2000)) < 0.5).astype(float)
    # The judge takes 30 % of the second method's wrong answers for right ones.
    judged = np.where((truth == 0) & (rng.random((2, 2000)) < [[0.05], [0.3]]), 1.0, truth)
    human = np.where(rng.random(2000) < 0.1, truth, np.nan)
    biased = difference(judged[0], judged[1])
    fair = difference(Side.of(judged[0], labels=human[0]), Side.of(judged[1], labels=human[1]))
    assert biased.p < 1e-6
    assert fair.p > 0.05
    assert fair.low < truth[0].mean() - truth[1].mean() < fair.high
    few = np.where(np.arange(2000) < 20, truth, np.nan)
    assert difference(Side.of(judged[0], labels=few[0]), Side.of(judged[1], labels=few[1])).p == pytest.approx(biased.p)


@given(st.integers(0, 1000), st.integers(0, 30))
def test_mark_holds_whatever_the_open_values_are(seed: int, number: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.random((2, 60)) < [[0.8], [0.5]]).astype(float)
    unknown = rng.permutation(60) < number
    side = Side.of(np.where(unknown, np.nan, a), open=unknown)
    result = difference(side, b, metric=Range())
    for filling in (np.zeros(60), np.ones(60), a, (rng.random(60) < 0.5).astype(float)):
        one = difference(np.where(unknown, filling, a), b)
        assert result.low <= one.low + 1e-12
        assert one.high - 1e-12 <= result.high
        assert not result.p <= 0.05 or one.p <= 0.05
    square = square_of([side, Side.of(b)], metric=Range())
    assert p_at_both_ends([side, Side.of(b)], square, metric=Range())[0, 1] == pytest.approx(result.p)


def test_scores_with_a_smallest_value_only_are_compared_by_geometric_means() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = np.exp(rng.normal(1.0, 1, 300)) + 1, np.exp(rng.normal(1.4, 1, 300)) + 1
    result = difference(ours, theirs, metric=Range(1.0, None))
    means_ = [float(np.exp(np.log(side).mean())) for side in (ours, theirs)]
    assert result.value == pytest.approx(means_[0] - means_[1])
    assert result.p == pytest.approx(stats.ttest_rel(np.log(ours), np.log(theirs)).pvalue, rel=1)
    assert result.low < result.value < result.high < 0
    assert (result.geometric, difference(ours / 100, theirs / 100, metric=Range(0.0, 1.0)).geometric) == (True, False)


def test_families_are_corrected_with_intervals_of_the_same_level() -> None:
    scores = methods(200, 4)
    result = compared_together([Side.of(row) for row in scores[1:]], [Side.of(scores[0])] * 3)
    assert result.p == pytest.approx(holm([item.p for item in result.differences]))
    for item, p in zip(result.differences, result.p, strict=True):
        assert (p <= 0.05) == (item.low > 0 or item.high < 0)
