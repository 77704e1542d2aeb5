"""The pages, run by Streamlit's test harness on a synthetic store."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest

from leaderboard.elements.formats import PERCENT
from leaderboard.elements.nodes import TAGS
from leaderboard.widgets import STYLE
from results.boards.board import boards
from results.store import answer_queries, queries
from results.store.store import Store

Start = Callable[[Path], Any]
F1 = "f1(rules=hotpotqa)#v2"


def words(node: Any) -> str:
    return " ".join(node.texts())


def methods(app: Any) -> list[str]:
    body = next(app.part("board").find(tag="tbody"))
    return ["".join(node.texts()) for node in body.find(cls="method")]


def test_page_shows_the_board_of_the_newest_experiment(app: Start, filled: Path, synthetic: ModuleType) -> None:
    page = app(filled).open()
    assert not page.test.exception
    (expected,) = boards(Store(filled), synthetic.EXPERIMENT, metrics=[F1])
    table = words(page.part("board"))
    for row in expected.rows:
        result = row.cells[F1].estimate
        assert row.run.method in table
        assert f"{PERCENT.value(result.value)} {PERCENT.around(result.value, result.low, result.high)}" in re.sub("[()]", "", table)
    assert "40 questions" in words(page.part("summary"))


def test_sort_parameter_in_the_url_sorts_the_board(app: Start, filled: Path) -> None:
    up = methods(app(filled).open(sort="method", order="asc"))
    down = methods(app(filled).open(sort="method", order="desc"))
    assert [name.casefold() for name in up[:-2]] == sorted(name.casefold() for name in up[:-2])
    assert down[:-2] == up[:-2][::-1]
    assert set(up[-2:]) == {"gold answer", "oracle evidence"}


def test_choices_are_written_to_the_url_which_reproduces_the_view(app: Start, filled: Path) -> None:
    page = app(filled).open()
    assert page.query == {}
    page.choose("Compared with", "hybrid").choose("Columns", "answer")
    assert page.query["reference"] == "hybrid"
    assert page.query["metric"] == F1
    assert page.query["experiment"] == "made-up"
    again = app(filled).open(**page.query)
    assert again.part("board") == page.part("board")
    assert "differences from hybrid" in words(again.part("summary"))


def test_url_with_unknown_names_falls_back_to_defaults(app: Start, filled: Path) -> None:
    usual = app(filled).open()
    page = app(filled).open(experiment="../../etc", board="x" * 5000, metric="<script>", sort="'; DROP", order="up")
    assert not page.test.exception
    assert page.part("board") == usual.part("board")


def test_choosing_an_experiment_changes_the_board(app: Start, filled: Path) -> None:
    page = app(filled).open().choose("Experiment", "open corpus")
    assert sorted(methods(page)) == ["bm25", "dense"]
    assert "differences from dense" in words(page.part("summary"))
    assert "no reference chosen" in words(page.choose("Experiment", "*").part("summary"))


def test_untrusted_names_are_shown_as_plain_text(app: Start, filled: Path, synthetic: ModuleType) -> None:
    for page in (app(filled).open(), app(filled).open("questions")):
        assert not page.test.markdown
        assert {item.proto.body for item in page.test.get("html")} == {f"<style>{STYLE}</style>"}
        for element in page.test.get("bidi_component"):
            assert not element.proto.html_content
            assert synthetic.HOSTILE_NAME not in element.proto.js_content
    board = app(filled).open().part("board")
    assert synthetic.HOSTILE_NAME in methods(app(filled).open())
    assert {node.tag for node in board.find()} <= TAGS
    assert not list(board.find(tag="a"))


def question_of(page: Any) -> str:
    return "".join(next(page.part("detail").find(cls="question")).texts())


def test_question_view_marks_gold_passages_and_gold_sentences(app: Start, filled: Path) -> None:
    store = Store(filled)
    run = queries.runs(store, "made-up")[0]
    rows = answer_queries.questions(store, run.dataset_fingerprint)
    # A question of which the first run found both passages.
    row = next(r for r in rows if sum(e.gold for e in answer_queries.answers(store, r, [run.run])[0].evidence) == 2)
    page = app(filled).open("questions", question=row.question)
    assert question_of(page) == row.text
    evidence = next(node for node in page.part("detail").find(cls="evidence") if "bm25" in words(node))
    gold = list(evidence.find(tag="li", cls="is-gold"))
    assert len(gold) == 2
    passages = answer_queries.passages(store, row.evidence)
    marks = [mark for item in gold for mark in item.find(tag="mark")]
    sentences = {"".join(mark.texts()) for mark in marks if not mark.classes}
    assert sentences == {passage.sentences[1] for passage in passages.values()}
    answers = ["".join(mark.texts()) for mark in marks if mark.classes == "answer"]
    assert answers
    assert set(answers) <= set(row.golds)
    assert sum("has answer" in words(item) for item in gold) == len(answers)
    assert [a for a in row.answers if a in words(next(page.part("detail").find(cls="gold")))]


def test_question_view_shows_answer_and_scores_of_each_run(app: Start, filled: Path) -> None:
    store = Store(filled)
    results = queries.runs(store, "made-up")
    row = answer_queries.questions(store, results[0].dataset_fingerprint)[5]
    page = app(filled).open("questions", question=row.question)
    (body,) = page.part("detail").find(tag="tbody")
    lines = {"".join(next(line.find(cls="method")).texts()): words(line) for line in body.find(tag="tr")}
    for answer in answer_queries.answers(store, row, [run.run for run in results]):
        line = lines[answer.method]
        value = answer.scores[F1]
        assert (answer.answer or answer.failed) in line
        assert f"{100 * value:.1f}" in line
    assert "failed" in lines["closed book"]
    assert "timed out" in lines["closed book"]
    head = next(page.part("detail").find(tag="thead"))
    assert any("Overlap of tokens <b>after</b> normalization" in node.tip for node in head.find())


def test_unscorable_and_unanswered_questions_are_labeled(app: Start, filled: Path) -> None:
    detail = app(filled).open("questions", question="q0003").part("detail")
    assert "unscorable" in words(detail)
    last = app(filled).open("questions", question="q0039").part("detail")
    assert "not answered yet" in words(last)


def listed(page: Any) -> list[str]:
    return [node.action["question"] for node in page.part("list").find(tag="button")]


def test_search_and_type_filter_the_question_list(app: Start, filled: Path) -> None:
    store = Store(filled)
    rows = answer_queries.questions(store, queries.runs(store)[0].dataset_fingerprint)
    page = app(filled).open("questions", type="comparison", search="guild tolland")
    expected = [r.question for r in rows if r.type == "comparison" and "Tolland" in f"{r.text} {' '.join(r.golds)}"]
    assert expected
    assert listed(page) == expected
    assert "No question matches" in words(app(filled).open("questions", search="zzzz").part("message"))


def test_filter_only_where_they_differ_keeps_questions_with_different_scores(app: Start, filled: Path) -> None:
    store = Store(filled)
    results = [run for run in queries.runs(store, "made-up") if run.kind != "control"]
    rows = answer_queries.questions(store, results[0].dataset_fingerprint)
    expected = []
    for row in rows:
        scores = [a.scores.get(F1) for a in answer_queries.answers(store, row, [run.run for run in results])]
        if len({s for s in scores if s is not None}) > 1:
            expected.append(row.question)
    page = app(filled).open("questions", differ="1")
    assert 0 < len(expected) < len(rows)
    assert listed(page) == expected


def test_next_and_previous_stay_within_the_filter(app: Start, filled: Path) -> None:
    page = app(filled).open("questions", type="comparison")
    first, second = listed(page)[:2]
    page.test.button(key="next").click().run()
    assert page.query["question"] == second
    assert page.query["type"] == "comparison"
    page.test.button(key="previous").click().run()
    assert page.query["question"] == first
    assert page.test.button(key="previous").disabled


def test_question_outside_the_filter_is_replaced_by_the_first(app: Start, filled: Path) -> None:
    page = app(filled).open("questions", type="comparison", question="q0000")
    assert question_of(page).startswith("Which came first")


def test_pages_share_the_chosen_experiment(app: Start, filled: Path) -> None:
    page = app(filled).open().choose("Experiment", "open corpus")
    page.test.query_params.clear()
    page.switch("questions").test.run()
    assert page.query["experiment"] == "open corpus"


@pytest.mark.parametrize("name", ["", "questions"])
def test_missing_store_shows_the_next_step(app: Start, tmp_path: Path, name: str) -> None:
    page = app(tmp_path / "nowhere").open(name)
    assert not page.test.exception
    assert "ragmeter demo" in words(page.part("message"))
    assert not (tmp_path / "nowhere").exists()


def test_empty_store_message_shows_the_next_step(app: Start, tmp_path: Path) -> None:
    Store(tmp_path).put_cards([], [])
    shown = words(app(tmp_path).open().part("message"))
    assert "The store is empty" in shown
    assert "ragmeter demo" in shown


def test_runs_without_any_score_are_reported(app: Start, tmp_path: Path, synthetic: ModuleType) -> None:
    store = Store(tmp_path)
    world = synthetic.benchmark(3)
    store.put_benchmark(world, world.fingerprint)
    run = synthetic.Run("ab" * 8, "bm25", "bm25", "retriever", {}, "madeup:test", world.fingerprint, "distractor", 0, 3, {})
    store.start(run)
    assert "Nothing is scored yet" in words(app(tmp_path).open().part("message"))


def test_file_of_another_program_is_refused_and_unchanged(app: Start, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "store.duckdb")) as connection:
        connection.execute("CREATE TABLE theirs AS SELECT 42 AS answer")
    page = app(tmp_path).open()
    assert not page.test.exception
    assert "belongs to another program" in words(page.part("message"))
    assert "--store" in words(page.part("message"))
    with duckdb.connect(str(tmp_path / "store.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT answer FROM theirs").fetchall() == [(42,)]


def test_changed_store_is_read_again(app: Start, tmp_path: Path, copied: Callable[[], Path]) -> None:
    page = app(tmp_path / "s").open()
    assert page.has("message")
    copied().rename(tmp_path / "s")
    page.test.run()
    assert "40 questions" in words(page.part("summary"))
