"""A teacher's answers over loopback: parsed, requested once, resumed, counted, and trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.core.errors import Broke
from methods.api import Services
from methods.clara.config import PoolConfig
from methods.clara.data import instruction_rows
from methods.clara.rows import write_rows
from methods.clara.teacher import Question, Teacher, TeacherConfig, questions_of, rows_of, statistics_of
from methods.training.journal import Journal
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

ASKED = [Question(f"q{n}", f"Who built bridge {n}?", (f"Bridge {n} was built by Ada.", "Moss is green."), "Ada") for n in range(3)]


@contextmanager
def teaching(
    answer: Callable[[str], str | None], path: Path | None = None, finish_reason: str = "stop", **options: Any
) -> Iterator[tuple[Teacher, list[str]]]:
    """Return a teacher whose model answers prompts with texts (None: a server error), and the prompts that it got."""
    seen: list[str] = []

    def written(request: ChatRequest) -> Written:
        seen.append(request.prompt)
        text = answer(request.prompt)
        if text is None:
            raise Refused(400, "refused for a test")
        return Written(text, 100, 7, finish_reason)

    with OpenAIServer("m", written).running() as url:
        llm = {"model": "m", "base_url": url, "key_variable": None, "attempts": 1, "usd_per_million_prompt_tokens": 10.0}
        config = TeacherConfig.model_validate({"llm": {**llm, "usd_per_million_completion_tokens": 0.0}, **options})
        yield Teacher(config, Services(), Journal(path) if path is not None else None), seen


@pytest.mark.parametrize(
    ("reply", "answer", "left_out"),
    [
        ("Ada", "Ada", ""),
        ("```\nAda\n```", "Ada", ""),
        ("Sure! Here is the answer:\n\n**Answer:** Ada Rin", "Ada Rin", ""),
        ("<think>\nWho was it?\n</think>\n\nAda built it.", "Ada built it.", ""),
        ("I'm sorry, but I can't help with that.", "", "refused"),
        ("I don't know.", "", "abstained"),
    ],
)
def test_wrapping_around_replies_is_removed(reply: str, answer: str, left_out: str) -> None:
    with teaching(lambda prompt: reply) as (teacher, _):
        (made,) = teacher.answers(ASKED[:1])
    assert (made.answer, made.left_out, made.failed) == (answer, left_out, None)


def test_answers_that_end_at_the_token_limit_are_counted() -> None:
    with teaching(lambda prompt: "Ada built it when", finish_reason="length") as (teacher, _):
        taught = teacher.answers(ASKED)
    assert [item.answer for item in taught] == ["Ada built it when"] * 3
    assert (statistics_of(taught)["answered"], statistics_of(taught)["cut"]) == (3, 3)


@pytest.mark.parametrize("reply", ["", "  \n", "<think>\nWho?\n</think>\n\n", "``` \n```"])
def test_blank_answers_are_left_out_and_counted(reply: str) -> None:
    with teaching(lambda prompt: reply if "bridge 1" in prompt else "Ada") as (teacher, _):
        taught = teacher.answers(ASKED)
    assert [row.id for row in rows_of(ASKED, taught)] == ["q0", "q2"]
    counts = statistics_of(taught)
    assert (counts["answered"], counts.get("empty", 0) + counts.get("failed", 0)) == (2, 1)


def test_abstentions_are_kept_if_configured() -> None:
    with teaching(lambda prompt: "I don't know.", keep_abstentions=True) as (teacher, _):
        assert [item.answer for item in teacher.answers(ASKED[:1])] == ["I don't know"]


def test_teacher_prompt_has_all_documents_in_the_generators_format() -> None:
    with teaching(lambda prompt: "Ada") as (teacher, seen):
        estimate = teacher.estimate(ASKED)
        taught = teacher.answers(ASKED)
    assert estimate.calls == len(seen) == 3
    assert any(all(text in prompt for text in (*ASKED[0].documents, ASKED[0].text)) for prompt in seen)
    row = next(rows_of(ASKED, taught))
    assert (row.question, row.documents, row.answer, row.gold, row.id) == (ASKED[0].text, ASKED[0].documents, "Ada", "Ada", "q0")
    totals = statistics_of(taught)
    assert (totals["answered"], totals["prompt_tokens"], totals["completion_tokens"], totals["by"]) == (3, 300, 21, ["m"])
    assert totals["cost_usd"] == pytest.approx(300 * 10 / 1e6)


def test_interrupted_run_requests_only_missing_answers(tmp_path: Path) -> None:
    path = tmp_path / "states.jsonl"
    with teaching(lambda prompt: None if "bridge 1" in prompt else "Ada", path) as (teacher, seen):
        first = teacher.answers(ASKED)
        assert [item.answer for item in first] == ["Ada", "", "Ada"]
        assert statistics_of(first)["failed"] == 1
    with teaching(lambda prompt: "Bo", path) as (teacher, seen):
        assert teacher.estimate(ASKED).calls == 1
        second = teacher.answers(ASKED)
        assert [item.answer for item in second] == ["Ada", "Bo", "Ada"]
        assert len(seen) == 1
    changed = [Question("q0", ASKED[0].text, ("Other text.",), "")]
    with teaching(lambda prompt: "Cy", path) as (teacher, seen):
        assert [item.answer for item in teacher.answers(changed)] == ["Cy"]


def test_teacher_that_never_answers_stops_the_run() -> None:
    with teaching(lambda prompt: None) as (teacher, _), pytest.raises(Broke):
        teacher.answers(ASKED)


def test_rows_of_a_retriever_keep_its_order_and_can_be_trained_on(tmp_path: Path) -> None:
    benchmark = registry.load("worlds/multihop:train", {"worlds": 1, "questions": 4, "entities": 40})
    questions = questions_of(benchmark, PoolConfig(source="retriever", depth=3), Services())
    assert {len(item.documents) for item in questions} == {3}
    with teaching(lambda prompt: "Ada") as (teacher, _):
        rows = list(rows_of(questions, teacher.answers(questions)))
    write_rows(tmp_path / "rows.jsonl", rows)
    read = instruction_rows("clara_stages/instruction_tuning:train", PoolConfig(depth=3), {"path": str(tmp_path / "rows.jsonl")})
    assert [(row.question, row.documents, row.answer, row.gold) for row in read] == [
        (row.question, row.documents, row.answer, row.gold) for row in rows
    ]


def test_data_without_candidates_require_a_retriever() -> None:
    benchmark = registry.load("worlds/multihop:train", {"worlds": 1, "questions": 2, "entities": 40})
    none = replace(benchmark, questions=[replace(question, candidates=None) for question in benchmark.questions])
    with raises("no-candidates"):
        questions_of(none, PoolConfig(), Services())
