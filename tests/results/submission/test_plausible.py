"""Planted fraud is found at each strength and in each disguise; honest systems get no warning."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import registry, settings
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.worlds.dataset import WorldsConfig
from judges.metric import parse as parse_metric
from methods.api import FAILED, Services
from methods.baselines.controls import gold_text
from methods.pipeline import Pipeline
from methods.registry import Component
from results.boards.board import boards
from results.boards.systems import implausible
from results.boards.tables import remarks
from results.boards.verdict_of import verdicts
from results.store.store import Run, Store
from results.submission import Finding, Report
from results.submission.card import parse_card
from results.submission.plausible import COPIED, GOLD_EVIDENCE, RIGHT, SAME, SIGNS, USAGE, StoredRun
from results.submission.review import UNRANKED, decide, submissions
from results.submission.storing import other_runs, store_report
from results.submission.validate import Target, validate

STRENGTHS = (1.0, 0.6, 0.3, 0.1)
"""Shares of the questions that are forged."""
MOST = (1.0, 0.9, 0.75, 0.6)
"""The same for what concerns most questions by definition."""
Row = dict[str, Any]


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load("worlds/multihop:validation", WorldsConfig(worlds=2, entities=66, community=66, questions=160))


@pytest.fixture(scope="module")
def honest(world: Benchmark) -> list[Row]:
    """BM25 with the extractive reader, as a submission."""
    return rows_of(world, "distractor", "bm25", "extractive")


def rows_of(world: Benchmark, setting: str, retriever: str, reader: str, k: int = 5) -> list[Row]:
    at = settings.apply(settings.Setting.parse(setting), world, 0)
    services = Services(seed=0)
    pipeline = Pipeline(Component.of(retriever).build(services), reader=Component.of(reader).build(services), k=k)
    pipeline.index(at.corpus)
    made = {item.question_id: item.to_json() for item in pipeline.answer(question.query() for question in at.questions)}
    return [made[question.query_id] for question in at.questions]


def check(world: Benchmark, rows: Sequence[Row], *, setting: str = "distractor", extra: str = "", **options: Any) -> Report:
    text = f"method: {{name: theirs, version: 1}}\nbenchmark: {world.name}\nsetting: {setting}\ntraining_data: []\n{extra}"
    target = Target(world, settings.apply(settings.Setting.parse(setting), world, 0))
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return validate(
        parse_card(text.encode(), "card.yaml"), io.BytesIO(raw), target, file="p.jsonl", metrics=[parse_metric("em")], **options
    )


def signs(report: Report) -> list[str]:
    assert report.ok
    return [finding.code for finding in report.findings if finding.code in SIGNS]


def forged(world: Benchmark, rows: Sequence[Row], share: float, forge: Callable[[Row, Question], Row]) -> list[Row]:
    """The same share of every kind of question, forged."""
    chosen = set(random.Random(1).sample(range(len(rows)), round(share * len(rows))))
    pairs = zip(rows, world.questions, strict=True)
    return [forge(row, question) if number in chosen else row for number, (row, question) in enumerate(pairs)]


DISGUISES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "case": str.upper,
    "invisible": "\u200b".join,
    "wrapped": lambda text: f"**Answer:** The answer is “{text}” [1].",
    "full width": lambda text: "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text),
    "tags": lambda text: f"<answer>{text}</answer>",
    "dots": ".".join,
    "blank letters": "\u3164".join,
    "marks": "\u0332".join,
}


@pytest.mark.parametrize("share", STRENGTHS)
def test_gold_answers_that_no_evidence_says_are_found(world: Benchmark, honest: list[Row], share: float) -> None:
    assert RIGHT in signs(check(world, forged(world, honest, share, lambda row, question: {**row, "answer": gold_text(question)})))


@pytest.mark.parametrize("disguise", DISGUISES)
def test_gold_answers_are_found_in_disguise(world: Benchmark, honest: list[Row], disguise: str) -> None:
    def forge(row: Row, question: Question) -> Row:
        return {**row, "answer": DISGUISES[disguise](gold_text(question)), "evidence": []}

    report = check(world, forged(world, honest, 0.2, forge))
    assert RIGHT in signs(report)
    finding = next(finding for finding in report.findings if finding.code == RIGHT)
    assert finding.severity == "warning"
    assert finding.positions[0].line is not None


def test_an_alias_of_the_gold_answer_is_found(world: Benchmark, honest: list[Row]) -> None:
    aliased = [replace(question, aliases={question.answers[0]: ("Zorbulon",)}) for question in world.questions if question.answers]
    named = replace(world, questions=aliased)
    rows = [{"question_id": question.query_id, "answer": "Zorbulon", "evidence": []} for question in aliased]
    assert RIGHT in signs(check(named, rows, setting="closed_book"))


@pytest.mark.parametrize("share", MOST)
def test_evidence_that_is_the_gold_evidence_is_found(world: Benchmark, honest: list[Row], share: float) -> None:
    def forge(row: Row, question: Question) -> Row:
        return {**row, "evidence": [{"id": identifier, "score": 1.0} for identifier in reversed(question.evidence)]}

    assert signs(check(world, forged(world, honest, share, forge))) == [GOLD_EVIDENCE]


def test_rankings_that_begin_with_the_positives_are_found(world: Benchmark, honest: list[Row]) -> None:
    def forge(row: Row, question: Question) -> Row:
        behind = [item["id"] for item in row["evidence"] if item["id"] not in question.evidence]
        return {**row, "evidence": [{"id": identifier, "score": 1.0} for identifier in (*question.evidence, *behind)]}

    assert signs(check(world, forged(world, honest, 1.0, forge))) == [GOLD_EVIDENCE]


def test_short_lists_of_positives_among_rankings_are_found(world: Benchmark, honest: list[Row]) -> None:
    pairs = [(question, row) for question, row in zip(world.questions, honest, strict=True) if len(row["evidence"]) > 4]
    some, rows = replace(world, questions=[question for question, _ in pairs]), [row for _, row in pairs]

    def forge(row: Row, question: Question) -> Row:
        return {**row, "evidence": [{"id": identifier, "score": 1.0} for identifier in question.evidence]}

    assert signs(check(some, forged(some, rows, 0.2, forge))) == [GOLD_EVIDENCE]
    assert signs(check(some, rows)) == []


@pytest.mark.parametrize("disguise", DISGUISES)
def test_copies_of_a_run_are_found_in_disguise(world: Benchmark, honest: list[Row], disguise: str) -> None:
    rows = [{**row, "answer": DISGUISES[disguise](row["answer"])} for row in honest]
    assert COPIED in signs(check(world, rows, runs=lambda: [StoredRun("bm25 (run 2)", answers_of(world, honest))]))


@pytest.mark.parametrize("share", [1.0, 0.99, 0.97, 0.96])
def test_copy_of_a_stored_run_is_found(world: Benchmark, honest: list[Row], share: float) -> None:
    def forge(row: Row, question: Question) -> Row:
        return {**row, "answer": "something else", "evidence": row["evidence"][:3]}

    rows = forged(world, honest, 1 - share, forge)
    stored = answers_of(world, honest)
    report = check(world, rows, runs=lambda: [StoredRun("other (run 1)", {}), StoredRun("bm25 (run 2)", stored)])
    assert signs(report) == [COPIED]
    assert "bm25 (run 2)" in next(finding for finding in report.findings if finding.code == COPIED).positions[0].detail


def answers_of(world: Benchmark, rows: Sequence[Row]) -> dict[str, str]:
    return {question.id: row["answer"].upper() for question, row in zip(world.questions, rows, strict=True)}


USAGES: dict[str, Callable[[Row], Row]] = {
    "completion tokens below the words": lambda row: {"completion_tokens": 1},
    "prompt tokens below the question": lambda row: {"prompt_tokens": 3},
    "prompt tokens below the evidence": lambda row: {"prompt_tokens": 12},
    "more calls than tokens": lambda row: {"prompt_tokens": 200, "model_calls": 201},
    "tokens per second": lambda row: {"completion_tokens": 500, "seconds": {"read": 1e-5}},
    "days for a question": lambda row: {"seconds": {"read": 1e6}},
    "dollars per token": lambda row: {"prompt_tokens": 200, "completion_tokens": 30, "cost_usd": 9.0},
    "memory": lambda row: {"peak_memory_bytes": 10**15},
}


@pytest.mark.parametrize("share", STRENGTHS)
@pytest.mark.parametrize("kind", USAGES)
def test_impossible_usage_is_found(world: Benchmark, honest: list[Row], kind: str, share: float) -> None:
    def forge(row: Row, question: Question) -> Row:
        return {**row, "answer": "a long answer of seven words here", "usage": USAGES[kind](row)}

    report = check(world, forged(world, [{**row, "usage": {"prompt_tokens": 400 + n}} for n, row in enumerate(honest)], share, forge))
    assert USAGE in signs(report)


def test_the_same_number_of_prompt_tokens_for_every_question_is_found(world: Benchmark, honest: list[Row]) -> None:
    assert signs(check(world, [{**row, "usage": {"prompt_tokens": 812}} for row in honest])) == [USAGE]


@pytest.mark.parametrize("share", MOST)
def test_the_same_answer_for_most_questions_is_found(world: Benchmark, honest: list[Row], share: float) -> None:
    variants = ("Lyon", "lyon.", "The Lyon", "Ly\u200bon")

    def forge(row: Row, question: Question) -> Row:
        return {**row, "answer": variants[len(question.text) % 4]}

    assert signs(check(world, forged(world, honest, share, forge))) == [SAME]


@pytest.mark.parametrize(
    ("setting", "retriever", "k"),
    [("distractor", "bm25", 5), ("distractor", "bm25", 2), ("distractor", "random", 3), ("gold_only", "bm25", 5)],
)
def test_honest_systems_have_no_finding(world: Benchmark, setting: str, retriever: str, k: int) -> None:
    report = check(world, rows_of(world, setting, retriever, "extractive", k), setting=setting)
    assert report.of("warning") == []


def test_strong_system_that_reads_its_evidence_has_no_finding(world: Benchmark, honest: list[Row]) -> None:
    """All positives first for nine questions of ten, then others; every answer right; usage as a model counts it."""
    target = settings.apply(settings.Setting.parse("distractor"), world, 0)
    rows = []
    for number, question in enumerate(target.questions):
        ids = [*question.evidence, *(name for name in question.candidates or () if name not in question.evidence)][:8]
        ids = ids[::-1] if number % 10 == 0 else ids
        words = sum(len(passage.full_text.split()) for passage in world.corpus.get(ids))
        answer = gold_text(question)
        usage = {
            "prompt_tokens": int(1.3 * words) + 40,
            "completion_tokens": 2 + len(answer.split()),
            "model_calls": 1,
            "seconds": {"read": 0.4},
        }
        evidence = [{"id": name, "score": 0.0} for name in ids]
        rows.append(
            {"question_id": question.query_id, "answer": answer, "evidence": evidence, "usage": usage | {"cost_usd": 0.0001 * number}}
        )
    weaker = [row if number % 7 else honest[number] for number, row in enumerate(rows)]
    assert check(world, rows, runs=lambda: [StoredRun("weaker", answers_of(world, weaker))]).findings == ()


def test_yes_and_no_and_abstentions_never_count(world: Benchmark) -> None:
    binary = replace(world, questions=[replace(q, answers=("yes",), aliases={}, answer_set=False) for q in world.questions])
    rows = [{"question_id": question.query_id, "answer": "Yes", "evidence": []} for question in binary.questions]
    assert signs(check(binary, rows, runs=lambda: [StoredRun("other", {q.id: "yes" for q in binary.questions})])) == []
    for answer in ("I don't know.", "I'm sorry, but I do not know the answer.", "The passages do not contain the answer."):
        assert signs(check(world, [{**row, "answer": answer} for row in rows])) == []
    assert signs(check(world, rows)) == [SAME], "no question of this benchmark has the answer yes"


@pytest.mark.parametrize(
    ("setting", "share", "wrong", "flagged"),
    [("closed_book", 0.7, 0.0, False), ("closed_book", 1.0, 0.0, True), ("distractor", 0.3, 0.3, False), ("distractor", 0.3, 0.0, True)],
)
def test_model_that_knows_real_answers_has_no_finding(
    world: Benchmark, honest: list[Row], setting: str, share: float, wrong: float, flagged: bool
) -> None:
    """On data that are not invented, models are right without evidence, but not always."""
    honest = [row if random.Random(number).random() >= wrong else {**row, "answer": "Zorbulon"} for number, row in enumerate(honest)]
    plain = [replace(question, metadata={}) for question in world.questions]
    real = replace(world, reference=registry.DataReference("hotpotqa", "distractor", "train"), questions=plain)
    listed = [{**row, "evidence": [], "notes": {}} for row in honest] if setting == "closed_book" else honest
    rows = forged(world, listed, share, lambda row, question: {**row, "answer": gold_text(question)})
    assert (RIGHT in signs(check(real, rows, setting=setting))) is flagged


def test_implausible_submission_is_ranked_only_after_acceptance(world: Benchmark, honest: list[Row], store: Store) -> None:
    rows = [{**row, "answer": "Lyon"} for row in honest]
    report = check(world, rows)
    assert report.ok
    target = Target(world, settings.apply(settings.Setting.parse("distractor"), world, 0))
    store_report(store, report, target, [parse_metric("em")], environment={})
    (board,) = boards(store)
    (row,) = board.rows
    assert implausible(row.run) == (f"{len(rows)} of {len(rows)} questions have the same answer",)
    (verdict,) = verdicts(store, None, metrics=list(row.cells))
    assert all(cell.apart.startswith("implausible: ") for cell in row.cells.values())
    assert (verdict.best, list(verdict.left_out)) == (None, [row.run.method])
    assert len(remarks(row)) == 1
    assert [(item.status, item.reason) for item in submissions(store)] == [("implausible", UNRANKED)]
    assert decide(store, row.run, "accept").status == "accepted"
    (board,) = boards(store)
    (verdict,) = verdicts(store, None, metrics=list(row.cells))
    assert not any(cell.apart for cell in board.rows[0].cells.values())
    assert verdict.best is not None
    assert verdict.best.name == row.run.method
    assert implausible(board.rows[0].run) == implausible(row.run)


@pytest.mark.parametrize(("code", "ranked"), [("failed", False), ("missing_answer", True)])
def test_stored_submission_whose_questions_all_failed_is_not_ranked(
    code: str, ranked: bool, world: Benchmark, honest: list[Row], store: Store
) -> None:
    """The check refuses such files, but stores of earlier versions hold some; a file of supporting facts lacks answers by design."""
    report = check(world, honest)
    lost = tuple(replace(item, answer="", notes={FAILED: "HTTP 500"}) for item in report.predictions)
    report = replace(report, predictions=lost, findings=(Finding(code, "note", "", None, len(lost), ()),))
    target = Target(world, settings.apply(settings.Setting.parse("distractor"), world, 0))
    store_report(store, report, target, [parse_metric("em")], environment={})
    (board,) = boards(store)
    (row,) = board.rows
    (verdict,) = verdicts(store, None, metrics=list(row.cells))
    assert len(implausible(row.run)) == (not ranked)
    assert [item.status for item in submissions(store)] == ["accepted" if ranked else "implausible"]
    assert any(cell.apart for cell in row.cells.values()) != ranked
    assert list(verdict.left_out) == [] if ranked else [row.run.method]


def test_own_versions_and_controls_are_not_compared(world: Benchmark, honest: list[Row], store: Store) -> None:
    card = parse_card(
        f"method: {{name: Theirs, version: 2}}\nbenchmark: {world.name}\nsetting: distractor\ntraining_data: []".encode(), "c"
    )
    for name, kind in (("theirs@1", "method"), ("gold_answer", "control"), ("bm25", "retriever")):
        store.start(Run(name, name, name, kind, {}, world.name, world.fingerprint, "distractor", 0, 1, {}))
        store.end(name, "finished")
    for name in ("submitted", "held", "rejected", "withdrawn"):
        store.start(Run(name, name, name, "method", {}, world.name, world.fingerprint, "distractor", 0, 1, {}, {}, name, {}))
        store.end(name, "finished")
    compared = {run.label.partition(" ")[0] for run in other_runs(store, card, world.fingerprint)()}
    assert compared == {"bm25", "submitted", "held", "rejected"}
    assert list(other_runs(store, card, "0" * 16)()) == []


RAW = {
    "thought_in_answer": ("<think>Let me see.</think>Lyon", "Lyon</think>", "[THINK]hm[/THINK] Lyon", "<|channel|>analysis"),
    "special_tokens": ("Lyon<|im_end|>", "Lyon</s>", "[INST] Lyon", "<|eot_id|>", "Lyon<eos>", "<|start_header_id|>"),
    "error_as_answer": (
        "Error code: 429 - {'error': {}}",
        "HTTP 503 Service Unavailable",
        "Traceback (most recent call last):\n  File",
        "openai.RateLimitError: slow down",
        "Internal Server Error",
        '{"error": {"message": "no"}}',
        "<html><body>502",
        "#NAME?",
        "#DIV/0! ",
    ),
    "mojibake": ("MÃ¼nster", "Itâ€™s Lyon", "Åódź".encode().decode("latin-1"), "naÃ¯ve"),
    "json_as_answer": ('{"answer": "Lyon"}', ' [{"text": "Lyon"}]\n', '["Lyon", "Paris"]'),
}


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in RAW.items() for text in texts])
def test_raw_reply_in_the_place_of_one_answer_is_found(world: Benchmark, honest: list[Row], code: str, text: str) -> None:
    report = check(world, [{**honest[0], "answer": text}, *honest[1:]])
    assert [(finding.code, finding.count) for finding in report.of("warning")] == [(code, 1)]


def test_echoed_prompts_are_found(world: Benchmark, honest: list[Row]) -> None:
    rows = [{**row, "answer": f"Question: {q.text}\nAnswer: {row['answer']}"} for row, q in zip(honest, world.questions, strict=True)]
    assert "echoed_prompt" in [finding.code for finding in check(world, rows).of("warning")]
    assert check(world, rows[:2] + honest[2:]).of("warning") == []


@pytest.mark.parametrize(
    "text",
    [
        "Lyon",
        "The <b> tag",
        "IndexError",
        "Error",
        "a think tank",
        "[1] Lyon",
        "[1, 2]",
        "[Lyon]",
        "{}",
        "HTTP",
        "x < y | z > w",
        "Catch-22: a novel",
        "#1",
        "N/A",
        "São Paulo, Ångström, «Ñ», château",
        "Âge",
    ],
)
def test_plain_answer_is_no_raw_reply(world: Benchmark, honest: list[Row], text: str) -> None:
    assert check(world, [{**honest[0], "answer": text}, *honest[1:]]).of("warning") == []
