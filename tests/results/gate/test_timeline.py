"""The runs of a method in their order in time, with revisions, tags, anchors and decisions."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from results.gate.memory import set_anchors
from results.gate.timeline import Line, timelines, worth_showing
from results.store import queries, tags
from results.store.store import FINISHED, Run, Store

DAY = datetime(2026, 1, 1)


def add(store: Store, run: str, day: int, method: str = "app", data: str = "f" * 16, **description: object) -> None:
    store.start(Run(run, method, "http", "method", description, "d", data, "distractor", 0, 3, {}))
    store.end(run, FINISHED)
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET started_at = ? WHERE run = ?", [DAY + timedelta(days=day), run])


def decide(store: Store, candidate: str, outcome: str, gate: str, day: int, metric: str = "em") -> None:
    with store.database.writing() as connection:
        row = [
            "aa" * 8,
            candidate,
            metric,
            0.01,
            False,
            outcome,
            -0.1,
            -0.2,
            0.0,
            3,
            f'{{"gate": "{gate}"}}',
            DAY + timedelta(days=day),
            "",
            None,
        ]
        connection.execute(f"INSERT INTO gates VALUES ({', '.join('?' * len(row))})", row)


@pytest.fixture
def aged(store: Store) -> Store:
    """Three revisions of an app, the last one over other questions; another app that ran once."""
    add(store, "bb" * 8, 2, revision="v2")
    add(store, "aa" * 8, 1, revision="v1")
    add(store, "cc" * 8, 3, data="e" * 16)
    add(store, "dd" * 8, 1, method="other")
    decide(store, "bb" * 8, "pass", "regressed", 2)
    decide(store, "bb" * 8, "inconclusive", "inconclusive", 4)
    runs = {run.run: run for run in queries.runs(store)}
    tags.tag_run(store, "main", runs["aa" * 8])
    set_anchors(store, "main", [runs["aa" * 8]])
    return store


def test_timeline_lists_runs_by_start_time_with_tags_and_decisions(aged: Store) -> None:
    lines = timelines(aged, queries.runs(aged))
    assert list(lines) == [Line("app", "d", "distractor"), Line("other", "d", "distractor")]
    first, second, third = lines["app", "d", "distractor"]
    assert [point.revision for point in (first, second, third)] == ["v1", "v2", "cc" * 4]
    assert [point.number for point in (first, second, third)] == [1, 2, 3]
    assert (first.tags, first.anchors) == (("main",), ("main",))
    assert [item.outcome for item in second.decided] == ["inconclusive", "pass"]
    assert [point.changed_data for point in (first, second, third)] == [False, False, True]


def test_single_run_without_tags_or_decisions_has_no_timeline(aged: Store) -> None:
    lines = timelines(aged, queries.runs(aged))
    assert [worth_showing(points) for points in lines.values()] == [True, False]


def test_a_run_knows_the_outcome_of_its_newest_gate(aged: Store) -> None:
    outcomes = {run.run: run.gate for run in queries.runs(aged)}
    assert outcomes == {"aa" * 8: "", "bb" * 8: "inconclusive", "cc" * 8: "", "dd" * 8: ""}
    decide(aged, "bb" * 8, "pass", "regressed", 5, "f1")
    assert queries.find_run(aged, "bb" * 8).to_json()["gate"] == "regressed"


def test_controls_have_no_timeline(store: Store) -> None:
    store.start(Run("ab" * 8, "gold", "gold", "control", {}, "d", "f" * 16, "distractor", 0, 3, {}))
    assert timelines(store, queries.runs(store)) == {}
