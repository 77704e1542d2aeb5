from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from perf.bradley_terry import main as benchmark
from results.statistics.bootstrap import bootstrap_weights
from results.statistics.bradley_terry import BradleyTerry, bradley_terry
from results.statistics.core import Resampling

NO_PRIOR = 1e5
# Strengths of -0.8, 0 and 0.8 as infinitely many questions would show them, where each answer's luck on a question has
# a standard deviation of 1: see test_luck_on_questions_shrinks_strengths.
SEEN = np.array([-0.5879, 0.0, 0.5879])
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def battles(rng: np.random.Generator, strengths: np.ndarray, questions: int, per_question: int, *, ties: float = 0.1) -> Rows:
    """Battles of random pairs."""
    rows = questions * per_question
    first = rng.integers(0, len(strengths), rows)
    second = (first + rng.integers(1, len(strengths), rows)) % len(strengths)
    score = (rng.random(rows) < 1 / (1 + np.exp(strengths[second] - strengths[first]))).astype(float)
    score[rng.random(rows) < ties] = 0.5
    return first, second, np.repeat(np.arange(questions), per_question), score


def values(result: BradleyTerry) -> np.ndarray:
    return np.array([strength.logit.value for strength in result.strengths])


def design(first: np.ndarray, second: np.ndarray, methods: int, extra: np.ndarray | None = None) -> np.ndarray:
    rows = np.arange(len(first))
    matrix = np.zeros((len(first), methods))
    matrix[rows, first], matrix[rows, second] = 1.0, -1.0
    return matrix if extra is None else np.column_stack([matrix, extra])


def scikit_learn(matrix: np.ndarray, score: np.ndarray, prior: float, weights: np.ndarray | None = None) -> np.ndarray:
    """The same objective by scikit-learn: each row once as a win with its score, once as a loss with the rest."""
    weights = np.ones(len(score)) if weights is None else weights
    model = LogisticRegression(C=prior**2, fit_intercept=False, solver="newton-cg", tol=1e-10, max_iter=2000)
    model.fit(
        np.concatenate([matrix, matrix]),
        np.repeat([1, 0], len(score)),
        sample_weight=np.concatenate([weights * score, weights * (1 - score)]),
    )
    return model.coef_[0]


