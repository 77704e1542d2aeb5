"""What runs at this moment is read with counts alone, and is what `queries.runs` says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from results.store import queries
from results.store.queries import running
from results.store.store import INTERRUPTED, RUNNING, Store


def test_without_a_store_nothing_runs(store: Store) -> None:
    assert running(store) == []
    assert not store.folder.exists()


@pytest.mark.slow
def test_only_what_was_begun_and_not_ended_runs(store: Store, fill: Callable[..., Any]) -> None:
    runs = fill(store, {"one": ["a", None], "two": ["a", "b"], "three": ["a", "c"]}, ["a", "b"])
    assert running(store) == []
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET status = ? WHERE run = ?", [RUNNING, runs["one"].run])
        connection.execute("UPDATE runs SET status = ? WHERE run = ?", [INTERRUPTED, runs["two"].run])
    (result,) = running(store)
    (row,) = [run for run in queries.runs(store) if run.method == "one"]
    for name in ("run", "experiment", "method", "dataset", "setting", "seed", "questions", "done", "failed"):
        assert getattr(result, name) == getattr(row, name)
    assert (result.done, result.failed) == (2, 1)
    assert not result.resumed


@pytest.mark.slow
def test_a_run_of_two_experiments_is_listed_once(store: Store, fill: Callable[..., Any]) -> None:
    (run,) = fill(store, {"one": ["a"]}, ["a"]).values()
    store.put_experiment("again", "name: again", None, None, None, [run.run], names=["its other name"])
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET status = ?", [RUNNING])
    assert [(item.experiment, item.method) for item in running(store)] == [("again", "its other name")]


def test_a_run_that_was_begun_again_is_called_resumed(store: Store, fill: Callable[..., Any]) -> None:
    fill(store, {"one": ["a"]}, ["a"])
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET status = ?, started_at = started_at - INTERVAL 1 HOUR", [RUNNING])
    (result,) = running(store)
    assert result.resumed
