from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.statistics.battles import Verdict
from results.statistics.core import Resampling
from results.statistics.judges import (
    battle_repetition_variance,
    first_shown_preference,
    length_preference,
    order_flip_rate,
    repetition_variance,
)

WIN, TIE, LOSS, NONE, UNSCORED = Verdict.WIN, Verdict.TIE, Verdict.LOSS, Verdict.NONE, Verdict.UNSCORED
gap = math.nan


def simulated(rng: np.random.Generator, questions: int, *, position: float, luck: float) -> list[np.ndarray]:
    """Verdicts of a judge who leans to the answer shown first and is partly lucky; three repetitions, both orders."""
    cells = np.stack([axis.ravel() for axis in np.indices((1, questions, 2, 3))])
    lean = np.repeat(rng.normal(size=questions), 6) + position * np.where(cells[2] == 0, 1, -1)
    lean = lean + luck * rng.normal(size=len(lean))
    return [*cells, np.where(lean > 0, WIN, LOSS)]


def test_consistent_judge_has_no_repetition_variance() -> None:
    rng = np.random.default_rng(0)
    steady = battle_repetition_variance(*simulated(rng, 50, position=0.0, luck=0.0))
    assert (steady.differing.value, steady.variance.value) == (0.0, 0.0)
    assert (steady.differing.n, steady.pairs, steady.single) == (100, 300, 0)
    assert steady.differing.clusters == 50
    coin = battle_repetition_variance(*simulated(rng, 400, position=0.0, luck=1e6))
    assert coin.differing.value == pytest.approx(0.5, abs=0.05)
    assert coin.variance.value == pytest.approx(0.25, abs=0.03)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0, gap])), min_size=1, max_size=40))
def test_repetition_variance_is_that_of_a_plain_loop(rows: list[tuple[int, float]]) -> None:
    responses = defaultdict(list)
    for item, value in rows:
        responses[item] += [] if math.isnan(value) else [value]
    many = [values for values in responses.values() if len(values) > 1]
    result = repetition_variance(*zip(*rows, strict=True))  # type: ignore[arg-type]
    assert result.single == len(responses) - len(many)
    assert result.pairs == sum(len(values) * (len(values) - 1) // 2 for values in many)
    if many:
        differing = [np.mean([a != b for a, b in itertools.combinations(values, 2)]) for values in many]
        assert result.differing.value == pytest.approx(np.mean(differing))
        assert result.variance.value == pytest.approx(np.mean([np.var(values, ddof=1) for values in many]))
    else:
        assert math.isnan(result.differing.value)


def test_failed_repetition_is_ignored_and_none_counts_as_a_difference() -> None:
    result = battle_repetition_variance([0] * 4, [0] * 4, [0] * 4, [0, 1, 2, 3], [WIN, WIN, UNSCORED, NONE])
    assert result.pairs == 3
    assert result.differing.value == pytest.approx(2 / 3)
    assert result.variance.value == 0.0


def test_flips_have_the_cells_that_could_flip_for_denominator() -> None:
    rows = [
        (0, 0, 0, 0, WIN),
        (0, 0, 1, 0, LOSS),  # a flip
        (0, 0, 0, 1, WIN),
        (0, 0, 1, 1, WIN),  # none
        (0, 1, 0, 0, WIN),
        (0, 1, 1, 0, TIE),  # could not flip
        (1, 0, 0, 0, LOSS),
        (1, 0, 1, 0, LOSS),
        (1, 1, 0, 0, LOSS),
    ]
    result = order_flip_rate(*zip(*rows, strict=True))
    assert result.value == pytest.approx(1 / 3)
    assert (result.n, result.clusters) == (3, 1)
    # Of the six decisive verdicts of those three cells four name the answer shown first.
    first = first_shown_preference(*zip(*rows, strict=True))
    assert (first.value, first.n) == (pytest.approx(4 / 6), 6)


def test_first_shown_preference_detects_only_position_bias() -> None:
    rng = np.random.default_rng(1)
    fair = first_shown_preference(*simulated(rng, 400, position=0.0, luck=0.5))
    assert fair.low < 0.5 < fair.high
    rows = simulated(rng, 400, position=0.5, luck=0.2)
    leaning = first_shown_preference(*rows)
    assert leaning.low > 0.55
    assert leaning.clusters == 400
    assert order_flip_rate(*rows).value > 0.2
    blind = simulated(rng, 100, position=1e6, luck=0.0)
    assert first_shown_preference(*blind).value == order_flip_rate(*blind).value == 1.0


def test_documents_are_resampled_whole() -> None:
    rows = simulated(np.random.default_rng(2), 60, position=0.3, luck=0.3)
    documents = [f"d{question // 6}" if question < 54 else None for question in range(60)]
    assert order_flip_rate(*rows, clusters=documents).clusters == 15
    assert first_shown_preference(*rows, clusters=documents).clusters == 15
    assert battle_repetition_variance(*rows, clusters=documents).differing.clusters == 15
    with pytest.raises(ValueError, match="cluster labels"):
        order_flip_rate(*rows, clusters=documents[:-1])


def test_length_preference_counts_decided_battles_of_unequal_length() -> None:
    score = [1.0, 0.0, 0.5, gap, 1.0, 1.0]
    lengths = ([20, 5, 9, 9, 7, 3], [10, 10, 1, 1, 7, 30])
    result = length_preference([0] * 6, [1] * 6, range(6), score, lengths, how=Resampling(resamples=50))
    assert (result.decided, result.equal_length, result.undecided) == (3, 1, 2)
    assert result.longer_wins.value == pytest.approx(2 / 3)
    assert result.longer_wins.n == 3


@pytest.mark.slow
def test_longer_answers_of_a_better_method_are_not_length_bias() -> None:
    rng = np.random.default_rng(3)
    rows = 3000
    first = rng.integers(0, 2, rows)
    better = first == 1
    lengths = [np.where(side, 200, 100) * np.exp(0.3 * rng.normal(size=rows)) for side in (better, ~better)]
    score = (rng.random(rows) < np.where(better, 0.8, 0.2)).astype(float)
    result = length_preference(first, 1 - first, range(rows), score, (lengths[0], lengths[1]), how=Resampling(resamples=300))
    assert result.longer_wins.low > 0.7
    assert result.per_doubling.low < 0 < result.per_doubling.high
    swayed = (rng.random(rows) < 1 / (1 + (lengths[1] / lengths[0]) ** (0.8 / math.log(2)))).astype(float)
    result = length_preference(first, 1 - first, range(rows), swayed, (lengths[0], lengths[1]), how=Resampling(resamples=300))
    assert result.per_doubling.value == pytest.approx(0.8, abs=0.25)  # 3.5 standard errors
    assert result.per_doubling.low > 0.5


def test_rows_of_different_verdicts_are_refused() -> None:
    with pytest.raises(ValueError, match="same verdicts"):
        repetition_variance([0, 1], [0.0])
    with pytest.raises(ValueError, match="length of at least 0"):
        length_preference([0], [1], [0], [1.0], ([-1], [2]))
