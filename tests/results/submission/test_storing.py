"""Keeping a submission, and a maintainer's comparison with a run made here."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from benchmarks import registry, settings
from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from judges.metric import parse as parse_metric
from judges.score import score
from methods.api import Evidence, Prediction, Usage
from methods.baselines.controls import gold_text
from results.boards.board import boards
from results.store import queries
from results.store.store import FINISHED, Run, Store
from results.submission import Report
from results.submission.card import Card, parse_card
from results.submission.review import decide, submissions
from results.submission.storing import RECORD, card_of, compare, find_ours, promote, run_of, store_report
from results.submission.validate import Target, validate
from tests.support.errors import raises

REFERENCE = "worlds/multihop:validation"
METRICS = [parse_metric(name) for name in ("em", "f1(rules=hotpotqa)", "recall@5", "has_answer@5", "sp_f1")]


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load(REFERENCE).limited(12)


def card_for(*, name: str = "mine", version: str = "1", extra: str = "", training: str = "[]") -> Card:
    text = (
        f"method: {{name: {name}, version: '{version}'}}\nbenchmark: {REFERENCE}\nsetting: distractor\nlimit: 12\n"
        f"training_data: {training}\n{extra}"
    )
    return parse_card(text.encode(), "card.yaml")


def target_for(world: Benchmark) -> Target:
    return Target(world, settings.apply("distractor", world, 0))


def said(question: Question, **changes: Any) -> dict[str, Any]:
    """A perfect row."""
    evidence = [{"id": identifier} for identifier in question.evidence]
    return {"question_id": question.query_id, "answer": gold_text(question), "evidence": evidence} | changes


def perfect(world: Benchmark) -> list[dict[str, Any]]:
    return [said(question) for question in world.questions]


def check(world: Benchmark, rows: Iterable[dict[str, Any]], card: Card | None = None) -> Report:
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return validate(card or card_for(), io.BytesIO(raw), target_for(world), file="p.jsonl", metrics=METRICS)


def keep(store: Store, world: Benchmark, report: Report) -> Any:
    return store_report(store, report, target_for(world), METRICS, environment={"packages": {"x": "1"}})


def test_a_submission_is_stored_with_its_card_and_shown_on_the_board(store: Store, world: Benchmark) -> None:
    training = "[{reference: 'worlds/multihop:validation'}]"
    extra = {"usage": {"prompt_tokens": 7, "seconds": {"read": 0.5}}, "notes": {"mine": [1]}, "prompt": "?"}
    report = check(world, [said(question, **extra) for question in world.questions], card_for(training=training))
    kept = keep(store, world, report)
    assert (kept.outcome, kept.run) == ("stored", run_of(report.card, world.fingerprint))
    (row,) = queries.runs(store)
    assert (row.origin, row.status, row.method, row.done, row.setting) == ("submitted", FINISHED, "mine@1", 12, "distractor")
    assert row.card is not None
    assert row.card[RECORD]["contamination"] == list(report.contamination)
    assert card_of(row) == report.card
    stored = {prediction.question_id: prediction for prediction in store.predictions(row.run)}
    assert [stored[question.id] for question in world.questions] == list(report.predictions)
    (board,) = boards(store)
    cells = board.rows[0].cells
    assert {metric: cell.estimate.value for metric, cell in cells.items()} == pytest.approx(report.means)


@pytest.mark.slow
def test_the_same_again_changes_nothing_and_a_changed_one_wants_a_new_version(store: Store, world: Benchmark) -> None:
    report = check(world, perfect(world))
    assert keep(store, world, report).outcome == "stored"
    before = queries.runs(store)
    assert keep(store, world, check(world, perfect(world)[::-1])).outcome == "known"
    assert queries.runs(store) == before
    changed = [perfect(world)[0] | {"answer": "other"}, *perfect(world)[1:]]
    with pytest.raises(UserError, match="submitted before with other predictions") as caught:
        keep(store, world, check(world, changed))
    assert "new `version`" in str(caught.value.try_this)
    with pytest.raises(UserError, match="submitted before with other card"):
        keep(store, world, check(world, perfect(world), card_for(extra="notes: more")))
    assert queries.runs(store) == before
    assert keep(store, world, check(world, changed, card_for(version="2"))).outcome == "stored"
    assert [row.method for row in queries.runs(store)] == ["mine@1", "mine@2"]


def test_what_has_errors_is_not_stored(store: Store, world: Benchmark) -> None:
    with pytest.raises(UserError):
        keep(store, world, check(world, perfect(world)[1:]))
    assert not store.database.exists


def test_an_attempt_that_was_cut_off_is_begun_again(store: Store, world: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [said(question, answer="first try") for question in world.questions]

    def broken(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "end", broken)
        with pytest.raises(KeyboardInterrupt):
            keep(store, world, check(world, changed))
    report = check(world, perfect(world))
    assert keep(store, world, report).outcome == "stored"
    stored = {prediction.question_id: prediction.answer for prediction in store.predictions(run_of(report.card, world.fingerprint))}
    assert stored == {question.id: gold_text(question) for question in world.questions}


def test_of_two_people_with_one_name_and_version_at_once_only_one_is_stored(
    store: Store, world: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = check(world, perfect(world)), check(world, [said(question, answer="other") for question in world.questions])
    start = store.start

    def overtaken(run: Run) -> None:
        monkeypatch.undo()
        start(run)
        assert keep(store, world, second).outcome == "stored"

    monkeypatch.setattr(store, "start", overtaken)
    with raises("resubmission-differs"):
        keep(store, world, first)
    assert {prediction.answer for prediction in store.predictions(run_of(first.card, world.fingerprint))} == {"other"}


def our_run(store: Store, world: Benchmark, change: Callable[[int, Question], str], **fields: Any) -> str:
    """A run of ours with perfect evidence and the answers that `change` gives."""
    predictions = [
        Prediction(q.id, change(number, q), tuple(Evidence(e, 0.0) for e in q.evidence), Usage())
        for number, q in enumerate(world.questions)
    ]
    facts = {"run": "ours0000", "method": "mine", "method_id": "mine", "kind": "method", "setting": "distractor"} | fields
    store.put_benchmark(world, world.fingerprint)
    store.start(Run(description={}, dataset=REFERENCE, dataset_fingerprint=world.fingerprint, seed=0, questions=12, provenance={}, **facts))
    metrics = METRICS[:3]
    store.append(facts["run"], predictions, score(world.questions, predictions, metrics))
    store.end(facts["run"], FINISHED)
    return facts["run"]


def row_of(store: Store, run: str) -> queries.RunRow:
    return next(row for row in queries.runs(store) if row.run == run)


@pytest.mark.slow
def test_a_submission_that_our_run_confirms_becomes_verified(store: Store, world: Benchmark) -> None:
    run = keep(store, world, check(world, perfect(world))).run
    our_run(store, world, lambda number, question: gold_text(question))
    ours = find_ours(store, row_of(store, run))
    result = compare(store, row_of(store, run), ours)
    assert result.agrees
    assert (result.same_answers, result.same_evidence, result.questions) == (12, 12, 12)
    assert set(result.not_compared) == {"has_answer@5#v2"}
    assert promote(store, row_of(store, run), result) == "verified"
    row = row_of(store, run)
    assert row.origin == "verified"
    assert row.card is not None
    assert row.card[RECORD]["verification"]["ours"] == "ours0000"
    # What was submitted is still known as the same.
    assert keep(store, world, check(world, perfect(world))).outcome == "known"


def test_verification_keeps_a_decision_that_was_made_during_the_comparison(store: Store, world: Benchmark) -> None:
    run = keep(store, world, check(world, perfect(world))).run
    our_run(store, world, lambda number, question: gold_text(question))
    before = row_of(store, run)
    result = compare(store, before, find_ours(store, before))
    decide(store, before, "reject", "trained on test")
    assert promote(store, before, result) == "rejected"
    (sent,) = submissions(store)
    assert (sent.status, sent.reason) == ("rejected", "trained on test")
    assert (sent.run.card or {})[RECORD]["verification"]["agrees"]


@pytest.mark.slow
def test_the_tolerance_decides_and_the_differing_questions_are_named(store: Store, world: Benchmark) -> None:
    run = keep(store, world, check(world, perfect(world))).run
    our_run(store, world, lambda number, question: gold_text(question) if number != 5 else "wrong")
    result = compare(store, row_of(store, run), row_of(store, "ours0000"), 0.05)
    em = next(metric for metric in result.metrics if metric.metric.startswith("em"))
    assert (em.submitted, em.ours, em.n, em.differing, em.largest) == (1.0, pytest.approx(11 / 12), 12, 1, 1.0)
    assert em.first == ((world.questions[5].id, 1.0, 0.0),)
    assert not result.agrees
    assert promote(store, row_of(store, run), result) == "submitted"
    wide = compare(store, row_of(store, run), row_of(store, "ours0000"), 0.1)
    assert wide.agrees
    assert promote(store, row_of(store, run), wide) == "verified"
    # A later comparison that disagrees takes nothing back.
    assert promote(store, row_of(store, run), result) == "verified"
    assert row_of(store, run).origin == "verified"


@pytest.mark.slow
def test_only_a_finished_run_of_ours_on_the_same_data_and_setting_confirms(store: Store, world: Benchmark) -> None:
    run = keep(store, world, check(world, perfect(world))).run
    second = keep(store, world, check(world, perfect(world), card_for(name="other"))).run
    submitted = row_of(store, run)
    with pytest.raises(UserError, match="no run of 'mine'"):
        find_ours(store, submitted)
    with pytest.raises(UserError, match="cannot confirm"):
        compare(store, submitted, row_of(store, second))
    our_run(store, world, lambda number, question: "x", kind="control", run="control0")
    with pytest.raises(UserError, match="cannot confirm"):
        compare(store, submitted, row_of(store, "control0"))
    our_run(store, world, lambda number, question: "x", setting="corpus", run="corpus00")
    with pytest.raises(UserError, match="differ in setting"):
        compare(store, submitted, row_of(store, "corpus00"))
    with pytest.raises(UserError, match="is not a submission"):
        compare(store, row_of(store, "corpus00"), row_of(store, "corpus00"))
    our_run(store, world, lambda number, question: "x", run="oursaaaa")
    our_run(store, world, lambda number, question: "y", run="oursbbbb")
    with pytest.raises(UserError, match="2 runs of 'mine'") as caught:
        find_ours(store, submitted)
    assert "--against" in str(caught.value.try_this)
