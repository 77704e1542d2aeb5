"""Concurrent loops: invalid JSON, lost calls, stored results, and the scripted LLM as the teacher."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from benchmarks.core.errors import Broke
from benchmarks.registry import Benchmark, load
from benchmarks.text import em
from benchmarks.worlds.questions import answer_of, paraphrases
from methods.api import Services
from methods.clara.config import TYPES, Type
from methods.clara.data import scp_rows
from methods.clara.prompts import REPLIES, Answer, Judgment, Preserved, Questions, Rephrasing, Supplement
from methods.clara.rows import write_rows
from methods.clara.synthesis import Document, Synthesis, SynthesisConfig, most_calls, of_rows, of_synthesis, outlook
from methods.models.chat import ChatModel
from methods.models.counting import TokenCounter
from methods.models.endpoint import Fault
from methods.models.reply import Completion
from methods.training.journal import Journal
from ragmeter.scripted import NAME
from tests.support.scripted import WorldTruth

WORLD: dict[str, Any] = {"entities": 120, "community": 60, "questions": 12}
DOCUMENTS = [Document(f"d{n}", f"Entity {n}\nEntity {n} was made in {1800 + n}.") for n in range(5)]
Written = Callable[[type[BaseModel], str, int], str]


def content(shape: type[BaseModel], text: str, repetition: int) -> str:
    """Write replies of a model that accepts two questions."""
    return {
        Questions: '{"questions": ["Which entity?", "Which year?"]}',
        Answer: '{"answer": "1800"}',
        Judgment: '{"judgment": "Correct"}',
        Supplement: '{"count": 0, "questions": []}',
        Rephrasing: '{"paraphrase": "It was then that it was made."}',
        Preserved: '{"judgment": "Yes"}',
    }[shape]


class Script:
    """What a function writes, in place of an endpoint: a `Backend`.

    Args:
        writes: From the shape asked for, the prompt and the number of the draw to the reply.
        breaks_after: Break instead of replying to any further call.
    """

    url, room, connected, charged = "script", None, False, False

    def __init__(self, writes: Written = content, breaks_after: int | None = None) -> None:
        self.writes, self.breaks_after = writes, breaks_after
        self.calls: list[tuple[str, int]] = []
        self.counter = TokenCounter()

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        if self.breaks_after is not None and len(self.calls) >= self.breaks_after:
            raise Broke("killed")
        self.calls.append((json.dumps(messages), repetition))
        shape = SHAPES[extra["response_format"]["json_schema"]["name"]]
        return Completion(self.writes(shape, messages[-1]["content"], repetition), "stop", 1, 1, "m")

    async def close(self) -> None: ...

    def hopeless(self, fault: Fault) -> bool:
        return False

    async def error(self, fault: Fault) -> Broke:
        return Broke(fault.reason)


SHAPES = {shape.__name__: shape for shape in REPLIES.values()}
OWN = ("rounds", "tries", "most_questions", "documents_at_once", "prompts")


def config(**more: Any) -> SynthesisConfig:
    own = {name: more.pop(name) for name in OWN if name in more}
    return SynthesisConfig.model_validate({"llm": {"model": "m", "key_variable": None, "attempts": 1, **more}, **own})


@contextmanager
def made(folder: Path, script: Script, **more: Any) -> Iterator[Synthesis]:
    options = config(**more)
    folder.mkdir(exist_ok=True)
    model = ChatModel(options.llm, cache=folder / "replies.sqlite", backend=script)  # type: ignore[arg-type]
    with Journal(folder / "rows.states.jsonl") as states:
        yield Synthesis(options, states, model=model)


def test_every_document_gets_one_row_per_type(tmp_path: Path) -> None:
    with made(tmp_path, Script()) as synthesis:
        synthesis.run(DOCUMENTS)
        rows = list(synthesis.make_rows(DOCUMENTS))
        result = of_synthesis(synthesis, DOCUMENTS)
    assert [row.id for row in rows] == [f"{item.id}/{kind}" for item in DOCUMENTS for kind in TYPES]
    assert [item.documents for item in result.values()] == [5, 5, 5]
    # Six calls for two questions that cover a document, two for a paraphrase that is accepted.
    assert {kind: item.counts["calls"] for kind, item in result.items()} == {"simple": 30, "complex": 30, "paraphrase": 10}
    assert result["simple"].by == ["m"]


def test_written_rows_are_read_back_by_the_loader(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    with made(tmp_path, Script()) as synthesis:
        synthesis.run(DOCUMENTS)
        rows = list(synthesis.make_rows(DOCUMENTS))
    write_rows(file, rows)
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert all(list(line) == ["data_type", "question", "answers", "docs"] and len(line["docs"]) == 1 for line in lines)
    read = scp_rows("clara_stages/pretraining:train", options={"path": str(file)})
    assert [(r.kind, r.document, r.questions, r.answers) for r in read] == [(r.kind, r.document, r.questions, r.answers) for r in rows]


def test_invalid_json_is_requested_again_with_another_seed(tmp_path: Path) -> None:
    def writes(shape: type[BaseModel], text: str, repetition: int) -> str:
        return "I cannot say." if repetition % 3 == 0 else content(shape, text, repetition)

    model = Script(writes)
    with made(tmp_path, model) as synthesis:
        synthesis.run(DOCUMENTS[:1], ["simple"])
        loop = synthesis.made(DOCUMENTS[0], "simple")
    assert loop.status == "covered"
    assert loop.counts["unreadable"] == 6
    assert loop.counts["calls"] == len(model.calls) == 12
    assert Counter(repetition for _, repetition in model.calls) == {0: 5, 1: 5, 3: 1, 4: 1}


@pytest.mark.parametrize("kind", TYPES)
def test_model_that_never_writes_json_is_called_a_limited_number_of_times(tmp_path: Path, kind: Type) -> None:
    model = Script(lambda *_: "no")
    with made(tmp_path, model, rounds=4, tries=2) as synthesis:
        synthesis.run(DOCUMENTS[:2], [kind])
        result = of_synthesis(synthesis, DOCUMENTS[:2], [kind])[kind]
        assert not list(synthesis.make_rows(DOCUMENTS[:2], [kind]))
    assert len(model.calls) == 2 * 5 * 2
    assert (result.documents, result.uncovered, result.counts["calls"]) == (0, 2, 20)


@pytest.mark.parametrize("kind", TYPES)
def test_number_of_calls_never_exceeds_the_estimated_maximum(tmp_path: Path, kind: Type) -> None:
    """A worst-case model: the maximum number of new questions in every round, and a valid reply only at the last try."""

    def writes(shape: type[BaseModel], text: str, repetition: int) -> str:
        if repetition % 2 == 0:
            return "no"
        questions = [f"q {repetition} {n}" for n in range(9)]
        return {
            Questions: json.dumps({"questions": questions}),
            Supplement: json.dumps({"count": 9, "questions": questions}),
            Preserved: '{"judgment": "No"}',
        }.get(shape) or content(shape, text, repetition)

    model = Script(writes)
    with made(tmp_path, model, rounds=3, tries=2, most_questions=5) as synthesis:
        synthesis.run(DOCUMENTS[:1], [kind])
        assert synthesis.made(DOCUMENTS[0], kind).status == "uncovered"
        assert len(model.calls) == most_calls(kind, synthesis.config)


@pytest.mark.parametrize("after", [0, 1, 7, 20, 33, 49])
def test_interrupted_run_repeats_no_call(tmp_path: Path, after: int) -> None:
    whole = Script()
    with made(tmp_path / "whole", whole, documents_at_once=1) as synthesis:
        synthesis.run(DOCUMENTS)
        expected = list(synthesis.make_rows(DOCUMENTS))
    first, second = Script(breaks_after=after), Script()
    with made(tmp_path / "cut", first, documents_at_once=1) as synthesis, pytest.raises(Broke):
        synthesis.run(DOCUMENTS)
    with made(tmp_path / "cut", second, documents_at_once=1) as synthesis:
        synthesis.run(DOCUMENTS)
        assert list(synthesis.make_rows(DOCUMENTS)) == expected
    assert Counter(first.calls) + Counter(second.calls) == Counter(whole.calls)
    third = Script(breaks_after=0)
    with made(tmp_path / "cut", third) as synthesis:
        synthesis.run(DOCUMENTS)
        assert list(synthesis.make_rows(DOCUMENTS)) == expected


def test_changed_document_prompt_or_model_starts_from_scratch(tmp_path: Path) -> None:
    with made(tmp_path, Script()) as synthesis:
        synthesis.run(DOCUMENTS)
        assert outlook(synthesis, DOCUMENTS).done == 15
        assert outlook(synthesis, [Document("d0", "Other text.")]).done == 0
    with made(tmp_path, Script(), max_tokens=100) as synthesis:
        assert outlook(synthesis, DOCUMENTS).done == 0
    with made(tmp_path, Script(), base_url="http://elsewhere/v1", concurrency=2) as synthesis:
        assert outlook(synthesis, DOCUMENTS).done == 15


def test_document_with_a_permanently_failed_call_is_set_aside(tmp_path: Path) -> None:
    def writes(shape: type[BaseModel], text: str, repetition: int) -> str:
        if "Entity 3" in text and shape is Judgment:
            raise Fault("limit: run_tokens 5, and this call may need 9", "fail")
        return content(shape, text, repetition)

    with made(tmp_path, Script(writes)) as synthesis:
        synthesis.run(DOCUMENTS)
        result = of_synthesis(synthesis, DOCUMENTS)
        assert {kind: item.unfinished for kind, item in result.items()} == {"simple": 1, "complex": 1, "paraphrase": 0}
        assert synthesis.put_aside == {"limit": 2}
        assert synthesis.made(DOCUMENTS[3], "simple").status == "open"
    again = Script()
    with made(tmp_path, again) as synthesis:
        synthesis.run(DOCUMENTS)
        assert len(list(synthesis.make_rows(DOCUMENTS))) == 15
    # Only the checks that were lost, equal in both, and what follows them.
    assert len(again.calls) == 2 + 2 * 1


def test_empty_reply_is_requested_again(tmp_path: Path) -> None:
    def writes(shape: type[BaseModel], text: str, repetition: int) -> str:
        return content(shape, text, repetition) if repetition % 3 else ""

    with made(tmp_path, Script(writes)) as synthesis:
        synthesis.run(DOCUMENTS[:1], ["paraphrase"])
        assert synthesis.made(DOCUMENTS[0], "paraphrase").counts == {"calls": 4, "unreadable": 2}


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return load("worlds/multihop:train", WORLD)


@contextmanager
def taught(world: Benchmark, folder: Path, corruption: float = 0.0) -> Iterator[tuple[WorldTruth, Synthesis]]:
    truth = WorldTruth([world], corruption=corruption, config=WORLD)
    with truth.server().running() as url, Journal(folder / "rows.states.jsonl") as states:
        options = config(base_url=url, backoff_s=0.001, rounds=4, documents_at_once=4)
        yield truth, Synthesis(options, states, Services(cache=folder / "replies.sqlite"))


def passages(world: Benchmark, number: int) -> list[Document]:
    return [Document(passage.id, passage.full_text) for passage in list(world.corpus)[:number]]


@pytest.mark.slow
def test_scripted_world_llm_gives_rows_with_true_answers(world: Benchmark, tmp_path: Path) -> None:
    documents = passages(world, 10)
    with taught(world, tmp_path) as (truth, synthesis):
        synthesis.run(documents)
        rows = list(synthesis.make_rows(documents))
        result = of_synthesis(synthesis, documents)
        known = {question: answer_of(fact) for fact in truth.worlds[0].facts if not fact.relation.many for question in paraphrases(fact)}
    simple = [pair for row in rows if row.id.endswith("simple") for pair in zip(row.questions, row.answers, strict=True)]
    scores = [em(answer, [known[q][0], *known[q][1]]) for q, answer in simple if q in known]
    assert len(scores) > 15
    assert sum(scores) / len(scores) >= 0.9
    assert all(item.uncovered == item.unfinished == 0 for item in result.values())
    # It leaves a third out at first, so that the loop has to find the rest.
    assert result["simple"].rounds[2] > 0
    assert of_rows(rows)["simple"].pairs == result["simple"].pairs
    kept = {row.document: row.answers for row in rows if row.kind == "paraphrase"}
    assert len(kept) == 10


@pytest.mark.slow
def test_every_failure_is_counted_with_a_fifth_of_corrupt_replies(world: Benchmark, tmp_path: Path) -> None:
    documents = passages(world, 6)
    with taught(world, tmp_path, 0.2) as (truth, synthesis):
        synthesis.run(documents)
        result = of_synthesis(synthesis, documents)
        loops = [synthesis.made(document, kind) for document in documents for kind in TYPES]
    assert truth.corrupted.total() > 0
    assert all(loop.status != "open" for loop in loops)
    for kind, item in result.items():
        assert item.documents + item.uncovered + item.covered_without_pairs == len(documents)
        if kind == "paraphrase":
            continue
        pairs = sum(len(loop.pairs) for loop in loops if loop.kind == kind)
        names = ("unanswered", "not_contained", "unchecked", "unsupported")
        assert item.counts["questions"] == pairs + sum(item.counts[name] for name in names)
    # Spoilt replies that can be mended or unwrapped are none; every other one was met as unreadable.
    spoilt = sum(truth.corrupted[kind] for kind in ("empty", "refusal", "garbage"))
    assert sum(item.counts["unreadable"] for item in result.values()) >= spoilt > 0
    assert {name for item in result.values() for name in item.by} == {NAME}


@pytest.mark.slow
def test_second_run_with_the_scripted_world_llm_makes_no_call(world: Benchmark, tmp_path: Path) -> None:
    documents = passages(world, 3)
    with taught(world, tmp_path) as (_, synthesis):
        synthesis.run(documents)
        first = list(synthesis.make_rows(documents))
    with taught(world, tmp_path) as (truth, synthesis):
        truth.handlers.clear()
        synthesis.run(documents)
        assert list(synthesis.make_rows(documents)) == first
        assert truth.unrecognized == 0


def test_outlook_estimates_calls_and_tokens(world: Benchmark, tmp_path: Path) -> None:
    documents = passages(world, 5)
    with made(tmp_path, Script()) as synthesis:
        wanted = outlook(synthesis, documents)
        assert (wanted.documents, wanted.loops, wanted.done) == (5, 15, 0)
        assert wanted.fewest_calls == 30
        # Per document 2 + 2·7.80, 2 + 2·4.62 and 2.
        assert wanted.calls == round(5 * (17.6 + 11.24 + 2))
        assert wanted.fewest_calls < wanted.calls < wanted.most_calls
        assert wanted.prompt_tokens > wanted.calls * 100
        assert "$" not in str(wanted)  # without a price, zero dollars would be a claim
        assert "$0.0038" in str(replace(wanted, usd=0.0038))
        synthesis.run(documents)
        after = outlook(synthesis, documents)
        assert (after.done, after.calls, after.prompt_tokens) == (15, 0, 0)
