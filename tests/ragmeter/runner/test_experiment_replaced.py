"""An experiment that replaces another one of its name reports runs that no experiment shows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from ragmeter.runner.tasks import tasks_of
from results.boards.board import boards
from results.store import queries
from results.store.store import Store, left_behind

Call = Callable[..., Any]


def _run(call: Call, file: Path, store: Store, *more: str) -> str:
    done = call("run", str(file), "--store", str(store.folder), "--quiet", *more)
    assert done.code == 0
    return " ".join(line for line in done.err.splitlines() if "in no experiment" in line)


def _without_experiment(store: Store) -> int:
    return sum(row.experiment == "-" for row in queries.runs(store))


@pytest.mark.slow
def test_rerun_with_another_file_of_the_name_reports_remaining_runs(
    call: Call, store: Store, answered: Path, experiment_text: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(experiment_text.replace("{id: bm25}", "{id: bm25, k: 3}"))
    response = _run(call, other, store)
    assert response.startswith(f"small was another file until now, {answered / 'x.yaml'}; 1 run of it stays in the store")
    assert _without_experiment(store) == 1
    assert _run(call, other, store) == ""


@pytest.mark.slow
def test_changed_experiment_is_reported_only_if_runs_are_replaced(call: Call, store: Store, experiment_text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("# all that it had\n" + experiment_text.replace("metrics: [em]", "metrics: [em, f1]"))
    assert _run(call, file, store) == ""
    assert _run(call, file, store, "--limit", "2").startswith(
        "small was run with other options, versions or data until now; 3 runs of it stay in the store"
    )
    file.write_text(experiment_text.replace(", {id: gold_answer}", ""))
    assert _run(call, file, store, "--limit", "2").startswith("small had another text until now; 1 run of it stays")
    assert _without_experiment(store) == 4


def test_run_shown_by_another_experiment_is_not_reported(store: Store, experiment_text: str) -> None:
    tasks = tasks_of(experiment.parse(experiment_text, "x.yaml"))
    runs = [task.run.run for task in tasks]
    assert left_behind(store, "small", "other", None, runs[1:]) is not None
    store.put_experiment("second", "second", None, None, None, runs[:1])
    assert left_behind(store, "small", "other", None, runs[1:]) is None
    assert left_behind(store, "unknown", "other", None, []) is None


def test_missing_store_is_not_created(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "none", ignore_errors=True)
    assert left_behind(Store(tmp_path / "none"), "small", "text", None, []) is None
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_runs_with_another_seed_become_repeats_on_one_board(call: Call, store: Store, answered: Path, experiment_text: str) -> None:
    file = answered / "x.yaml"
    file.write_text(experiment_text + "\nseed: 7\n")
    assert _run(call, file, store) == ""
    (board,) = boards(store, "small")
    assert board.seeds == (0, 7)
    assert {row.run.method for row in board.rows if not row.control} == {"bm25 (2 repeats)", "random (2 repeats)"}
    assert _without_experiment(store) == 0
    file.write_text(experiment_text.replace("{id: bm25}", "{id: bm25, k: 3}") + "\nseed: 8\n")
    _run(call, file, store)
    assert "bm25" in {row.run.method for row in boards(store, "small")[0].rows}
