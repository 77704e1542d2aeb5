from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from results.statistics.gate import decide_all, minimum_detectable, non_inferiority, questions_needed, standard_error


def pair(n: int, gap: float, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Candidate and baseline whose observed mean difference is exactly -drop."""
    rng = np.random.default_rng(seed)
    base = rng.random(n)
    wobble = rng.normal(0, noise, n)
    return base - gap + wobble - wobble.mean(), base


def test_a_clear_drop_regresses_and_a_clear_tie_passes() -> None:
    fallen, base = pair(400, 0.05)
    assert non_inferiority(fallen, base, margin=0.01).outcome == "regressed"
    same, base = pair(400, 0.0, noise=0.02)
    assert non_inferiority(same, base, margin=0.01).outcome == "pass"
    unclear, base = pair(50, 0.01)
    assert non_inferiority(unclear, base, margin=0.01).outcome == "inconclusive"


def test_strict_calls_a_sure_loss_within_the_margin_a_regression() -> None:
    candidate, base = pair(1000, 0.02, noise=0.05)
    assert non_inferiority(candidate, base, margin=0.05).outcome == "pass"
    assert non_inferiority(candidate, base, margin=0.05, strict=True).outcome == "regressed"


def test_a_metric_of_which_less_is_better_is_turned_round() -> None:
    longer, base = pair(400, -0.05)
    assert non_inferiority(longer, base, margin=0.01).outcome == "pass"
    result = non_inferiority(longer, base, margin=0.01, higher_is_better=False)
    assert result.outcome == "regressed"
    assert result.difference.value == pytest.approx(-0.05)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), max_size=60),
    st.floats(0.001, 0.6),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["expanded", "percentile", "bca"]),
)
def test_outcomes_are_disjoint_exhaustive_and_follow_from_the_bounds(
    scores: list[tuple[float, float]], margin: float, strict: bool, clustered: bool, method: str
) -> None:
    a, b = np.array(scores, dtype=float).reshape(-1, 2).T
    clusters = [f"d{number % 7}" for number in range(len(a))] if clustered else None
    result = non_inferiority(a, b, margin=margin, strict=strict, clusters=clusters, resamples=400, method=method)  # type: ignore[arg-type]
    low, high = result.difference.low, result.difference.high
    regressed = high < (0.0 if strict else -margin) - 1e-12
    passed = low > -margin + 1e-12 and not regressed
    expected = "regressed" if regressed else "pass" if passed else "inconclusive"
    # Bounds decide; only where so few units stand behind them that no bound reaches the level is it left open.
    few = len(set(clusters or range(len(a)))) < 20
    assert result.outcome == expected or (few and result.outcome == "inconclusive")
    assert (result.p <= 0.025) == (result.outcome == "regressed")
    assert (result.questions_needed is None) or (result.outcome == "inconclusive" and result.questions_needed > result.difference.n)


def test_two_questions_never_pass_a_gate() -> None:
    result = non_inferiority([1.0, 1.0], [1.0, 1.0], margin=0.01)
    assert result.outcome == "inconclusive"
    assert non_inferiority([], [], margin=0.01).outcome == "inconclusive"
    assert non_inferiority([1.0], [0.0], margin=0.01).outcome == "inconclusive"


def test_the_same_run_passes_against_itself_and_says_what_that_is_worth() -> None:
    scores = np.random.default_rng(0).random(250)
    result = non_inferiority(scores, scores, margin=0.01)
    assert result.outcome == "pass"
    assert "1.2% of new ones may" in result.difference.doubt


def test_unscorable_questions_leave_the_gate() -> None:
    candidate, base = pair(300, 0.0, noise=0.02)
    holed = np.r_[candidate, [math.nan, 1.0]], np.r_[base, [1.0, math.nan]]
    assert non_inferiority(*holed, margin=0.01).difference.n == 300


def test_documents_count_once() -> None:
    per_document = np.random.default_rng(1).normal(0, 0.04, 20)
    repeated = np.repeat(per_document - per_document.mean() - 0.005, 30)
    documents = [f"d{number}" for number in range(20) for _ in range(30)]
    base = np.zeros(600)
    assert non_inferiority(repeated, base, margin=0.01).outcome == "pass"
    assert non_inferiority(repeated, base, margin=0.01, clusters=documents).outcome == "inconclusive"


@pytest.mark.parametrize("margin", [0.0, -0.01, math.nan, math.inf])
def test_a_margin_that_is_not_positive_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="positive fraction"):
        non_inferiority([1.0, 0.0], [1.0, 0.0], margin=margin)


def test_scores_of_different_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="same questions"):
        non_inferiority([1.0, 0.0], [1.0], margin=0.01)


@pytest.mark.slow
def test_so_many_questions_would_indeed_decide() -> None:
    candidate, base = pair(150, 0.002, noise=0.08, seed=3)
    result = non_inferiority(candidate, base, margin=0.01)
    assert result.outcome == "inconclusive"
    needed = result.questions_needed
    assert needed is not None
    delta = candidate - base
    rng = np.random.default_rng(4)
    decided = [
        non_inferiority(rng.choice(delta, needed), np.zeros(needed), margin=0.01, resamples=499).outcome == "pass" for _ in range(200)
    ]
    # A power of 80 % was asked for, with three standard errors of 200 trials.
    assert 0.8 - 0.085 <= np.mean(decided) <= 0.8 + 0.085


def test_a_difference_right_on_the_margin_is_decided_by_no_number_of_questions() -> None:
    candidate, base = pair(200, 0.0)
    result = non_inferiority(candidate - 0.01, base, margin=0.01)
    assert result.outcome == "inconclusive"
    assert result.questions_needed is None or result.questions_needed > 10**9


def test_the_whole_regresses_if_one_metric_does_and_passes_only_if_all_do() -> None:
    good, base = pair(400, 0.0, noise=0.02)
    bad, _ = pair(400, 0.05)
    vague, _ = pair(400, 0.01, noise=0.2)
    outcomes = {
        names: decide_all(
            {name: scores for name, scores in {"good": good, "bad": bad, "vague": vague}.items() if name in names},
            dict.fromkeys(names, base),
            margins=0.01,
            resamples=1000,
        ).outcome
        for names in (("good",), ("good", "bad"), ("good", "vague"), ("good", "bad", "vague"))
    }
    assert list(outcomes.values()) == ["pass", "regressed", "inconclusive", "regressed"]


def test_one_metric_is_decided_as_without_a_correction() -> None:
    candidate, base = pair(120, 0.03)
    alone = non_inferiority(candidate, base, margin=0.01)
    assert decide_all({"f1": candidate}, {"f1": base}, margins={"f1": 0.01}).decisions["f1"] == alone


def test_a_drop_that_only_the_correction_leaves_unclaimed_is_inconclusive_and_not_a_pass() -> None:
    rng = np.random.default_rng(5)
    base = np.zeros(300)
    wobble = rng.normal(0, 0.1, 300)
    # A strict gate: a loss of 2.1 standard errors, within the margin.
    slight = wobble - wobble.mean() - 2.1 * 0.1 / math.sqrt(300)
    others = {f"m{number}": rng.normal(0, 0.02, 300) for number in range(9)}
    alone = non_inferiority(slight, base, margin=0.1, strict=True)
    assert alone.outcome == "regressed"
    assert alone.p_pass <= 0.025
    metrics = {"slight": slight, **others}
    result = decide_all(metrics, dict.fromkeys(metrics, base), margins=0.1, strict=True)
    decision = result.decisions["slight"]
    assert decision.outcome == "inconclusive"
    assert decision.p_holm > 0.025 >= decision.p
    assert decision.questions_needed is not None
    assert decision.questions_needed > 300
    assert result.outcome == "inconclusive"


def test_metrics_or_margins_that_are_missing_are_refused() -> None:
    with pytest.raises(ValueError, match="same metrics"):
        decide_all({"f1": [1.0]}, {"em": [1.0]}, margins=0.01)
    with pytest.raises(ValueError, match="same metrics"):
        decide_all({}, {}, margins=0.01)
    with pytest.raises(ValueError, match="no margin for f1"):
        decide_all({"f1": [1.0]}, {"f1": [1.0]}, margins={"em": 0.01})


# --- power --------------------------------------------------------------------------------------------------------


def test_standard_error_is_the_textbooks() -> None:
    values = np.random.default_rng(0).random(50)
    assert standard_error(values) == pytest.approx(stats.sem(values))
    assert standard_error([*values, math.nan]) == pytest.approx(stats.sem(values))
    assert math.isnan(standard_error([0.5]))


def test_standard_error_of_documents_is_that_of_their_means_where_they_are_of_one_size() -> None:
    per_document = np.random.default_rng(1).random((25, 8))
    documents = [f"d{number}" for number in range(25) for _ in range(8)]
    expected = stats.sem(per_document.mean(axis=1))
    assert standard_error(per_document.ravel(), clusters=documents) == pytest.approx(expected)


def test_minimum_detectable_difference_is_the_closed_form_and_is_found_with_that_power() -> None:
    delta = np.random.default_rng(2).normal(0, 0.3, 400)
    expected = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * stats.sem(delta)
    result = minimum_detectable(delta)
    assert result == pytest.approx(expected)
    rng = np.random.default_rng(3)
    centered = delta - delta.mean()
    called = [stats.ttest_1samp(rng.choice(centered, 400) + result, 0).pvalue < 0.05 for _ in range(1000)]
    assert np.mean(called) == pytest.approx(0.8, abs=0.04)


def test_as_many_questions_as_needed_make_the_effect_detectable() -> None:
    delta = np.random.default_rng(4).normal(0, 0.3, 200)
    needed = questions_needed(delta, 0.02)
    scale = math.sqrt(needed / 200)
    assert minimum_detectable(delta) / scale <= 0.02
    assert minimum_detectable(delta) / math.sqrt((needed - 1) / 200) > 0.02
    assert questions_needed(delta, -0.02) == needed
    assert questions_needed(delta, minimum_detectable(delta)) == pytest.approx(200, abs=1)


def test_questions_that_share_documents_are_worth_less() -> None:
    rng = np.random.default_rng(5)
    delta = np.repeat(rng.normal(0, 0.3, 20), 10) + rng.normal(0, 0.05, 200)
    documents = [f"d{number}" for number in range(20) for _ in range(10)]
    assert questions_needed(delta, 0.05, clusters=documents) > 5 * questions_needed(delta, 0.05)


def test_impossible_questions_about_power_are_refused() -> None:
    with pytest.raises(ValueError, match="no number of questions"):
        questions_needed([0.1, 0.2], 0.0)
    with pytest.raises(ValueError, match="two independent units"):
        questions_needed([0.1], 0.1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        minimum_detectable([0.1, 0.2], power=80)
