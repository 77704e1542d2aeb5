from __future__ import annotations

from pathlib import Path

import pytest

from ragmeter import experiment
from ragmeter.runner.experiment import How, part_of, run_experiment
from ragmeter.runner.tasks import tasks_of
from results.boards.board import boards
from results.formats.exchange import merge
from results.store.store import Store
from tests.support.errors import raises

FILE = """\
name: small
reference: random
benchmarks: [{id: worlds/multihop, split: validation, setting: distractor, limit: 6}]
methods: [{id: bm25}, {id: gold_answer}, {id: random}, {id: bm25, name: other, config: {k1: 2.0}}]
metrics: [em, recall@5]
"""


def run(folder: Path, part: tuple[int, int] | None) -> list[str]:
    outcomes = run_experiment(experiment.parse(FILE, "x.yaml"), Store(folder), How(part=part), talk=False)
    return [outcome.task.method.name for outcome in outcomes]


def table(folder: Path) -> list[object]:
    rows = [row for board in boards(Store(folder), "small") for row in board.to_json()["rows"]]
    return [{name: value for name, value in row.items() if name in ("method", "cells", "n", "status")} for row in rows]


def test_parts_do_not_depend_on_weights() -> None:
    tasks = tasks_of(experiment.parse(FILE, "x.yaml"))
    parts = [part_of(task, 3) for task in tasks]
    assert len(set(parts)) > 1
    for task in tasks:
        vars(task)["fingerprint"] = "0" * 16  # as if other weights were hashed on this machine
    assert [part_of(task, 3) for task in tasks] == parts


def test_experiment_with_trainings_has_no_parts(tmp_path: Path) -> None:
    trained = "{id: dense, name: trained, config: {model: {checkpoint: gpr}}}"
    text = FILE.replace("methods: [", f"trainings: [{{id: gpr, config: {{preset: demo}}}}]\nmethods: [{trained}, ")
    with raises("parts-with-trainings", where="--task-index"):
        run_experiment(experiment.parse(text, "x.yaml", store=tmp_path), Store(tmp_path), How(part=(0, 2)), talk=False)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_merging_three_parts_gives_the_table_of_the_whole_run(tmp_path: Path) -> None:
    run(tmp_path / "whole", None)
    ran = [run(tmp_path / str(index), (index, 3)) for index in range(3)]
    assert sorted(name for part in ran for name in part) == ["bm25", "gold_answer", "other", "random"]
    for index in (2, 0, 1):
        merge(Store(tmp_path / "merged"), tmp_path / str(index))
    assert table(tmp_path / "merged") == table(tmp_path / "whole")
    assert len(table(tmp_path / "whole")) == 4
    assert run_experiment(experiment.parse(FILE, "x.yaml"), Store(tmp_path / "merged"), How(), talk=False)[0].answered == 0
