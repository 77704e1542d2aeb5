from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics import (
    at_equal_tokens,
    crossed_means,
    difference,
    estimate,
    pareto_front,
    stage_losses,
    style_robustness,
    variance_budget,
)

# --- variance budget ----------------------------------------------------------------------------------------------


def effects(n: int, seeds: int, repetitions: int, parts: dict[str, float], rng: np.random.Generator) -> np.ndarray:
    """Scores of the crossed design with given variances."""
    shapes = {
        "questions": (n, 1, 1),
        "seeds": (1, seeds, 1),
        "repetitions": (1, 1, repetitions),
        "questions×seeds": (n, seeds, 1),
        "questions×seeds×repetitions": (n, seeds, repetitions),
    }
    return sum((rng.normal(0, math.sqrt(parts[name]), shapes[name]) for name in parts), start=np.zeros((1, 1, 1)))


def test_known_variances_are_recovered() -> None:
    rng = np.random.default_rng(0)
    truth = {"questions": 0.1, "seeds": 0.01, "questions×seeds": 0.05, "questions×seeds×repetitions": 0.03}
    found = [variance_budget(effects(60, 8, 4, truth, rng), resamples=2).components for _ in range(300)]
    for name, variance in truth.items():
        assert np.mean([one[name] for one in found]) == pytest.approx(variance, rel=0.08 if name != "seeds" else 0.15), name
    assert np.mean([one["repetitions"] for one in found]) < 1e-3


def test_components_are_the_textbooks_for_two_factors() -> None:
    scores = np.random.default_rng(1).random((7, 4))
    rows, columns = scores.mean(axis=1), scores.mean(axis=0)
    square_rows = 4 * ((rows - scores.mean()) ** 2).sum() / 6
    square_columns = 7 * ((columns - scores.mean()) ** 2).sum() / 3
    rest = ((scores - rows[:, None] - columns + scores.mean()) ** 2).sum() / 18
    found = variance_budget(scores[:, :, None], resamples=2)
    assert found.components["questions×seeds"] == pytest.approx(rest)
    assert found.components["questions"] == pytest.approx(max(0, (square_rows - rest) / 4))
    assert found.components["seeds"] == pytest.approx(max(0, (square_columns - rest) / 7))


def test_questions_alone_are_the_ordinary_standard_error() -> None:
    scores = np.random.default_rng(2).random(300)
    found = variance_budget(scores[:, None, None])
    assert found.standard_error == pytest.approx(scores.std(ddof=1) / math.sqrt(300))
    assert found.shares == {"questions": pytest.approx(1.0)}
    assert found.halving == {"questions": 1200}
    plain = estimate(scores)
    assert found.estimate.high - found.estimate.low == pytest.approx(plain.high - plain.low, rel=0.05)
    assert found.estimate.reliable


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 4), st.integers(1, 4))
def test_shares_sum_to_one_and_halving_halves(seed: int, n: int, seeds: int, repetitions: int) -> None:
    scores = np.random.default_rng(seed).random((n, seeds, repetitions))
    found = variance_budget(scores, resamples=50)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert set(found.halving) <= {"questions", "seeds", "repetitions"}
    counts = {"questions": n, "seeds": seeds, "repetitions": repetitions}
    for factor, needed in found.halving.items():

        def error(factor: str = factor, levels: float = 1.0) -> float:
            changed = {**counts, factor: levels}
            return math.sqrt(
                sum(variance / math.prod(changed[name] for name in source.split("×")) for source, variance in found.components.items())
            )

        assert error(levels=counts[factor]) == pytest.approx(found.standard_error)
        if needed is None:
            assert error(levels=1e9) > found.standard_error / 2 * (1 - 1e-6)
        else:
            assert error(levels=needed) <= found.standard_error / 2 * (1 + 1e-6)
            assert needed <= 1 or error(levels=needed - 1) > found.standard_error / 2 * (1 - 1e-6)


def test_crossed_bootstrap_of_one_factor_is_the_closed_form() -> None:
    scores = np.random.default_rng(3).random((40, 3, 2))
    drawn = crossed_means(scores, 0, 40_000, factors=("questions",))
    per_question = scores.mean(axis=(1, 2))
    assert drawn.var() == pytest.approx(per_question.var() / 40, rel=0.03)
    still = crossed_means(scores, 0, 5, factors=())
    assert still == pytest.approx(np.full(5, scores.mean()))


