from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from results.statistics.core import Difference
from results.statistics.intervals import all_pairs, benjamini_hochberg, difference, differences, estimate, holm, sign_flip_all_pairs

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def numbers(result: Difference) -> list[float]:
    return [result.value, result.low, result.high, result.n, result.p, result.wins, result.ties, result.losses, result.units]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bca_agrees_with_scipys(seed: int) -> None:
    values = np.random.default_rng(seed).beta(0.3, 2, 150)
    ours = estimate(values, seed=1, method="bca", resamples=20_000)
    theirs = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=20_000, rng=2).confidence_interval
    percentile = estimate(values, seed=1, method="percentile", resamples=20_000)
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=1e-3), pytest.approx(theirs.high, abs=1e-3))
    assert ours.low > percentile.low
    assert ours.high > percentile.high


def test_expanded_interval_of_few_units_is_as_wide_as_students_t() -> None:
    values = np.random.default_rng(4).normal(size=12)
    result = estimate(values, resamples=50_000)
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert result.high - result.low == pytest.approx(high - low, rel=0.08)
    narrow = estimate(values, resamples=50_000, method="percentile")
    assert narrow.high - narrow.low < 0.9 * (high - low)


def test_paired_interval_agrees_with_scipys_paired_bootstrap() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((2, 300))
    ours = difference(a, b, method="percentile")

    def gap(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return x.mean(axis=axis) - y.mean(axis=axis)

    theirs = stats.bootstrap((a, b), gap, paired=True, method="percentile", rng=1, batch=200).confidence_interval
    assert (ours.low, ours.high) == (pytest.approx(theirs.low, abs=3e-3), pytest.approx(theirs.high, abs=3e-3))


def test_sign_flip_p_agrees_with_scipys_permutation_test() -> None:
    a, b = np.random.default_rng(6).random((2, 60)) + np.array([[0.08], [0.0]])
    theirs = stats.permutation_test((a - b,), np.mean, permutation_type="samples", n_resamples=20_000, rng=3).pvalue
    assert difference(a, b, resamples=20_000).p == pytest.approx(theirs, abs=0.01)


def test_an_unknown_interval_method_is_refused() -> None:
    with pytest.raises(ValueError, match="choose expanded"):
        estimate([0.0, 1.0], method="normal")  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 5),
    st.integers(1, 25),
    st.booleans(),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from(["expanded", "percentile", "bca"]),
)
def test_all_pairs_are_what_each_pair_gives_alone(
    seed: int, methods: int, questions: int, clustered: bool, gaps: float, method: str
) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, 5, (methods, questions)) / 4
    columns[rng.random(columns.shape) < gaps] = np.nan
    clusters = [f"d{number}" for number in rng.integers(0, 4, questions)] if clustered else None
    ways = {"clusters": clusters, "resamples": 150, "method": method}
    together = all_pairs(columns, **ways)
    assert list(together) == list(itertools.combinations(range(methods), 2))
    for (i, j), result in together.items():
        alone = differences(columns[i][None], columns[j][None], **ways)[0]
        assert np.allclose(numbers(result), numbers(alone), atol=1e-9, equal_nan=True)
        assert result.doubt == alone.doubt


def test_gaps_shared_by_all_methods_change_nothing() -> None:
    columns = np.random.default_rng(0).random((4, 60))
    holed = np.full((4, 80), np.nan)
    holed[:, np.sort(np.random.default_rng(1).permutation(80)[:60])] = columns
    dense, sparse = all_pairs(columns, resamples=300), all_pairs(holed, resamples=300)
    for pair in dense:
        assert np.allclose(numbers(dense[pair]), numbers(sparse[pair]))


def test_many_pairs_are_worked_off_in_parts_without_a_seam() -> None:
    columns = np.random.default_rng(2).random((25, 30))
    results = all_pairs(columns, resamples=100)
    assert len(results) == 300
    alone = difference(columns[23], columns[24], resamples=100)
    assert np.allclose(numbers(results[23, 24]), numbers(alone))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.booleans())
