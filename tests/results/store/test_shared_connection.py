"""The one connection of a process to a store: quick, shared by its threads, and given back when another process waits."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from filelock import FileLock

from results.store import holder, shared_connection
from results.store.attached import AttachedFile
from results.store.shared_connection import SharedConnection
from results.store.store import Store
from tests.support.errors import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store(tmp_path).put_cards([], [])
    Store(tmp_path).database.close()
    return tmp_path


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is not given back for want of use."""
    monkeypatch.setattr(shared_connection, "IDLE_S", 600.0)


def written(store: Store, name: str) -> None:
    store.put_experiment(name, "name: x", None, None, None, [])


def names(store: Store) -> set[str]:
    with store.database.reading() as connection:
        return {name for (name,) in connection.execute("SELECT name FROM experiments").fetchall()}


def shared(store: Store) -> SharedConnection:
    return store.database._shared


def until(condition: Callable[[], Any], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each opening of a file was for reading alone."""
    results: list[bool] = []

    def noting(path: Path, *, read_only: bool) -> AttachedFile:
        results.append(read_only)
        return AttachedFile(path, read_only=read_only)

    monkeypatch.setattr(shared_connection, "AttachedFile", noting)
    return results


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_the_file_is_opened_once_to_read_and_once_to_write(tmp_path: Path, opened: list[bool]) -> None:
    written(Store(tmp_path), "first")
    Store(tmp_path).database.close()
    for store in (Store(tmp_path), Store(tmp_path)):
        assert names(store) == {"first"}
    for number in range(5):
        written(Store(tmp_path), f"{number}")
        assert f"{number}" in names(Store(tmp_path))
    made, *later = opened
    assert not made
    assert later == [False, True, False]


@pytest.mark.slow
def test_the_file_is_closed_after_a_moment_without_use_and_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_connection, "IDLE_S", 0.1)
    store = Store(folder)
    for _ in range(2):
        assert names(store) == set()
        assert until(lambda: not shared(store).is_open)
        with shared(store)._turn:  # the thread that closes holds it until the file is closed
            pass
        duckdb.connect(str(store.database.path)).close()  # refused if it were still open to read


@pytest.mark.usefixtures("patient")
def test_a_question_under_way_sees_one_state_and_is_answered_before_the_file_is_opened_to_write(folder: Path) -> None:
    store = Store(folder)
    for opened_to_write in (False, True):
        writer = threading.Thread(target=written, args=(Store(folder), f"later {opened_to_write}"))
        with store.database.reading() as connection:
            before = connection.execute("SELECT count(*) FROM experiments").fetchone()
            writer.start()
            writer.join(30 if opened_to_write else 0.3)
            assert writer.is_alive() is not opened_to_write
            assert connection.execute("SELECT count(*) FROM experiments").fetchone() == before
        writer.join(30)
        assert not writer.is_alive()
        assert f"later {opened_to_write}" in names(store)


def test_a_thread_that_reads_cannot_begin_to_write_and_fails_at_once(folder: Path) -> None:
    store = Store(folder)
    with store.database.reading(), pytest.raises(RuntimeError, match="while it reads"):
        written(store, "never")
    with store.database.writing(), pytest.raises(RuntimeError, match="or writes to it"):
        written(store, "never")
    with store.database.writing():
        assert names(store) == set()


def test_threads_read_at_once_and_see_only_what_they_registered(folder: Path) -> None:
    store, both = Store(folder), threading.Barrier(2, timeout=30)
    seen: dict[int, object] = {}

    def read(number: int) -> None:
        with store.database.reading() as connection:
            connection.execute(f"CREATE TEMP TABLE own AS SELECT {number} AS n")
            both.wait()
            seen[number] = connection.execute("SELECT n FROM own").fetchall()
            both.wait()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {0: [(0,)], 1: [(1,)]}


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_threads_that_read_and_write_without_pause_all_come_to_their_turn(folder: Path) -> None:
    stop, read = threading.Event(), [0] * 3

    def ask(position: int) -> None:
        while not stop.is_set():
            names(Store(folder))
            read[position] += 1

    threads = [threading.Thread(target=ask, args=(position,)) for position in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(10):
            Store(folder).database.close()
            written(Store(folder), f"experiment {number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert len(names(Store(folder))) == 10
    assert min(read) > 0


def test_a_store_that_cannot_be_opened_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "store.duckdb").write_bytes(b"not a database" * 100)
    for use in (names, lambda store: written(store, "x"), names):
        with raises("not-a-database"):
            use(store)
    (tmp_path / "store.duckdb").unlink()
    written(store, "mended")
    assert names(store) == {"mended"}


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_file_put_in_the_place_of_the_open_one_is_read(folder: Path) -> None:
    store, other = Store(folder), Store(folder / "other")
    assert names(store) == set()
    written(other, "restored")
    other.database.close()
    other.database.path.replace(store.database.path)
    assert names(store) == {"restored"}
    assert names(Store(folder)) == {"restored"}


def test_after_an_error_of_the_database_the_file_is_opened_anew(folder: Path) -> None:
    store = Store(folder)
    with pytest.raises(duckdb.CatalogException), store.database.writing() as connection:
        connection.execute("SELECT 1 FROM nowhere")
    assert not shared(store).is_open
    written(store, "after")
    assert names(store) == {"after"}


def test_a_file_that_nobody_would_close_is_not_left_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(folder)
    store.database.close()

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            names(store)
    assert not shared(store).is_open
    assert names(store) == set()


def test_an_empty_file_of_a_process_that_was_killed_becomes_a_store(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "store.duckdb")).close()
    assert names(Store(tmp_path)) == set()


@pytest.mark.parametrize("may_write", [True, False])
def test_no_file_is_opened_to_read_while_another_process_may_write_its_header(
    folder: Path, monkeypatch: pytest.MonkeyPatch, opened: list[bool], may_write: bool
) -> None:
    monkeypatch.setattr(shared_connection, "PATIENCE_S", 0.2)
    store, lock = Store(folder), folder / "store.lock"
    if not may_write:

        def denied(*_: object, **__: object) -> Any:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(shared(store)._lock, "acquire", denied)
    with FileLock(str(lock)), raises("store-busy"):
        names(store)
    assert not opened
    assert names(store) == set()
    lock.unlink()
    store.database.close()
    assert names(store) == set()
    assert opened == [True, True]


def test_a_store_in_a_folder_that_cannot_be_written_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(folder)
    store.database.close()

    def denied(self: SharedConnection, *_: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(SharedConnection, "_queue", denied)
    assert names(store) == set()
    with raises("unwritable-store"):
        written(store, "never")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_opens_the_file_for_itself(folder: Path) -> None:
    store = Store(folder)
    written(store, "parent")
    child = os.fork()
    if not child:
        try:
            written(store, "child")
            store.database.close()
            os._exit(0 if names(store) == {"parent", "child"} else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    written(store, "again")
    assert names(store) == {"parent", "child", "again"}


ALONE = """
import sys, time
from pathlib import Path
from results.store import holder, shared_connection
from results.store.attached import AttachedFile
from results.store.store import Store
shared_connection.IDLE_S = 600.0
store = Store(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    store.put_experiment(f"{sys.argv[3]} {number}", "name: x", None, None, None, [])
    print(number, flush=True)
sys.stdin.readline()
"""


def start(folder: Path, count: int, name: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, *options, "-c", ALONE, str(folder), str(count), name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_who_waits_for_an_idle_process_that_keeps_the_file_is_let_in_at_once(folder: Path) -> None:
    with start(folder, 1, "other", "-W", "error::ResourceWarning") as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert f"process {process.pid} (" in holder.named(folder)
        waits = []
        for work in (lambda: names(Store(folder)), lambda: written(Store(folder), "mine")):
            began = time.monotonic()
            work()
            waits.append(time.monotonic() - began)
        response = process.communicate("end\n", 60)
    assert process.returncode == 0
    assert response[1] == ""  # no ResourceWarning, no error at the end
    assert names(Store(folder)) == {"other 0", "mine"}
    assert max(waits) < 5, waits  # milliseconds on an idle machine; ten minutes, were the file not given back


@pytest.mark.slow
def test_killing_who_keeps_the_file_or_waits_for_it_leaves_nothing_stuck_and_loses_nothing(folder: Path) -> None:
    store = Store(folder)
    with start(folder, 10**6, "busy") as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        with start(folder, 10**6, "also busy") as waiting:
            assert waiting.stdout is not None
            waiting.stdout.readline()
            waiting.send_signal(signal.SIGKILL)
            also = [int(line) for line in waiting.stdout]
        busy.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in busy.stdout]
    began = time.monotonic()
    kept = names(store)
    written(store, "after")
    assert time.monotonic() - began < 10
    assert kept >= {f"busy {number}" for number in acknowledged} | {f"also busy {number}" for number in also}


def _write(folder: Path, name: str, waits: Any) -> None:
    store, longest = Store(folder), 0.0
    for number in range(100):
        began = time.monotonic()
        with store.database.writing() as connection:
            connection.execute("INSERT INTO violations VALUES (?, ?)", [name, f"{number}"])
        longest = max(longest, time.monotonic() - began)
    waits.put(longest)


@pytest.mark.slow
def test_two_writers_and_a_reader_lose_nothing_and_none_waits_long(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    waits, store, before = context.Queue(), Store(folder), 0
    processes = [context.Process(target=_write, args=(folder, f"writer {number}", waits)) for number in range(2)]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        with store.database.reading() as connection:
            (result,) = connection.execute("SELECT count(*) FROM violations").fetchone() or (0,)
        assert result >= before
        before = result
        time.sleep(0.01)
    assert [process.exitcode for process in processes] == [0, 0]
    with store.database.reading() as connection:
        rows = connection.execute("SELECT run, count(*), count(DISTINCT what) FROM violations GROUP BY run ORDER BY run").fetchall()
    assert rows == [("writer 0", 100, 100), ("writer 1", 100, 100)]
    assert max(waits.get(timeout=10) for _ in processes) < 15


def test_process_that_ends_during_a_query_ends_well(folder: Path) -> None:
    script = f"""
import threading, time
from pathlib import Path
from results.store.store import Store
store, asking = Store(Path({str(folder)!r})), threading.Event()

def ask():
    with store.database.reading() as connection:
        asking.set()
        connection.execute("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7")

threading.Thread(target=ask, daemon=True).start()
asking.wait()
time.sleep(0.2)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
