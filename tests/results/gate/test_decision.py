from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from judges.metric import parse
from methods.api import Prediction
from results.boards.diff import diff
from results.gate.decision import ask
from results.gate.history import history, record
from results.gate.many import decide_cells
from results.gate.margins import parse_margin, parse_margins
from results.gate.verdicts import Gate
from results.statistics.difference import Range, Side, paired
from results.statistics.gate import decide_all
from results.store import queries
from results.store.store import FINISHED, INTERRUPTED, Run, Store
from tests.support.errors import raises
from tests.support.gate import non_inferiority
from tests.support.toy import CARD

F1, EM = "f1(rules=squad)#v2", "em(rules=squad)#v2"


def questions(store: Store, count: int, documents: int = 0, subset: str = "dev") -> Benchmark:
    requests = [Question(f"q{n}", f"what {n}?", ("a",), document_id=f"d{n % documents}" if documents else None) for n in range(count)]
    benchmark = Benchmark(DataReference("toy", None, subset), 1, CARD, requests, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.put_cards([], [parse("f1"), parse("em")])
    return benchmark


def run_of(
    store: Store, benchmark: Benchmark, name: str, scores: dict[str, Any], *, status: str = FINISHED, **changed: Any
) -> queries.RunRow:
    """Store a run whose questions are the first ones, as many as it has scores; `...` stands for no row."""
    fields: dict[str, Any] = {
        "run": f"{name}-fingerprint",
        "method": name,
        "method_id": name,
        "kind": "retriever",
        "description": {"method": {"id": name}},
        "dataset": str(benchmark.reference),
        "dataset_fingerprint": benchmark.fingerprint,
        "setting": "distractor",
        "seed": 0,
        "questions": len(benchmark.questions),
        "provenance": {},
    }
    run = Run(**(fields | changed))
    store.start(run)
    count = max((len(values) for values in scores.values()), default=len(benchmark.questions))
    store.append(run.run, [Prediction(q.id, "x") for q in benchmark.questions[:count]], {})
    for metric, values in scores.items():
        kept = [(q.id, value) for q, value in zip(benchmark.questions, values, strict=False) if value is not ...]
        store.put_scores(run.run, [q for q, _ in kept], {metric: np.array([v for _, v in kept], float)})
    store.end(run.run, status)
    return queries.find_run(store, run.run)


def coin(seed: int, count: int, share: float) -> np.ndarray:
    return (np.random.default_rng(seed).random(count) < share).astype(float)


def gate(store: Store, baseline: Any, candidate: Any, count: int = 600, **how: Any) -> Gate:
    benchmark = questions(store, count)
    item = run_of(store, benchmark, "baseline", {F1: baseline})
    two = run_of(store, benchmark, "candidate", {F1: candidate})
    return ask(store, item, two, **({"metrics": ["f1"], "margin": 0.01} | how))


@pytest.mark.slow
def test_a_clearly_worse_candidate_regresses(store: Store) -> None:
    result = gate(store, coin(1, 600, 0.8), coin(2, 600, 0.5))
    assert (result.outcome, result.exit_code) == ("regressed", 100)


@pytest.mark.slow
def test_over_many_cells_a_regression_is_claimed_where_holm_s_procedure_rejects(store: Store) -> None:
    one = gate(store, coin(1, 600, 0.8), coin(2, 600, 0.5))
    (verdict,) = one.verdicts
    draw = np.random.default_rng(5)
    for _ in range(300):
        p_values = np.where(draw.random(draw.integers(1, 9)) < 0.1, math.nan, 0)
        p_values += 0.025 * draw.random(len(p_values)) ** 2
        gates = [replace(one, verdicts=(replace(verdict, decision=replace(verdict.decision, p=p)),)) for p in p_values.tolist()]
        left, rejected = list(np.argsort(p_values)), set()
        while left and p_values[left[0]] <= 0.025 / len(left):
            rejected.add(left.pop(0))
        many = decide_cells(gates, [True] * len(gates))
        assert {n for n, cell in enumerate(many.cells) if cell.gate.outcome == "regressed"} == rejected
        assert many.outcome == ("regressed" if rejected else "inconclusive")


@pytest.mark.slow
def test_a_candidate_that_wins_passes(store: Store) -> None:
    result = gate(store, coin(1, 600, 0.5), coin(2, 600, 0.8))
    assert (result.outcome, result.exit_code) == ("pass", 0)


@pytest.mark.slow
def test_a_tiny_question_set_cannot_tell_and_says_how_many_could(store: Store) -> None:
    result = gate(store, coin(1, 12, 0.6), coin(2, 12, 0.6), 12)
    (verdict,) = result.verdicts
    assert (result.outcome, result.exit_code) == ("inconclusive", 101)
    assert verdict.decision.difference.n == 12
    assert verdict.detectable > 0.1
    assert verdict.clusters_needed is not None
    assert verdict.clusters_needed > 500


@pytest.mark.slow
def test_the_decision_is_that_of_the_statistics(store: Store) -> None:
    item, two = coin(1, 300, 0.6), coin(2, 300, 0.55)
    (verdict,) = gate(store, item, two, 300, margin=0.05).verdicts
    (expected,) = decide_all({F1: two}, {F1: item}, margins=0.05, lower={F1: 0.96}).decisions.values()
    assert verdict.decision == expected
    assert (verdict.baseline, verdict.candidate) == pytest.approx((item.mean(), two.mean()))


@pytest.mark.slow
def test_the_same_scores_pass_only_where_so_many_questions_would_have_shown_a_loss(store: Store) -> None:
    scores = coin(1, 600, 0.5)
    assert gate(store, scores, scores).outcome == "pass"


@pytest.mark.slow
@pytest.mark.parametrize(("count", "outcome"), [(389, "inconclusive"), (390, "pass")])
def test_no_loss_seen_is_a_pass_from_the_number_on_that_the_rule_of_three_says(store: Store, count: int, outcome: str) -> None:
    # (1 - 0.01)^n = 0.02 at n = 389.24: a loss that happens to 1 % of all questions is then missed by all of n.
    result = gate(store, np.ones(count), np.ones(count), count)
    assert result.outcome == outcome
    if outcome == "inconclusive":
        assert result.verdicts[0].clusters_needed == 390


@pytest.mark.slow
@pytest.mark.parametrize(("count", "margin"), [(50, 0.01), (100, 0.05), (200, 0.05), (400, 0.02)])
def test_a_loss_exactly_at_the_margin_on_rare_questions_passes_as_rarely_as_stated(count: int, margin: float) -> None:
    # Every losing question loses all; Student's t alone passes these in 61, 3, 5 and 5 % of the draws.
    @cache
    def passes(losses: int) -> bool:
        return non_inferiority(1.0 * (np.arange(count) >= losses), np.ones(count), margin=margin).outcome == "pass"

    # Questions can be exchanged, so that draws with as many losses have one outcome.
    passed = sum(map(passes, np.random.default_rng(0).binomial(count, margin, 300).tolist()))
    # 2.5 % of 300 are 7.5; a binomial of that mean exceeds 15 once in a hundred times.
    assert passed <= 15


def test_the_bound_on_rare_losses_is_the_exact_binomial_one() -> None:
    from scipy.stats import binomtest

    for losses, count in ((0, 50), (1, 50), (3, 300), (19, 21)):
        delta = np.r_[-np.ones(losses), np.zeros(count - losses)]
        exact = binomtest(losses, count).proportion_ci(0.95, method="exact").high
        tested = paired(1 + delta, np.ones(count))
        assert tested.p_above(-exact)[0] >= 0.025 - 1e-9
        assert tested.interval()[0][0] <= -exact + 1e-9


def binomtest_high(losses: float, count: int) -> float:
    from scipy.stats import beta

    return float(beta.ppf(0.975, losses + 1, count - losses))


def test_the_clusters_needed_against_rare_losses_are_enough_and_not_one_too_many() -> None:
    seen = np.r_[np.zeros(3), np.ones(297)]
    decision = non_inferiority(seen, np.ones(300), margin=0.02)
    assert decision.outcome == "inconclusive"
    needed = decision.clusters_needed
    assert needed is not None
    assert binomtest_high(0.01 * needed, needed) < 0.02
    assert non_inferiority(seen, np.ones(300), margin=0.01).clusters_needed is None, "at the rate seen no number would do"


def test_a_run_against_itself_is_not_tested_and_not_recorded(store: Store) -> None:
    scores = coin(1, 400, 0.5)
    run = run_of(store, questions(store, 400), "one", {F1: scores, EM: scores})
    for strict in (False, True):
        result = ask(store, run, run, metrics=["f1", "em"], margin=0.01, strict=strict)
        assert (result.outcome, result.exit_code) == ("not tested", 2)
        assert [verdict.outcome for verdict in result.verdicts] == ["not tested"] * 2
        assert "nothing was tested" in result.remarks[0]
        value = result.to_json()
        assert (value["outcome"], value["exit_code"]) == ("not tested", 2)
        assert value["metrics"][0]["difference"] == {"value": None, "low": None, "high": None}
        record(store, result)
    assert history(store) == []
    allowed = ask(store, run, run, metrics=["f1"], margin=0.01, allow_same=True)
    assert (allowed.outcome, allowed.verdicts[0].decision.difference.ties) == ("pass", 400)
    assert "the same run" in allowed.remarks[0]


def replies(store: Store, run: queries.RunRow, cached: int, oldest: datetime | None, calls: int = 1) -> None:
    """Set how many of each question's replies came from the cache."""
    with store.database.writing() as connection:
        connection.execute("UPDATE predictions SET cached_replies = ?, oldest_reply = ? WHERE run = ?", [cached, oldest, run.run])
        connection.execute("UPDATE usage SET model_calls = ? WHERE run = ?", [calls, run.run])


@pytest.mark.parametrize(
    ("revision", "cached", "same", "outcome", "warned"),
    [
        ("unknown", 2, True, "not tested", False),
        ("unknown", 1, True, "pass", True),  # one of two replies was asked for again
        ("unknown", 2, False, "pass", True),
        ("unknown", 0, True, "pass", False),
        ("v7", 2, True, "pass", False),
    ],
)
def test_cached_replies_of_an_unknown_revision_give_not_tested_or_a_warning(
    store: Store, revision: str, cached: int, same: bool, outcome: str, warned: bool
) -> None:
    benchmark, scores = questions(store, 400), np.ones(400)
    facts = {"revisions": {"m at http://localhost:1/v1": revision}}
    one = run_of(store, benchmark, "one", {F1: scores}, description={"method": {"id": "app"}}, provenance=facts)
    described = {"method": {"id": "app" if same else "other"}}
    two = run_of(store, benchmark, "two", {F1: scores}, description=described, provenance=facts)
    replies(store, two, cached, datetime(2026, 1, 2), calls=2)
    result = ask(store, one, two, metrics=["f1"], margin=0.01)
    assert result.outcome == outcome
    lines = [line for line in result.remarks if "m at http://localhost:1/v1" in line]
    assert any("2026-01-02" in line for line in lines) == warned
    assert bool(lines) == (warned or outcome == "not tested")
    assert ask(store, one, two, metrics=["f1"], margin=0.01, allow_same=True).outcome == "pass"


def test_a_baseline_of_cached_replies_is_a_warning(store: Store) -> None:
    benchmark, facts = questions(store, 20), {"revisions": {"m at http://localhost:1/v1": "unknown"}}
    runs = [run_of(store, benchmark, name, {F1: np.ones(20)}, provenance=facts) for name in ("one", "two")]
    replies(store, runs[0], 1, None)
    assert any("baseline reused 20 replies" in line for line in ask(store, *runs, metrics=["f1"], margin=0.01).remarks)


def test_unknown_code_is_a_warning(store: Store) -> None:
    benchmark, facts = (
        questions(store, 20),
        {"code": {"method acme": {"identity": "code", "hash": "1", "files": {}, "unknown": "no source"}}},
    )
    runs = [run_of(store, benchmark, name, {F1: np.ones(20)}, provenance=facts if name == "two" else {}) for name in ("one", "two")]
    assert any("candidate: " in line and "`acme`" in line for line in ask(store, *runs, metrics=["f1"], margin=0.01).remarks)


@pytest.mark.slow
def test_an_older_candidate_and_equal_answers_are_warnings(store: Store) -> None:
    benchmark = questions(store, 20)
    runs = [run_of(store, benchmark, name, {F1: np.ones(20)}) for name in ("one", "two")]
    assert runs[0].started_at < runs[1].started_at

    def warned(first: queries.RunRow, second: queries.RunRow) -> tuple[bool, bool]:
        remarks = ask(store, first, second, metrics=["f1"], margin=0.01).remarks
        return any("older" in line for line in remarks), any("20 answers and rankings are equal" in line for line in remarks)

    assert warned(*runs) == (False, True)
    assert warned(*reversed(runs)) == (True, True)
    with store.database.writing() as connection:
        connection.execute("UPDATE predictions SET answer = 'y' WHERE run = ? AND question = 'q0'", [runs[1].run])
    assert warned(*runs) == (False, False)


@pytest.mark.slow
def test_a_regression_comes_before_a_cell_that_is_not_tested_and_that_before_an_inconclusive_one(store: Store) -> None:
    benchmark = questions(store, 400)
    good, bad, few = (
        run_of(store, benchmark, n, {F1: v}) for n, v in (("a", np.ones(400)), ("b", np.zeros(400)), ("c", coin(1, 400, 0.9)))
    )

    def cells(*candidates: queries.RunRow) -> tuple[str, int]:
        result = decide_cells(
            [ask(store, good, run, metrics=["f1"], margin=0.1) for run in candidates], [False, *[True] * (len(candidates) - 1)]
        )
        return result.outcome, result.exit_code

    assert cells(good, bad) == ("regressed", 100)
    assert cells(good, few) == ("not tested", 2)
    assert cells(few, few) == ("inconclusive", 101)


@pytest.mark.slow
def test_strict_calls_a_sure_loss_within_the_margin(store: Store) -> None:
    item = np.full(400, 0.5)
    two = item - np.random.default_rng(0).uniform(0.0, 0.04, 400)
    benchmark = questions(store, 400)
    runs = [run_of(store, benchmark, name, {F1: values}) for name, values in (("one", item), ("two", two))]
    assert ask(store, *runs, metrics=["f1"], margin=0.05).outcome == "pass"
    assert ask(store, *runs, metrics=["f1"], margin=0.05, strict=True).outcome == "regressed"


@pytest.mark.slow
def test_lower_is_better_metrics_change_the_sign(store: Store) -> None:
    benchmark = questions(store, 300)
    with store.database.writing() as connection:
        connection.execute(
            """INSERT INTO metrics (id, definition, low, higher_is_better, metric_group, source)
               VALUES ('perplexity(model=m)#v1', 'd', 1.0, FALSE, 'text', 's')"""
        )
    low, high = np.linspace(2, 3, 300), np.linspace(4, 7, 300)
    better = run_of(store, benchmark, "better", {"perplexity(model=m)#v1": low})
    worse = run_of(store, benchmark, "worse", {"perplexity(model=m)#v1": high})
    assert ask(store, better, worse, metrics=["perplexity"], margin=0.1).outcome == "regressed"
    result = ask(store, worse, better, metrics=["perplexity"], margin=0.1)
    assert result.outcome == "pass"
    value, lower, upper = result.verdicts[0].change
    assert value == pytest.approx(np.exp(np.log(low).mean()) - np.exp(np.log(high).mean()))
    assert lower < value < upper < 0


@pytest.mark.slow
def test_several_metrics_regress_if_one_does_and_pass_if_all_do(store: Store) -> None:
    benchmark = questions(store, 600)
    item = run_of(store, benchmark, "one", {F1: coin(1, 600, 0.8), EM: coin(3, 600, 0.3)})
    two = run_of(store, benchmark, "two", {F1: coin(2, 600, 0.5), EM: coin(4, 600, 0.6)})
    both = ask(store, item, two, metrics=["f1", "em"], margins={"f1": 0.01, "em": 0.02})
    assert [verdict.outcome for verdict in both.verdicts] == ["regressed", "pass"]
    assert [verdict.decision.margin for verdict in both.verdicts] == [0.01, 0.02]
    assert both.outcome == "regressed"
    assert ask(store, item, two, metrics=["em"], margin=0.02).outcome == "pass"
    with pytest.raises(UserError, match="no margin for em"):
        ask(store, item, two, metrics=["f1", "em"], margins={"f1": 0.01})
    with pytest.raises(UserError, match="unknown metric with a margin 'rouge'"):
        ask(store, item, two, metrics=["f1"], margin=0.01, margins={"rouge": 0.1})


@pytest.mark.slow
def test_scores_that_the_candidate_lacks_cannot_buy_a_pass(store: Store) -> None:
    # It answers everything, and the thirty questions it got wrong were never scored.
    lost = [*([math.nan] * 30), *([1.0] * 570)]
    result = gate(store, [1.0] * 600, lost)
    (verdict,) = result.verdicts
    assert result.outcome == "inconclusive"
    assert verdict.lacking == 30
    assert verdict.unpaired == {"without a value for the candidate alone": 30}
    assert any("lacks 30 scores" in remark for remark in result.remarks)


@pytest.mark.slow
def test_a_few_lacking_scores_do_not_stand_in_the_way_of_a_clear_pass(store: Store) -> None:
    baseline, candidate = coin(1, 600, 0.4), coin(2, 600, 0.9).tolist()
    result = gate(store, baseline, [..., *candidate[1:]])
    assert result.outcome == "pass"
    assert result.verdicts[0].decision.difference.n == 599


@pytest.mark.slow
def test_questions_unscorable_for_both_sides_are_not_paired_and_not_reported(store: Store) -> None:
    baseline, candidate = coin(1, 600, 0.4), coin(2, 600, 0.9)
    baseline[:40] = candidate[:40] = math.nan
    result = gate(store, baseline, candidate)
    assert result.outcome == "pass"
    assert result.verdicts[0].unpaired == {"without a value for both": 40}


@pytest.mark.slow
def test_questions_of_one_document_count_as_one(store: Store) -> None:
    benchmark = questions(store, 600, documents=6)
    item = run_of(store, benchmark, "one", {F1: coin(1, 600, 0.62)})
    two = run_of(store, benchmark, "two", {F1: coin(2, 600, 0.55)})
    result = ask(store, item, two, metrics=["f1"], margin=0.01)
    assert result.sampled.in_words(600) == "600 questions in 6 documents"
    assert "6 clusters, fewer than 10" in result.verdicts[0].held_back[0]
    assert result.verdicts[0].decision.difference.clusters == 6


@pytest.mark.slow
def test_runs_that_state_different_clusters_are_compared_over_both_and_named(store: Store) -> None:
    benchmark = questions(store, 600, documents=60)
    stated = {"one": None, "two": "question"}
    runs = [run_of(store, benchmark, name, {F1: coin(seed, 600, 0.6)}, cluster=stated[name]) for seed, name in enumerate(stated)]
    assert ask(store, runs[1], runs[1], metrics=["f1"], margin=0.01).sampled.count(600) == 600
    both = ask(store, *runs, metrics=["f1"], margin=0.01)
    assert (both.sampled.kind, both.sampled.count(600)) == ("document or question", 60)
    assert both.verdicts[0].decision.difference.clusters == 60


@pytest.mark.slow
def test_incomparable_runs_are_refused_with_their_differing_keys(store: Store) -> None:
    benchmark = questions(store, 20)
    item = run_of(store, benchmark, "one", {F1: np.ones(20)})
    for changed, response in (
        ({"setting": "corpus"}, "setting: distractor and corpus"),
        ({"seed": 3}, "seed: 0 and 3"),
        ({"dataset_fingerprint": "else"}, "dataset_fingerprint"),
        ({"kind": "control"}, "is a control"),
    ):
        two = run_of(store, benchmark, f"two {response}", {F1: np.ones(20)}, **changed)
        with pytest.raises(UserError) as caught:
            ask(store, item, two, metrics=["f1"], margin=0.01)
        assert response in str(caught.value)
        assert caught.value.exit_code == 2


def test_another_number_of_questions_is_another_question_set(store: Store) -> None:
    item = run_of(store, questions(store, 20), "one", {F1: np.ones(20)})
    two = run_of(store, questions(store, 10), "two", {F1: np.ones(10)})
    with raises("runs-not-comparable"):
        ask(store, item, two, metrics=["f1"], margin=0.01)


@pytest.mark.slow
def test_another_version_of_a_metric_is_another_metric(store: Store) -> None:
    benchmark = questions(store, 20)
    item = run_of(store, benchmark, "one", {F1: np.ones(20)})
    two = run_of(store, benchmark, "two", {"f1(rules=squad)#v3": np.ones(20)})
    with pytest.raises(UserError, match="different definitions of 'f1'") as caught:
        ask(store, item, two, metrics=["f1"], margin=0.01)
    assert "f1(rules=squad)#v3" in str(caught.value)
    with pytest.raises(UserError, match="candidate was not scored on 'em'"):
        ask(store, run_of(store, benchmark, "three", {EM: np.ones(20)}), two, metrics=["em"], margin=0.01)


def test_a_name_of_several_metrics_is_asked_back(store: Store) -> None:
    benchmark = questions(store, 20)
    scores = {"recall@5#v2": np.ones(20), "recall@20#v2": np.ones(20)}
    runs = [run_of(store, benchmark, name, scores) for name in ("one", "two")]
    with raises("ambiguous-metric"):
        ask(store, *runs, metrics=["recall"], margin=0.01)


@pytest.mark.slow
def test_unfinished_runs_are_compared_on_request_over_common_questions(store: Store) -> None:
    benchmark = questions(store, 600)
    item = run_of(store, benchmark, "one", {F1: coin(1, 600, 0.4)})
    two = run_of(store, benchmark, "two", {F1: coin(2, 400, 0.9)}, status=INTERRUPTED)
    with pytest.raises(UserError, match="candidate is interrupted, 400 of 600"):
        ask(store, item, two, metrics=["f1"], margin=0.01)
    result = ask(store, item, two, metrics=["f1"], margin=0.01, allow_partial=True)
    assert result.outcome == "pass"
    assert result.verdicts[0].decision.difference.n == 400
    assert result.verdicts[0].unpaired == {"not answered by the candidate": 200}
    assert any("only 400 of 600 questions are paired" in remark for remark in result.remarks)


@pytest.mark.slow
def test_runs_without_a_single_pair_are_inconclusive(store: Store) -> None:
    result = gate(store, [1.0] * 20, [math.nan] * 20, 20)
    assert result.outcome == "inconclusive"
    assert result.verdicts[0].decision.difference.n == 0
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.slow
def test_decisions_are_kept_and_read_back_newest_first(store: Store) -> None:
    result = gate(store, coin(1, 600, 0.8), coin(2, 600, 0.5))
    assert history(store) == []
    record(store, result, asked={"candidate": "mine"})
    record(store, result)
    newest, first = history(store, result.candidate.run)
    assert newest.decided_at >= first.decided_at
    assert (first.outcome, first.metric, first.margin, first.strict, first.n) == ("regressed", F1, 0.01, False, 600)
    assert first.details["asked"] == {"candidate": "mine"}
    assert (first.value, first.low, first.high) == pytest.approx(result.verdicts[0].change)
    assert history(store, "nothing") == []


@pytest.mark.parametrize(
    ("text", "value"), [("1.0pp", 0.01), ("0.01", 0.01), ("1pp", 0.01), (" 2 PP ", 0.02), (".5pp", 0.005), ("1e-3", 1e-3)]
)
def test_a_margin_is_points_or_a_fraction(text: str, value: float) -> None:
    assert parse_margin(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "0", "0pp", "-1pp", "1%", "nan", "inf", "1 pp pp", "one", "1,0pp", "1e-400"])
