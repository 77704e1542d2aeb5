"""Prediction-powered means against their closed form, and by simulation whether their intervals cover.

`python -m pytest -m soak -s tests/results/statistics/test_judges_prediction_powered.py` prints the figures that
the page Results shows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from results.statistics.prediction_powered import prediction_powered_mean, rectified


def judged_and_labeled(
    rng: np.random.Generator, items: int, labels: int, *, noise: float = 0.5, binary: bool = True, per_document: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of a judge that is biased and noisy, labels of a random few, and what the person would say of all."""
    documents = items // per_document
    ease = np.repeat(rng.normal(size=documents), per_document)
    ease = (ease + rng.normal(size=items)) / math.sqrt(2) if per_document > 1 else ease
    truth = (ease > 0.3).astype(float) if binary else ease
    judge = 1 / (1 + np.exp(-2 * (ease + noise * rng.normal(size=items)))) + 0.1
    seen = np.full(items, np.nan)
    if per_document > 1:
        rows = np.flatnonzero(np.isin(np.arange(items) // per_document, rng.permutation(documents)[:labels]))
    else:
        rows = rng.permutation(items)[:labels]
    seen[rows] = truth[rows]
    return judge, seen, truth


def test_it_is_the_formula_of_the_paper() -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(0), 500, 60, binary=False)
    known = ~np.isnan(y)
    n, rest = 60, 440
    for weight in (0.3, 1.0):
        result = prediction_powered_mean(f, y, weight=weight)
        value = y[known].mean() + weight * (f[~known].mean() - f[known].mean())
        variance = np.var(y[known] - weight * f[known], ddof=1) / n + weight**2 * np.var(f[~known], ddof=1) / rest
        reach = stats.t.ppf(0.975, n - 1) * math.sqrt(variance)
        assert result.corrected.value == pytest.approx(value)
        assert result.standard_error == pytest.approx(math.sqrt(variance))
        assert (result.corrected.low, result.corrected.high) == pytest.approx((value - reach, value + reach))
    assert result.judged == pytest.approx(f.mean())
    assert result.bias == pytest.approx((f - y)[known].mean())
    assert (result.items, result.corrected.n) == (500, 60)


def test_the_tuned_weight_has_the_smallest_variance() -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(1), 400, 50)
    known = ~np.isnan(y)
    tuned = prediction_powered_mean(f, y)
    closed = np.cov(y[known], f[known])[0, 1] / np.var(f[known], ddof=1) / (1 + 50 / 350)
    assert tuned.weight == pytest.approx(min(1.0, closed), abs=0.12)
    grid = np.linspace(0, 1, 201)
    errors = [prediction_powered_mean(f, y, weight=float(weight)).standard_error for weight in grid]
    assert tuned.weight == pytest.approx(grid[int(np.argmin(errors))], abs=0.01)
    # The labels that chose the weight pay for it with one more degree of freedom.
    assert min(errors) <= tuned.standard_error < 1.02 * min(errors)
    assert tuned.worth > 50


def test_at_weight_nought_it_is_the_mean_of_the_labels_with_students_interval() -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(2), 300, 40, binary=False)
    result = prediction_powered_mean(f, y, weight=0)
    seen = y[~np.isnan(y)]
    low, high = stats.t.interval(0.95, 39, seen.mean(), stats.sem(seen))
    for item in (result.corrected, result.labeled):
        assert (item.value, item.low, item.high) == pytest.approx((seen.mean(), low, high))
    assert result.worth == pytest.approx(40)


def test_a_perfect_judge_is_worth_all_items() -> None:
    rng = np.random.default_rng(3)
    truth = rng.normal(size=1000)
    labels = np.where(rng.random(1000) < 0.1, truth, np.nan)
    result = prediction_powered_mean(truth + 0.5, labels, weight=1)
    assert result.corrected.value == pytest.approx(truth.mean(), abs=0.02)
    assert result.bias == pytest.approx(0.5)
    assert result.standard_error == pytest.approx(truth.std() / math.sqrt(1000), rel=0.1)


@pytest.mark.parametrize("useless", ["noise", "constant", "against"])
def test_a_useless_judge_is_hardly_listened_to(useless: str) -> None:
    rng = np.random.default_rng(4)
    truth = rng.normal(size=600)
    f = {"noise": rng.normal(size=600), "constant": np.ones(600), "against": -truth}[useless]
    labels = np.where(np.arange(600) < 80, truth, np.nan)
    result = prediction_powered_mean(f, labels)
    assert result.weight < 0.3
    if useless != "noise":
        assert result.weight == 0
        assert result.corrected == result.labeled


