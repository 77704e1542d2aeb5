"""Readers for SARK's labels: a chat model or a reader, its input, and its prompt templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.schema import Passage, Query, Question, passage_id
from judges.judge import Judge as JudgeRef
from judges.llm.match import MatchVerdicts
from methods.api import FAILED, Answer, Context, Services
from methods.flow import each, run
from methods.sark.answers import AnswerRequest, ReaderAnswerer, answerer_of
from methods.sark.config import LabelsConfig
from methods.sark.labels import Labeler, Request
from methods.sark.prompts import ANSWER, ORDER
from methods.training.verdicts import EM, JUDGE, Verifier
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Written

MATCH, MISMATCH = "Match", "Mismatch"
HELPS, IDLE = (Passage(passage_id("", text), "", text) for text in ("Ann did it.", "It rained."))


def question(identifier: str = "q", *answers: str, **more: object) -> Question:
    return Question(identifier, f"Who is {identifier}?", answers or ("Ann",), **more)  # type: ignore[arg-type]


class Server:
    """Chat model that answers by a function of the conversation and records conversations."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self._answer = answer
        self.conversations: list[tuple[dict[str, str], ...]] = []

    def __call__(self, request: ChatRequest) -> Written:
        self.conversations.append(request.messages)
        return Written(self._answer(request.prompt))

    @contextmanager
    def running(self) -> Iterator[dict[str, object]]:
        with OpenAIServer("scripted", self, any_model=True).running() as url:
            yield {"model": "qwen", "base_url": url, "key_variable": None, "attempts": 1}


def test_model_gets_question_and_passage_without_gold_and_repeats_no_call(tmp_path: Path) -> None:
    server = Server(lambda prompt: "<think>Hm.</think>\nAnswer: Ann" if "did it" in prompt else "no idea")
    with server.running() as chat:

        def work(name: str) -> Labeler:
            config = LabelsConfig.model_validate({"by": "llm", "llm": chat})
            answerer = answerer_of(config, Services(cache=tmp_path / "replies.sqlite"), 0)
            return Labeler(answerer, Verifier(None), config, 0, tmp_path / f"{name}.jsonl")

        first = work("first")
        query = Request(question("q", "Zoe"), (Passage("p1", "Deeds", "Bea\ndid it."), IDLE))
        (tried,) = first.tried([query])
        assert [item.answer for item in (tried.direct, *tried.attempts)] == ["no idea", "Ann", "no idea"]
        assert len(server.conversations) == 3
        shown = [conversation[-1]["content"] for conversation in server.conversations]
        assert sorted("Context" in item for item in shown) == [False, True, True]
        assert any('<Context> "Deeds" Bea did it.\n' in item for item in shown)
        assert all("<Question> Who is q?" in item and "Zoe" not in item for item in shown)
        assert all(conversation[0]["role"] == "system" for conversation in server.conversations)
        # The file of answers is another, the cache of replies is the same.
        assert work("second").tried([query]) == [tried]
        assert len(server.conversations) == 3


@pytest.mark.parametrize("reply", ["Mismatch.", "**Mismatch**", "mismatch", "Verdict: Mismatch"])
def test_judgment_mismatch_with_a_period_is_not_parsed_as_match(reply: str, tmp_path: Path) -> None:
    server = Server(lambda prompt: reply)
    with server.running() as chat:
        judge = JudgeRef.of("match", {"llm": chat}).build(Services(cache=tmp_path / "replies.sqlite"))
        verifier = Verifier(MatchVerdicts(judge))
        results = [run(verifier.verdict(question(), answer)) for answer in ("Ann", "Bob")]
        assert [(item.verdict, item.by) for item in results] == [(MATCH, EM), (MISMATCH, JUDGE)]
        assert len(server.conversations) == 1


class Reader:
    """Reader that answers with the passages' texts; without passages it fails for questions that contain "fail"."""

    batch_size = 2

    def __init__(self) -> None:
        self.batches: list[int] = []

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        self.batches.append(len(queries))
        return [
            Answer("", notes={FAILED: "too long"})
            if "fail" in query.text
            else Answer(" ".join(passage.text for passage in context.passages))
            for query, context in zip(queries, contexts, strict=True)
        ]


def test_scripted_reader_knows_a_share_of_answers_and_reads_the_rest() -> None:
    reader = Reader()
    half = ReaderAnswerer(reader, "r", known=0.5)
    item = [replace(question(f"q{n}"), evidence=(HELPS.id,)) for n in range(200)]
    queries = [AnswerRequest(each, None, (HELPS,)) for each in item]
    answers = each(half, "answers", queries)
    knows = [half.knows(item.question) for item in queries]
    assert [answer == HELPS.text for answer in answers] == knows
    assert 70 <= sum(knows) <= 130
    assert set(answers) == {HELPS.text, ""}
    assert max(reader.batches) == 2
    assert each(half, "answers", [AnswerRequest(question("q0"), IDLE, (HELPS,))]) == [IDLE.text]
    assert set(each(ReaderAnswerer(reader, "r"), "answers", queries)) == {""}
    whole = ReaderAnswerer(reader, "r", known=1.0)
    assert set(each(whole, "answers", queries)) == {HELPS.text}
    # What takes two passages nobody knows: its labels would all be 0.
    assert not whole.knows(replace(item[0], evidence=(HELPS.id, IDLE.id)))
    assert not whole.knows(question("q0"))
    assert half.fingerprint != ReaderAnswerer(reader, "r").fingerprint


def test_unreadable_question_has_no_answer() -> None:
    assert each(ReaderAnswerer(Reader(), "r"), "answers", [AnswerRequest(question("fail"), IDLE)]) == [None]


@pytest.mark.parametrize(
    ("name", "text", "response"),
    [
        ("answer", "one part", "template-missing-placeholder"),
        ("answer", "sys\n---\n$question", "template-missing-placeholder"),
        ("answer", "sys\n---\n$question $context $gold", "template-unknown-placeholder"),
        ("answer", "cost: $ 5\n---\n$question $context", "template-lone-dollar"),
        ("order", "user\n$question $answer\n---\nuser each\n$number", "template-missing-placeholder"),
    ],
)
def test_template_that_cannot_be_filled_is_refused(name: str, text: str, response: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(text, "utf-8")
    with raises(response):
        {"answer": ANSWER, "order": ORDER}[name].load(path)


def test_missing_template_is_named(tmp_path: Path) -> None:
    with raises("unreadable-template"):
        ORDER.load(tmp_path / "none.txt")


def test_placeholders_in_prompt_values_are_not_expanded() -> None:
    from methods.sark.prompts import asking

    messages = asking(ANSWER.load(), "Who has $context?", "Costs $5 and $question.")
    assert "<Question> Who has $context?\n<Context> Costs $5 and $question.\n<Answer>" in messages[-1]["content"]
