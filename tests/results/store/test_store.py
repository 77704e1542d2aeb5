from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage
from methods.api import FAILED, REASON_CHARACTERS, Evidence, Indexed, Prediction, Usage, reason
from results.store import answer_queries, cost_queries, queries, schema
from results.store import store as store_module
from results.store.failures import cause_of, failures
from results.store.faults import DiskFull
from results.store.store import FINISHED, RUNNING, Run, Store
from tests.support.errors import raises

RUN = Run("f00dfeed", "bm25", "bm25", "retriever", {"id": "bm25"}, "toy:dev", "d1", "distractor", 0, 3, {"python": "3"})


def prediction(number: int, **notes: object) -> Prediction:
    usage = Usage(10, 2, 0, 1, {"retrieve": 0.5, "read": 0.25}, 7, 0.001)
    evidence = (Evidence("p1", 2.0), Evidence("p2#3", 2.0))
    return Prediction(f"q{number}", f"answer {number}", evidence, usage, notes)


def count(store: Store, table: str) -> int:
    with store.database.reading() as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def test_what_is_written_reads_back_equal(store: Store) -> None:
    responses = [prediction(1), prediction(2, failed="no reply", support=[["p1", 0]])]
    store.start(RUN)
    store.append(RUN.run, responses, {"em#v1": np.array([1.0, np.nan])}, [Passage("p1", "T", "text", ("text",))])
    assert store.predictions(RUN.run) == responses
    assert store.scored(RUN.run) == {"em#v1": 2}
    assert answer_queries.passages(store, ["p1", "p9"]) == {"p1": Passage("p1", "T", "text", ("text",))}
    with store.database.reading() as connection:
        assert connection.execute("SELECT value FROM scores ORDER BY question").fetchall() == [(1.0,), (None,)]


def test_later_execution_is_the_newest_if_the_clock_was_set_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.start(RUN)
    began, later = schema.now(), replace(RUN, run=f"{RUN.run}.later")
    for module in (schema, store_module):
        monkeypatch.setattr(module, "now", lambda: began - timedelta(hours=3))
    store.start(later)
    store.start(replace(RUN, run="beef"))
    executions = store.executions([RUN.run])[RUN.run]
    assert max(executions, key=lambda execution: execution.started_at).run == later.run
    assert [row.run for row in queries.runs(store) if row.started_at < began - timedelta(hours=2)] == ["beef"]


def test_what_is_read_within_a_reading_shares_its_connection_and_a_later_one_sees_what_was_written(store: Store) -> None:
    store.start(RUN)
    with store.database.reading() as outer:
        with store.database.reading() as inner:
            assert inner is outer
        assert outer.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    with pytest.raises(ZeroDivisionError), store.database.reading():
        _ = 1 / 0
    store.end(RUN.run, FINISHED)
    assert [run.status for run in queries.runs(store)] == [FINISHED]


@pytest.mark.slow
def test_finishing_a_question_twice_keeps_one_row_of_each_kind(store: Store) -> None:
    store.start(RUN)
    for _ in range(3):
        store.append(RUN.run, [prediction(1)], {"em#v1": np.array([1.0])}, [Passage("p1", "", "x")])
    tables = ("predictions", "usage", "scores", "passages")
    assert {table: count(store, table) for table in tables} == dict.fromkeys(tables, 1)
    assert count(store, "evidence") == 2


def test_failed_questions_are_pending_only_when_asked_to_retry(store: Store) -> None:
    store.start(RUN)
    store.append(RUN.run, [prediction(1), prediction(2, **{FAILED: "timeout"})], {})
    assert store.finished_questions(RUN.run) == {"q1", "q2"}
    assert store.finished_questions(RUN.run, retry_failed=True) == {"q1"}