def test_crossed_bootstrap_agrees_with_a_naive_loop() -> None:
    scores = np.random.default_rng(4).random((15, 4, 3))
    rng = np.random.default_rng(5)
    naive = [scores[np.ix_(rng.integers(0, 15, 15), rng.integers(0, 4, 4), rng.integers(0, 3, 3))].mean() for _ in range(8000)]
    ours = crossed_means(scores, 1, 8000)
    assert ours.std() == pytest.approx(np.std(naive), rel=0.04)
    assert np.quantile(ours, [0.025, 0.975]) == pytest.approx(np.quantile(naive, [0.025, 0.975]), abs=0.01)


def test_questions_with_a_gap_leave_the_budget_and_are_counted() -> None:
    scores = np.random.default_rng(6).random((30, 3, 2))
    holed = np.concatenate([scores, np.full((2, 3, 2), 0.5)])
    holed[30, 1, 1] = holed[31, 0, 0] = math.nan
    found = variance_budget(holed, resamples=100)
    assert (found.estimate.n, found.estimate.unscorable) == (30, 2)
    assert found.components == variance_budget(scores, resamples=100).components


def test_few_seeds_and_single_questions_are_flagged() -> None:
    rng = np.random.default_rng(7)
    assert "3 seeds, fewer than 5" in variance_budget(rng.random((300, 3, 1)), resamples=10).estimate.doubt
    lone = variance_budget(rng.random((1, 3, 2)), resamples=10)
    assert math.isnan(lone.estimate.low)
    assert not lone.estimate.reliable
    assert math.isnan(variance_budget(np.empty((0, 2, 2))).estimate.value)
    with pytest.raises(ValueError, match="axes"):
        variance_budget([[0.0, 1.0]])


# --- styles -------------------------------------------------------------------------------------------------------


def test_drops_by_style_and_what_is_lost_content() -> None:
    formal = np.array([1.0, 1.0, 1.0, 0.0, 1.0])
    found = style_robustness(
        formal,
        {"humorous": [1.0, 0.0, 1.0, 0.0, math.nan], "romantic": [0.0, 0.0, 1.0, 0.0, 0.0]},
        {"humorous": [True, False, True, True, True], "romantic": [True, False, True, True, False]},
    )
    assert found.worst == "romantic"
    humorous, romantic = found.drops["humorous"], found.drops["romantic"]
    assert (humorous.drop.value, humorous.drop.n) == (0.25, 4)
    assert (humorous.content_lost.value, humorous.from_content.value, humorous.from_style.value) == (0.25, 0.25, 0.0)
    assert romantic.drop.value == pytest.approx(0.6)
    assert romantic.content_lost.value == pytest.approx(0.4)
    assert romantic.from_content.value == pytest.approx(0.4)
    assert romantic.from_style.value == pytest.approx(0.2)
    assert (romantic.drop_where_survived.n, romantic.drop_where_survived.value) == (3, pytest.approx(1 / 3))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.booleans())
def test_the_parts_of_a_drop_sum_to_it(seed: int, n: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((3, n)) < 0.15, math.nan, rng.random((3, n)))
    survived = rng.random((2, n)) < 0.7
    clusters = [f"d{number}" for number in rng.integers(0, 4, n)] if clustered else None
    found = style_robustness(
        scores[0], {"a": scores[1], "b": scores[2]}, {"a": survived[0], "b": survived[1]}, clusters=clusters, resamples=60
    )
    for row, drop in enumerate(found.drops.values(), start=1):
        alone = difference(scores[0], scores[row], clusters=clusters, resamples=60)
        for name in ("value", "low", "high", "n", "p", "wins", "ties", "losses", "units"):
            ours, expected = getattr(drop.drop, name), getattr(alone, name)
            assert ours == pytest.approx(expected, abs=1e-12, nan_ok=True), name
        assert drop.p_holm >= drop.drop.p or math.isnan(drop.p_holm)
        if alone.n:
            assert drop.from_content.value + drop.from_style.value == pytest.approx(drop.drop.value, abs=1e-12)
            assert drop.from_content.n == drop.from_style.n == drop.content_lost.n == drop.drop.n