def by_likelihood(matrix: np.ndarray, score: np.ndarray) -> np.ndarray:
    """The plain likelihood's maximum by a general optimizer, the first method held at 0."""

    def cost(free: np.ndarray) -> tuple[float, np.ndarray]:
        logit = matrix[:, 1:] @ free
        chance = 1 / (1 + np.exp(-logit))
        return float((np.logaddexp(0, logit) - score * logit).sum()), matrix[:, 1:].T @ (chance - score)

    result = minimize(cost, np.zeros(matrix.shape[1] - 1), jac=True, method="BFGS", options={"gtol": 1e-9})
    return np.concatenate([[0.0], result.x])


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 20))
def test_two_methods_stand_apart_by_the_log_odds_of_their_battles(won: int, lost: int, tied: int) -> None:
    score = [1.0] * won + [0.0] * lost + [0.5] * tied
    rows = len(score)
    result = bradley_terry([0] * rows, [1] * rows, range(rows), score, prior=NO_PRIOR, how=Resampling(resamples=20))
    odds = (won + tied / 2) / (lost + tied / 2)
    assert result.difference(0, 1).value == pytest.approx(math.log(odds), abs=1e-6)
    assert values(result) == pytest.approx([math.log(odds) / 2, -math.log(odds) / 2], abs=1e-6)
    assert result.strengths[0].elo[0] - result.strengths[1].elo[0] == pytest.approx(400 * math.log10(odds), abs=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_strengths_maximize_the_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second, question, score = battles(rng, np.linspace(-1, 1, 8), 80, 6)
    result = values(bradley_terry(first, second, question, score, prior=NO_PRIOR, how=Resampling(resamples=10)))
    theirs = by_likelihood(design(first, second, 8), score)
    assert result == pytest.approx(theirs - theirs.mean(), abs=1e-5)
    assert result.sum() == pytest.approx(0, abs=1e-9)
    # The default prior is hardly an opinion.
    assert values(bradley_terry(first, second, question, score, how=Resampling(resamples=10))) == pytest.approx(result, abs=0.002)


@pytest.mark.parametrize("prior", [0.5, 10.0])
def test_strengths_and_effects_are_scikit_learns(prior: float) -> None:
    rng = np.random.default_rng(2)
    first, second, question, score = battles(rng, np.linspace(-1, 1, 6), 60, 8)
    shown = rng.random(len(score)) < 0.5
    lengths = rng.integers(0, 300, (2, len(score)))
    ratio = np.log2((lengths[0] + 1) / (lengths[1] + 1))
    extra = np.column_stack([np.where(shown, 1, -1), ratio])
    result = bradley_terry(
        first, second, question, score, shown_first=shown, lengths=tuple(lengths), prior=prior, how=Resampling(resamples=10)
    )
    theirs = scikit_learn(design(first, second, 6, extra), score, prior)
    assert result.shown_first is not None
    assert result.per_doubling is not None
    ours = [*values(result), result.shown_first.value, result.per_doubling.value]
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert result.length_spread == pytest.approx(ratio.std())


def test_each_resample_is_a_fit_of_the_resampled_rows() -> None:
    rng = np.random.default_rng(3)
    first, second, question, score = battles(rng, np.linspace(-1, 1, 5), 40, 6)
    lengths = rng.integers(1, 50, (2, len(score)))
    shown = rng.random(len(score)) < 0.5
    extra = np.column_stack([np.where(shown, 1, -1), np.log2((lengths[0] + 1) / (lengths[1] + 1))])
    result = bradley_terry(first, second, question, score, shown_first=shown, lengths=tuple(lengths), how=Resampling(resamples=40, seed=5))
    weights = np.concatenate(list(bootstrap_weights(40, 5, 40)))
    matrix = design(first, second, 5, extra)
    for drawn, weight in zip(result.draws.T[::8], weights[::8], strict=True):
        assert drawn == pytest.approx(scikit_learn(matrix, score, 10.0, weight[question])[:5], abs=1e-5)


def test_the_side_a_method_is_named_on_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    first, second, question, score = battles(rng, np.linspace(-1, 1, 6), 100, 5)
    shown = rng.random(len(score)) < 0.5
    lengths = rng.integers(0, 90, (2, len(score)))
    turned = rng.random(len(score)) < 0.5
    item = bradley_terry(first, second, question, score, shown_first=shown, lengths=tuple(lengths), how=Resampling(resamples=50))
    other = bradley_terry(
        np.where(turned, second, first),
        np.where(turned, first, second),
        question,
        np.where(turned, 1 - score, score),
        shown_first=shown ^ turned,
        lengths=tuple(np.where(turned, lengths[::-1], lengths)),
        how=Resampling(resamples=50),
    )
    assert values(item) == pytest.approx(values(other), abs=1e-9)
    assert item.draws == pytest.approx(other.draws, abs=1e-8)
    for name in ("shown_first", "per_doubling"):
        assert getattr(item, name).value == pytest.approx(getattr(other, name).value, abs=1e-9)


def test_planted_strengths_and_habits_are_found_again() -> None:
    rng = np.random.default_rng(5)
    strengths = np.array([-1.0, -0.4, 0.0, 0.3, 1.1])
    first, second, question, _ = battles(rng, strengths, 1500, 6)
    shown = rng.random(len(first)) < 0.5
    # The strong write long answers: without the covariate their length would pass for strength.
    lengths = [np.exp(4 + 0.5 * strengths[side] + 0.6 * rng.normal(size=len(first))) for side in (first, second)]
    logit = strengths[first] - strengths[second] + 0.4 * np.where(shown, 1, -1) + 0.5 * np.log2(lengths[0] / lengths[1])
    score = (rng.random(len(first)) < 1 / (1 + np.exp(-logit))).astype(float)
    result = bradley_terry(first, second, question, score, shown_first=shown, lengths=tuple(lengths), how=Resampling(resamples=300))
    assert result.shown_first is not None
    assert result.per_doubling is not None
    for item, truth in zip(
        [*(s.logit for s in result.strengths), result.shown_first, result.per_doubling], [*strengths, 0.4, 0.5], strict=True
    ):
        assert item.low - 0.05 < truth < item.high + 0.05
        assert not item.insufficient_data
    confused = bradley_terry(first, second, question, score, how=Resampling(resamples=50))
    assert confused.strengths[4].logit.low > result.strengths[4].logit.high
    assert confused.shown_first is None


def test_method_that_wins_everything_has_finite_strength_and_is_separated() -> None:
    rng = np.random.default_rng(6)
    first, second, question, score = battles(rng, np.zeros(5), 60, 6)
    score = np.where(first == 2, 1.0, np.where(second == 2, 0.0, score))
    result = bradley_terry(first, second, question, score, how=Resampling(resamples=100))
    assert result.separated == [2]
    assert result.strengths[2].separated_rounds == 1.0
    assert all(np.isfinite(values(result)))
    assert np.isfinite(result.draws).all()
    assert "set by the prior" in result.strengths[2].logit.insufficient_data
    assert "set by the prior" in result.difference(2, 0).insufficient_data
    assert "prior" not in result.difference(0, 1).insufficient_data
    assert int(values(result).argmax()) == 2
    # A weaker prior puts it further away, and leaves the distances among the others alone.
    further = bradley_terry(first, second, question, score, how=Resampling(resamples=10), prior=1000.0)
    assert further.difference(2, 0).value > result.difference(2, 0).value + 3
    assert further.difference(0, 1).value == pytest.approx(result.difference(0, 1).value, abs=0.01)


@pytest.mark.parametrize("prior", [0.1, 10.0, 1e6])
def test_the_distance_that_the_prior_allows_is_where_its_pull_meets_the_battles(prior: float) -> None:
    result = bradley_terry([0] * 42, [1] * 42, range(42), [1.0] * 42, prior=prior, how=Resampling(resamples=5))
    gap = result.difference(0, 1).value
    # Slope of 42 wins against the slope of the prior at half the gap each.
    assert 42 / (1 + math.exp(gap)) == pytest.approx(gap / 2 / prior**2, rel=1e-4)


def test_two_methods_of_which_one_always_wins_are_both_out_of_reach() -> None:
    result = bradley_terry([0] * 30, [1] * 30, range(30), [1.0] * 30, how=Resampling(resamples=50))
    assert result.separated == [0, 1]
    assert result.difference(0, 1).value > 5


def test_battles_that_are_all_tied_have_no_interval() -> None:
    result = bradley_terry([0] * 60, [1] * 60, range(60), [0.5] * 60, shown_first=np.arange(60) % 2, how=Resampling(resamples=50))
    assert result.shown_first is not None
    for item in (result.strengths[0].logit, result.difference(0, 1), result.shown_first):
        assert item.value == pytest.approx(0)
        assert math.isnan(item.low)
        assert math.isnan(item.high)
        assert item.insufficient_data


def test_method_without_a_battle_has_no_rank() -> None:
    result = bradley_terry([0] * 30, [1] * 30, range(30), [1.0, 0.0] * 15, methods=3, how=Resampling(resamples=50))
    assert [strength.positions for strength in result.strengths] == ["1–2", "1–2", "–"]


def test_bound_that_depends_on_the_prior_is_reported() -> None:
    score = [1.0] * 28 + [0.0, 0.0]
    result = bradley_terry([0] * 30, [1] * 30, range(30), score, how=Resampling(resamples=1000))
    assert result.separated == []
    # The chance that neither of the two lost questions is drawn.
    assert result.strengths[0].separated_rounds == pytest.approx((28 / 30) ** 30, abs=0.03)
    assert "of the resamples" in result.strengths[0].logit.insufficient_data


def test_methods_that_never_met_are_not_compared() -> None:
    rng = np.random.default_rng(7)
    item, other = battles(rng, np.array([0.0, 1.0]), 50, 4), battles(rng, np.array([0.5, -0.5, 0.0]), 50, 4)
    first, second = np.concatenate([item[0], other[0] + 2]), np.concatenate([item[1], other[1] + 2])
    score, question = np.concatenate([item[3], other[3]]), np.concatenate([item[2], other[2]])
    result = bradley_terry(first, second, question, score, methods=6, how=Resampling(resamples=50))
    assert result.components == 2
    numbers = [strength.component for strength in result.strengths]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3] == numbers[4]
    assert numbers[5] not in numbers[:5]
    assert math.isnan(result.difference(0, 2).value)
    assert result.difference(2, 3).value > 0
    assert all("not linked" in strength.logit.insufficient_data for strength in result.strengths[:5])
    assert values(result)[:2].sum() == pytest.approx(0, abs=1e-9)
    assert values(result)[2:5].sum() == pytest.approx(0, abs=1e-9)
    idle = result.strengths[5]
    assert math.isnan(idle.logit.value)
    assert (idle.battles, idle.logit.n, idle.logit.insufficient_data.endswith("no battle")) == (0, 0, True)
    alone = bradley_terry(*item, how=Resampling(resamples=10))
    assert values(result)[:2] == pytest.approx(values(alone), abs=1e-9)