def test_a_score_is_added_and_never_replaced(store: Store) -> None:
    store.start(RUN)
    store.append(RUN.run, [prediction(1)], {"em#v1": np.array([0.0]), "f1#v1": np.array([0.5])})
    store.put_scores(RUN.run, ["q1"], {"em#v1": np.array([1.0]), "em#v2": np.array([1.0])})
    with store.database.reading() as connection:
        rows = connection.execute("SELECT metric, value FROM scores ORDER BY metric").fetchall()
    assert rows == [("em#v1", 0.0), ("em#v2", 1.0), ("f1#v1", 0.5)]


def test_starting_again_keeps_the_first_start_and_clears_the_error(store: Store) -> None:
    store.start(RUN)
    store.end(RUN.run, "failed", "it broke")
    first = queries.find_run(store, RUN.run[:6])
    store.start(RUN)
    again = queries.find_run(store, RUN.run[:6])
    assert (first.error, again.error) == ("it broke", None)
    assert again.status == RUNNING
    assert again.started_at == first.started_at


def test_forgetting_a_run_leaves_others_alone(store: Store) -> None:
    other = Run(**{**{name: getattr(RUN, name) for name in RUN.__dataclass_fields__}, "run": "beef"})
    for run in (RUN, other):
        store.start(run)
        store.append(run.run, [prediction(1)], {"em#v1": np.array([1.0])})
    store.forget(RUN.run)
    assert store.status(RUN.run) is None
    assert store.finished_questions("beef") == {"q1"}


def test_nothing_is_read_where_nothing_was_written(store: Store) -> None:
    assert store.finished_questions("any") == set()
    assert store.status("any") is None
    with raises("unreadable-store") as caught:
        store.predictions("any")
    assert "ragmeter run" in str(caught.value.try_this)
    assert not store.folder.exists()


