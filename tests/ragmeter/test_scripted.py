"""The scripted LLM: correct where it knows the answer, labeled as a script, and robust under corruption."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry as datasets
from benchmarks.schema import Passage, Query, Question
from methods.api import FAILED, Context, Prediction, Services
from methods.flow import each
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.pipeline import assemble
from methods.readers.extract import short_answer
from methods.registry import Component
from ragmeter import experiment
from ragmeter.runner.loop import execute
from ragmeter.runner.tasks import states, tasks_of
from ragmeter.scripted import CORRUPTIONS, NAME, UNKNOWN, corrupt
from ragmeter.scripted.prompt_patterns import template_pattern
from results.store.store import FINISHED, Store
from tests.support.errors import raises
from tests.support.faults import Faults
from tests.support.scripted import WorldTruth
from tests.support.server import ChatRequest

REFERENCE = "worlds/multihop:test"
REQUESTED = 80
"""Number of questions that are used."""


class Quiet:
    def begin(self, task: Any, done: int) -> None: ...
    def stage(self, task: Any, name: str) -> None: ...
    def advance(self, task: Any, questions: int) -> None: ...
    def end(self, task: Any, status: str, message: str | None) -> None: ...


def run(url: str, folder: Path, setting: str = "gold_only", method: str = "full_context") -> list[Prediction]:
    """Run the chat reader over the world through the ordinary run loop."""
    reader = f"{{id: chat, config: {{llm: {{model: any, base_url: {url}, key_variable: null, backoff_s: 0.01}}}}}}"
    text = f"""
