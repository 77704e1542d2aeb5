from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from results.statistics.bootstrap import bootstrap_weights
from results.statistics.core import Resampling
from results.statistics.judges import cohen_kappa, fleiss_kappa, krippendorff_alpha, raw_agreement

gap = math.nan
# Krippendorff (2011): four observers, twelve units, five categories, missing data (page 6).
FOUR_OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
    [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
]
tables = st.integers(2, 4).flatmap(
    lambda raters: st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, gap]), min_size=raters, max_size=raters), min_size=2, max_size=12)
)


def naive_alpha(table: np.ndarray) -> float:
    """Alpha by listing all pairs of ratings, as the definition reads."""
    units = [column[~np.isnan(column)] for column in table.T]
    units = [unit for unit in units if len(unit) > 1]
    values = [value for unit in units for value in unit]
    observed = sum(sum(a != b for a, b in itertools.permutations(unit, 2)) / (len(unit) - 1) for unit in units)
    expected = sum(a != b for a, b in itertools.permutations(values, 2))
    return 1 - (len(values) - 1) * observed / expected if expected else math.nan


def test_alpha_of_krippendorffs_four_observers() -> None:
    result = krippendorff_alpha(FOUR_OBSERVERS)
    assert result.corrected.value == pytest.approx(0.743, abs=5e-4)
    assert (result.ratings, result.corrected.n, result.corrected.unscorable) == (40, 11, 1)
    assert result.categories == (1, 2, 3, 4, 5)


def test_alpha_of_krippendorffs_two_observers() -> None:
    meg, owen = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    result = krippendorff_alpha([meg, owen])
    assert result.corrected.value == pytest.approx(0.095, abs=5e-4)
    assert result.raw.value == pytest.approx(0.6)
    ben, gerry = (["abcde".index(letter) for letter in response] for response in ("aabbdcccedda", "babbbccceddd"))
    assert krippendorff_alpha([ben, gerry]).corrected.value == pytest.approx(0.692, abs=5e-4)


def test_interval_alpha_of_krippendorffs_four_observers() -> None:
    assert krippendorff_alpha(FOUR_OBSERVERS, difference="interval").corrected.value == pytest.approx(0.849, abs=5e-4)


def test_quadratic_kappa_is_scikit_learns() -> None:
    first, second = np.random.default_rng(3).integers(0, 5, (2, 40))
    ours = cohen_kappa(first, second, difference="interval", how=Resampling(resamples=20)).corrected.value
    assert ours == pytest.approx(cohen_kappa_score(first, second, weights="quadratic"), abs=1e-12)


def test_differences_of_two_ratings_are_the_same_nominal_or_squared() -> None:
    first, second = [0, 1, 1, 0, 1, 0, 1] * 6, [0, 1, 0, 0, 1, 1, 1] * 6
    for nominal, interval in (
        [cohen_kappa(first, second, difference=kind) for kind in ("nominal", "interval")],
        [krippendorff_alpha([first, second], difference=kind) for kind in ("nominal", "interval")],
    ):
        assert nominal.corrected.value == pytest.approx(interval.corrected.value)
        assert nominal.corrected.low == pytest.approx(interval.corrected.low)
    for equal in (0.1, 0.3, 7):
        assert math.isnan(krippendorff_alpha([[equal] * 9] * 3, difference="interval").corrected.value)
        assert math.isnan(cohen_kappa([equal] * 9, [equal] * 9, difference="interval").corrected.value)


@pytest.mark.slow
@given(tables)
def test_alpha_equals_the_value_from_listing_all_pairs(rows: list[list[float]]) -> None:
    table = np.array(rows).T
    ours = krippendorff_alpha(table, how=Resampling(resamples=20)).corrected.value
    assert ours == pytest.approx(naive_alpha(table), abs=1e-9, nan_ok=True)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
