"""Parquet out and in, merging, pruning, vacuum: no row lost, none doubled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.errors import UserError
from benchmarks.schema import Passage
from methods.api import FAILED, Evidence, Prediction, Usage
from results import exchange, queries, upkeep
from results.store import BY_RUN, FINISHED, RUNNING, Run, Store

METRIC = "em(rules=squad)#v1"
QUESTIONS = 6


def run_of(name: str) -> Run:
    return Run(
        name, name, "bm25", "retriever", {"id": name}, "toy:dev", "d1", "corpus", 0, QUESTIONS, {}, {"python": "3"}
    )


def fill(store: Store, name: str, numbers: Sequence[int], *, failed: bool = False, metric: str = METRIC) -> None:
    """Answer questions of a run; question n scores n / 10."""
    store.start(run_of(name))
    said = [
        Prediction(f"q{n}", f"{name} {n}", (Evidence(f"p{n}", 1.0),), Usage(), {FAILED: "cut"} if failed else {})
        for n in numbers
    ]
    values = np.zeros(len(numbers)) if failed else np.array(numbers, float) / 10
    store.append(name, said, {metric: values}, [Passage(f"p{n}", "T", "x") for n in numbers])
    if len(store.finished_questions(name)) == QUESTIONS:
        store.end(name, FINISHED)


def rows(store: Store, table: str) -> list[tuple[object, ...]]:
    with store.database.reading() as connection:
        return connection.execute(f"FROM {table} ORDER BY ALL").fetchall()


def content(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """All that runs wrote; means without the last bit, which depends on the order of adding."""
    found = {table: rows(store, table) for table in (*BY_RUN, "passages")}
    found["summaries"] = [
        tuple(round(value, 12) if isinstance(value, float) else value for value in row) for row in found["summaries"]
    ]
    return found


def summary(store: Store, run: str) -> tuple[object, ...]:
    with store.database.reading() as connection:
        return (
            connection.execute("SELECT scored, n, mean, variance FROM summaries WHERE run = ?", [run]).fetchone() or ()
        )


def test_an_export_merged_into_an_empty_store_is_the_store(tmp_path: Path) -> None:
    store, copy = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", range(QUESTIONS))
    fill(store, "r2", range(3))
    store.put_experiment("e", "name: e", None, None, "r1", ["r1", "r2"], metrics=[[METRIC], [METRIC]])
    counted = exchange.export(store, tmp_path / "out")
    assert counted["predictions"] == QUESTIONS + 3
    assert exchange.merge(copy, tmp_path / "out") == exchange.Merged(2, 0, QUESTIONS + 3)
    assert content(copy) == content(store)
    assert [run.status for run in queries.runs(copy, "e")] == [FINISHED, RUNNING]
    assert queries.runs(copy, "e")[0].environment == {"python": "3"}
    assert queries.runs(copy, "e")[0].metrics == (METRIC,)


def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [0, 1])
    fill(other, "r1", [1, 2, 3])
    exchange.merge(store, other.folder)
    before = content(store)
    assert exchange.merge(store, other.folder) == exchange.Merged(0, 0, 0)
    assert content(store) == before


def test_halves_of_a_run_become_a_whole_finished_one(tmp_path: Path) -> None:
    store, other, whole = Store(tmp_path / "a"), Store(tmp_path / "b"), Store(tmp_path / "c")
    fill(store, "r1", [0, 2, 4])
    fill(other, "r1", [1, 3, 5])
    fill(whole, "r1", range(QUESTIONS))
    assert exchange.merge(store, other.folder) == exchange.Merged(0, 1, 3)
    assert content(store) == content(whole)
    assert store.status("r1") == FINISHED


def test_an_answer_replaces_a_failure_and_never_the_other_way_round(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [1], failed=True)
    fill(store, "r1", [2])
    fill(other, "r1", [1])
    fill(other, "r1", [2], failed=True)
    exchange.merge(store, other.folder)
    assert [said.answer for said in store.predictions("r1") if not said.notes.get(FAILED)] == ["r1 1", "r1 2"]
    assert summary(store, "r1")[:3] == (2, 2, pytest.approx(0.15))


def test_scores_of_further_metrics_come_along(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [1])
    fill(other, "r1", [1], metric="recall@5#v1")
    exchange.merge(store, other.folder)
    assert store.scored("r1") == {METRIC: 1, "recall@5#v1": 1}


@given(
    left=st.lists(st.integers(0, QUESTIONS - 1), unique=True, min_size=1),
    right=st.lists(st.integers(0, QUESTIONS - 1), unique=True, min_size=1),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_two_parts_of_a_run_merge_to_their_union(
    tmp_path_factory: pytest.TempPathFactory, left: list[int], right: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("union")
    store, other, union = Store(folder / "a"), Store(folder / "b"), Store(folder / "c")
    fill(store, "r1", left)
    fill(other, "r1", right)
    fill(union, "r1", sorted({*left, *right}))
    exchange.merge(store, other.folder)
    assert content(store) == content(union)


def test_summaries_are_the_aggregates_of_the_rows(store: Store) -> None:
    fill(store, "r1", [1, 2, 6])
    store.put_scores("r1", ["q1", "q2", "q6"], {METRIC: np.array([0.5, np.nan, 1.0])})
    assert summary(store, "r1") == (3, 2, 0.75, 0.125)


def test_some_runs_can_be_exported_with_what_belongs_to_them(tmp_path: Path) -> None:
    store, copy = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [1])
    fill(store, "r2", [2])
    exchange.export(store, tmp_path / "out", ["r2"])
    exchange.merge(copy, tmp_path / "out")
    assert [run.run for run in queries.runs(copy)] == ["r2"]
    assert [row[0] for row in rows(copy, "passages")] == ["p2"]


def test_what_is_no_store_and_what_would_be_overwritten_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    fill(store, "r1", [1])
    with pytest.raises(UserError, match="neither a store nor an export"):
        exchange.merge(store, tmp_path)
    with pytest.raises(UserError, match="the store itself"):
        exchange.merge(store, store.folder)
    with pytest.raises(UserError, match="not empty"):
        exchange.export(store, store.folder)
    with pytest.raises(UserError, match="no run 'r9'"):
        exchange.export(store, tmp_path / "out", ["r9"])
    exchange.export(store, tmp_path / "out")
    (tmp_path / "out" / "scores.parquet").unlink()
    with pytest.raises(UserError, match=r"lacks scores\.parquet"):
        exchange.merge(store, tmp_path / "out")
    (tmp_path / "out" / exchange.MANIFEST).write_text('{"format": 1, "schema": 99, "rows": {}}')
    with pytest.raises(UserError, match="newer ragmeter"):
        exchange.merge(store, tmp_path / "out")


def test_pruning_takes_a_run_with_what_only_it_needed(store: Store) -> None:
    fill(store, "r1", [1, 2])
    fill(store, "r2", [2, 3])
    gone = upkeep.prune(store, ["r1"])
    assert (gone.runs, gone.passages) == (1, 1)
    assert [run.run for run in queries.runs(store)] == ["r2"]
    assert [row[0] for row in rows(store, "passages")] == ["p2", "p3"]
    assert {row[0] for table in BY_RUN for row in rows(store, table)} == {"r2"}


def test_orphans_are_runs_that_nothing_names(store: Store) -> None:
    for name in ("shown", "blessed", "lost"):
        fill(store, name, [1])
    store.put_experiment("e", "name: e", None, None, None, ["shown"])
    with store.database.writing() as connection:
        connection.execute("INSERT INTO blessings VALUES ('main', 'blessed', NULL, NULL, now()::TIMESTAMP)")
    assert [run.run for run in upkeep.orphans(store, queries.runs(store))] == ["lost"]


def test_vacuum_shrinks_the_file_and_keeps_every_row(store: Store) -> None:
    run = run_of("big")
    store.start(run)
    said = [Prediction(f"q{n}", f"{n} " * 50, (), Usage()) for n in range(20_000)]
    store.append("big", said, {METRIC: np.zeros(len(said))})
    fill(store, "r1", range(QUESTIONS))
    store.forget("big")
    before_rows = content(store)
    before, after = upkeep.vacuum(store.database)
    assert after < before / 2
    assert content(store) == before_rows
    fill(store, "r2", [1])
    assert len(queries.runs(store)) == 2
