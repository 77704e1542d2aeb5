"""What cannot be between the scores of a run is found on every stored run, kept, and shown."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from judges.metric import METRICS, register
from methods.api import Services
from ragmeter import experiment
from ragmeter.runner.loop import execute
from ragmeter.runner.tasks import states, tasks_of
from ragmeter.show.board_text import show_board
from results.boards.board import boards
from results.boards.tables import render
from results.store.invariants import check_run, violations
from results.store.store import Store
from tests.support.stores import change_score, score_again

EM, F1, RECALL = "em(rules=squad)#v2", "f1(rules=squad)#v2", "recall@{}#v2"
BOTH = ("em", "f1(rules=squad)")


@pytest.fixture
def scratch() -> Iterator[None]:
    """Metrics that a test registers are gone after it."""
    list(METRICS)
    before = dict(METRICS._entries)
    yield
    METRICS._entries.clear()
    METRICS._entries.update(before)


def shown(store: Store) -> str:
    console = Console(width=220, record=True, file=io.StringIO())
    for board in boards(store, "toy"):
        show_board(board, console)
    return console.export_text()


@pytest.mark.slow
def test_scores_that_can_be_are_no_violation(store: Store, fill: Any) -> None:
    runs = fill(store, {"bm25": ["ann", "x y", ""], "none": [None, None, None]}, ["ann", "x", "the"], metrics=BOTH)
    for run in runs.values():
        assert check_run(store, run.run) == []
    assert violations(store, [run.run for run in runs.values()]) == {}
    assert "cannot be right" not in shown(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({F1: np.array([0.5, 0.0])}, f"{EM} is greater than {F1}"),
        ({EM: np.array([1.0, -0.1])}, f"{EM} is below its lowest value 0"),
        ({EM: np.array([1.5, 0.0]), F1: np.array([2.0, 0.0])}, f"{EM} is above its highest value 1"),
        ({F1: np.array([np.inf, 0.0])}, f"{F1} is infinite"),
        ({EM: np.array([1.0, np.nan])}, f"{EM} and {F1} differ in what is unscorable"),
        (
            {RECALL.format(5): np.array([0.5, 1.0]), RECALL.format(1): np.array([1.0, 0.0])},
            f"{RECALL.format(1)} is greater than {RECALL.format(5)}",
        ),
    ],
)
def test_what_cannot_be_is_found_kept_and_shown(store: Store, fill: Any, wrong: dict[str, Any], what: str) -> None:
    run = fill(store, {"bm25": ["ann", "y"]}, ["ann", "bob"], metrics=BOTH)["bm25"]
    assert check_run(store, run.run) == []
    score_again(store, run.run, ["q0", "q1"], wrong)
    results = check_run(store, run.run)
    assert any(line.startswith(what) for line in results), results
    assert violations(store, [run.run, "other"]) == {run.run: results}
    (board,) = boards(store, "toy")
    assert board.rows[0].violations == tuple(results)
    assert board.to_json()["rows"][0]["violations"] == results
    assert f"bm25: these scores cannot be right: {what}" in shown(store)
    assert "these scores cannot be right" in render([board], "markdown")


def test_what_was_mended_is_not_shown_any_more(store: Store, fill: Any) -> None:
    run = fill(store, {"bm25": ["ann", "y"]}, ["ann", "bob"], metrics=BOTH)["bm25"]
    change_score(store, run.run, F1, 0.5)
    assert check_run(store, run.run)
    change_score(store, run.run, F1, 1.0)
    assert check_run(store, run.run) == []
    assert violations(store, [run.run]) == {}


def test_a_reported_mean_must_be_the_mean_of_its_questions(store: Store, fill: Any) -> None:
    run = fill(store, {"bm25": ["ann", "y"]}, ["ann", "bob"], metrics=BOTH)["bm25"]
    with store.database.writing() as connection:
        connection.execute("UPDATE summaries SET mean = mean + 0.01 WHERE metric = ?", [EM])
    assert check_run(store, run.run) == [f"the reported mean of {EM} is not the mean of its questions"]
    with store.database.writing() as connection:
        connection.execute("DELETE FROM scores WHERE metric = ? AND question = 'q0'", [EM])
    assert f"the reported mean of {EM} is not the mean of its questions" in check_run(store, run.run)


@pytest.mark.slow
def test_a_metric_that_lacks_rows_is_not_held_against_others(store: Store, fill: Any) -> None:
    run = fill(store, {"bm25": ["ann", "y"]}, ["ann", "bob"], metrics=("em",))["bm25"]
    store.put_scores(run.run, ["q0"], {F1: np.array([1.0])})
    assert check_run(store, run.run) == []
    change_score(store, run.run, F1, 1.5)
    assert [line.split(" for ")[0] for line in check_run(store, run.run)] == [f"{F1} is above its highest value 1"]


def test_judges_and_metrics_of_another_version_are_left_alone(store: Store, fill: Any) -> None:
    run = fill(store, {"bm25": ["ann", "y"]}, ["ann", "bob"], metrics=BOTH)["bm25"]
    store.put_scores(run.run, ["q0", "q1"], {"em#v99": np.array([7.0, 7.0]), "accuracy(model=m,as=1)#v1": np.ones(2)})
    assert check_run(store, run.run) == []


@pytest.mark.slow
def test_every_run_is_checked_at_its_end(store: Store, scratch: None) -> None:
    @register("over_the_top", source="a test", group="answer", needs=("answer",), identity="version")
    def share(batch):  # type: ignore[no-untyped-def]
        """Says that it is a share, and gives every answer two."""
        return np.full(len(batch), 2.0)

    class Silent:
        def begin(self, *_: object) -> None: ...
        def stage(self, *_: object) -> None: ...
        def advance(self, *_: object) -> None: ...
        def end(self, *_: object) -> None: ...

    text = "name: toy\nbenchmarks: [{id: worlds/multihop, split: test, limit: 3}]\nmethods: [{id: bm25}]\nmetrics: [em, over_the_top]\n"
    tasks = tasks_of(experiment.parse(text, "x.yaml"))
    store.put_experiment("toy", text, None, None, None, [task.run.run for task in tasks])
    execute(states(tasks, store), store, Services(), Silent())
    (result,) = violations(store, [task.run.run for task in tasks]).values()
    assert result == ["over_the_top#v1 is above its highest value 1 for 3 questions, first in row 0"]
    assert "these scores cannot be right: over_the_top#v1 is above" in shown(store)
