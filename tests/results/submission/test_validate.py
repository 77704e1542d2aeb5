"""Validation against the question set, and contamination."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks import registry, settings
from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Question, triple_id
from judges.metric import parse as parse_metric
from judges.score import score
from methods.api import Evidence, Prediction
from methods.baselines.controls import gold_text
from results.offered import LIMITS
from results.submission import Finding, Report
from results.submission.card import Card, parse_card
from results.submission.leakage import training_loader
from results.submission.plausible import GOLD_EVIDENCE, SIGNS
from results.submission.validate import Target, validate
from tests.support.errors import raises

REFERENCE = "worlds/multihop:validation"
METRICS = [parse_metric(name) for name in ("em", "f1(rules=hotpotqa)", "recall@5", "has_answer@5", "sp_f1")]


@pytest.fixture(autouse=True)
def _perfect_rows_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of these tests are made of the gold; what that looks like is the subject of test_plausible.py."""
    monkeypatch.setattr("results.submission.validate.check_plausible", lambda *_, **__: None)


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load(REFERENCE).limited(12)


def card_for(
    setting: str = "distractor",
    *,
    name: str = "mine",
    version: str = "1",
    extra: str = "",
    training: str = "[]",
    benchmark: str = REFERENCE,
) -> Card:
    text = (
        f"method: {{name: {name}, version: '{version}'}}\nbenchmark: {benchmark}\nsetting: {setting}\nlimit: 12\n"
        f"training_data: {training}\n{extra}"
    )
    return parse_card(text.encode(), "card.yaml")


def target_for(world: Benchmark, setting: str = "distractor") -> Target:
    return Target(world, settings.apply(setting, world, 0))


def said(question: Question, **changes: Any) -> dict[str, Any]:
    """A perfect row, by the id that methods see."""
    evidence = [{"id": identifier, "score": -float(rank)} for rank, identifier in enumerate(question.evidence)]
    return {"question_id": question.query_id, "answer": gold_text(question), "evidence": evidence} | changes