def test_invalid_margins_are_refused(text: str) -> None:
    with raises("invalid-margin"):
        parse_margin(text)


def test_margins_by_metric_combine_with_a_common_margin() -> None:
    assert parse_margins(["1pp", "f1(rules=squad)#v2=2pp", "recall@5=0.03"]) == (0.01, {"f1(rules=squad)#v2": 0.02, "recall@5": 0.03})
    for twice in (["1pp", "2pp"], ["f1=1pp", "f1=2pp"]):
        with raises("duplicate-margin"):
            parse_margins(twice)


def test_a_margin_as_wide_as_the_range_is_refused_as_a_mistake(store: Store) -> None:
    with raises("margin-too-wide"):
        gate(store, np.ones(20), np.ones(20), 20, margin=1.0)


@given(st.floats(min_value=0.001, max_value=99))
def test_points_are_hundredths(points: float) -> None:
    assert parse_margin(f"{points:.4f}pp") == pytest.approx(parse_margin(f"{points / 100:.6f}"), abs=1e-6)


@pytest.mark.slow
def test_repeats_and_seeds_of_a_run_are_one_side_as_on_the_board(tmp_path: Any) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(1)
    benchmark = questions(store, 60)
    ease = rng.random(60)
    draws = {name: (rng.random(60) < ease).astype(float) for name in ("base", "base ~2", "tuned #0", "tuned #1", "tuned #2")}
    rows = {
        name: run_of(store, benchmark, f"run{place}", {F1: list(values)}, method=name, description={"weights": name.partition(" ~")[0]})
        for place, (name, values) in enumerate(draws.items())
    }
    store.put_experiment("toy", "name: toy", None, None, "base", [row.run for row in rows.values()])
    first, second = (next(row for row in queries.runs(store) if row.method == name) for name in ("base", "tuned #0"))
    gate = ask(store, first, second, metrics=["f1"], margin=0.05, over_seeds=True)
    tuned = Side.of([draws[f"tuned #{seed}"] for seed in range(3)], trainings=range(3))
    expected = non_inferiority(tuned, Side.of([draws["base"], draws["base ~2"]]), margin=0.05, metric=Range())
    (verdict,) = gate.verdicts
    assert verdict.change == pytest.approx((expected.difference.value, expected.difference.low, expected.difference.high), abs=0.02)
    assert verdict.generalizes == "new questions and new trainings"
    assert [len(gate.members[role]) for role in ("baseline", "candidate")] == [2, 3]
    number = next(item for item in diff(store, first, second, metrics=["f1"], over_seeds=True).numbers if item.metric == F1)
    assert number.difference is not None
    assert number.difference.value == pytest.approx(verdict.change[0])
    assert number.first is not None
    assert number.first.value == pytest.approx(np.mean([draws["base"], draws["base ~2"]]))
    # One more repeat is one more attempt of the same candidate.
    assert record(store, gate)
    assert ask(store, first, second, metrics=["f1"], margin=0.05, over_seeds=True).verdicts[0].memory.attempt == 1
    more = run_of(store, benchmark, "more", {F1: list(draws["tuned #1"])}, method="tuned #0 ~2", description={"weights": "tuned #0"})
    store.put_experiment("toy", "name: toy", None, None, "base", [*(row.run for row in rows.values()), more.run])
    assert ask(store, first, second, metrics=["f1"], margin=0.05, over_seeds=True).verdicts[0].memory.attempt == 2
    # Two runs of one row are compared as they are.
    repeat = next(row for row in queries.runs(store) if row.method == "base ~2")
    assert [len(side) for side in ask(store, first, repeat, metrics=["f1"], margin=0.05).members.values()] == [1, 1]
