from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics.intervals import difference
from results.statistics.pareto import pareto_front
from results.statistics.stages import stage_losses
from results.statistics.style_gaps import style_robustness

# --- styles -------------------------------------------------------------------------------------------------------


def test_style_gaps_separate_style_from_lost_content() -> None:
    formal = np.array([1.0, 1.0, 1.0, 0.0, 1.0])
    result = style_robustness(
        formal,
        {"humorous": [1.0, 0.0, 1.0, 0.0, math.nan], "romantic": [0.0, 0.0, 1.0, 0.0, 0.0]},
        {"humorous": [True, False, True, True, True], "romantic": [True, False, True, True, False]},
    )
    humorous, romantic = result["humorous"], result["romantic"]
    assert (humorous.gap.value, humorous.gap.n) == (0.25, 4)
    assert (humorous.content_lost.value, humorous.from_content.value, humorous.from_style.value) == (0.25, 0.25, 0.0)
    assert romantic.gap.value == pytest.approx(0.6)
    assert romantic.content_lost.value == pytest.approx(0.4)
    assert romantic.from_content.value == pytest.approx(0.4)
    assert romantic.from_style.value == pytest.approx(0.2)
    assert (romantic.gap_where_survived.n, romantic.gap_where_survived.value) == (3, pytest.approx(1 / 3))


def test_interval_of_content_does_not_depend_on_gains_elsewhere() -> None:
    formal, survived = np.tile([1.0, 0.0], 20), np.ones(40, bool)
    loses, gains = (style_robustness(formal, {"a": styled}, {"a": survived})["a"] for styled in (np.zeros(40), np.ones(40)))
    for part in (loses.from_content, gains.from_content):
        assert part.value == 0
        # That 40 questions lost no content does not exclude that others lose it.
        assert part.low < 0 < part.high
    assert (loses.from_content.low, loses.from_content.high) == (gains.from_content.low, gains.from_content.high)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.booleans())
def test_the_parts_of_a_drop_sum_to_it(seed: int, n: int, clustered: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((3, n)) < 0.15, math.nan, rng.random((3, n)))
    survived = rng.random((2, n)) < 0.7
    clusters = [f"d{number}" for number in rng.integers(0, 4, n)] if clustered else None
    result = style_robustness(scores[0], {"a": scores[1], "b": scores[2]}, {"a": survived[0], "b": survived[1]}, clusters=clusters)
    for row, gap in enumerate(result.values(), start=1):
        alone = difference(scores[0], scores[row], clusters=clusters)
        for name in ("value", "n", "p", "wins", "ties", "losses", "clusters"):
            ours, expected = getattr(gap.gap, name), getattr(alone, name)
            assert ours == pytest.approx(expected, abs=1e-12, nan_ok=True), name
        assert gap.p_holm >= gap.gap.p or math.isnan(gap.p_holm)
        assert math.isnan(gap.p_holm) or (gap.p_holm <= 0.05) == (gap.gap.low > 0 or gap.gap.high < 0)
        if alone.n:
            assert gap.from_content.value + gap.from_style.value == pytest.approx(gap.gap.value, abs=1e-12)
            assert gap.from_content.n == gap.from_style.n == gap.content_lost.n == gap.gap.n


def test_styles_without_survivals_or_of_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="style a: it is unknown"):
        style_robustness([1.0], {"a": [1.0]}, {})
    with pytest.raises(ValueError, match="same questions"):
        style_robustness([1.0], {"a": [1.0, 0.0]}, {"a": [True, True]})
    assert style_robustness([1.0], {}, {}) == {}
    assert style_robustness([math.nan], {"a": [1.0]}, {"a": [True]})["a"].gap.n == 0


def test_stages_are_the_gains_of_one_oracle_after_another() -> None:
    result = stage_losses(
        [0.0, 0.0, 1.0, 0.0],
        gold_in_noise=[1.0, 0.0, 1.0, 0.0],
        gold_only=[1.0, 0.5, 1.0, 0.0],
        gold_uncompressed=[1.0, 1.0, 1.0, 0.0],
        closed_book=[0.0, 0.0, 0.5, 0.0],
    )
    assert result.compression is not None
    losses = [result.retrieval.value, result.reranking.value, result.compression.value, result.reading.value]
    assert losses == [0.25, 0.125, 0.125, 0.25]
    assert result.normal.value == 0.25
    assert (result.closed_book.value, result.evidence_gain.value) == (0.125, 0.125)
    assert result.shares == pytest.approx({"retrieval": 1 / 3, "reranking": 1 / 6, "compression": 1 / 6, "reading": 1 / 3})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.booleans())
def test_stages_sum_to_the_whole_loss_over_shared_questions(seed: int, n: int, compressed: bool) -> None:
    rng = np.random.default_rng(seed)
    runs = np.where(rng.random((5, n)) < 0.1, math.nan, rng.random((5, n)))
    result = stage_losses(
        runs[0], gold_in_noise=runs[1], gold_only=runs[2], closed_book=runs[3], gold_uncompressed=runs[4] if compressed else None
    )
    assert (result.compression is not None) == compressed
    shared = ~np.isnan(runs if compressed else runs[:4]).any(axis=0)
    assert result.normal.n == result.retrieval.n == result.reading.n == shared.sum()
    if shared.any():
        parts = result.retrieval.value + result.reranking.value + result.reading.value
        parts += result.compression.value if result.compression else 0.0
        assert parts == pytest.approx(1 - runs[0][shared].mean())
        assert result.evidence_gain.value == pytest.approx((runs[0] - runs[3])[shared].mean())


def test_runs_of_other_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="same questions"):
        stage_losses([1.0], gold_in_noise=[1.0, 0.0], gold_only=[1.0], closed_book=[0.0])


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