def jsonl(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def check(world: Benchmark, rows: Iterable[dict[str, Any]] | bytes, card: Card | None = None, **options: Any) -> Report:
    card = card or card_for()
    raw = rows if isinstance(rows, bytes) else jsonl(rows)
    target = target_for(world, str(card.setting))
    return validate(card, io.BytesIO(raw), target, file="p.jsonl", metrics=METRICS, **options)


def only(report: Report, severity: str = "error") -> Finding:
    (finding,) = (finding for finding in report.findings if finding.severity == severity)
    return finding


def perfect(world: Benchmark) -> list[dict[str, Any]]:
    return [said(question) for question in world.questions]


def test_what_is_right_passes_and_is_scored_by_our_own_code(world: Benchmark) -> None:
    report = check(world, perfect(world))
    assert report.ok
    assert report.findings == ()
    ours = score(
        world.questions,
        [Prediction(q.id, gold_text(q), tuple(Evidence(e, 0.0) for e in q.evidence)) for q in world.questions],
        METRICS,
        passage=lambda item: world.corpus.get([item])[0],
    )
    # No row claims support, so its column stays empty.
    assert list(report.scores) == [str(metric) for metric in METRICS if metric.entry.id != "sp_f1"]
    for name, values in report.scores.items():
        np.testing.assert_array_equal(ours[name], values)
    assert report.means["em(rules=squad)#v2"] == 1.0


def test_rankings_of_rows_without_evidence_are_the_passages_in_their_contexts(world: Benchmark) -> None:
    texts = {passage.id: passage.text for passage in world.corpus}
    rows = [
        {"question_id": q.id, "answer": gold_text(q), "contexts": [{"text": texts[e]} for e in q.evidence] + [{"text": "of no corpus"}]}
        for q in world.questions
    ]
    report = check(world, rows)
    assert report.findings == ()
    assert report.means[str(parse_metric("recall@5"))] == 1.0
    bare = [{name: row[name] for name in ("question_id", "answer")} for row in rows]
    unread = check(world, bare, ranked_by_contexts=True)
    assert not any(name.startswith(("recall", "has_answer")) for name in unread.scores)
    assert "no_contexts_read" in [item.code for item in unread.findings]


def test_rows_without_contexts_among_others_are_named(world: Benchmark) -> None:
    rows = [said(question, contexts=[{"text": world.corpus.get(question.evidence)[0].text}]) for question in world.questions]
    rows = [{name: value for name, value in row.items() if name != "evidence"} for row in rows]
    assert "no_contexts" not in [item.code for item in check(world, rows, ranked_by_contexts=True).findings]
    del rows[1]["contexts"]
    finding = next(item for item in check(world, rows, ranked_by_contexts=True).findings if item.code == "no_contexts")
    assert ((finding.severity, finding.count), finding.positions[0].line) == (("warning", 1), 2)


def test_rows_may_stand_in_any_order_and_under_either_id(world: Benchmark) -> None:
    rows = perfect(world)
    native = [row | {"question_id": question.id} for row, question in zip(rows, world.questions, strict=True)]
    shuffled = check(world, native[::-1])
    assert shuffled.ok
    assert shuffled.predictions == check(world, rows).predictions
    assert shuffled.digest == check(world, rows).digest
    assert [prediction.question_id for prediction in shuffled.predictions] == [question.id for question in world.questions]


def test_any_change_of_what_was_said_changes_the_digest(world: Benchmark) -> None:
    rows = perfect(world)
    digests = {check(world, rows).digest}
    for change in ({"answer": "x"}, {"usage": {"model_calls": 1}}, {"notes": {"a": 1}}, {"evidence": []}, {"prompt": "hello"}):
        digests.add(check(world, [rows[0] | change, *rows[1:]]).digest)
    assert len(digests) == 6


def test_missing_extra_and_double_questions_are_each_named(world: Benchmark) -> None:
    rows = perfect(world)
    first, second = world.questions[0], world.questions[1]
    report = check(world, [rows[0], *rows[2:], said(first, question_id="nobody"), said(first, question_id=first.id)])
    assert not report.ok
    extra, double, missing = report.findings
    assert (extra.code, extra.positions[0].line, extra.positions[0].detail) == ("extra", 12, "'nobody'")
    assert (double.code, double.positions[0].line) == ("duplicate", 13)
    assert "first on line 1" in double.positions[0].detail
    assert missing.code == "missing"
    assert second.id in missing.positions[0].detail
    assert second.query_id in missing.positions[0].detail
    assert (report.predictions, report.scores, report.digest) == ((), {}, "")


def test_partial_file_must_have_a_row_of_the_benchmark(world: Benchmark) -> None:
    assert only(check(world, b"\n", partial=True)).code == "nothing_matches"
    assert check(world, perfect(world)[:1], partial=True).ok


def test_all_problems_are_listed_at_once_in_text_and_json(world: Benchmark) -> None:
    rows = jsonl(perfect(world)[:9]) + b"{bad\n" + b'{"question_id": "q", "answer": 1}\n'
    report = check(world, rows, card_for(extra="dataset_fingerprint: 0123456789abcdef"))
    assert [item.code for item in report.of("error")] == ["other_data", "not_json", "wrong_type", "missing"]
    text = "\n".join(report.lines())
    assert "p.jsonl:10" in text
    assert "p.jsonl:11" in text
    assert "a question has no row (3 times)" in text
    parsed = json.loads(json.dumps(report.to_json()))
    assert parsed["ok"] is False
    assert [item["count"] for item in parsed["findings"]] == [1, 1, 1, 3]
    with raises("bad-submission"):
        report.require_ok()


def test_ten_million_rows_are_read_no_further_than_the_questions_reach(world: Benchmark) -> None:
    class Endless(io.RawIOBase):
        supplied = 0

        def read(self, size: int = -1) -> bytes:
            block = b'{"question_id": "nobody", "answer": "a"}\n' * 1000
            self.supplied += len(block)
            return block

    source = Endless()
    report = validate(card_for(), source, target_for(world), file="p", metrics=())  # type: ignore[arg-type]
    codes = {finding.code: finding for finding in report.findings}
    assert codes["too_many_rows"].count == 1
    assert codes["extra"].count == 12 + LIMITS.spare_rows
    assert len(codes["extra"].positions) == LIMITS.shown
    assert source.supplied < 10_000 * 41


def test_evidence_must_be_of_the_corpus_and_of_the_candidates(world: Benchmark) -> None:
    question, rows = world.questions[0], perfect(world)
    foreign = next(identifier for identifier in world.corpus.ids if identifier not in (question.candidates or ()))
    held = (question.candidates or ())[0]

    def finding(*ids: str, setting: str = "distractor") -> str:
        evidence = [{"id": identifier, "score": 0.0} for identifier in ids]
        report = check(world, [rows[0] | {"evidence": evidence}, *rows[1:]], card_for(setting))
        return " ".join(item.code for item in report.of("error"))

    assert finding("p0000000000000000") == "unknown_evidence"
    assert finding(f"{held}#0") == "unknown_evidence"
    assert finding(foreign) == "not_a_candidate"
    assert finding(foreign, setting="corpus") == ""
    assert finding(held, held) == "evidence_twice"


def test_claimed_support_is_held_to_the_same_rules(world: Benchmark) -> None:
    question, rows = world.questions[0], perfect(world)
    held = (question.candidates or ())[0]
    foreign = next(identifier for identifier in world.corpus.ids if identifier not in (question.candidates or ()))
    sentences = len(world.corpus.get([held])[0].sentences)

    def finding(*claims: object) -> str:
        report = check(world, [rows[0] | {"notes": {"support": list(claims)}}, *rows[1:]])
        return " ".join(item.code for item in report.of("error"))

    assert finding(held, [held, 0], [held, sentences - 1]) == ""
    for claim in ("nowhere", f"{held}#0", ["nowhere", 0], [held, sentences], [held, -1]):
        assert finding(claim) == "unknown_evidence", claim
    assert finding([foreign, 0]) == "not_a_candidate"


def test_in_the_closed_book_there_is_no_evidence(world: Benchmark) -> None:
    assert only(check(world, perfect(world), card_for("closed_book"))).code == "not_a_candidate"
    bare = [said(question, evidence=[]) for question in world.questions]
    assert check(world, bare, card_for("closed_book")).findings == ()


def test_in_the_document_setting_evidence_is_of_the_questions_document() -> None:
    world = registry.load("worlds/long:validation").limited(12)
    card = card_for("document", benchmark="worlds/long:validation")
    other = next(p.id for p in world.corpus if p.document_id != world.questions[0].document_id)
    assert check(world, perfect(world), card).ok
    rows = perfect(world)
    rows[0]["evidence"] = [{"id": other, "score": 1.0}]
    assert only(check(world, rows, card)).code == "not_a_candidate"


def test_in_the_graph_setting_evidence_is_of_the_questions_graph() -> None:
    world = registry.load("worlds/graph:validation", {"triples": 50}).limited(12)
    card = card_for("graph(scope=question)", benchmark="worlds/graph:validation")
    own = {triple_id(triple) for triple in world.extra["graphs"][world.questions[0].id]}
    other = next(identifier for identifier in world.corpus.ids if identifier not in own)
    assert check(world, perfect(world), card).ok
    rows = perfect(world)
    rows[0]["evidence"] = [{"id": other, "score": 1.0}]
    assert only(check(world, rows, card)).code == "not_a_candidate"
    assert check(world, rows, card_for("graph(scope=split)", benchmark="worlds/graph:validation")).ok


def test_scores_that_contradict_the_order_are_a_warning_and_the_order_counts(world: Benchmark) -> None:
    rows = perfect(world)
    row = next(index for index, item in enumerate(rows) if len(item["evidence"]) > 1)
    evidence = [{"id": item["id"], "score": float(rank)} for rank, item in enumerate(rows[row]["evidence"])]
    report = check(world, [*rows[:row], rows[row] | {"evidence": evidence}, *rows[row + 1 :]])
    assert only(report, "warning").code == "not_sorted"
    assert [item.id for item in report.predictions[row].evidence] == list(world.questions[row].evidence)


def test_failed_questions_are_noted_and_count_as_wrong(world: Benchmark) -> None:
    rows = perfect(world)
    rows[3] |= {"answer": "", "notes": {"failed": "timeout"}}
    report = check(world, rows)
    assert (only(report, "note").code, report.means["em(rules=squad)#v2"]) == ("failed", pytest.approx(11 / 12))


def test_submission_whose_questions_all_failed_is_refused(world: Benchmark) -> None:
    rows = [row | {"answer": "", "notes": {"failed": "timeout"}} for row in perfect(world)]
    assert only(check(world, rows), "error").code == "all_failed"


def test_empty_answers_that_nobody_explains_are_named(world: Benchmark) -> None:
    rows = perfect(world)
    rows[3]["answer"] = rows[5]["answer"] = " "
    report = check(world, rows)
    assert (only(report, "note").code, report.means["em(rules=squad)#v2"]) == ("empty_answers", pytest.approx(10 / 12))


def test_rankings_alone_are_scored_on_rankings_alone(world: Benchmark) -> None:
    rows = [said(question, answer="") for question in world.questions]
    assert {finding.code for finding in check(world, rows).findings} == {"no_answers"}
    report = check(world, rows, card_for(extra="retrieval_only: true"))
    assert report.findings == ()
    assert list(report.scores) == ["recall@5#v2", "has_answer@5#v2"]


def test_rankings_alone_are_refused_where_the_gold_names_no_evidence(world: Benchmark) -> None:
    blind = replace(world, questions=[replace(question, evidence=()) for question in world.questions])
    rows = [said(question, answer="") for question in world.questions]
    raw, target = io.BytesIO(jsonl(rows)), target_for(blind)
    answers = [parse_metric("em"), parse_metric("f1(rules=hotpotqa)")]
    card = card_for(extra="retrieval_only: true")
    for metrics in (answers, [*answers, parse_metric("recall@5")]):
        raw.seek(0)
        report = validate(card, raw, target, file="p.jsonl", metrics=metrics)
        assert (only(report).code, report.scores, report.predictions) == ("nothing_scored", {}, ())
        assert "without retrieval_only" in (only(report).try_this or "")
    raw.seek(0)
    assert validate(card_for(), raw, target, file="p.jsonl", metrics=answers).ok


def test_scores_that_contradict_each_other_keep_a_submission_out(world: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.submission.validate.check_invariants", lambda scores: ["recall falls for 1 question"])
    report = check(world, perfect(world))
    assert (only(report).code, report.scores) == ("invariant", {})


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        ("[{reference: 'worlds/multihop:train'}]", None),
        ("[{reference: 'worlds/multihop:train', seeds: '0-99, 150'}]", None),
        ("[{reference: 'worlds/multihop:validation'}]", "covers the evaluated split validation"),
        ("[{reference: 'worlds:train+validation'}]", "covers the evaluated split validation"),
        ("[{reference: 'worlds/multihop'}]", "names no split"),
        ("[{reference: 'worlds/long:test'}]", "is a split of test worlds"),
        ("[{name: mine, seeds: '0-9, 99999-100000'}]", "holds seeds of test worlds (99999-100000)"),
        ("[{name: mine, seeds: '10000'}]", "holds the evaluated worlds (10000)"),
        ("[{name: mine, question_ids: [multihop-10000-00003, other]}]", "lists 1 of the evaluated questions"),
    ],
)
def test_training_data_that_cover_the_evaluation_are_flagged_and_not_refused(world: Benchmark, training: str, reason: str | None) -> None:
    report = check(world, perfect(world), card_for(training=training), training=training_loader())
    assert report.ok
    if reason is None:
        assert report.contamination == ()
        assert report.findings == ()
    else:
        (sentence,) = report.contamination
        assert reason in sentence
        assert only(report, "warning").code == "contaminated"


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        ("worlds/multihop:validation", "covers the evaluated split validation"),
        ("worlds/multihop", "names no split, so it covers styled:validation"),
        ("styled:validation", "covers the evaluated split validation"),
        ("worlds/style:validation", "covers the evaluated split validation"),
        ("worlds/multihop:train", None),
        ("worlds/long:validation", None),
        ("styled:train", None),
    ],
)
def test_training_data_of_the_base_cover_its_restyled_versions(training: str, reason: str | None) -> None:
    query = registry.load("styled:validation", {"base_config": {"worlds": 1, "questions": 20}}).limited(12)
    card = card_for(benchmark="styled:validation", training=f"[{{reference: '{training}'}}]")
    report = check(query, perfect(query), card)
    assert (reason is None) == (report.contamination == ())
    assert reason is None or reason in report.contamination[0]