def test_a_file_is_not_taken_for_a_store_that_is_still_to_come(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with raises("unreadable-store"):
        Store(tmp_path / "file").predictions("any")


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE invoices AS SELECT 42 AS total")
    with raises("foreign-database"):
        Store(tmp_path).start(RUN)
    with raises("foreign-database"):
        Store(tmp_path).status("x")
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT total FROM invoices").fetchall() == [(42,)]


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    path.write_text("not a database, " * 1000)
    with raises("not-a-database"):
        Store(tmp_path).start(RUN)
    assert path.read_text() == "not a database, " * 1000


@pytest.mark.parametrize("damage", ["cut within the header", "cut off", "written over"])
def test_a_damaged_file_is_called_so_and_left_as_it_is(store: Store, damage: str) -> None:
    store.start(RUN)
    store.append(RUN.run, [prediction(number) for number in range(200)], {"em#v1": np.ones(200)})
    store.database.close()
    path = store.database.path
    raw = path.read_bytes()
    if damage == "written over":
        # The page of the header that says where everything lies: its checksum does not fit any more.
        raw = raw[:100] + b"x" * 300 + raw[400:]
    else:
        raw = raw[: 5_000 if damage == "cut within the header" else 20_000]
    path.write_bytes(raw)
    for use in (lambda: Store(store.folder).status(RUN.run), lambda: Store(store.folder).start(RUN)):
        with raises("damaged-store") as caught:
            use()
        assert caught.value.where == str(path)
        assert "backup" in str(caught.value.try_this)
    assert path.read_bytes() == raw


def test_another_error_of_the_database_is_no_damage(store: Store) -> None:
    store.start(RUN)
    with pytest.raises(duckdb.CatalogException), store.database.reading() as connection:
        connection.execute("SELECT 1 FROM nowhere")
    with pytest.raises(duckdb.IOException), store.database.reading() as connection:
        connection.execute("SELECT 1 FROM read_parquet('nowhere.parquet')")


@pytest.mark.parametrize("version", [1, 5, 99])
def test_a_store_of_another_schema_is_refused_and_the_way_to_bring_it_along_said(store: Store, version: int) -> None:
    store.start(RUN)
    with store.database.writing() as connection:
        connection.execute("UPDATE ragmeter_schema SET version = ?, ragmeter = '0.0.1'", [version])
    store.database.close()
    before = store.database.path.read_bytes()
    for use in (lambda: Store(store.folder).start(RUN), lambda: Store(store.folder).status(RUN.run)):
        with raises("store-version-mismatch") as caught:
            use()
        assert caught.value.where == str(store.database.path)
        export = "results export FOLDER" if version < 7 else "store export -o FOLDER"
        for response in ("version 0.0.1", f"`ragmeter {export} --store {store.folder}`", "ragmeter store import FOLDER"):
            assert response in str(caught.value.try_this)
    assert store.database.path.read_bytes() == before


def test_long_reasons_are_cut_when_stored_and_keep_their_cause(store: Store) -> None:
    store.start(replace(RUN, run="r"))
    store.append("r", [Prediction("q", "", notes={"failed": "ValueError: \n" + "a" * 60_000, "k": 1})], {})
    (kept,) = store.predictions("r")
    with store.database.reading() as connection:
        column = connection.execute("SELECT failed FROM predictions").fetchone()
    assert kept.notes["k"] == 1
    assert column == (kept.notes["failed"],)
    assert len(kept.notes["failed"]) == REASON_CHARACTERS
    assert failures(store, ["r"])["r"].kinds == {"raised": 1}


def test_cause_of_a_failure_ignores_numbers_quotes_and_ids() -> None:
    first = cause_of("HTTP 500: model 'a' at node-17.eu failed after 3,5 s (call_x9)")
    assert first == cause_of('HTTP 502: model "b" at node-2.eu failed after 12 s (y7)')
    assert first != cause_of("HTTP 500: model 'a' at node.eu failed after 3,5 s (call_x9)")


def test_reason_keeps_its_end() -> None:
    assert reason("a\n b", " (read, x.py line 3)") == "a b (read, x.py line 3)"
    cut = reason("a" * 1000, " (read, x.py line 3)")
    assert len(cut) == REASON_CHARACTERS
    assert cut.endswith("a… (read, x.py line 3)")
    assert len(reason("a", "b" * 1000)) < REASON_CHARACTERS


def test_a_failed_transaction_leaves_nothing_behind(store: Store) -> None:
    store.start(RUN)
    with pytest.raises(RuntimeError, match="half way"), store.database.writing() as connection:  # noqa: PT012
        connection.execute("INSERT INTO scores (run, question, metric, value) VALUES ('r', 'q', 'm', 1.0)")
        raise RuntimeError("half way")
    assert count(store, "scores") == 0


@pytest.mark.parametrize(
    ("error", "file"),
    [
        (duckdb.IOException("Could not write file: No space left on device"), "store.duckdb"),
        (duckdb.TransactionException('Failed to commit: Could not write file "/x/store.duckdb.wal": \nFile too large'), "store.duckdb.wal"),
        (duckdb.IOException('{"exception_message":"Could not write file \\"/x/runs.parquet\\": File too large"}'), "runs.parquet"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/x/part.parquet"), "part.parquet"),
    ],
)
def test_full_disk_names_the_file_and_keeps_what_was_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception, file: str
) -> None:
    store.start(RUN)
    store.append(RUN.run, [prediction(1)], {})

    def no_space(*_: object) -> None:
        raise error

    monkeypatch.setattr("results.store.rows.insert", no_space)
    with pytest.raises(DiskFull) as caught:
        store.append(RUN.run, [prediction(2)], {})
    assert Path(str(caught.value.where)).name == file
    monkeypatch.undo()
    assert store.finished_questions(RUN.run) == {"q1"}


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as caught:
        Store(tmp_path / "file" / "store").start(RUN)
    assert "--store" in str(caught.value.try_this)


def _write_some(folder: Path, writer: int, batches: int) -> None:
    store = Store(folder)
    run = Run(**{**{name: getattr(RUN, name) for name in RUN.__dataclass_fields__}, "run": f"run{writer}"})
    store.start(run)
    for batch in range(batches):
        store.append(run.run, [prediction(batch)], {"em#v1": np.array([1.0])}, [Passage("p1", "", "x")])
    store.end(run.run, FINISHED)


@pytest.mark.slow
def test_processes_that_write_and_read_at_once_lose_and_double_nothing(store: Store) -> None:
    writers, batches = 3, 8
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_some, args=(store.folder, n, batches)) for n in range(writers)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        if store.database.exists:
            for row in queries.runs(store):
                assert row.done <= batches
        time.sleep(0.02)
    assert [process.exitcode for process in processes] == [0] * writers
    assert count(store, "predictions") == writers * batches
    assert count(store, "scores") == writers * batches
    assert count(store, "passages") == 1