def test_labels_of_everything_leave_nothing_to_the_judge() -> None:
    rng = np.random.default_rng(5)
    f, y = rng.random((2, 50))
    result = prediction_powered_mean(f, y)
    assert result.weight == prediction_powered_mean(f, y, weight=1).weight == 0
    assert result.corrected.value == pytest.approx(y.mean())


def test_items_the_judge_failed_on_are_left_out_and_counted() -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(6), 300, 50)
    holed = np.append(f, [np.nan, np.nan])
    result = prediction_powered_mean(holed, np.append(y, [1.0, np.nan]))
    assert result.corrected.value == prediction_powered_mean(f, y).corrected.value
    assert (result.corrected.unscorable, result.items, result.corrected.n) == (2, 300, 50)


def test_documents_count_once() -> None:
    rng = np.random.default_rng(7)
    f, y, _ = judged_and_labeled(rng, 80, 30)
    alone = prediction_powered_mean(f, y)
    documents = [f"d{item}" for item in range(80) for _ in range(5)]
    repeated = prediction_powered_mean(f.repeat(5), y.repeat(5), clusters=documents)
    for name in ("value", "low", "high", "clusters"):
        assert getattr(repeated.corrected, name) == pytest.approx(getattr(alone.corrected, name))
    careless = prediction_powered_mean(f.repeat(5), y.repeat(5))
    assert careless.standard_error < 0.6 * repeated.standard_error


def test_labels_of_the_doubtful_cases_alone_are_noticed() -> None:
    rng = np.random.default_rng(8)
    f, _, truth = judged_and_labeled(rng, 500, 2)
    worst = np.where(f < np.quantile(f, 0.15), truth, np.nan)
    assert "not a random subset" in prediction_powered_mean(f, worst).corrected.insufficient_data
    fair = np.where(rng.random(500) < 0.15, truth, np.nan)
    assert prediction_powered_mean(f, fair).corrected.insufficient_data == ""


def test_few_labels_are_flagged_and_two_are_too_few_to_tune() -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(9), 100, 2, binary=False)
    result = prediction_powered_mean(f, y)
    assert result.weight == 0
    assert "2 labeled, fewer than 30" in result.corrected.insufficient_data


def test_labels_that_are_all_the_same_are_flagged() -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(11), 200, 60)
    result = prediction_powered_mean(f, np.where(np.isnan(y), np.nan, 1.0))
    assert (math.isnan(result.labeled.low), result.weight) == (True, 0.0)
    assert "all labels are equal" in result.corrected.insufficient_data


@given(st.integers(0, 10_000), st.integers(3, 30), st.floats(-5, 5), st.floats(0.1, 9))
def test_shifting_the_judge_changes_nothing_and_scaling_both_scales_all(seed: int, labels: int, shift: float, scale: float) -> None:
    f, y, _ = judged_and_labeled(np.random.default_rng(seed), 60, labels, binary=False)
    plain, moved = prediction_powered_mean(f, y), prediction_powered_mean(f + shift, y)
    assert moved.corrected.value == pytest.approx(plain.corrected.value, abs=1e-9)
    assert moved.standard_error == pytest.approx(plain.standard_error, abs=1e-9)
    wide = prediction_powered_mean(scale * f, scale * y)
    assert wide.corrected.value == pytest.approx(scale * plain.corrected.value, abs=1e-9)
    assert wide.weight == pytest.approx(plain.weight, abs=1e-9)


