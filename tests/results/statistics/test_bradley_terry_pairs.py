"""Which strengths differ significantly: p-values of all pairs, their correction, and the ranks that these leave open."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from results.statistics.bradley_terry import ROUNDS, BradleyTerry, bradley_terry
from results.statistics.core import Resampling
from results.statistics.holm import holm
from results.statistics.places import Standing

Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def all_against_all(rng: np.random.Generator, strengths: np.ndarray, questions: int, *, luck: float = 1.0) -> Rows:
    """Every pair once on every question; how an answer of a method turned out is one luck for all its battles."""
    item, other = np.array(list(itertools.combinations(range(len(strengths)), 2))).T
    skill = strengths + luck * rng.normal(size=(questions, len(strengths)))
    chance = 1 / (1 + np.exp(skill[:, other] - skill[:, item]))
    score = np.where(rng.random(chance.shape) < 0.2, 0.5, rng.random(chance.shape) < chance)
    return np.tile(item, questions), np.tile(other, questions), np.repeat(np.arange(questions), len(item)), score.ravel()


def duel(won: int, lost: int, **ways: object) -> BradleyTerry:
    rows = won + lost
    return bradley_terry([0] * rows, [1] * rows, range(rows), [1.0] * won + [0.0] * lost, **ways)  # type: ignore[arg-type]


def apart(result: BradleyTerry) -> bool:
    """Whether some interval ends before another begins."""
    lows, highs = ([getattr(strength.logit, name) for strength in result.strengths] for name in ("low", "high"))
    return max(lows) > min(highs)


@pytest.mark.parametrize(("methods", "questions"), [(5, 60), (10, 60), (20, 30)])
@pytest.mark.parametrize(
    "sets", [pytest.param(40, marks=pytest.mark.slow), pytest.param(2000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_equal_methods_are_rarely_significantly_different(methods: int, questions: int, sets: int) -> None:
    """`python -m pytest -m soak -s` on this file prints the figures that the page Results shows."""
    rng = np.random.default_rng(methods)
    reported = overlapping = raw = 0
    for number in range(sets):
        result = bradley_terry(*all_against_all(rng, np.zeros(methods), questions), how=Resampling(seed=number, resamples=ROUNDS))
        reported += any(strength.positions != f"1–{methods}" for strength in result.strengths)
        overlapping += apart(result)
        raw += int((result.p[np.triu_indices(methods, 1)] <= 0.05).sum())
    share = raw / sets / math.comb(methods, 2)
    print(
        f"\n{methods} equal methods, {questions} questions: some pair significant in {reported / sets:.1%} of the sets, "
        f"intervals apart in {overlapping / sets:.1%}; p <= .05 in {share:.1%} of the pairs"
    )
    assert reported / sets <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sets)
    assert reported <= overlapping
    assert 0.02 < share < 0.08


@pytest.mark.parametrize(
    "sets", [pytest.param(40, marks=pytest.mark.slow), pytest.param(4000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_equal_methods_on_few_questions_or_documents_are_rarely_significantly_different(sets: int) -> None:
    rng = np.random.default_rng(1)
    reported = {"12 questions": 0, "8 documents": 0}
    for number in range(sets):
        few = bradley_terry(*all_against_all(rng, np.zeros(5), 12, luck=0.0), how=Resampling(seed=number, resamples=ROUNDS))
        # Questions of one document share its luck.
        first, second, question, _ = all_against_all(rng, np.zeros(5), 40)
        skill = np.repeat(rng.normal(size=(8, 5)), 5, axis=0)
        logit = skill[question, first] - skill[question, second]
        score = (rng.random(len(first)) < 1 / (1 + np.exp(-logit))).astype(float)
        documents = [f"d{n // 5}" for n in range(40)]
        clustered = bradley_terry(first, second, question, score, clusters=documents, how=Resampling(seed=number, resamples=ROUNDS))
        for name, result in (("12 questions", few), ("8 documents", clustered)):
            reported[name] += bool((result.corrected <= 0.05).any())
    print({name: f"{count / sets:.1%}" for name, count in reported.items()})
    assert max(reported.values()) / sets <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sets)


def test_p_value_agrees_with_the_interval() -> None:
    rng = np.random.default_rng(2)
    result = bradley_terry(*all_against_all(rng, np.linspace(0, 0.35, 6), 150), how=Resampling(resamples=4000))
    near = 0
    for i, j in itertools.combinations(range(6), 2):
        beyond = 2 * min((result.draws[i] <= result.draws[j]).mean(), (result.draws[i] >= result.draws[j]).mean())
        if beyond > 0.02:
            assert result.p[i, j] == pytest.approx(beyond, abs=0.03 + 0.1 * beyond)
            near += 1
        gap = result.difference(i, j)
        if not 0.03 < result.p[i, j] < 0.08:
            assert (gap.low > 0 or gap.high < 0) == (result.p[i, j] < 0.05)
    assert near >= 3


@pytest.mark.parametrize(("won", "lost"), [(26, 14), (30, 10), (60, 40), (110, 90)])
def test_the_p_of_two_methods_is_about_that_of_their_battles(won: int, lost: int) -> None:
    p = duel(won, lost).p[0, 1]
    exact = binomtest(won, won + lost).pvalue
    # On the scale of the test: one takes its spread from the battles as they came, the other from even ones.
    assert math.log10(p) == pytest.approx(math.log10(exact), abs=0.35 + 0.12 * abs(math.log10(exact)))


def test_resamples_that_only_the_prior_keeps_near_do_not_hide_a_difference() -> None:
    result = duel(28, 2)
    assert result.strengths[0].separated_rounds > 0.05
    assert [strength.positions for strength in result.strengths] == ["1", "2"]


@pytest.mark.parametrize("won", [1, 2, 4, 5, 6, 20])
def test_no_p_is_less_than_coins_could_give(won: int) -> None:
    result = duel(won, 0)
    assert result.p[0, 1] == pytest.approx(2.0 ** (1 - won))
    assert [strength.positions for strength in result.strengths] == (["1", "2"] if won > 5 else ["1–2", "1–2"])
    # A hundred ties add no independent observations.
    rows = won + 100
    tied = bradley_terry([0] * rows, [1] * rows, range(rows), [1.0] * won + [0.5] * 100)
    assert tied.p[0, 1] >= 2.0 ** (1 - won)


def test_a_newcomer_with_few_battles_is_not_significantly_stronger() -> None:
    rng = np.random.default_rng(3)
    first, second, question, score = all_against_all(rng, np.zeros(3), 300)
    joined = (np.append(first, [3, 3, 3]), np.append(second, [0, 1, 2]), np.append(question, [0, 1, 2]))
    result = bradley_terry(*joined, np.append(score, [1.0] * 3))
    assert result.strengths[3].band.rank == 1
    assert (result.p[3, :3] >= 0.25).all()
    assert result.strengths[3].positions == "1–4"


def test_the_correction_is_holms_and_a_thousand_rounds_resolve_it() -> None:
    rng = np.random.default_rng(4)
    result = bradley_terry(*all_against_all(rng, np.linspace(-0.8, 0.8, 10), 200))
    upper = np.triu_indices(10, 1)
    assert result.corrected[upper] == pytest.approx(np.array(holm(result.p[upper].tolist())))
    assert np.array_equal(result.corrected, result.corrected.T)
    assert (result.corrected.diagonal() == 1).all()
    # What a share of the rounds could never show.
    assert result.corrected[0, 9] < 1e-3
    for row, item in enumerate(result.strengths):
        value = item.logit.value
        significant = [other for other in range(10) if result.corrected[row, other] <= 0.05]
        stronger = [other for other in significant if result.strengths[other].logit.value > value]
        assert item.band.low == 1 + len(stronger)
        assert item.band.high == 10 - (len(significant) - len(stronger))
        assert (item.band.standing is Standing.BEST) == (item.band.rank == 1)
        assert item.band.rank == 1 + sum(other.logit.value > value for other in result.strengths)


def test_intervals_that_overlap_can_belong_to_methods_that_differ_significantly() -> None:
    # One wins 15 questions of the other and loses none, and a third moves both together: it beats both or neither.
    questions = 120
    hard = np.random.default_rng(5).random(questions) < 0.5
    rows = [(0, 1, q, 0.5 if q % 8 else 1.0) for q in range(questions)]
    rows += [(side, 2, q, 0.0 if hard[q] else 1.0) for q in range(questions) for side in (0, 1)]
    result = bradley_terry(*(np.array(column) for column in zip(*rows, strict=True)))
    item, other = result.strengths[0], result.strengths[1]
    assert item.logit.low < other.logit.high
    assert result.corrected[0, 1] < 0.01
    assert (item.positions, other.positions) == ("1–2", "2–3")


def test_ranks_are_within_linked_methods_and_corrected_over_all_pairs() -> None:
    rng = np.random.default_rng(6)
    item, other = all_against_all(rng, np.array([0.6, 0.0]), 60), all_against_all(rng, np.array([0.7, 0.0, 0.0]), 60)
    both = [np.concatenate([item[0], other[0] + 2]), np.concatenate([item[1], other[1] + 2])]
    both += [np.concatenate([item[column], other[column]]) for column in (2, 3)]
    result = bradley_terry(*both, methods=6)
    assert np.isnan(result.p[:2, 2:]).all()
    assert np.isnan(result.p[5, :5]).all()
    assert [strength.band.high for strength in result.strengths[:2]] == [2, 2]
    assert max(strength.band.high for strength in result.strengths[2:5]) == 3
    tested = [result.p[0, 1], result.p[2, 3], result.p[2, 4], result.p[3, 4]]
    corrected = [result.corrected[0, 1], result.corrected[2, 3], result.corrected[2, 4], result.corrected[3, 4]]
    assert corrected == pytest.approx(holm([float(p) for p in tested]))
    assert (result.strengths[5].band.low, result.strengths[5].band.high) == (1, 1)


def test_repeated_verdicts_prove_no_more() -> None:
    rows = all_against_all(np.random.default_rng(7), np.linspace(0, 0.5, 4), 60)
    often = tuple(column.repeat(10) for column in rows)
    assert bradley_terry(*often).p == pytest.approx(bradley_terry(*rows).p, rel=0.02, abs=1e-6)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 7), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=30)
)
def test_whatever_the_battles_ranks_hold_their_place(rows: list[tuple[int, int, int, float]]) -> None:
    first = np.array([row[0] for row in rows])
    second = (first + [row[1] for row in rows]) % 5
    question, score = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    result = bradley_terry(first, second, question, score, methods=5, how=Resampling(resamples=30))
    swapped = bradley_terry(second, first, question, 1 - score, methods=5, how=Resampling(resamples=30))
    assert np.allclose(result.p, swapped.p, rtol=1e-4, equal_nan=True)
    component = np.array([strength.component for strength in result.strengths])
    assert np.array_equal(np.isnan(result.p), component[:, None] != component)
    known = result.p[~np.isnan(result.p)]
    assert ((known > 0) & (known <= 1)).all()
    for strength in result.strengths:
        assert 1 <= strength.band.low <= strength.band.rank <= strength.band.high <= int((component == strength.component).sum())


def test_one_question_tells_nobody_apart() -> None:
    result = bradley_terry([0, 0, 1], [1, 2, 2], [0, 0, 0], [1.0, 1.0, 1.0])
    assert (result.p == 1).all()
    assert [strength.positions for strength in result.strengths] == ["1–3"] * 3
