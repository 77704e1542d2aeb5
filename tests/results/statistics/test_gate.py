from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from results.statistics.difference import paired
from results.statistics.gate import clusters_needed, decide_all
from results.statistics.tested import reach
from tests.support.gate import non_inferiority


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
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), max_size=60),
    st.floats(0.001, 0.6),
    st.booleans(),
    st.booleans(),
)
def test_outcomes_are_disjoint_exhaustive_and_follow_from_the_bounds(
    scores: list[tuple[float, float]], margin: float, strict: bool, clustered: bool
) -> None:
    a, b = np.array(scores, dtype=float).reshape(-1, 2).T
    clusters = [f"d{number % 17}" for number in range(len(a))] if clustered else None
    result = non_inferiority(a, b, margin=margin, strict=strict, clusters=clusters)
    low, high = result.difference.low, result.difference.high
    if not result.difference.insufficient_data and not result.insufficient_data:
        regressed = high < (0.0 if strict else -margin)
        assert result.outcome == ("regressed" if regressed else "pass" if low > -margin else "inconclusive")
    if result.insufficient_data:
        assert result.outcome == "inconclusive"
    assert result.clusters_needed is None or (result.outcome == "inconclusive" and result.clusters_needed > result.difference.clusters)


def test_two_questions_never_pass_a_gate() -> None:
    result = non_inferiority([1.0, 1.0], [1.0, 1.0], margin=0.01)
    assert result.outcome == "inconclusive"
    assert non_inferiority([], [], margin=0.01).outcome == "inconclusive"
    assert non_inferiority([1.0], [0.0], margin=0.01).outcome == "inconclusive"


def test_run_passes_against_itself_with_an_exact_bound() -> None:
    scores = np.random.default_rng(0).random(500)
    result = non_inferiority(scores, scores, margin=0.01)
    assert result.outcome == "pass"
    assert result.difference.low == pytest.approx(0.025 ** (1 / 500) - 1)


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
    needed = result.clusters_needed
    assert needed is not None
    delta = candidate - base
    rng = np.random.default_rng(4)
    decided = [non_inferiority(rng.choice(delta, needed), np.zeros(needed), margin=0.01).outcome == "pass" for _ in range(200)]
    # A power of 80 % was asked for, with three standard errors of 200 trials.
    assert 0.8 - 0.085 <= np.mean(decided) <= 0.8 + 0.085


def test_a_difference_right_on_the_margin_is_decided_by_no_number_of_questions() -> None:
    candidate, base = pair(200, 0.0)
    result = non_inferiority(candidate - 0.01, base, margin=0.01)
    assert result.outcome == "inconclusive"
    assert result.clusters_needed is None or result.clusters_needed > 10**9


def test_the_whole_regresses_if_one_metric_does_and_passes_only_if_all_do() -> None:
    good, base = pair(400, 0.0, noise=0.02)
    bad, _ = pair(400, 0.05)
    vague, _ = pair(400, 0.01, noise=0.2)
    outcomes = {
        names: decide_all(
            {name: scores for name, scores in {"good": good, "bad": bad, "vague": vague}.items() if name in names},
            dict.fromkeys(names, base),
            margins=0.01,
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
    assert decision.clusters_needed is not None
    assert decision.clusters_needed > 300
    assert result.outcome == "inconclusive"


def test_metrics_or_margins_that_are_missing_are_refused() -> None:
    with pytest.raises(ValueError, match="same metrics"):
        decide_all({"f1": [1.0]}, {"em": [1.0]}, margins=0.01)
    with pytest.raises(ValueError, match="same metrics"):
        decide_all({}, {}, margins=0.01)
    with pytest.raises(ValueError, match="no margin for f1"):
        decide_all({"f1": [1.0]}, {"f1": [1.0]}, margins={"em": 0.01})


def test_standard_error_is_the_textbooks_and_that_of_the_means_of_clusters_of_one_size() -> None:
    values = np.random.default_rng(0).random(50)
    assert paired(values, 0 * values).error[0] == pytest.approx(stats.sem(values))
    per_cluster = np.random.default_rng(1).random((25, 8))
    clusters = [f"d{number}" for number in range(25) for _ in range(8)]
    assert paired(per_cluster.ravel(), 0 * per_cluster.ravel(), clusters=clusters).error[0] == pytest.approx(
        stats.sem(per_cluster.mean(axis=1))
    )
    assert math.isnan(paired([0.5], [0.0]).error[0])


def test_as_many_clusters_as_needed_make_the_effect_detectable() -> None:
    delta = np.random.default_rng(4).normal(0, 0.3, 200)
    pilot = paired(delta, 0 * delta)
    needed = clusters_needed(pilot, 0.02)
    assert needed is not None

    def shown(clusters: int) -> float:
        return reach(clusters=clusters) * float(pilot.error[0]) * math.sqrt(200 / clusters)

    assert shown(needed) == pytest.approx(0.02, rel=5e-3)
    assert clusters_needed(pilot, -0.02) == needed
    assert reach() == pytest.approx(stats.norm.ppf(0.975) + stats.norm.ppf(0.8))


def test_pilot_with_equal_first_clusters_needs_more_than_two_clusters() -> None:
    candidate, reference = np.random.default_rng(0).choice([0, 0.5, 1], (2, 98))
    candidate[:2] = reference[:2] = 1
    needed = clusters_needed(paired(candidate, reference), 0.02)
    assert needed is not None
    assert needed > 1_000


def test_questions_that_share_a_cluster_are_worth_less() -> None:
    rng = np.random.default_rng(5)
    delta = np.repeat(rng.normal(0, 0.3, 20), 10) + rng.normal(0, 0.05, 200)
    clusters = [f"d{number}" for number in range(20) for _ in range(10)]
    shared, alone = paired(delta, 0 * delta, clusters=clusters), paired(delta, 0 * delta)
    assert 10 * (clusters_needed(shared, 0.05) or 0) > 5 * (clusters_needed(alone, 0.05) or math.inf)


def test_impossible_questions_about_power_are_refused() -> None:
    pilot = paired([0.1, 0.2], [0.0, 0.0])
    with pytest.raises(ValueError, match="no number of clusters"):
        clusters_needed(pilot, 0.0)
    with pytest.raises(ValueError, match="two independent clusters"):
        clusters_needed(paired([0.1], [0.0]), 0.1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        clusters_needed(pilot, 0.1, power=80)


@pytest.mark.parametrize("margin", [0.005, 0.01, 0.03])
def test_equal_scores_need_the_smallest_number_of_clusters_that_passes(margin: float) -> None:
    needed = non_inferiority(np.ones(24), np.ones(24), margin=margin).clusters_needed
    assert needed is not None
    at, below = (non_inferiority(np.ones(count), np.ones(count), margin=margin).outcome for count in (needed, needed - 1))
    assert (at, below) == ("pass", "inconclusive")
