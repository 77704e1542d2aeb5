from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Question, passage_id
from methods.api import Evidence, Prediction, Usage
from results.boards.board import boards
from results.statistics.intervals import difference
from results.store import answer_queries, queries, score_queries
from results.store.store import FINISHED, Run, Store
from tests.support.errors import raises
from tests.support.toy import CARD

Fill = Callable[[Store, list[str | None]], Benchmark]
SCORES = {
    "bm25": [0.0, 1.0, 0.0, np.nan],
    "dense": [1.0, 1.0, 0.0, np.nan],
    "other": [1.0, 1.0, 1.0, np.nan],
    "gold": [1.0, 1.0, 1.0, np.nan],
}


def build(store: Store, documents: list[str | None], **last: Any) -> Benchmark:
    passage = Passage(passage_id("T", "text"), "T", "text")
    questions = [
        Question(f"q{n}", f"what {n}?", ("a",), evidence=() if n else (passage.id,), document_id=document)
        for n, document in enumerate(documents)
    ]
    questions[-1] = replace(questions[-1], **last)
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of([passage]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    for name, values in SCORES.items():
        kind = "control" if name == "gold" else "retriever"
        run = Run(f"run-{name}", name, name, kind, {}, "toy:dev", benchmark.fingerprint, "distractor", 0, 4, {})
        store.start(run)
        responses = [Prediction(q.id, "x", (Evidence(passage.id, 1.0),), Usage(10, 2, seconds={"read": 0.5})) for q in questions]
        store.append(run.run, responses, {"em#v2": np.array(values)}, [passage])
        store.end(run.run, FINISHED)
    store.put_experiment("toy", "name: toy", None, None, "bm25", [f"run-{name}" for name in SCORES])
    return benchmark


@pytest.fixture
def fill(once: Callable[..., Benchmark]) -> Fill:
    return lambda store, documents: once(store, documents, by=build)


def rows(store: Store) -> dict[str, Any]:
    (board,) = boards(store, "toy")
    return {row.run.method: row for row in board.rows}


@pytest.mark.slow
def test_a_cell_is_the_mean_over_scorable_questions(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    for name, row in rows(store).items():
        cell = row.cells["em#v2"]
        assert cell.estimate.value == pytest.approx(np.nanmean(SCORES[name]))
        assert (cell.estimate.n, cell.estimate.unscorable) == (3, 1)
        assert cell.over_all == pytest.approx(np.nan_to_num(SCORES[name]).mean())  # as SQuAD's script counts
        assert row.cost is not None
        assert (row.cost.seconds, row.cost.prompt_tokens) == (0.5, 10)


@pytest.mark.parametrize("last", [{"answerable": False, "answers": ()}, {"answers": ()}])
def test_questions_without_an_answer_do_not_count_as_zero_in_an_official_script(store: Store, last: dict[str, Any]) -> None:
    build(store, [None] * 4, **last)
    assert [row.cells["em#v2"].over_all for row in rows(store).values()] == [None] * 4


@pytest.mark.slow
def test_methods_are_compared_with_the_reference_and_controls_are_not(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    result = rows(store)
    assert result["bm25"].cells["em#v2"].difference is None
    assert result["gold"].cells["em#v2"].difference is None
    assert result["gold"].control
    one, expected = result["dense"].cells["em#v2"].difference, difference(SCORES["dense"], SCORES["bm25"])
    assert (one.value, one.wins, one.clusters) == (expected.value, expected.wins, 3)
    # Three questions decide nothing, and the interval says so.
    assert one.p == 1.0
    assert one.low <= expected.low < expected.high <= one.high
    assert result["dense"].cells["em#v2"].p_holm == 1.0


@pytest.mark.slow
def test_questions_of_a_document_are_resampled_together(store: Store, fill: Fill) -> None:
    fill(store, ["a", "a", "b", "b"])
    (board,) = boards(store, "toy")
    assert board.sampled.in_words(board.questions) == "4 questions in 2 documents"
    assert (board.to_json()["cluster"], board.to_json()["clusters"]) == ("document", 2)


def test_the_board_is_json_without_nan(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    (board,) = boards(store, "toy")
    again = json.loads(json.dumps(board.to_json(), allow_nan=False))
    assert [row["method"] for row in again["rows"]] == list(SCORES)
    assert again["rows"][1]["metrics"]["em#v2"]["difference"]["wins"] == 1


def test_runs_with_another_setting_are_on_another_board(store: Store, fill: Fill) -> None:
    benchmark = fill(store, [None] * 4)
    other = Run("run-x", "x", "x", "retriever", {}, "toy:dev", benchmark.fingerprint, "closed_book", 0, 4, {})
    store.start(other)
    store.put_experiment("toy", "name: toy", None, None, "bm25", ["run-bm25", "run-x"])
    results = boards(store, "toy")
    assert [(board.setting, [row.run.method for row in board.rows]) for board in results] == [
        ("distractor", ["bm25"]),
        ("closed_book", ["x"]),
    ]
    assert results[1].reference is None


def test_a_run_is_found_by_prefix_by_path_and_by_part_of_its_path(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    for text in ("run-de", "toy/dense/toy:dev/distractor/0", "dense/toy:dev/distractor/0", "dense"):
        assert queries.find_run(store, text).run == "run-dense"


def test_an_ambiguous_or_unknown_run_lists_what_exists(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    with raises("ambiguous-run-path"):
        queries.find_run(store, "toy:dev")
    with raises("unknown-run"):
        queries.find_run(store, "nothing-like-it")


def test_a_questions_page_marks_gold_evidence(store: Store, fill: Fill) -> None:
    benchmark = fill(store, [None] * 4)
    question = answer_queries.questions(store, benchmark.fingerprint)[0]
    (response,) = answer_queries.answers(store, question, ["run-dense"])
    assert [(item.rank, item.gold, item.title) for item in response.evidence] == [(1, True, "T")]
    assert response.scores == {"em#v2": 1.0}


def test_questions_that_were_not_scored_on_a_metric_are_not_unscorable(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    store.put_scores("run-bm25", ["q0", "q1"], {"recall@5#v2": np.array([0.5, np.nan])})
    (board,) = boards(store, "toy", metrics=["recall@5"])
    cell = next(row for row in board.rows if row.run.method == "bm25").cells["recall@5#v2"]
    assert (cell.estimate.n, cell.estimate.unscorable) == (1, 1)
    assert cell.over_all is None  # trec_eval leaves such a query out too
    assert all("recall@5#v2" not in row.cells for row in board.rows if row.run.method != "bm25")


def test_the_table_says_how_many_answers_a_metric_was_scored_on(store: Store, fill: Fill) -> None:
    from rich.console import Console

    from ragmeter.show.board_text import show_board

    fill(store, [None] * 4)
    store.put_scores("run-bm25", ["q0", "q1"], {"recall@5#v2": np.array([0.5, 1.0])})
    console = Console(width=200, record=True, file=io.StringIO())
    for board in boards(store, "toy"):
        show_board(board, console)
    shown = console.export_text()
    assert "only 2 of 4 answered questions are scored on recall@5#v2" in shown
    assert "on em#v2" not in shown


def test_an_experiment_shows_its_own_metrics_of_a_shared_run(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    store.put_scores("run-bm25", ["q0", "q1", "q2", "q3"], {"recall@5#v2": np.ones(4)})
    members = [f"run-{name}" for name in SCORES]
    store.put_experiment("toy", "name: toy", None, None, "bm25", members, metrics=[["em#v2"]] * len(members))
    assert boards(store, "toy")[0].metrics == ("em#v2",)
    assert boards(store)[0].metrics == ("em#v2", "recall@5#v2")


def test_metric_names_mean_what_is_stored(store: Store, fill: Fill) -> None:
    fill(store, [None] * 4)
    store.put_scores("run-bm25", ["q0"], {"f1(rules=hotpotqa)#v2": np.ones(1), "f1(rules=squad)#v2": np.ones(1)})

    def meant(*names: str) -> list[str]:
        return score_queries.named_metrics(store, ["run-bm25"], names)

    assert meant("f1") == ["f1(rules=hotpotqa)#v2", "f1(rules=squad)#v2"]
    assert meant("f1(rules=squad)") == meant("f1(rules=squad)#v2") == ["f1(rules=squad)#v2"]
    with raises("not-scored"):
        meant("recal")