KILLED = """
import sys
from pathlib import Path
import numpy as np
from methods.api import Prediction
from results.store.store import Run, Store
store = Store(Path(sys.argv[1]))
store.start(Run("r", "m", "m", "retriever", {}, "d", "f", "distractor", 0, 10**6, {}))
for number in range(10**6):
    store.append("r", [Prediction(f"q{number}", "a")], {"em#v1": np.array([1.0])})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_loses_no_acknowledged_question(tmp_path: Path) -> None:
    for delay in (0.05, 0.4, 0.9):
        folder = tmp_path / f"{delay}"
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        acknowledged = [int(line) for line in process.stdout.read().split()]
        process.wait()
        process.stdout.close()
        store = Store(folder)
        kept = store.finished_questions("r")
        assert kept >= {f"q{number}" for number in acknowledged}
        assert store.scored("r") == {"em#v1": len(kept)}
        assert len(store.predictions("r")) == len(kept)


def test_half_a_surrogate_pair_does_not_stop_a_run(store: Store) -> None:
    store.start(RUN)
    store.append(RUN.run, [Prediction("q1", "caf\ud83d", notes={"raw": "\ud83d"})], {})
    (kept,) = store.predictions(RUN.run)
    assert kept.answer == "caf?"


texts = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(texts, texts, st.dictionaries(texts, texts, max_size=3))
def test_any_text_survives_the_store(tmp_path_factory: pytest.TempPathFactory, answer: str, title: str, notes: dict) -> None:
    store = Store(tmp_path_factory.mktemp("any") / "s")
    response = Prediction("q", answer, notes=notes)
    store.start(RUN)
    store.append(RUN.run, [response], {}, [Passage("p", title, "t")])
    assert store.predictions(RUN.run) == [response]
    assert json.loads(json.dumps(response.to_json())) == response.to_json()


def test_what_indexing_took_is_kept_once_an_artifact_and_apart_from_questions(store: Store) -> None:
    store.start(RUN)
    store.append(RUN.run, [prediction(1)], {})
    before = cost_queries.costs(store, [RUN.run])
    for seconds in (2.0, 9.0):
        store.put_indexing(RUN.run, Indexed("a", False, Usage(30, 4, 0, 2, {"index": seconds}, 0, 0.5)))
    store.put_indexing(RUN.run, Indexed("b", True, Usage(seconds={"index": 0.5})))
    assert cost_queries.index_costs(store, [RUN.run]) == {RUN.run: cost_queries.IndexCost(2.5, 30, 4, 0, 2, 0.5, False)}
    assert cost_queries.costs(store, [RUN.run]) == before
    store.forget(RUN.run)
    assert cost_queries.index_costs(store, [RUN.run]) == {}


def test_a_run_says_in_its_row_whose_questions_it_asks(store: Store) -> None:
    store.start(replace(RUN, dataset="styled:dev(hotpotqa/fullwiki,informal=0.5,by=rule,seed=0)"))
    (run,) = queries.runs(store)
    assert (run.styled.base, run.styled.split, run.styled.name) == ("hotpotqa/fullwiki:dev", "dev", "50 % informal")
    assert run.styled.same_questions == ("hotpotqa/fullwiki:dev", "hotpotqa/distractor:dev")