def test_styles_without_survivals_or_of_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="style a: no word"):
        style_robustness([1.0], {"a": [1.0]}, {})
    with pytest.raises(ValueError, match="same questions"):
        style_robustness([1.0], {"a": [1.0, 0.0]}, {"a": [True, True]})
    assert style_robustness([1.0], {}, {}).worst is None
    assert style_robustness([math.nan], {"a": [1.0]}, {"a": [True]}).worst is None


# --- stages -------------------------------------------------------------------------------------------------------


def test_stages_are_the_gains_of_one_oracle_after_another() -> None:
    found = stage_losses(
        [0.0, 0.0, 1.0, 0.0],
        gold_in_noise=[1.0, 0.0, 1.0, 0.0],
        gold_only=[1.0, 0.5, 1.0, 0.0],
        gold_uncompressed=[1.0, 1.0, 1.0, 0.0],
        closed_book=[0.0, 0.0, 0.5, 0.0],
    )
    assert found.compression is not None
    losses = [found.retrieval.value, found.reranking.value, found.compression.value, found.reading.value]
    assert losses == [0.25, 0.125, 0.125, 0.25]
    assert found.normal.value == 0.25
    assert (found.closed_book.value, found.evidence_gain.value) == (0.125, 0.125)
    assert found.shares == pytest.approx({"retrieval": 1 / 3, "reranking": 1 / 6, "compression": 1 / 6, "reading": 1 / 3})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.booleans())
def test_stages_sum_to_the_whole_loss_over_shared_questions(seed: int, n: int, compressed: bool) -> None:
    rng = np.random.default_rng(seed)
    runs = np.where(rng.random((5, n)) < 0.1, math.nan, rng.random((5, n)))
    found = stage_losses(
        runs[0],
        gold_in_noise=runs[1],
        gold_only=runs[2],
        closed_book=runs[3],
        gold_uncompressed=runs[4] if compressed else None,
        resamples=60,
    )
    assert (found.compression is not None) == compressed
    shared = ~np.isnan(runs if compressed else runs[:4]).any(axis=0)
    assert found.normal.n == found.retrieval.n == found.reading.n == shared.sum()
    if shared.any():
        parts = found.retrieval.value + found.reranking.value + found.reading.value
        parts += found.compression.value if found.compression else 0.0
        assert parts == pytest.approx(1 - runs[0][shared].mean())
        assert found.evidence_gain.value == pytest.approx((runs[0] - runs[3])[shared].mean())


def test_runs_of_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="same questions"):
        stage_losses([1.0], gold_in_noise=[1.0, 0.0], gold_only=[1.0], closed_book=[0.0])


# --- budgets ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_pareto_front_agrees_with_the_definition(points: list[tuple[int, int, int]]) -> None:
    quality = np.array([point[0] for point in points], dtype=float)
    costs = np.array([point[1:] for point in points], dtype=float).reshape(-1, 2)
    expected = [not any(b[0] >= a[0] and b[1] <= a[1] and b[2] <= a[2] and b != a for b in points) for a in points]
    assert pareto_front(quality, costs).tolist() == expected


def test_a_method_with_a_gap_is_not_on_the_front_and_dominates_nobody() -> None:
    assert pareto_front([0.9, 0.5, math.nan], [1.0, 2.0, 0.0]).tolist() == [True, False, False]
    assert pareto_front([0.9, 0.5], [math.nan, 2.0]).tolist() == [False, True]
    with pytest.raises(ValueError, match="same methods"):
        pareto_front([0.9], [1.0, 2.0])