def test_samples_without_an_estimate_are_refused() -> None:
    gap = math.nan
    with pytest.raises(ValueError, match="at least two labeled items"):
        prediction_powered_mean([1.0, 2.0, 3.0], [1.0, gap, gap])
    with pytest.raises(ValueError, match="at least two labeled items"):
        prediction_powered_mean([1.0, 2.0, 3.0], [1.0, 2.0, gap], clusters=["a", "a", "b"])
    with pytest.raises(ValueError, match="same items"):
        prediction_powered_mean([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="weight must be a number"):
        prediction_powered_mean([1.0, 2.0], [1.0, 2.0], weight=gap)
    with pytest.raises(ValueError, match="cluster labels"):
        prediction_powered_mean([1.0, 2.0], [1.0, 2.0], clusters=["a"])


@pytest.mark.parametrize(
    ("labels", "noise", "binary", "per_document", "floor"),
    [
        (30, 0.5, True, 1, 0.925),
        (100, 0.5, True, 1, 0.94),
        (100, 2.0, True, 1, 0.94),
        (30, 0.5, False, 1, 0.925),
        (40, 0.5, True, 5, 0.925),
    ],
)
@pytest.mark.parametrize(
    "sets", [pytest.param(400, marks=pytest.mark.slow), pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_intervals_cover_as_stated_and_are_shorter_than_without_the_judge(
    labels: int, noise: float, binary: bool, per_document: int, floor: float, sets: int
) -> None:
    rng = np.random.default_rng(10)
    truth = float(stats.norm.sf(0.3)) if binary else 0.0
    documents = [f"d{item // per_document}" for item in range(600)] if per_document > 1 else None
    held, uncorrected, widths = 0, 0, []
    for _ in range(sets):
        f, y, _ = judged_and_labeled(rng, 600, labels, noise=noise, binary=binary, per_document=per_document)
        result = prediction_powered_mean(f, y, clusters=documents)
        held += result.corrected.low <= truth <= result.corrected.high
        half = 1.96 * f.std() / math.sqrt(len(f))
        uncorrected += abs(f.mean() - truth) <= half
        widths.append((result.corrected.high - result.corrected.low) / (result.labeled.high - result.labeled.low))
    share, width = held / sets, float(np.nanmedian(widths))
    print(
        f"\n{labels} labels, noise {noise}, {'0/1' if binary else 'real'}, {per_document} per document:"
        f" covers {share:.1%}, the judge alone {uncorrected / sets:.1%}, width {width:.2f}"
    )
    chance = 3 * math.sqrt(floor * (1 - floor) / sets)
    assert share > floor - chance
    assert share < 0.985 + chance
    assert width < 1
    assert uncorrected / sets < 0.2


def test_errors_that_no_label_shows_widen_the_interval() -> None:
    truth = np.tile([1.0, 1.0, 0.0], 400)
    labels = np.where(np.arange(1200) % 30 < 1, 1.0, np.nan)
    labels[1::60] = truth[1::60]
    labels[2::60] = truth[2::60]
    result = prediction_powered_mean(truth, labels, weight=1)
    seen = ~np.isnan(labels)
    assert (truth == labels)[seen].all()
    error = 2 / seen.sum() ** 2 + np.var(truth[~seen], ddof=1) / (~seen).sum()
    assert result.standard_error == pytest.approx(math.sqrt(error))
    # The judge still adds to the labels.
    tuned = prediction_powered_mean(truth, labels)
    assert 0 < tuned.weight < 1
    assert result.standard_error > tuned.standard_error < tuned.labeled.high - tuned.labeled.low


@pytest.mark.parametrize(("labels", "wrong"), [(30, 0.05), (30, 0.1), (50, 0.05), (100, 0.02), (60, 0.15)])
@pytest.mark.parametrize("sets", [pytest.param(400, marks=pytest.mark.slow), pytest.param(10_000, marks=pytest.mark.soak)])
def test_intervals_of_a_judge_that_is_rarely_too_lenient_cover_as_stated(labels: int, wrong: float, sets: int) -> None:
    rng = np.random.default_rng(12)
    held, widths = 0, []
    for _ in range(sets):
        truth = (rng.random(2000) < 0.6).astype(float)
        judged = np.where(rng.random(2000) < wrong, 1.0, truth)
        known = np.full(2000, np.nan)
        rows = rng.permutation(2000)[:labels]
        known[rows] = truth[rows]
        result = prediction_powered_mean(judged, known)
        held += result.corrected.low <= 0.6 <= result.corrected.high
        widths.append((result.corrected.high - result.corrected.low) / (result.labeled.high - result.labeled.low))
    assert held / sets > 0.94 - 3 * math.sqrt(0.06 * 0.94 / sets)
    assert float(np.nanmedian(widths)) < 0.8


def test_rectified_values_have_the_mean_of_the_labels_if_all_items_are_labeled() -> None:
    judged, items = np.array([1.0, 0.0, 1.0, np.nan, 0.5]), np.array([0, 0, 1, 2, 2])
    labels = np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    result = rectified(judged, labels, items)
    assert result[:3].tolist() == [0.5, -0.5, 1.0]
    assert np.isnan(result[3])
    assert result[4] == 0.0


def test_rectified_values_move_labeled_items_by_the_share_that_is_labeled() -> None:
    result = rectified([1.0, 1.0, 1.0, 1.0], [0.0, np.nan, np.nan, np.nan], [0, 1, 2, 3])
    assert result.tolist() == [-3.0, 1.0, 1.0, 1.0]
    assert rectified([1.0, 0.0], [np.nan, np.nan], [0, 1]).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="same rows"):
        rectified([1.0], [1.0, 1.0], [0])


def test_p_of_a_corrected_mean_inverts_its_interval() -> None:
    rng = np.random.default_rng(3)
    judged = rng.random(300)
    result = prediction_powered_mean(judged, np.where(rng.random(300) < 0.3, judged + rng.normal(0, 0.1, 300), np.nan))
    assert result.p(result.corrected.low) == pytest.approx(0.05)
    assert result.p(result.corrected.high) == pytest.approx(0.05)
    assert result.p(result.corrected.value) == pytest.approx(1.0)
