"""The question page shows each judge call with its cached request and reply; names stay text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from judges.judge import AS_GIVEN, FIRST, SECOND, SWAPPED, Judge, JudgeCall, Parsed, Score
from leaderboard.elements.nodes import TAGS
from leaderboard.views import question as question_view
from methods.models.reply_cache import Call, ResponseCache
from results.judging import judgments
from results.judging import judgments as judged
from results.judging.judgments import Match
from results.store import answer_queries, queries
from results.store.store import Store

Start = Callable[[Path], Any]
MATCH = Judge.of("match", {"llm": {"model": "m"}})
PAIRWISE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
SECRET = "sk-" + "a1" * 12
REQUESTED = Call("http://127.0.0.1:1/v1", "m", [{"role": "user", "content": f"Is <b>it</b> right? {SECRET}"}])


@pytest.fixture(scope="module")
def judged_question(copied: Callable[[], Path], synthetic: ModuleType) -> tuple[Path, str]:
    """Return a store and the question that two judges judged; the answer judge kept its conversation."""
    store = Store(copied())
    runs = {run.method: run for run in queries.runs(store, synthetic.EXPERIMENT)}
    bm25, hybrid = runs["bm25"], runs["hybrid"]
    question = answer_queries.questions(store, bm25.dataset_fingerprint)[0].question
    for judge in (MATCH, PAIRWISE):
        judgments.put_judge(store, judge)
    calls = [
        [
            JudgeCall("match", 0, REQUESTED.key, Parsed({"verdict": "Match"}), "m-1", 100, 10, 0.5, 0.001),
            JudgeCall("match", 1, "0" * 32, Parsed(None, "no verdict"), "m-1", 100, 3, 0.5, 0.001),
        ]
    ]
    score = Score(1.0)
    judgments.put_judgments(store, bm25.run, MATCH, [question], calls, [dict.fromkeys(("accuracy", "partial", "mismatch"), score)])
    item, other = sorted((bm25, hybrid), key=lambda run: run.run)
    # bm25 wins in both orders.
    shown = [(AS_GIVEN, item), (SWAPPED, other)]
    judgments.put_battles(
        store,
        Match(item.dataset_fingerprint, item.setting, item.run, other.run),
        PAIRWISE,
        [question],
        [[JudgeCall(part, 0, None, Parsed({"by": "hand"}), "rule") for part, _ in shown]],
        [[dict.fromkeys(PAIRWISE.entry.criteria, FIRST if first is bm25 else SECOND) for _, first in shown]],
    )
    ResponseCache(store.cache).put(REQUESTED, {"text": f"Match, as {SECRET} says"})
    return store.folder, question


def words(node: Any) -> str:
    return " ".join(node.texts())


def test_verdicts_equal_the_stored_calls_and_winners_do_not_depend_on_the_order(
    judged_question: tuple[Path, str], synthetic: ModuleType
) -> None:
    store = Store(judged_question[0])
    runs = {run.method: run for run in queries.runs(store, synthetic.EXPERIMENT)}
    first = runs["bm25"]
    every = judged.verdicts(store, judged_question[1], first.dataset_fingerprint, first.setting, [run.run for run in runs.values()])
    alone = [item for item in every if item.other is None]
    assert [(item.judge, item.run, item.response, item.unscored) for item in alone] == [
        (str(MATCH), first.run, {"verdict": "Match"}, None),
        (str(MATCH), first.run, {}, "no verdict"),
    ]
    battles = [item for item in every if item.other is not None]
    assert [battle.part for battle in battles] == [AS_GIVEN, SWAPPED]
    for battle in battles:
        winner = battle.run if battle.response["overall"] == "one" else battle.other
        assert winner == first.run
        assert set(battle.response) == set(PAIRWISE.entry.criteria)
    assert judged.verdicts(store, judged_question[1], first.dataset_fingerprint, first.setting, [runs["dense"].run]) == []
    only_one = judged.verdicts(store, judged_question[1], first.dataset_fingerprint, first.setting, [first.run])
    assert {item.other for item in only_one} == {None}


def test_conversation_is_read_without_changing_its_file_or_showing_secrets(judged_question: tuple[Path, str]) -> None:
    store = Store(judged_question[0])
    result = judged.conversations(store, [REQUESTED.key, "f" * 32])
    assert set(result) == {REQUESTED.key}
    ((role, text),) = result[REQUESTED.key].messages
    assert (role, text.startswith("Is <b>it</b> right?")) == ("user", True)
    assert SECRET not in text + result[REQUESTED.key].reply
    assert result[REQUESTED.key].reply.startswith("Match, as")


def test_missing_or_foreign_reply_file_counts_as_no_stored_replies(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert judged.conversations(store, ["0" * 32]) == {}
    assert not store.cache.exists()
    store.cache.parent.mkdir(parents=True, exist_ok=True)
    store.cache.write_text("no database at all" * 100)
    assert judged.conversations(store, ["0" * 32]) == {}


def test_page_shows_verdicts_and_opens_a_conversation_by_url(app: Start, judged_question: tuple[Path, str]) -> None:
    folder, question = judged_question
    page = app(folder).open("questions", question=question)
    assert not page.test.exception
    detail = page.part("detail")
    assert {node.tag for node in detail.find()} <= TAGS
    text = words(detail)
    assert "verdict: Match" in text
    assert "no model was asked" in text
    assert "overall: bm25" in text
    assert "Is <b>it</b> right?" not in text
    assert {"call": REQUESTED.key} in [node.action for node in detail.find(tag="button")]
    opened = app(folder).open("questions", question=question, call=REQUESTED.key)
    shown = words(opened.part("detail"))
    assert "Is <b>it</b> right?" in shown
    assert SECRET not in shown
    lost = app(folder).open("questions", question=question, call="0" * 32)
    assert "does not keep the conversation" in words(lost.part("detail"))
    # A URL can only open conversations of its question.
    store = Store(folder)
    other = answer_queries.questions(store, queries.runs(store)[0].dataset_fingerprint)[1].question
    foreign = app(folder).open("questions", question=other, call=REQUESTED.key)
    assert "Is <b>it</b> right?" not in words(foreign.part("detail"))


def test_conversation_of_a_reader_is_shown(judged_question: tuple[Path, str], synthetic: ModuleType) -> None:
    store = Store(judged_question[0])
    run = next(run for run in queries.runs(store, synthetic.EXPERIMENT) if run.method == "bm25")
    query = next(row for row in answer_queries.questions(store, run.dataset_fingerprint) if row.question == judged_question[1])
    (answer,) = answer_queries.answers(store, query, [run.run])
    closed, question = {"calls": "", "call": ""}, judged_question[1]
    assert question_view.prompts([answer], question_view.answered_here([answer], [run]), closed, question) is None
    reported = replace(answer, notes={"call": REQUESTED.key})
    here = question_view.answered_here([reported], [run])
    shown = question_view.prompts([reported], here, closed, question)
    assert shown is not None
    assert [node.action for node in shown.find(tag="button")] == [{"call": REQUESTED.key}]
    whole = question_view.prompts([replace(reported, calls_kept=2)], here, closed, question)
    assert whole is not None
    assert [node.action for node in whole.find(tag="button")] == [{"calls": run.run}], "all calls of the run, its reader's among them"
    assert question_view.conversations([reported], here, []) == {REQUESTED.key: "Reader of bm25"}
    # A submission's notes are its sender's text, and keys have a fixed form.
    assert question_view.answered_here([reported], [replace(run, origin="submitted")]) == {}
    assert question_view.answered_here([replace(reported, notes={"call": "../x"})], [run]) == {}


def test_very_long_message_is_truncated_with_a_note(judged_question: tuple[Path, str]) -> None:
    result = judged.Conversation((("user", "x" * (question_view.LONGEST + 1234)),), "short")
    text = words(question_view.conversation(result, "Judge j"))
    assert "1,234 more characters" in text
    assert len(text) < question_view.LONGEST + 300