def test_the_id_that_methods_see_counts_as_an_id_too(world: Benchmark) -> None:
    training = f"[{{name: x, question_ids: [{world.questions[0].query_id}]}}]"
    assert check(world, perfect(world), card_for(training=training)).contamination


def test_a_declared_dataset_that_shares_questions_is_found_by_its_questions(world: Benchmark) -> None:
    shared = replace(world.questions[0], id="elsewhere", text=f"  {world.questions[0].text.upper()} ")
    loads: dict[str, Sequence[Question]] = {"hotpotqa:train": [shared], "musique:train": []}

    def load(reference: str) -> dict[str, str]:
        if reference not in loads:
            raise UserError("there is no such file")
        return {question.id: question.text for question in loads[reference]}

    def found(training: str) -> Report:
        return check(world, perfect(world), card_for(training=training), training=load)

    assert "1 of the evaluated questions word for word" in found("[{reference: 'hotpotqa:train'}]").contamination[0]
    assert found("[{reference: 'musique:train'}]").findings == ()
    report = found("[{reference: '2wikimultihopqa:train'}]")
    assert report.ok
    assert only(report, "note").code == "training_data_not_compared"


def test_each_declared_dataset_is_loaded_once(world: Benchmark) -> None:
    loads: list[str] = []

    def load(reference: str) -> dict[str, str]:
        loads.append(reference)
        if reference.startswith("musique"):
            raise UserError("there is no such file")
        return {question.id: question.text for question in world.questions[:2]}

    named = ["hotpotqa:train", "hotpotqa:train+dev", "hotpotqa:dev+train+dev", "musique:train"] * 5
    training = "[" + ", ".join(f"{{reference: '{item}'}}" for item in named) + "]"
    report = check(world, perfect(world), card_for(training=training), training=load)
    assert sorted(loads) == ["hotpotqa:dev+train", "hotpotqa:train", "musique:train"]
    assert len(report.contamination) == 15
    assert only(report, "note").count == 5