@pytest.mark.filterwarnings("ignore")
def test_kappa_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    ours = cohen_kappa(first, second, how=Resampling(resamples=20)).corrected.value
    if len({*first, *second}) == 1:
        assert math.isnan(ours)
    else:
        theirs = cohen_kappa_score(first, second, labels=[0, 1, 2, 3])
        assert ours == pytest.approx(theirs, abs=1e-12, nan_ok=True)


def test_items_that_one_of_two_has_not_rated_are_left_out_and_counted() -> None:
    whole = cohen_kappa([0, 1, 1, 0], [0, 1, 0, 0])
    holed = cohen_kappa([0, 1, gap, 1, 0, 1], [0, 1, 1, 0, 0, gap])
    assert holed.corrected.value == whole.corrected.value
    assert (holed.corrected.n, holed.corrected.unscorable, holed.raw.unscorable) == (4, 2, 2)
    assert holed.raw.value == 0.75


def test_constant_raters_have_no_chance_corrected_agreement() -> None:
    for result in (cohen_kappa([1] * 5, [1] * 5), krippendorff_alpha([[1.0] * 5, [1.0] * 5])):
        assert math.isnan(result.corrected.value)
        assert "agreement is undefined" in result.corrected.insufficient_data
        assert result.raw.value == 1.0


def test_items_with_a_single_rating_say_nothing_about_agreement() -> None:
    result = krippendorff_alpha([[1.0, gap, 2.0], [gap, 1.0, gap]])
    assert math.isnan(result.corrected.value)
    assert (result.corrected.n, result.corrected.unscorable, result.ratings) == (0, 3, 0)
    assert math.isnan(cohen_kappa([gap, 1.0], [1.0, gap]).corrected.value)


@pytest.mark.slow
def test_perfect_agreement_is_one_and_chance_is_nought() -> None:
    rng = np.random.default_rng(0)
    response = rng.integers(0, 3, 4000)
    assert cohen_kappa(response, response, how=Resampling(resamples=100)).corrected.value == 1.0
    assert krippendorff_alpha([response, response, response], how=Resampling(resamples=100)).corrected.value == 1.0
    other = rng.permutation(response)
    for result in (
        cohen_kappa(response, other, how=Resampling(level=0.999, resamples=3000)),
        krippendorff_alpha([response, other], how=Resampling(level=0.999, resamples=3000)),
    ):
        assert abs(result.corrected.value) < 0.05
        assert result.corrected.low < 0 < result.corrected.high
        assert not result.corrected.insufficient_data


def test_raw_agreement_of_many_is_the_share_of_equal_pairs() -> None:
    assert raw_agreement([[1, 1], [1, 2], [2, gap]]).value == pytest.approx((1 / 3 + 0) / 2)
    assert raw_agreement([[1, gap], [1, 2]]).n == 1


@pytest.mark.slow
def test_the_interval_is_that_of_a_loop_over_resampled_items() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 3, 60)
    first, second = (np.where(rng.random(60) < 0.3, rng.integers(0, 3, 60), truth) for _ in range(2))
    rounds = 240
    weights = np.concatenate(list(bootstrap_weights(60, 0, rounds))).astype(int)
    kappas = np.sort([cohen_kappa_score(first.repeat(w), second.repeat(w)) for w in weights])
    alphas = np.sort([naive_alpha(np.stack([first, second])[:, np.arange(60).repeat(w)]) for w in weights[:80]])
    tail = float(stats.norm.cdf(math.sqrt(60 / 59) * stats.t.ppf(0.025, 59)))
    rank = math.floor(tail * (rounds + 1))
    result = cohen_kappa(first, second, how=Resampling(resamples=rounds)).corrected
    assert (result.low, result.high) == (pytest.approx(kappas[rank - 1]), pytest.approx(kappas[-rank]))
    few = krippendorff_alpha([first, second], how=Resampling(resamples=80)).corrected
    rank = max(1, math.floor(tail * 81))
    assert (few.low, few.high) == (pytest.approx(alphas[rank - 1]), pytest.approx(alphas[-rank]))