def curve(rng: np.random.Generator, n: int, budgets: list[float], quality: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and delivered tokens around given means, exactly on them in tokens."""
    delivered = rng.normal(0, 5, (len(budgets), n))
    delivered += np.array(budgets)[:, None] - delivered.mean(axis=1, keepdims=True)
    return (rng.random((len(quality), n)) < np.array(quality)[:, None]).astype(float), delivered


def test_compressors_are_compared_where_they_deliver_equally_many_tokens() -> None:
    rng = np.random.default_rng(0)
    # Asked for the same budgets, the first delivers half of them: compared by budget it would look worse.
    frugal = curve(rng, 4000, [50, 100, 200], [0.5, 0.6, 0.7])
    lavish = curve(rng, 4000, [100, 200, 400], [0.5, 0.6, 0.7])
    found = at_equal_tokens(frugal, lavish, resamples=500)
    assert [round(one.tokens) for one in found] == [100, 200]
    assert [one.difference.value for one in found] == pytest.approx([0.1, 0.1], abs=0.04)
    assert all(one.difference.low > 0 for one in found)
    (between,) = at_equal_tokens(frugal, lavish, tokens=[150], resamples=500)
    assert between.candidate.value == pytest.approx(frugal[0][1:].mean(), abs=1e-9)
    assert between.reference.value == pytest.approx(lavish[0][:2].mean(), abs=1e-9)
    assert between.difference.value == pytest.approx(between.candidate.value - between.reference.value)


def test_there_is_no_extrapolation() -> None:
    rng = np.random.default_rng(1)
    short, long = curve(rng, 50, [10, 20], [0.5, 0.6]), curve(rng, 50, [100, 200], [0.5, 0.6])
    assert at_equal_tokens(short, long) == []
    with pytest.raises(ValueError, match="not beyond"):
        at_equal_tokens(long, long, tokens=[300])


def test_a_compressor_does_not_differ_from_itself_whatever_the_order_of_its_budgets() -> None:
    scores, delivered = curve(np.random.default_rng(2), 200, [50, 100, 200], [0.4, 0.6, 0.7])
    for one in at_equal_tokens((scores, delivered), (scores[::-1], delivered[::-1]), resamples=100):
        assert (one.difference.value, one.difference.p) == (0.0, 1.0)


def test_interval_at_equal_tokens_is_that_of_resampling_the_whole_curves() -> None:
    rng = np.random.default_rng(3)
    n = 300
    need = rng.lognormal(4, 0.6, n)
    # Tokens vary a lot between questions, and the questions that take many tokens are the hard ones.
    delivered = np.stack([need, 2 * need])
    scores = (rng.random((2, n)) < np.clip(np.array([[0.5], [0.8]]) + 0.3 - need / 200, 0.05, 0.95)).astype(float)
    other = (scores[::-1] * rng.integers(0, 2, (2, n)))[:, :], np.stack([0.7 * need, 1.8 * need])
    point = 1.3 * need.mean()
    (found,) = at_equal_tokens((scores, delivered), other, tokens=[point], resamples=4000)
    drawn = []
    for _ in range(4000):
        rows = rng.integers(0, n, n)
        values = [
            np.interp(point, tokens[:, rows].mean(axis=1), quality[:, rows].mean(axis=1))
            for quality, tokens in ((scores, delivered), other)
        ]
        drawn.append([*values, values[0] - values[1]])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    for place, ours in enumerate((found.candidate, found.reference, found.difference)):
        assert (ours.low, ours.high) == (pytest.approx(low[place], abs=0.015), pytest.approx(high[place], abs=0.015))


def test_questions_with_a_gap_anywhere_leave_both_curves() -> None:
    scores, delivered = curve(np.random.default_rng(4), 60, [50, 100], [0.4, 0.6])
    holed = scores.copy()
    holed[0, :10] = math.nan
    (first, *_) = at_equal_tokens((holed, delivered), (scores, delivered), resamples=50)
    assert first.difference.n == first.candidate.n == 50
    assert first.candidate.unscorable == 10
    assert at_equal_tokens((np.full((1, 3), math.nan), np.ones((1, 3))), (np.ones((1, 3)), np.ones((1, 3)))) == []


def test_curves_that_say_nothing_are_refused() -> None:
    scores, delivered = curve(np.random.default_rng(5), 20, [50, 100], [0.4, 0.6])
    flat = np.stack([delivered[0], delivered[0]])
    for bad, what in (
        ((scores, flat), "equally many tokens"),
        ((scores[:1], delivered), "one shape"),
        ((scores[:, :5], delivered[:, :5]), "same questions"),
    ):
        with pytest.raises(ValueError, match=what):
            at_equal_tokens(bad, (scores, delivered))


def test_resampling_streams_of_the_factors_differ() -> None:
    # Equal numbers of questions, seeds and repetitions must not be resampled in lockstep.
    scores = np.zeros((6, 6, 6))
    for place in itertools.product(range(6), repeat=3):
        scores[place] = place[0] - place[1]
    drawn = crossed_means(scores, 0, 4000)
    assert drawn.var() == pytest.approx(2 * np.arange(6).var() / 6, rel=0.1)
