"""Pooled differences against the plain stratified t interval, and against simulations with known truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from results.statistics.difference import Differences, Range, Side, compared
from results.statistics.gate import clusters_needed
from results.statistics.holm import holm
from results.statistics.pooled import Stratum, borda, pilot, pooled


def strata(gains: list[list[float]], questions: int = 50, seed: int = 0) -> list[Stratum]:
    """One stratum per inner list, of one row per gain: 30 % of 0/1 scores change."""
    rng, results = np.random.default_rng(seed), []
    for number, row in enumerate(gains):
        up = (1 + np.array(row)[:, None] / 0.3) / 2
        change = rng.random((len(row), questions)) < 0.3
        delta = np.where(change, np.where(rng.random(change.shape) < up, 1.0, -1.0), 0.0)
        results.append(stratum(np.maximum(delta, 0), np.maximum(-delta, 0), number))
    return results


def stratum(ours: ArrayLike, theirs: ArrayLike, kin: int) -> Stratum:
    sides = [[row if isinstance(row, Side) else Side.of(row) for row in rows] for rows in (ours, theirs)]
    return Stratum(*sides, [f"q{n}" for n in range(sides[0][0].scores.shape[1])], None, kin, Range())


def alone(part: Stratum) -> Differences:
    return compared(part.candidates, part.references, metric=part.metric)


def test_strata_of_many_questions_pool_as_independent_means_do() -> None:
    parts = strata([[0.02], [0.0], [0.03]], 2000)
    (result,) = pooled(parts)
    means = np.array([alone(part).value[0] for part in parts])
    error = math.sqrt(sum(alone(part).variance[0] for part in parts)) / 3
    assert result.value == pytest.approx(means.mean())
    assert (result.low, result.high) == pytest.approx(means.mean() + np.array([-1.96, 1.96]) * error, abs=0.02 * error)
    assert result.p == pytest.approx(2 * stats.norm.sf(abs(means.mean()) / error), rel=0.25)
    assert result.strata == 3


def test_questions_that_strata_share_are_one_observation() -> None:
    (part,) = strata([[0.05]], 500)
    (once,), (alike,), (apart,) = (pooled(parts) for parts in ([part], [part, part], [part, replace(part, kin=1)]))
    assert (alike.low, alike.high) == pytest.approx((once.low, once.high), rel=1e-6)
    assert apart.high - apart.low == pytest.approx((once.high - once.low) / math.sqrt(2), rel=0.05)
    assert (once.low, once.high) == pytest.approx([float(end[0]) for end in alone(part).interval()], abs=1e-3)


@pytest.mark.parametrize("questions", [(10, 10), (6, 6, 6), (8, 40)])
def test_few_clusters_of_several_benchmarks_add_up_and_cover(questions: tuple[int, ...]) -> None:
    sets, truth = 60, 0.04
    parts = [strata([[truth + (0.04 if place else -0.04)] * sets], count, seed=place)[0] for place, count in enumerate(questions)]
    mean = truth + 0.04 * (len(questions) - 2) / len(questions)
    parts = [replace(part, kin=place) for place, part in enumerate(parts)]
    rows = [pooled([pick(part, row) for part in parts])[0] for row in range(sets)]
    assert np.mean([row.low <= mean <= row.high for row in rows]) >= 0.95 - 3 * math.sqrt(0.05 / sets)
    each = [alone(part).interval() for part in parts]
    narrowest = np.min([high - low for low, high in each], axis=0)
    if len(set(questions)) == 1:
        assert np.mean([row.high - row.low for row in rows]) < 0.8 * narrowest.mean()


def pick(part: Stratum, row: int) -> Stratum:
    return replace(part, candidates=[part.candidates[row]], references=[part.references[row]])


@pytest.mark.slow
def test_seeds_that_are_good_or_bad_on_all_benchmarks_do_not_average_out() -> None:
    rng, stars = np.random.default_rng(5), 0
    for _ in range(100):
        luck = rng.normal(0, 0.05, (3, 1))
        parts = []
        for kin in range(4):
            ease = rng.uniform(0.2, 0.8, 200)
            tuned = (rng.random((3, 200)) < ease + luck).astype(float)
            base = (rng.random(200) < ease).astype(float)
            parts.append(stratum([Side.of(tuned, trainings=range(3))], [base], kin))
        stars += pooled(parts)[0].p <= 0.05
    assert stars <= 100 * (0.05 + 3 * math.sqrt(0.05 / 100))


@pytest.mark.slow
def test_a_method_that_is_better_everywhere_is_found_and_equal_ones_are_not() -> None:
    sets = 400
    better, equal = (strata([[gain] * sets for _ in range(8)], seed=3) for gain in (0.1, 0.0))
    # Each set is a family of its own here: uncorrected p-values.
    hits, false = ([row.p <= 0.05 for row in pooled(parts)] for parts in (better, equal))
    assert np.mean(hits) > 0.9
    assert np.mean([alone(part).p <= 0.05 for part in better]) < 0.3
    assert np.mean(false) <= 0.05 + 3 * math.sqrt(0.05 / sets)


def test_intervals_leave_out_zero_exactly_if_the_corrected_test_rejects() -> None:
    results = pooled(strata([[gain / 100 for gain in range(0, 20, 2)] for _ in range(4)], seed=1))
    assert {row.p_holm <= 0.05 for row in results} == {True, False}
    assert [row.p_holm for row in results] == pytest.approx(holm([row.p for row in results]))
    for row in results:
        assert (row.p_holm <= 0.05) == (row.low > 0 or row.high < 0)


def test_strata_without_common_questions_or_numbers_are_not_tested() -> None:
    nothing = stratum(np.full((1, 20), np.nan), np.zeros((1, 20)), 1)
    (result,) = pooled([*strata([[0.1]]), nothing])
    assert math.isnan(result.p)
    assert math.isnan(result.value)
    with pytest.raises(ValueError, match="stratum"):
        pooled([])


def test_unbounded_metrics_add_up_half_intervals() -> None:
    rng, open_ended = np.random.default_rng(2), Range(0.0, None)
    parts = [replace(stratum(rng.lognormal(0.2, 0.3, (1, 200)), rng.lognormal(0, 0.3, (1, 200)), kin), metric=open_ended) for kin in (0, 1)]
    (result,) = pooled(parts)
    each = [alone(part) for part in parts]
    below = [float((one.value - one.interval()[0])[0]) for one in each]
    assert result.low == pytest.approx(np.mean([one.value[0] for one in each]) - math.hypot(*below) / 2)
    assert result.p <= 0.05


def planted(gaps: dict[int, tuple[int, float, float]], metric: Range | None = None, noise: float = 0.2) -> list[Stratum]:
    """One stratum per entry: its number of questions, mean difference, and group of strata that share questions."""
    rng, results = np.random.default_rng(7), []
    for questions, gap, kin in gaps.values():
        draw = rng.normal(0, 1, questions)
        delta = gap + noise * (draw - draw.mean()) / draw.std(ddof=1)
        results.append(replace(stratum([0.5 + delta / 2], [0.5 - delta / 2], int(kin)), metric=metric or Range()))
    return results


@pytest.mark.parametrize(
    ("gaps", "metric", "variance", "clusters"),
    [
        # The difference between benchmarks is not chance: it adds nothing to what is needed.
        ({0: (300, 0.30, 0), 1: (300, -0.26, 1)}, None, 0.2**2, 600),
        # Each benchmark weighs the same, however few questions it has: (1/100 + 1/500) / 4 instead of 1/600.
        ({0: (100, 0.02, 0), 1: (500, 0.02, 1)}, None, 0.2**2 * 600 * (1 / 100 + 1 / 500) / 4, 600),
        ({0: (20, 0.02, 0), 1: (380, 0.02, 1)}, None, 0.2**2 * 400 * (1 / 20 + 1 / 380) / 4, 400),
        ({0: (300, 0.30, 0), 1: (300, -0.26, 1)}, Range(None, None), 0.2**2, 600),
    ],
)
def test_sample_that_shows_a_pooled_difference_follows_the_variance_within_benchmarks(
    gaps: dict[int, tuple[int, float, float]], metric: Range | None, variance: float, clusters: int
) -> None:
    known = pilot(planted(gaps, metric))
    assert known.clusters[0] == clusters
    needed = clusters_needed(known, 0.02)
    assert needed == pytest.approx(((1.96 + 0.8416) / 0.02) ** 2 * variance, rel=0.06)


def test_questions_that_benchmarks_share_are_planned_once() -> None:
    (part,) = planted({0: (300, 0.02, 0)})
    once, both = pilot([part]), pilot([part, part])
    assert both.clusters[0] == 300
    assert clusters_needed(both, 0.02) == pytest.approx(clusters_needed(once, 0.02), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(400, 400), (100, 1500)])
def test_planned_sample_shows_the_difference_four_times_in_five(sizes: tuple[int, int]) -> None:
    gaps = (0.10, -0.02)
    first = [replace(strata([[gap]], size, 1 + kin)[0], kin=kin) for kin, (gap, size) in enumerate(zip(gaps, sizes, strict=True))]
    needed = clusters_needed(pilot(first), sum(gaps) / 2)
    assert needed is not None
    factor, sets = needed / sum(sizes), 200
    larger = [
        replace(strata([[gap] * sets], round(size * factor), 3 + at)[0], kin=at)
        for at, (gap, size) in enumerate(zip(gaps, sizes, strict=True))
    ]
    shown = [row.p <= 0.05 for row in pooled(larger)]
    assert 0.7 <= np.mean(shown) <= 0.95


def test_borda_counts_methods_that_are_beaten_on_each_benchmark_and_ties_as_half() -> None:
    values = np.array([[0.9, 0.5, 0.5], [0.1, 0.2, 0.3]])
    assert borda(values, higher_is_better=[True, True]).tolist() == [2.0, 1.5, 2.5]
    assert borda(values, higher_is_better=[True, False]).tolist() == [4.0, 1.5, 0.5]
