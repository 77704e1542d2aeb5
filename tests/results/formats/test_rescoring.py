"""Imported scores are computed again or marked, and an export that was changed is refused."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Question
from judges.metric import parse
from methods.api import Evidence, Prediction
from results.boards.board import boards
from results.boards.tables import FORMATS, render
from results.formats import exchange
from results.gate.decision import ask
from results.store import queries
from results.store.doubts import NOT_RESCORED
from results.store.store import FINISHED, Run, Store
from tests.support.errors import raises
from tests.support.toy import CARD

F1, JUDGED = "f1(rules=squad)#v2", "accuracy(model=m)#v1"
COUNT = 12


@pytest.fixture
def sent(tmp_path: Path) -> Store:
    """A store in which every second answer of two runs is right."""
    store = Store(tmp_path / "theirs")
    requests = [Question(f"q{n}", f"what {n}?", ("Lyon",)) for n in range(COUNT)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, requests, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.put_cards([], [parse("f1")])
    for name in ("one", "two"):
        fields = ("toy:dev", benchmark.fingerprint, "distractor", 0, COUNT, {})
        store.start(Run(f"{name}-fingerprint", name, name, "retriever", {"id": name}, *fields))
        answers = [Prediction(q.id, "Lyon" if n % 2 else "Nice", (Evidence(f"p{n}", 1.0),)) for n, q in enumerate(benchmark.questions)]
        right = np.array([float(n % 2) for n in range(COUNT)])
        store.append(f"{name}-fingerprint", answers, {F1: right, JUDGED: right}, [Passage(f"p{n}", "T", "x") for n in range(COUNT)])
        store.end(f"{name}-fingerprint", FINISHED)
    with store.database.writing() as connection:
        connection.execute("UPDATE metrics SET judge = 'm' WHERE id = ?", [JUDGED])
        connection.execute("INSERT INTO metrics SELECT * REPLACE (? AS id, 'm' AS judge) FROM metrics WHERE id = ?", [JUDGED, F1])
    store.put_experiment("e", "name: e", None, None, "one", ["one-fingerprint", "two-fingerprint"], metrics=[[F1, JUDGED]] * 2)
    return store


def edit(store: Store, metric: str) -> None:
    with store.database.writing() as connection:
        connection.execute("UPDATE scores SET value = 1 WHERE run = 'two-fingerprint' AND metric = ?", [metric])
        connection.execute("UPDATE summaries SET mean = 1 WHERE run = 'two-fingerprint' AND metric = ?", [metric])


def mean(store: Store, metric: str) -> float:
    ((value,),) = store.database.rows("SELECT mean FROM summaries WHERE run = 'two-fingerprint' AND metric = ?", [metric])
    return float(value)


@pytest.mark.slow
def test_edited_imported_scores_are_replaced_by_recomputed_ones(sent: Store, store: Store) -> None:
    edit(sent, F1)
    scores = exchange.merge(store, sent.folder).scores
    assert mean(store, F1) == 0.5
    assert scores.rescored == 2
    assert scores.differing == {("two-fingerprint", F1): COUNT // 2}
    assert exchange.merge(store, sent.folder).scores.to_json() == {"rescored": 0, "differing": [], "not_rescored": []}


@pytest.mark.slow
def test_scores_that_no_metric_here_gives_are_marked_wherever_they_are_shown(sent: Store, store: Store) -> None:
    edit(sent, JUDGED)
    left = exchange.merge(store, sent.folder).scores.left
    assert left.keys() == {("one-fingerprint", JUDGED), ("two-fingerprint", JUDGED)}
    one, two = queries.runs(store, "e")
    assert one.not_rescored == two.not_rescored == (JUDGED,)
    (board,) = boards(store, "e")
    for form in FORMATS:
        lines = [line for line in render([board], form).splitlines() if "two" in line]
        assert any(NOT_RESCORED in line for line in lines), form
    assert all(row["not_rescored"] == [JUDGED] for row in board.to_json()["rows"])
    remarks = {metric: ask(store, one, two, metrics=[metric], margin=0.1).remarks for metric in (F1, JUDGED)}
    assert {metric: any(NOT_RESCORED in line for line in lines) for metric, lines in remarks.items()} == {F1: False, JUDGED: True}


def test_imported_scores_that_cannot_be_recomputed_are_marked(sent: Store, store: Store) -> None:
    metric = "answer_in_passages@5#v1"
    known = str(parse("has_answer@5"))
    with sent.database.writing() as connection:
        connection.execute("INSERT INTO metrics SELECT * REPLACE (? AS id) FROM metrics WHERE id = ?", [known, F1])
        for name in (metric, known):
            connection.execute("INSERT INTO scores SELECT * REPLACE (? AS metric) FROM scores WHERE metric = ?", [name, F1])
        connection.execute("DELETE FROM passages")
    left = exchange.merge(store, sent.folder).scores.left
    assert {name for _, name in left} == {JUDGED, metric, known}
    assert len(set(left.values())) == 3


@pytest.mark.slow
def test_a_run_made_here_keeps_its_scores_and_gets_no_mark(sent: Store, tmp_path: Path) -> None:
    copy = Store(tmp_path / "copy")
    exchange.merge(copy, sent.folder)
    edit(copy, JUDGED)
    exchange.merge(sent, copy.folder)
    assert mean(sent, JUDGED) == 0.5
    assert all(not run.not_rescored for run in queries.runs(sent))


def change(path: Path, statement: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS FROM '{path}'")
        connection.execute(statement)
        connection.execute(f"COPY t TO '{path}'")


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("scores", "UPDATE t SET value = 1 WHERE run = 'two-fingerprint'"),
        ("predictions", "UPDATE t SET answer = 'Lyon' WHERE run = 'two-fingerprint'"),
        ("questions", "UPDATE t SET golds = ['Nice']"),
        ("evidence", "DELETE FROM t WHERE run = 'two-fingerprint'"),
    ],
)
def test_an_export_that_was_changed_is_refused_with_its_runs(sent: Store, store: Store, tmp_path: Path, table: str, statement: str) -> None:
    exchange.export(sent, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / exchange.MANIFEST).read_text())
    assert manifest["runs"].keys() == {"one-fingerprint", "two-fingerprint"}
    change(tmp_path / "out" / f"{table}.parquet", statement)
    with raises("export-changed", where=str(tmp_path / "out")):
        exchange.merge(store, tmp_path / "out")
    assert not store.database.exists or queries.runs(store) == []


@pytest.mark.slow
def test_an_unchanged_export_is_taken_and_one_of_some_runs_too(sent: Store, store: Store, tmp_path: Path) -> None:
    exchange.export(sent, tmp_path / "some", ["two-fingerprint"])
    exchange.export(sent, tmp_path / "all")
    hashes = [json.loads((tmp_path / name / exchange.MANIFEST).read_text())["runs"] for name in ("some", "all")]
    assert hashes[0]["two-fingerprint"] == hashes[1]["two-fingerprint"]
    assert exchange.merge(store, tmp_path / "some").new_runs == 1
    assert exchange.merge(store, tmp_path / "all").new_runs == 1