def test_battles_without_a_verdict_are_left_out_and_counted() -> None:
    rng = np.random.default_rng(8)
    first, second, question, score = battles(rng, np.linspace(0, 1, 4), 50, 4)
    holed = score.copy()
    holed[::5] = math.nan
    kept = ~np.isnan(holed)
    result = bradley_terry(first, second, question, holed, methods=4, how=Resampling(resamples=20))
    assert (result.battles, result.unscored) == (160, 40)
    fewer = bradley_terry(first[kept], second[kept], question[kept], score[kept], methods=4, how=Resampling(resamples=20))
    assert values(result) == pytest.approx(values(fewer))
    nothing = bradley_terry([0, 1], [1, 0], [0, 1], [math.nan, math.nan], methods=2)
    assert np.isnan(values(nothing)).all()


def test_repeated_verdicts_on_one_question_are_not_independent() -> None:
    rng = np.random.default_rng(9)
    rows = battles(rng, np.linspace(-1, 1, 4), 60, 4)
    often = tuple(column.repeat(10) for column in rows)
    item, ten = bradley_terry(*rows, how=Resampling(resamples=200)), bradley_terry(*often, how=Resampling(resamples=200))
    assert ten.strengths[0].logit.low == pytest.approx(item.strengths[0].logit.low, abs=0.02)
    careless = bradley_terry(*often[:2], range(len(often[0])), often[3], how=Resampling(resamples=200))
    width = [x.strengths[0].logit.high - x.strengths[0].logit.low for x in (ten, careless)]
    assert width[0] > 2.5 * width[1]