def test_a_method_does_not_differ_from_itself(values: list[float], clustered: bool) -> None:
    clusters = [f"d{number % 3}" for number in range(len(values))] if clustered else None
    result = all_pairs([values, values], clusters=clusters, resamples=100)[0, 1]
    assert (result.value, result.low, result.high, result.p) == (0.0, 0.0, 0.0, 1.0)
    assert (result.wins, result.ties, result.losses) == (0, len(values), 0)
    assert "no question differs" in result.doubt


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(40, 80), st.booleans())
def test_the_order_of_questions_changes_nothing_but_the_luck_of_the_draw(seed: int, questions: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random((2, questions))
    documents = [f"d{number}" for number in rng.integers(0, 20, questions)] if clustered else None
    order = rng.permutation(questions)
    item = difference(a, b, clusters=documents, resamples=4000)
    mixed = [documents[position] for position in order] if documents else None
    other = difference(a[order], b[order], clusters=mixed, resamples=4000)
    assert other.value == pytest.approx(item.value, abs=1e-12)
    assert (other.n, other.wins, other.losses, other.units) == (item.n, item.wins, item.losses, item.units)
    width = item.high - item.low
    assert abs(other.low - item.low) < 0.1 * width
    assert abs(other.p - item.p) < 0.06


def test_sign_flips_of_all_pairs_agree_with_full_enumeration() -> None:
    columns = np.random.default_rng(7).integers(0, 3, (3, 9)) / 2
    result = sign_flip_all_pairs(columns, resamples=60_000)
    for i, j in itertools.combinations(range(3), 2):
        units = columns[i] - columns[j]
        sums = [abs(np.dot(signs, units)) for signs in itertools.product((-1, 1), repeat=9)]
        exact = np.mean(np.array(sums) >= abs(units.sum()) - 1e-12)
        assert result[i, j] == result[j, i] == pytest.approx(exact, abs=0.01)
    assert (np.diag(result) == 1).all()


def test_sign_flips_of_all_pairs_refuse_gaps() -> None:
    with pytest.raises(ValueError, match="all_pairs"):
        sign_flip_all_pairs([[0.0, np.nan], [1.0, 0.0]])


@given(p_values)
def test_benjamini_hochberg_agrees_with_the_definition(p: list[float]) -> None:
    ordered = sorted(p)
    count = len(p)
    adjusted = {value: min(min(1.0, ordered[k] * count / (k + 1)) for k in range(ordered.index(value), count)) for value in p}
    assert benjamini_hochberg(p) == pytest.approx([adjusted[value] for value in p])


@given(p_values)
def test_false_discovery_control_never_asks_more_than_holm(p: list[float]) -> None:
    assert all(bh <= item + 1e-12 for bh, item in zip(benjamini_hochberg(p), holm(p), strict=True))
    assert all(bh >= raw - 1e-12 for bh, raw in zip(benjamini_hochberg(p), p, strict=True))


def test_corrections_ignore_what_could_not_be_tested() -> None:
    adjusted = benjamini_hochberg([0.01, math.nan, 0.2])
    assert adjusted[0] == pytest.approx(0.02)
    assert math.isnan(adjusted[1])
    assert all(math.isnan(value) for value in benjamini_hochberg([math.nan]))
    assert benjamini_hochberg([]) == []


def test_questions_of_one_document_count_once_for_pairs() -> None:
    per_document = np.random.default_rng(5).random((2, 12)) + np.array([[0.2], [0.0]])
    repeated = np.repeat(per_document, 20, axis=1)
    documents = [f"d{number:02}" for number in range(12) for _ in range(20)]
    alone, clustered = all_pairs(per_document)[0, 1], all_pairs(repeated, clusters=documents)[0, 1]
    assert clustered.p == pytest.approx(alone.p)
    assert (clustered.low, clustered.high) == (pytest.approx(alone.low), pytest.approx(alone.high))
    assert clustered.units == 12