@pytest.mark.parametrize(("items", "floor"), [(50, 0.91), (200, 0.93)])
@pytest.mark.parametrize(
    "sets", [pytest.param(200, marks=pytest.mark.slow), pytest.param(4000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_intervals_cover_as_stated(items: int, floor: float, sets: int) -> None:
    """`python -m pytest -m soak -s` on this file prints the figures that the page Results shows."""
    rng = np.random.default_rng(3)
    # Two raters see a true category of three and each guesses 30 % of the time, so kappa and alpha are 0.7².
    held = np.zeros(2)
    for _ in range(sets):
        truth = rng.integers(0, 3, items)
        responses = [np.where(rng.random(items) < 0.3, rng.integers(0, 3, items), truth) for _ in range(2)]
        seed = int(rng.integers(1 << 30))
        kappa = cohen_kappa(*responses, how=Resampling(resamples=500, seed=seed)).corrected
        alpha = krippendorff_alpha(responses, how=Resampling(resamples=500, seed=seed)).corrected
        held += [item.low <= 0.49 <= item.high for item in (kappa, alpha)]
    print(f"\n{items} items: kappa covers {held[0] / sets:.1%}, alpha {held[1] / sets:.1%}")
    chance = 3 * np.sqrt(floor * (1 - floor) / sets)
    assert ((held / sets > floor - chance) & (held / sets < 0.975 + chance)).all()


def test_items_of_one_document_are_resampled_together() -> None:
    rng = np.random.default_rng(2)
    first = rng.integers(0, 2, 40).repeat(10)
    second = np.where(rng.random(40).repeat(10) < 0.3, 1 - first, first)
    documents = [f"d{item // 10}" for item in range(400)]
    alone, clustered = (cohen_kappa(first, second, clusters=labels).corrected for labels in (None, documents))
    assert clustered.clusters == 40
    assert clustered.high - clustered.low > 2 * (alone.high - alone.low)
    few = cohen_kappa(first[:200], second[:200], clusters=documents[:200]).corrected
    assert few.insufficient_data == "20 clusters, fewer than 30"
    assert math.isnan(few.low)


def test_resamples_without_a_value_are_reported() -> None:
    result = cohen_kappa([0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 1]).corrected
    assert result.value == 1.0
    assert "undefined in" in result.insufficient_data


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="same items"):
        cohen_kappa([0, 1], [0])
    with pytest.raises(ValueError, match="axes"):
        raw_agreement([0, 1])


def test_fleiss_kappa_of_fourteen_raters_and_ten_items() -> None:
    counts = ["0 0 0 0 14", "0 2 6 4 2", "0 0 3 5 6", "0 3 9 2 0", "2 2 8 1 1"]
    counts += ["7 7 0 0 0", "3 2 6 3 0", "2 5 3 2 2", "6 5 2 1 0", "0 2 2 3 7"]
    ratings = np.array([np.repeat(np.arange(5.0), list(map(int, row.split()))) for row in counts]).T
    assert fleiss_kappa(ratings).corrected.value == pytest.approx(0.20993, abs=1e-5)
    ratings[0] = np.where(np.arange(10) == 3, np.nan, ratings[0])
    assert fleiss_kappa(ratings).corrected.value == pytest.approx(fleiss_kappa(np.delete(ratings, 3, axis=1)).corrected.value)
    assert np.isnan(fleiss_kappa(np.ones((3, 4))).corrected.value)


def test_agreement_without_exception_has_no_interval() -> None:
    labels = np.arange(60) % 2
    for result in (cohen_kappa(labels, labels), krippendorff_alpha([labels, labels]), fleiss_kappa([labels, labels, labels])):
        assert result.corrected.value == 1.0
        assert math.isnan(result.corrected.low)
        assert math.isnan(result.corrected.high)
        assert result.corrected.insufficient_data
        # Of independent items, the share that agrees has an exact bound.
        assert result.raw.low == pytest.approx(stats.beta.ppf(0.025, 60, 1))
