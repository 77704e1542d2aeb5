"""A method over its checkpoints: oldest first, each run's own value, the gate's word beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.elements.nodes import TAGS
from leaderboard.views import method as history_view
from results.gate import history as gate_history
from results.gate.decision import ask
from results.store import checkpoints, provenance, queries
from results.store.store import Store

F1 = "f1(rules=hotpotqa)#v1"
Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return " ".join(node.texts())


@pytest.fixture(scope="module")
def aged(copied: Callable[[], Path], synthetic: ModuleType) -> Path:
    """Two checkpoints of `dense`; `bm25`'s run counts as made with the first, `dense`'s with the second."""
    store = Store(copied())
    folder = store.folder.parent
    runs = {run.method: run for run in queries.runs(store, synthetic.EXPERIMENT)}
    for number, method in enumerate(("bm25", "dense")):
        model = folder / f"model{number}"
        model.mkdir()
        (model / "weights.txt").write_text(f"checkpoint {number}")
        made = checkpoints.describe(model, method="dense", stage=f"stage{number}", parents=[])
        checkpoints.register(store, made.path)
        with store.database.writing() as connection:
            connection.execute(
                "UPDATE runs SET provenance = json_merge_patch(provenance, ?) WHERE run = ?",
                [f'{{"checkpoints": ["{made.sha256}"]}}', runs[method].run],
            )
    gate_history.record(store, ask(store, runs["bm25"], runs["dense"], metrics=[F1], margin=0.05))
    return store.folder


def found(store: Store) -> list[history_view.Stand]:
    own = [checkpoint for checkpoint in checkpoints.checkpoints(store) if checkpoint.method == "dense"]
    every = list({run.run: run for run in queries.runs(store)}.values())
    used = {item.sha256: [run for run in every if checkpoints.made_with(run, item.sha256)] for item in own}
    runs = [run for each in used.values() for run in each]
    values = {item.run.run: item.values for item in provenance.results_of(store, runs, [F1])}
    return history_view.stands(own, used, values, F1, gate_history.history(store))


@pytest.mark.slow
def test_checkpoints_stand_in_the_order_in_which_they_were_registered_with_their_own_runs(aged: Path) -> None:
    rows = found(Store(aged))
    assert [(row.number, row.checkpoint.stage, row.run.method) for row in rows] == [(1, "stage0", "bm25"), (2, "stage1", "dense")]
    for row in rows:
        (expected,) = provenance.results_of(Store(aged), [row.run], [F1])
        assert row.value == expected.values[F1]
    # The gate decided about the candidate, not about the baseline.
    assert [len(row.decided) for row in rows] == [0, 1]


def test_the_table_and_the_chart_say_the_same(aged: Path) -> None:
    store = Store(aged)
    rows, definitions = found(store), queries.definitions(store)
    text = words(history_view.history(rows, F1, definitions))
    drawn = history_view.points(rows, F1, definitions)
    assert sorted(point.x for point in drawn) == [1.0, 2.0]
    for row in rows:
        (point,) = [item for item in drawn if item.name == row.checkpoint.sha256[:8]]
        assert point.value == pytest.approx(100 * row.value.value)
        assert f"{100 * row.value.value:.1f}" in text
    (decided,) = rows[1].decided
    assert decided.outcome in text
    assert {node.tag for node in history_view.history(rows, F1, definitions).find()} <= TAGS


def test_a_run_without_the_metric_has_no_place(aged: Path) -> None:
    (first, _) = found(Store(aged))
    own = [replace(first.checkpoint)]
    assert history_view.stands(own, {own[0].sha256: [first.run]}, {first.run.run: {}}, F1, []) == []


def test_the_page_shows_the_history(app: Start, aged: Path) -> None:
    page = app(aged).open("methods", method="dense")
    assert not page.test.exception
    text = words(page.part("history"))
    for row in found(Store(aged)):
        assert row.checkpoint.sha256[:8] in text
