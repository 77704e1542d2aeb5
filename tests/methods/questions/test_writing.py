"""Questions by a model behind a real endpoint: the filters, and a second run without calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage, passage_id
from methods.api import Services
from methods.questions.material import Material
from methods.questions.writing import ABSENT, KEPT, Writer, WritingConfig, Written, same_answer
from methods.training.journal import Journal
from tests.support.server import ChatRequest, OpenAIServer
from tests.support.server import Written as Reply

FEES = "A membership costs 24 euros per month. Students pay only 12 euros per month."
HOURS = "The treasurer of the harbor makers opens the studio at ten. On Mondays it is closed."


def passage(text: str, document: str) -> Passage:
    return Passage(passage_id("", text, document), "", text, (), document)


ONE = (passage(FEES, "fees.md"),)
TWO = (*ONE, passage(HOURS, "hours.md"))
GOOD = {"question": "What is paid per month?", "answer": "24 euros", "quotes": ["A membership costs 24 euros"]}
BOTH = {"question": "When does who takes 24 euros open?", "answer": "at ten", "quotes": ["24 euros", "opens the studio at ten"]}


def write(
    tmp_path: Path, item: Material, draft: Any, answer: Callable[[str, str], str], calls: list[str] | None = None, **options: Any
) -> Written:
    """Return the result of a draft; `answer` answers a question from the passages in its prompt."""

    def reply(request: ChatRequest) -> Reply:
        system = request.messages[0]["content"]
        if calls is not None:
            calls.append(system)
        if system.startswith("You write"):
            return Reply(json.dumps(draft) if isinstance(draft, dict) else draft)
        return Reply(json.dumps({"answer": answer(request.prompt.partition("<question>")[0], request.prompt)}))

    with OpenAIServer("m", reply).running() as url, Journal(tmp_path / "q.states.jsonl") as journal:
        llm = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.001, "attempts": 2}
        writer = Writer(WritingConfig.model_validate({"llm": llm, **options}), Services())
        (written,) = writer.write([item], journal)
    return written


def from_text(answer: str) -> Callable[[str, str], str]:
    """Answer if the passages contain the answer."""
    return lambda passages, _: f"It is {answer}." if answer in passages else ABSENT


@pytest.mark.parametrize(
    ("kind", "draft", "answer", "status"),
    [
        ("single", GOOD, from_text("24 euros"), KEPT),
        ("single", {**GOOD, "quotes": ["A membership is expensive"]}, from_text("24 euros"), "quotes"),
        ("single", {**GOOD, "quotes": []}, from_text("24 euros"), "quotes"),
        ("single", GOOD, lambda *_: ABSENT, "unanswered"),
        ("single", GOOD, lambda *_: "24 euros", "known"),
        ("single", {"question": " ", "answer": "", "quotes": []}, from_text("x"), "unwritten"),
        ("single", "no JSON", from_text("x"), "unreadable"),
        ("multi", BOTH, lambda passages, _: "at ten" if "24 euros" in passages and "ten" in passages else ABSENT, KEPT),
        ("multi", BOTH, from_text("at ten"), "one_suffices"),
        ("multi", {**BOTH, "quotes": ["24 euros"]}, from_text("at ten"), "quotes"),
        ("unanswerable", {"question": "Who founded it?", "answer": "", "quotes": []}, lambda *_: ABSENT, KEPT),
        ("single", {**GOOD, "answer": 24, "quotes": "A membership costs 24 euros"}, from_text("24"), KEPT),
        ("single", {**GOOD, "answer": "no", "quotes": ["A membership costs 24 euros"]}, lambda *_: "I do not know", "unanswered"),
        ("single", {**GOOD, "answer": "2"}, lambda *_: "24 euros", "unanswered"),
        ("single", {"question": None, "answer": None, "quotes": None}, from_text("x"), "unwritten"),
        (
            "unanswerable",
            {"question": "Who founded it?", "answer": "", "quotes": []},
            lambda *_: "The answer is not in the passages.",
            KEPT,
        ),
        ("unanswerable", {"question": "Who founded it?", "answer": "", "quotes": []}, lambda *_: None, KEPT),
        ("unanswerable", {"question": "What is paid?", "answer": "", "quotes": []}, from_text("24 euros"), "answered"),
    ],
)
def test_each_filter_removes_its_kind_of_question(
    kind: str, draft: Any, answer: Callable[[str, str], str], status: str, tmp_path: Path
) -> None:
    written = write(tmp_path, Material(kind, TWO if kind == "multi" else ONE), draft, answer, tries=1)
    assert written.status == status
    assert written.calls[0]["step"] == kind
    assert written.by == ("" if status == "unreadable" else "m")


def test_answers_are_compared_by_words_or_in_scripts_without_spaces_by_characters() -> None:
    assert same_answer("It is 1914.", "1914")
    assert not same_answer("It was in 1914", "1")
    assert same_answer("答えは東京です", "東京")


def test_second_run_makes_no_call_unless_prompts_change(tmp_path: Path) -> None:
    calls: list[str] = []
    first = write(tmp_path, Material("single", ONE), GOOD, from_text("24 euros"), calls)
    assert len(calls) == 3
    assert write(tmp_path, Material("single", ONE), {}, from_text("x"), calls) == first
    assert len(calls) == 3
    own = tmp_path / "prompts"
    own.mkdir()
    (own / "guess.txt").write_text("Guess: $question $absent")
    write(tmp_path, Material("single", ONE), GOOD, from_text("24 euros"), calls, prompts=str(own))
    assert len(calls) > 3


def test_failed_calls_are_repeated_by_the_next_run(tmp_path: Path) -> None:
    with Journal(tmp_path / "q.states.jsonl") as journal:
        llm = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "key_variable": None, "backoff_s": 0.001, "attempts": 1}
        writer = Writer(WritingConfig.model_validate({"llm": llm}), Services())
        with pytest.raises(UserError):
            writer.write([Material("single", ONE)], journal)
    assert write(tmp_path, Material("single", ONE), GOOD, from_text("24 euros")).status == KEPT