def test_equal_ids_within_one_dataset_are_found_where_the_texts_were_changed(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    dev = registry.load("musique:train").limited(12)
    reworded = {question.id: f"rephrased {number}" for number, question in enumerate(dev.questions[:3])}
    card = card_for("distractor", benchmark="musique:train", training="[{reference: 'musique:dev'}]")
    report = check(dev, perfect(dev), card, training=lambda reference: reworded)
    assert "3 question ids of the evaluated split" in report.contamination[0]


def test_training_data_named_like_the_evaluated_dataset_are_asked_about(world: Benchmark) -> None:
    report = check(world, perfect(world), card_for(training="[{name: 'our own Worlds, 2 million'}]"))
    assert only(report, "warning").code == "training_data_unclear"


def test_seeds_that_cannot_be_read_are_an_error(world: Benchmark) -> None:
    assert only(check(world, perfect(world), card_for(training="[{name: x, seeds: few}]"))).code == "bad_seeds"


def test_every_listed_finding_is_described_and_every_description_used() -> None:
    folder = Path(validate.__code__.co_filename).parent
    sources = [path.read_text(encoding="utf-8") for place in (folder, folder.parent / "formats") for path in sorted(place.glob("*.py"))]
    used = {code for source in sources for code in re.findall(r'\.listed\(\s*"(\w+)"', source)} | set(SIGNS) - {GOLD_EVIDENCE}
    described = yaml.safe_load((folder / "findings.yaml").read_text(encoding="utf-8"))
    assert set(described) == used
    assert all(set(entry) <= {"what", "severity", "try"} for entry in described.values())
