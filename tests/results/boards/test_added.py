"""Columns that people add to an experiment's table stay until they are removed on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judges.metric import parse
from results.boards.added import add_columns, added_columns, remove_columns
from results.boards.board import boards
from results.formats import exchange, pruning
from results.store import queries
from results.store.store import Run, Store
from tests.support.errors import raises

EM, F1, ROUGE = (str(parse(name)) for name in ("em", "f1(rules=hotpotqa)", "rouge(type=rougeL)"))


@pytest.fixture
def runs(store: Store, fill: Any) -> dict[str, Any]:
    results: dict[str, Any] = fill(store, {"bm25": ["a", "b"], "dense": ["a", "c"]}, ["a", "b"])
    return results


def again(store: Store, runs: list[str], own: list[str], name: str = "toy") -> None:
    """The experiment's file is run again."""
    store.put_experiment(name, "name: toy", None, None, None, runs, metrics=[own] * len(runs))


def shown(store: Store, experiment: str = "toy") -> list[tuple[str, ...]]:
    return [board.metrics for board in boards(store, experiment)]


@pytest.mark.slow
def test_a_column_that_was_added_outlives_the_next_run_of_the_file(store: Store, runs: dict[str, Any]) -> None:
    ids = [run.run for run in runs.values()]
    add_columns(store, ids[0], [F1])
    assert shown(store) == [(EM, F1)]
    again(store, ids, [EM])
    assert shown(store) == [(EM, F1)]


def test_a_column_stays_where_other_runs_take_the_place_of_those_it_was_added_to(store: Store, runs: dict[str, Any]) -> None:
    old = runs["bm25"]
    add_columns(store, old.run, [F1])
    new = Run("beef", "bm25", "bm25", "retriever", {}, old.dataset, "other", old.setting, 0, 2, {})
    elsewhere = Run("f00d", "bm25", "bm25", "retriever", {}, "else:dev", "third", old.setting, 0, 2, {})
    for run in (new, elsewhere):
        store.start(run)
    again(store, ["beef", "f00d"], [EM])
    assert shown(store) == [(EM, F1), (EM,)]


def test_columns_come_after_the_files_own_in_the_order_of_their_addition(store: Store, runs: dict[str, Any]) -> None:
    run = runs["bm25"].run
    for metric in (ROUGE, F1, ROUGE, EM):
        add_columns(store, run, [metric])
    assert shown(store) == [(EM, ROUGE, F1)]
    assert [column.metric for column in added_columns(store, [run])] == [ROUGE, F1]
    again(store, [run], [F1, EM])
    assert shown(store) == [(F1, EM, ROUGE)]


def test_every_experiment_that_shows_the_run_takes_the_column(store: Store, runs: dict[str, Any]) -> None:
    again(store, [runs["bm25"].run], [F1], name="second")
    again(store, [runs["dense"].run], [EM], name="third")
    add_columns(store, runs["bm25"].run, [F1, ROUGE])
    assert [shown(store, name) for name in ("toy", "second", "third")] == [[(EM, F1, ROUGE)], [(F1, ROUGE)], [(EM,)]]


@pytest.mark.slow
def test_what_is_removed_on_purpose_is_gone_and_its_scores_are_not(store: Store, runs: dict[str, Any]) -> None:
    ids = [run.run for run in runs.values()]
    again(store, ids, [EM], name="second")
    add_columns(store, ids[0], [F1, ROUGE])
    (gone,) = remove_columns(store, ids, ["rouge"], "toy")
    assert (gone.experiment, gone.dataset, gone.setting, gone.metric) == ("toy", "toy:dev", "distractor", ROUGE)
    again(store, ids, [EM])
    assert shown(store) == [(EM, F1)]
    assert shown(store, "second") == [(EM, F1, ROUGE)]
    remove_columns(store, ids, [F1, "rouge"])
    assert shown(store) == shown(store, "second") == [(EM,)]
    assert set(store.scored(ids[0])) == {EM}


def test_what_was_never_added_cannot_be_removed(store: Store, runs: dict[str, Any]) -> None:
    with raises("column-not-added") as caught:
        remove_columns(store, [runs["bm25"].run], ["em"])
    assert "file" in str(caught.value.try_this)
    add_columns(store, runs["bm25"].run, [ROUGE])
    with raises("unknown-added-column"):
        remove_columns(store, [runs["bm25"].run], ["ruoge"])
    assert shown(store) == [(EM, ROUGE)]


def test_an_experiment_that_shows_everything_needs_no_columns(store: Store, runs: dict[str, Any]) -> None:
    run = runs["bm25"].run
    store.put_experiment("all", "name: all", None, None, None, [run])
    add_columns(store, run, [F1])
    assert next(row.metrics for row in queries.runs(store, "all")) is None
    assert {column.experiment for column in added_columns(store, [run])} == {"toy"}


@pytest.mark.slow
def test_columns_go_where_their_experiment_goes(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    add_columns(store, runs["bm25"].run, [F1])
    exchange.export(store, tmp_path / "out", [runs["bm25"].run])
    copy = Store(tmp_path / "copy")
    for _ in range(2):
        exchange.merge(copy, tmp_path / "out")
        assert shown(copy) == [(EM, F1)]
        assert len(added_columns(copy, [runs["bm25"].run])) == 1
    pruning.prune(store, [run.run for run in runs.values()])
    with store.database.reading() as connection:
        assert connection.execute("FROM added_columns").fetchall() == []