def test_questions_of_one_document_are_resampled_together() -> None:
    rng = np.random.default_rng(10)
    rows = battles(rng, np.linspace(-1, 1, 4), 60, 4)
    documents = [f"d{question // 2:02}" for question in range(60)]
    result = bradley_terry(*rows, clusters=documents, how=Resampling(resamples=100))
    merged = bradley_terry(rows[0], rows[1], rows[2] // 2, rows[3], how=Resampling(resamples=100))
    assert result.draws == pytest.approx(merged.draws, abs=1e-8)
    assert (result.support.clusters, merged.support.clusters, result.support.n) == (30, 30, 60)
    with pytest.raises(ValueError, match="cluster labels"):
        bradley_terry(*rows, clusters=documents[:-1])


def test_effect_without_contradicting_battles_is_reported_as_set_by_the_prior() -> None:
    rng = np.random.default_rng(11)
    first, second, question, _ = battles(rng, np.zeros(4), 100, 4)
    shown = rng.random(len(first)) < 0.5
    result = bradley_terry(first, second, question, shown.astype(float), shown_first=shown, how=Resampling(resamples=50))
    assert result.shown_first is not None
    assert "no battle contradicts it" in result.shown_first.insufficient_data
    assert 3 < result.shown_first.value < 20
    same = np.full(len(first), 7)
    flat = bradley_terry(first, second, question, shown.astype(float), lengths=(same, same), how=Resampling(resamples=50))
    assert flat.per_doubling is not None
    assert flat.per_doubling.value == pytest.approx(0)
    assert "no two answers differ" in flat.per_doubling.insufficient_data


def test_luck_on_questions_shrinks_strengths() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    # The difference of two lucks has variance 2. From the expected score of each pair, the strengths that fit best.
    mean = {gap: float((1 / (1 + np.exp(-gap - math.sqrt(2) * nodes))) @ weights / weights.sum()) for gap in (0.8, 1.6)}
    first, second, score = [0, 1, 0], [1, 2, 2], [1 - mean[0.8], 1 - mean[0.8], 1 - mean[1.6]]
    result = bradley_terry(first, second, [0, 1, 2], score, prior=NO_PRIOR, how=Resampling(resamples=10))
    assert values(result) == pytest.approx(SEEN, abs=1e-4)


@pytest.mark.parametrize(("questions", "floor"), [(60, 0.92), (220, 0.93)])
@pytest.mark.parametrize(
    "sets", [pytest.param(100, marks=pytest.mark.slow), pytest.param(4000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_intervals_cover_as_stated(questions: int, floor: float, sets: int) -> None:
    """`python -m pytest -m soak -s` on this file prints the figures that the page Results shows."""
    rng = np.random.default_rng(12)
    strengths, held = np.array([-0.8, 0.0, 0.8]), 0
    for _ in range(sets):
        # Three verdicts on each question that share its luck: independent battles are not what is resampled.
        luck = np.repeat(rng.normal(size=(questions, 3)), 3, axis=0)
        first, second, question, _ = battles(rng, strengths, questions, 3, ties=0.0)
        rows = np.arange(len(first))
        logit = strengths[first] - strengths[second] + luck[rows, first] - luck[rows, second]
        score = (rng.random(len(first)) < 1 / (1 + np.exp(-logit))).astype(float)
        result = bradley_terry(first, second, question, score, how=Resampling(resamples=400, seed=int(rng.integers(1 << 30))))
        held += sum(item.logit.low <= truth <= item.logit.high for item, truth in zip(result.strengths, SEEN, strict=True))
    share = held / (3 * sets)
    print(f"\n{questions} questions: covers {share:.1%}")
    chance = 3 * math.sqrt(floor * (1 - floor) / sets)
    assert floor - chance < share < 0.975 + chance


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=25)
)
def test_whatever_the_battles_strengths_are_finite_and_flagged_where_they_had_to_be_kept_so(
    rows: list[tuple[int, int, int, float]],
) -> None:
    first = np.array([row[0] for row in rows])
    second = (first + [row[1] for row in rows]) % 5
    question, score = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    result = bradley_terry(first, second, question, score, methods=5, how=Resampling(resamples=30))
    assert np.isfinite(result.draws).all()
    for code, strength in enumerate(result.strengths):
        assert math.isnan(strength.logit.value) == (strength.battles == 0)
        mine = np.concatenate([score[first == code], 1 - score[second == code]])
        if len(mine) and (mine.min() == mine.max()) and mine[0] != 0.5:
            # All won or all lost: a set of one, so it must be flagged unless it is linked to nobody else.
            assert strength.separated


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"second": [1, 1, 0]}, "cannot be compared with itself"),
        ({"score": [1.0, 2.0, 0.0]}, "between 0 and 1"),
        ({"first": [-1, 1, 2]}, "first: codes"),
        ({"question": [0.5, 1, 2]}, "question: codes"),
        ({"question": [0, 1]}, "same battles"),
        ({"methods": 2}, "method 2 fights, but there are 2"),
        ({"prior": 0.0}, "prior"),
        ({"lengths": ([1, 2, math.nan], [1, 2, 3])}, "length of at least 0"),
        ({"shown_first": [True]}, "covariates"),
    ],
)
def test_what_means_nothing_is_refused(change: dict[str, object], complaint: str) -> None:
    rows: dict[str, object] = {"first": [0, 1, 2], "second": [1, 2, 0], "question": [0, 1, 2], "score": [1.0, 0.0, 0.5]}
    with pytest.raises(ValueError, match=complaint):
        bradley_terry(**(rows | change))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_benchmark_compares_equal_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark(["--quick"]) == 0
    assert "DIFFERENT" not in capsys.readouterr().out