name: truth
benchmarks: [{{id: worlds/multihop, split: test, setting: {setting}, limit: {REQUESTED}}}]
methods: [{{id: {method}, reader: {reader}}}]
"""
    tasks = tasks_of(experiment.parse(text, "truth"))
    store = Store(folder)
    services = Services(artifacts=store.artifacts, cache=folder / "cache.sqlite")
    (outcome,) = execute(states(tasks, store), store, services, Quiet())
    assert (outcome.status, outcome.error) == (FINISHED, None)
    return store.predictions(tasks[0].run.run)


def exact(predictions: Sequence[Prediction]) -> float:
    """Return the share of questions answered by a gold string, or by the joined gold set."""
    gold = {question.id: question for question in datasets.load(REFERENCE).questions}
    return sum(_right(gold[p.question_id], p.answer) for p in predictions) / len(predictions)


def _right(question: Question, answer: str) -> bool:
    return answer == ", ".join(question.answers) if question.answer_set else answer in question.golds


@pytest.mark.slow
def test_scripted_reader_is_correct_without_corruption_and_rows_are_labeled(tmp_path: Path) -> None:
    truth = WorldTruth.of(REFERENCE)
    with truth.server().running() as url:
        predictions = run(url, tmp_path)
    assert len(predictions) == REQUESTED
    assert exact(predictions) >= 0.9
    assert {p.notes["scripted"] for p in predictions} == {NAME}
    assert not any(FAILED in p.notes for p in predictions)
    assert truth.unrecognized == 0


@pytest.mark.slow
def test_corrupted_replies_never_crash_and_are_all_counted(tmp_path: Path) -> None:
    truth = WorldTruth.of(REFERENCE, corruption=0.2)
    with truth.server().running() as url:
        predictions = run(url, tmp_path)
    corrupted = sum(truth.corrupted.values())
    assert len(predictions) == REQUESTED
    assert 0.1 * REQUESTED <= corrupted <= 0.3 * REQUESTED
    assert {"empty"} < set(truth.corrupted) <= set(CORRUPTIONS)
    # An empty reply is a reported failure; other corruptions are wrong answers.
    failed = [p for p in predictions if FAILED in p.notes]
    assert len(failed) == truth.corrupted["empty"] > 0
    assert all("empty" in p.notes[FAILED] and p.answer == "" for p in failed)
    # Some evidence does not state the answer verbatim, also without corruption.
    assert 0.9 - corrupted / REQUESTED <= exact(predictions) <= 1 - corrupted / REQUESTED + 1e-9


@pytest.mark.slow
def test_finished_experiment_reruns_without_a_call(tmp_path: Path) -> None:
    server = WorldTruth.of(REFERENCE).server()
    with server.running() as url:
        first = run(url, tmp_path)
        sent = server.calls
        (tmp_path / "store.duckdb").unlink()
        again = run(url, tmp_path)
        assert server.calls == sent == REQUESTED
    assert [(p.question_id, p.answer, p.notes, p.usage.prompt_tokens) for p in again] == [
        (p.question_id, p.answer, p.notes, p.usage.prompt_tokens) for p in first
    ]


@pytest.mark.slow
def test_misbehaving_endpoint_changes_no_answer(tmp_path: Path) -> None:
    kinds = ("429", "429_after", "500", "cut_connection", "invalid_json", "empty_choices", "wrong_content_type")
    truth = WorldTruth.of(REFERENCE, faults=Faults(passing=0.2, kinds=kinds))
    with truth.server().running() as url:
        predictions = run(url, tmp_path)
    assert sum(truth.faults.played.values()) > 8
    assert exact(predictions) >= 0.9


@pytest.fixture(scope="module")
def truth() -> WorldTruth:
    return WorldTruth.of(REFERENCE, {"unanswerable": 0.1})


def ask(truth: WorldTruth, question: str, *passages: Passage) -> str:
    with truth.server().running() as url:
        reader = Component.of("chat", {"llm": {"model": "any", "base_url": url, "key_variable": None}}).build(Services())
        return each(reader, "read", [Query("q", question)], [Context("q", passages)])[0].text


@pytest.mark.slow
def test_script_answers_only_from_evidence_by_default(truth: WorldTruth) -> None:
    corpus = truth.benchmarks[0].corpus
    query = next(q for q in truth.questions.values() if q.type == "bridge" and q.answerable)
    proof = corpus.get(query.evidence)
    distractors = corpus.get([c for c in query.candidates or () if c not in query.evidence])
    assert len(proof) == 2
    assert ask(truth, query.text, *distractors, *proof) == query.answers[0]
    assert ask(truth, query.text, *distractors, proof[0]) == UNKNOWN
    assert ask(truth, query.text) == query.answers[0]
    truth.reading = "memory"
    try:
        assert ask(truth, query.text, *distractors) == query.answers[0]
    finally:
        truth.reading = "evidence"


def test_script_replies_unknown_if_the_world_has_no_answer(truth: WorldTruth) -> None:
    query = next(q for q in truth.questions.values() if not q.answerable)
    passages = truth.benchmarks[0].corpus.get(query.candidates or ())
    assert ask(truth, query.text, *passages) == UNKNOWN
    assert ask(truth, "Who wrote a question that nobody asked?") == UNKNOWN


@pytest.mark.slow
def test_distractors_alone_never_prove_most_questions(truth: WorldTruth) -> None:
    """The proof matches names; it must not accept insufficient passages or miss real ones."""
    corpus = truth.benchmarks[0].corpus
    bridges = [q for q in truth.questions.values() if q.type == "bridge" and q.answerable]
    texts = lambda ids: [p.full_text for p in corpus.get(ids)]  # noqa: E731
    proven = [truth.proven_by(q, texts(q.evidence)) for q in bridges]
    insufficient = [truth.proven_by(q, texts(set(q.candidates or ()) - {q.evidence[-1]})) for q in bridges]
    assert sum(proven) / len(bridges) >= 0.95
    assert sum(insufficient) / len(bridges) <= 0.15


def test_script_answers_the_steps_of_a_chain(truth: WorldTruth) -> None:
    query = next(q for q in truth.questions.values() if q.type == "bridge" and q.answerable)
    first, second = query.metadata["steps"]
    assert truth.answer_to(first["question"]) == first["answer"]
    assert truth.answer_to(second["question"].replace("#1", first["answer"])) == query.answers[0]


def test_custom_handler_adds_a_prompt(truth: WorldTruth) -> None:
    own = WorldTruth(truth.benchmarks)

    @own.handle
    def count(world: WorldTruth, request: ChatRequest) -> str | None:
        return str(len(world.questions)) if request.prompt == "How many questions?" else None

    with own.server().running() as url:
        model = ChatModel(ChatConfig(model="any", base_url=url, key_variable=None))
        known, unknown = model.complete([[{"role": "user", "content": t}] for t in ("How many questions?", "Hello")])
    assert (known.text, known.scripted) == ("200", True)
    assert "does not know this prompt" in unknown.failed
    assert own.unrecognized == 1


def test_template_pattern_matches_its_filled_text() -> None:
    pattern = template_pattern("Costs $$5 (really). $passages\nQ: ${question}? again $question.")
    match = pattern.fullmatch("Costs $5 (really). a\nQ: b\nQ: c?? again c?.")
    assert match is not None
    assert match.groupdict() == {"passages": "a\nQ: b", "question": "c?"}
    assert pattern.fullmatch("Costs $5 (really). a\nQ: b? again c.") is None


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_every_corruption_makes_the_answer_unreadable(kind: str) -> None:
    for answer in ("Ann Oder", "1506", "yes"):
        assert short_answer(corrupt(answer, kind)) != answer


def test_corruption_depends_only_on_the_prompt(truth: WorldTruth) -> None:
    requests = [ChatRequest("m", ({"role": "user", "content": f"q{n}"},), None) for n in range(2000)]
    item, two = (WorldTruth(truth.benchmarks, corruption=0.2, seed=1) for _ in range(2))
    drawn = [item.is_corrupted(request.prompt) for request in requests]
    assert drawn == [two.is_corrupted(request.prompt) for request in requests]
    assert 0.17 < sum(drawn) / 2000 < 0.23
    other = WorldTruth(truth.benchmarks, corruption=0.2, seed=2)
    assert drawn != [other.is_corrupted(request.prompt) for request in requests]
    with raises("bad-corruption"):
        WorldTruth(truth.benchmarks, corruption=20)


@pytest.mark.slow
def test_script_runs_without_a_server_and_its_rows_are_labeled(tmp_path: Path) -> None:
    def answered(**options: Any) -> list[Prediction]:
        llm = {"scripted": REFERENCE, **options}
        reader = Component.of("chat", {"llm": llm})
        method = assemble(Component.of("full_context"), Services(cache=tmp_path / "replies.sqlite"), reader=reader)
        method.index(benchmark.corpus)
        return sorted(method.answer([question.query() for question in benchmark.questions[:20]]), key=lambda item: item.question_id)

    benchmark = datasets.load(REFERENCE, {})
    first, again, corrupted = answered(), answered(), answered(corruption=1.0)
    gold = {question.query().id: question.golds for question in benchmark.questions}
    assert sum(item.answer in gold[item.question_id] for item in first) > 10
    assert {item.notes["scripted"] for item in first} == {NAME}
    assert [item.answer for item in first] == [item.answer for item in again]
    assert (any(call.cached for item in first for call in item.calls), all(call.cached for item in again for call in item.calls)) == (
        False,
        True,
    )
    assert [item.answer for item in corrupted] != [item.answer for item in first]
    with raises("unknown-script"):
        Component.of("chat", {"llm": {"scripted": "nowhere/x:test"}}).preflight()


def test_scripted_server_follows_the_protocol_of_the_openai_client(truth: WorldTruth) -> None:
    import openai

    with truth.server().running() as url, openai.OpenAI(api_key="none", base_url=url, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [NAME]
        with pytest.raises(openai.BadRequestError, match="does not know this prompt"):
            client.chat.completions.create(model="x", messages=[{"role": "user", "content": "Hello"}])
        with pytest.raises(openai.BadRequestError, match="stream"):
            client.chat.completions.create(model="x", messages=[{"role": "user", "content": "x"}], stream=True)
        with pytest.raises(openai.BadRequestError, match="at least one message"):
            client.chat.completions.create(model="x", messages=[])
