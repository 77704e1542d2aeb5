"""The timeline of a method: one row per run, gate outcomes and the mark on boards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.elements.marks import gate_marks
from leaderboard.elements.nodes import TAGS
from leaderboard.pages import method as timeline
from results.gate import history as gate_history
from results.gate.decision import ask
from results.gate.timeline import Point, timelines
from results.store import checkpoints, provenance, queries, score_queries
from results.store.store import Store

F1 = "f1(rules=hotpotqa)#v2"
Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return " ".join(node.texts())


@pytest.fixture(scope="module")
def aged(copied: Callable[[], Path], synthetic: ModuleType) -> Path:
    """Return a store with two checkpoints of `dense`; `bm25`'s run counts as made with the first, `dense`'s with the second."""
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


def found(store: Store) -> list[Point]:
    """Return the points of both runs in order."""
    runs = [run for run in {run.method: run for run in queries.runs(store, "made-up")}.values() if run.method in ("bm25", "dense")]
    return [point for points in timelines(store, runs).values() for point in points]


def values_of(store: Store, points: list[Point]) -> dict[str, Any]:
    return {item.run.run: item.values for item in provenance.results_of(store, [point.run for point in points], [F1])}


def test_timeline_table_and_chart_agree(aged: Path) -> None:
    store = Store(aged)
    points, definitions = found(store), score_queries.definitions(store)
    values = values_of(store, points)
    table = timeline.timeline_table(points, values, F1, definitions)
    drawn = timeline.chart_points(points, values, F1, definitions, "x")
    text = words(table)
    assert len(drawn) == len(points) == 2
    for point, item in zip(points, drawn, strict=True):
        assert item.value == pytest.approx(100 * values[point.run.run][F1].value)
        assert f"{item.value:.1f}" in text
        assert point.revision in text
    (decided,) = next(point.decided for point in points if point.decided)
    assert decided.outcome in text
    assert any(f"gate: {decided.outcome}" in item.shown for item in drawn)
    assert {node.tag for node in table.find()} <= TAGS


def test_run_is_compared_with_the_baseline_of_its_gate_else_with_the_run_before(aged: Path) -> None:
    store = Store(aged)
    points, definitions = found(store), score_queries.definitions(store)
    (at,) = [number for number, point in enumerate(points) if point.decided]
    baseline, candidate = points[at].decided[0].baseline, points[at].run.run

    def pairs(points: list[Point]) -> list[str]:
        table = timeline.timeline_table(points, values_of(store, points), F1, definitions)
        return [node.action["runs"] for node in table.find(tag="button")]

    assert f"{baseline},{candidate}" in pairs(points)
    first = replace(points[0], decided=())
    second = replace(points[1], number=2, decided=(), run=replace(first.run, run="f" * 16))
    assert pairs([first, second]) == [f"{first.run.run},{second.run.run}"]
    assert pairs([first, replace(second, run=replace(second.run, dataset_fingerprint="other"))]) == []


def test_run_without_the_metric_has_a_row_but_no_point(aged: Path) -> None:
    store = Store(aged)
    points, definitions = found(store), score_queries.definitions(store)
    assert timeline.chart_points(points, {}, F1, definitions, "x") == []
    assert all(point.revision in words(timeline.timeline_table(points, {}, F1, definitions)) for point in points)


def test_changed_questions_are_marked_and_start_a_new_curve(aged: Path) -> None:
    store = Store(aged)
    first, second = found(store)
    points = [first, replace(second, changed_data=True)]
    definitions, values = score_queries.definitions(store), values_of(store, points)
    assert "other questions" in words(timeline.timeline_table(points, values, F1, definitions))
    assert len({item.series for item in timeline.chart_points(points, values, F1, definitions, "x")}) == 2


def test_gate_mark_is_the_worst_of_the_newest_outcomes(aged: Path) -> None:
    run = queries.runs(Store(aged))[0]
    assert gate_marks([replace(run, gate="")]) == []
    for outcomes, shown in ((("pass", "regressed"), "regressed"), (("pass", "inconclusive"), "inconclusive"), (("pass",), "pass")):
        (mark,) = gate_marks([replace(run, gate=outcome) for outcome in outcomes])
        assert words(mark) == f"gate: {shown}"


def test_page_shows_the_timeline_and_the_board_the_gate_outcome(app: Start, aged: Path) -> None:
    page = app(aged).open("methods", method="dense")
    assert not page.test.exception
    text = words(page.part("timeline"))
    (point,) = [point for point in found(Store(aged)) if point.decided]
    assert point.revision in text
    assert point.decided[0].outcome in text
    assert point.run.gate