def test_no_battle_at_all_has_no_strengths() -> None:
    with pytest.raises(ValueError, match="at least one scored battle"):
        bradley_terry([], [], [], [])


def test_labels_take_off_a_judge_s_favor_and_strengths_cover() -> None:
    rng = np.random.default_rng(0)
    questions, sets, favored, covered = 200, 12, 0, 0
    for _ in range(sets):
        first, second, score, labels = [np.empty(0)], [np.empty(0)], [np.empty(0)], [np.empty(0)]
        for one, other in ((0, 1), (0, 2), (1, 2)):
            truth = (rng.random(questions) < 0.5).astype(float)
            first.append(np.full(questions, one))
            second.append(np.full(questions, other))
            score.append(np.where((one == 0) & (rng.random(questions) < 0.3), 1.0, truth))
            labels.append(np.where(rng.permutation(questions) < 80, truth, np.nan))
        columns = [np.concatenate(each) for each in (first, second)]
        rows = (*(column.astype(int) for column in columns), np.tile(np.arange(questions), 3), np.concatenate(score))
        how = Resampling(resamples=200)
        favored += bradley_terry(*rows, how=how).strengths[0].logit.low > 0
        covered += sum(
            each.logit.low <= 0 <= each.logit.high for each in bradley_terry(*rows, labels=np.concatenate(labels), how=how).strengths
        )
    assert favored == sets
    assert covered >= 0.85 * 3 * sets
