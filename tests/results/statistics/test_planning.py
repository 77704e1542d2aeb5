"""Questions, repeats and trainings that show a difference, against closed formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from results.statistics.difference import Range, Side, compared
from results.statistics.gate import clusters_needed
from results.statistics.planning import answer_variance, needed, seeds_needed
from results.statistics.tested import Tested

QUESTIONS = 4000
QUESTION_SD, ANSWER_SD, EFFECT = 0.1, 0.4, 0.05
Z = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)


def answers(draws: int, seed: int) -> np.ndarray:
    """Scores that vary by question, and around that by answer; shape (draws, questions)."""
    rng = np.random.default_rng(seed)
    return 2 + rng.normal(0, QUESTION_SD, QUESTIONS) + rng.normal(0, ANSWER_SD, (draws, QUESTIONS))


def pilot(candidate: Side, reference: Side) -> Tested:
    result = compared([candidate], [reference], metric=Range(None, None))
    assert isinstance(result, Tested)
    return result


def plans(candidate: Side, reference: Side, effect: float = EFFECT) -> dict[tuple[int | None, int | None], int | None]:
    sides = candidate, reference
    return {(item.seeds, item.repeats): item.clusters for item in needed(pilot(*sides), sides, effect)}


def test_repeats_reduce_only_the_variance_of_answers() -> None:
    result = plans(Side.of(answers(2, 1)), Side.of(answers(2, 2)))
    assert set(result) == {(None, repeats) for repeats in (1, 2, 3, 10)}
    for (_, repeats), clusters in result.items():
        assert repeats is not None
        assert clusters == pytest.approx((Z / EFFECT) ** 2 * 2 * (QUESTION_SD**2 + ANSWER_SD**2 / repeats), rel=0.1)


def test_plan_for_the_repeats_of_the_pilot_is_that_of_the_pilot() -> None:
    sides = Side.of(answers(2, 1)), Side.of(answers(2, 2))
    assert plans(*sides)[None, 2] == clusters_needed(pilot(*sides), EFFECT)


def test_planning_keeps_the_answers_of_a_side_with_one_repeat() -> None:
    result = plans(Side.of(answers(2, 1)), Side.of(answers(1, 2)))
    expected = (Z / EFFECT) ** 2 * (2 * QUESTION_SD**2 + ANSWER_SD**2 * (1 + 1 / 10))
    assert result[None, 10] == pytest.approx(expected, rel=0.1)


def test_single_answers_plan_nothing_else() -> None:
    assert plans(Side.of(answers(1, 1)), Side.of(answers(1, 2))) == {}


@pytest.mark.slow
def test_more_trainings_need_fewer_questions_and_too_few_never_suffice() -> None:
    shift = np.array([-0.04, 0.0, 0.04])[:, None]
    result = plans(Side.of(answers(3, 1) + shift, trainings=(0, 1, 2)), Side.of(answers(1, 2)), 0.08)
    assert set(result) == {(seeds, None) for seeds in (3, 5, 10)}
    assert result[3, None] is None, "Student's t with two degrees of freedom: the trainings alone have a half interval of 0.099"
    five, ten = result[5, None], result[10, None]
    assert five is not None
    assert ten is not None
    assert ten < five


@pytest.mark.slow
def test_seeds_and_repeats_are_planned_together() -> None:
    tuned = Side.of(answers(6, 1)[:, :100], trainings=(0, 0, 1, 1, 2, 2))
    result = plans(tuned, Side.of(answers(2, 2)[:, :100]), 0.5)
    assert set(result) == {(seeds, repeats) for seeds in (3, 5, 10) for repeats in (1, 2, 3, 10)}


def test_answer_variance_excludes_the_variance_between_trainings() -> None:
    tuned = Side.of(answers(4, 1) + np.array([0, 0, 5, 5])[:, None], trainings=(0, 0, 1, 1))
    assert answer_variance(tuned) == pytest.approx(ANSWER_SD**2, rel=0.1)
    assert np.isnan(answer_variance(Side.of(answers(1, 1))))


def test_equal_repeats_plan_the_same_for_every_number() -> None:
    sides = Side.of(np.repeat(answers(1, 1), 2, axis=0)), Side.of(answers(1, 2))
    assert set(plans(*sides).values()) == {clusters_needed(pilot(*sides), EFFECT)}


@pytest.mark.slow
def test_power_names_the_seeds_that_suffice_on_the_questions_of_the_pilot() -> None:
    shift = np.array([-0.1, 0.0, 0.1])[:, None]
    tuned, base = Side.of(answers(3, 1) + shift, trainings=(0, 1, 2)), Side.of(answers(1, 2))
    number = seeds_needed(pilot(tuned, base), (tuned, base), 0.2)
    assert number is not None
    assert number > 3
    clusters = len(answers(1, 1)[0])
    within = {seeds: plan for (seeds, _), plan in plans(tuned, base, 0.2).items() if seeds is not None and plan is not None}
    assert all((within[seeds] <= clusters) == (seeds >= number) for seeds in within)
    assert seeds_needed(pilot(base, base), (base, base), 0.2) is None
