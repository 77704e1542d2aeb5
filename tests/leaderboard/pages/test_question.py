"""The question page for datasets without sentences or evidence: answers are marked in the texts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from methods.api import Call
from results.store import answer_queries, queries, score_queries
from results.store.answer_queries import QuestionRow
from results.store.store import Store
from tests.support.stores import answer_again

Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return "".join(node.texts())


def answers(node: Any) -> set[str]:
    return {words(mark) for mark in node.find(tag="mark", cls="answer")}


@pytest.fixture
def unsplit(tmp_path: Path, filled: Path) -> Path:
    """Return a store whose passages have no sentences and belong to long documents; one test at a time writes to it."""
    folder = Path(shutil.copytree(filled, tmp_path / "store"))
    with Store(folder).database.writing() as connection:
        connection.execute("UPDATE passages SET sentences = [], text = repeat('Mills and markets. ', 400) || text")
    return folder


def question_with_gold(folder: Path, *, gold: int) -> QuestionRow:
    """Return a question for which the first run found the given number of gold passages."""
    store = Store(folder)
    run = queries.runs(store, "made-up")[0]
    for row in answer_queries.questions(store, run.dataset_fingerprint):
        (response,) = answer_queries.answers(store, row, [run.run])
        if sum(item.gold for item in response.evidence) == gold and len(row.golds[0]) > 3:
            return row
    raise AssertionError("no such question")


def test_answers_are_marked_in_passages_without_sentences(app: Start, unsplit: Path) -> None:
    row = question_with_gold(unsplit, gold=2)
    page = app(unsplit).open("questions", question=row.question)
    assert not page.test.exception
    detail = page.part("detail")
    evidence = next(node for node in detail.find(cls="evidence") if "bm25" in words(node))
    assert answers(evidence)
    assert answers(evidence) <= set(row.golds)
    assert "; an answer in" in words(next(evidence.find(tag="summary")))
    (holder,) = (item for item in evidence.find(tag="li", cls="is-gold") if answers(item))
    seen = next(node for node in holder.find(tag="div", cls="text"))
    shown = next(child for child in seen.children if child.tag == "p")
    assert answers(shown), "the text is cut, and the answer is on this side of the cut"
    assert "characters before" in words(holder)
    assert "gold answer" in words(detail), "the key"


def test_model_calls_are_listed_for_the_chosen_run(app: Start, tmp_path: Path, filled: Path) -> None:
    folder = Path(shutil.copytree(filled, tmp_path / "store"))
    store = Store(folder)
    run = next(row for row in queries.runs(store, "made-up") if row.method == "hybrid + chat reader")
    row = answer_queries.questions(store, run.dataset_fingerprint)[0]
    (response,) = [item for item in store.predictions(run.run) if item.question_id == row.question]
    made = (Call("hyde", "", "user: <b>who</b>?", "**He**", 12, 3, 0.5, cached=True), Call("reader", "", "user: so?", "cut", failed=True))
    answer_again(store, run.run, [replace(response, calls=made)])
    detail = app(folder).open("questions", question=row.question).part("detail")
    (button,) = (node for node in detail.find(tag="button") if node.action and "calls" in node.action)
    assert words(button) == "read 2"
    assert "**He**" not in words(detail)
    detail = app(folder).open("questions", question=row.question, **button.action).part("detail")
    (section,) = (node for node in detail.find(tag="section") if node.attributes.get("label") == f"Calls of {run.method}")
    assert [words(node) for node in section.find(tag="dd")] == ["user: <b>who</b>?", "**He**", "user: so?", "cut"]
    summaries = [words(node) for node in section.find(tag="summary")]
    assert summaries == ["1. hyde12 + 3 tokens, 500 mscached", "2. reader0 + 0 tokens, 0.0 msfailed"]


def test_first_passage_with_an_answer_is_open_without_gold_passages(app: Start, unsplit: Path) -> None:
    row = question_with_gold(unsplit, gold=2)
    with Store(unsplit).database.writing() as connection:
        connection.execute("UPDATE questions SET evidence = [], supporting_facts = []")
    detail = app(unsplit).open("questions", question=row.question).part("detail")
    evidence = next(node for node in detail.find(cls="evidence") if "bm25" in words(node))
    items = list(evidence.find(tag="li", cls="passage"))
    opened = [item for item in items if next(item.find(tag="details")).attributes.get("open")]
    assert opened == [item for item in items if answers(item)][:1]
    assert opened
    assert not [mark for mark in detail.find(tag="mark") if not mark.classes], "no gold sentence, and none in the key"


def test_answer_yes_is_not_marked_in_passages(app: Start, unsplit: Path) -> None:
    row = question_with_gold(unsplit, gold=2)
    with Store(unsplit).database.writing() as connection:
        connection.execute("UPDATE questions SET answers = ['yes'], golds = ['yes']")
        connection.execute("UPDATE passages SET text = 'Yes, yes. ' || text")
    detail = app(unsplit).open("questions", question=row.question).part("detail")
    assert not answers(detail)
    assert "an answer in" not in words(detail)
    assert "has answer" not in words(detail)


def test_question_page_shows_only_the_chosen_pair_and_its_failures(app: Start, filled: Path) -> None:
    store = Store(filled)
    first, second, *_ = [run for run in queries.runs(store, "made-up") if run.kind != "control"]
    page = app(filled).open("questions", runs=f"{first.run},{second.run}", failures="1", metric="f1(rules=hotpotqa)#v2")
    table = next(page.part("detail").find(tag="tbody"))
    assert {words(node) for node in table.find(cls="method")} == {first.method, second.method}
    listed = {str(node.action["question"]) for node in page.part("list").find(tag="button", cls="pick")}
    columns = score_queries.score_columns(store, first.dataset_fingerprint, [first.run, second.run], ["f1(rules=hotpotqa)#v2"])
    worst = [values == 0 for values in columns.values.values()]
    failing = {name for name, *failed in zip(columns.questions, *worst, strict=True) if any(failed)}
    assert listed == failing
    assert page.query["runs"] == f"{first.run},{second.run}"


def test_only_the_first_methods_have_squares_and_the_list_notes_it(app: Start, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def squares(page: Any) -> set[int]:
        return {
            len(list(pick.find(cls="dot")))
            for pick in page.part("list").find(tag="button", cls="pick")
            if "turn" not in pick.classes.split()
        }

    whole = app(filled).open("questions")
    (methods,) = squares(whole)
    assert methods > 2
    assert "methods, " not in words(whole.part("place"))
    monkeypatch.setattr("leaderboard.pages.question.MOST_SQUARES", 2)
    few = app(filled).open("questions")
    assert squares(few) == {2}
    assert f"of the first 2 of {methods} methods, " in words(few.part("place"))
