"""DuckDB instances that are kept from one file to the next: what is reused, what is closed, and that nothing leaks between files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from results.store import attached, shared_connection
from results.store.attached import AttachedFile
from results.store.faults import busy
from results.store.store import Store
from tests.support.errors import raises


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files with which DuckDB instances were started, '' for none; no instance of another test is kept."""
    for held in [*shared_connection._by_path.values()]:
        held.close()
    attached.close_instances()
    results: list[str] = []
    connect = duckdb.connect

    def noting(file: str = "", **options: Any) -> duckdb.DuckDBPyConnection:
        results.append(file)
        return connect(file or ":memory:", **options)

    monkeypatch.setattr(duckdb, "connect", noting)
    return results


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table of one row."""
    result = tmp_path / "store.duckdb"
    file = AttachedFile(result, read_only=False)
    file.connection.execute("CREATE TABLE own AS SELECT 1 AS n")
    file.close()
    return result


def rows(file: AttachedFile, query: str) -> list[tuple[Any, ...]]:
    return file.connection.execute(query).fetchall()


def open_files(path: Path) -> list[str]:
    """Return the files of this process whose paths begin with a path."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.islink(link) and os.readlink(link).startswith(str(path))]


def test_instance_is_reused_for_the_next_file_which_sees_nothing_of_the_last(path: Path, started: list[str]) -> None:
    file = AttachedFile(path, read_only=False)
    cursor = file.cursor()
    cursor.execute("CREATE TEMP TABLE mine AS SELECT 2 AS n")
    cursor.execute("CREATE TEMP VIEW seen AS SELECT n FROM own")
    cursor.execute("SET TimeZone = 'Asia/Tokyo'")
    cursor.close()
    file.close()
    other = AttachedFile(path.with_name("other.duckdb"), read_only=False)
    for connection in (other.connection, other.cursor()):
        assert (
            connection.execute(
                "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal"
            ).fetchall()
            == []
        )
        assert connection.execute("SELECT database_name FROM duckdb_databases() WHERE NOT internal ORDER BY 1").fetchall() == [
            ("memory",),
            ("store",),
        ]
        assert connection.execute("SELECT current_setting('TimeZone') = 'Asia/Tokyo'").fetchall() == [(False,)]
    other.close()
    assert started == [""]


def test_files_open_at_once_have_instances_of_their_own_of_which_few_are_kept(path: Path, started: list[str]) -> None:
    files = [AttachedFile(path.with_name(f"{number}.duckdb"), read_only=False) for number in range(attached._KEPT + 2)]
    for number, file in enumerate(files):
        file.connection.execute(f"CREATE TABLE own AS SELECT {number} AS n")
    for number, file in enumerate(files):
        assert rows(file, "SELECT n FROM own") == [(number,)]
        file.close()
    assert len(started) == len(files)
    assert len(attached._idle) == attached._KEPT


@pytest.mark.parametrize("name", ["it's", 'a "b"', "select", "store", "memory", "x; DETACH store", "?x=1", "ü€"])
def test_any_name_of_a_folder_can_be_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    for read_only in (False, True):
        file = AttachedFile(tmp_path / name / "store.duckdb", read_only=read_only)
        assert rows(file, "SELECT current_database()") == [("store",)]
        file.close()
    assert [file.name for file in (tmp_path / name).iterdir()] == ["store.duckdb"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
@pytest.mark.parametrize("sound", [True, False])
def test_closing_merges_the_log_and_leaves_no_file_open(path: Path, sound: bool) -> None:
    file = AttachedFile(path, read_only=False)
    for use in ("BEGIN; INSERT INTO own VALUES (3)", "SELECT * FROM own, range(1000000)", "BEGIN; SELECT * FROM own"):
        cursor = file.cursor()
        cursor.execute(use)
        cursor.close()
    kept = file.cursor()
    relation = kept.sql("SELECT n FROM own")
    kept.close()
    file.connection.execute("INSERT INTO own VALUES (2)")
    assert path.with_name("store.duckdb.wal").exists()
    assert open_files(path)
    file.close(sound=sound)
    assert open_files(path) == []
    assert len(attached._idle) == sound
    assert not path.with_name("store.duckdb.wal").exists()
    del relation
    again = AttachedFile(path, read_only=True)
    assert rows(again, "SELECT n FROM own ORDER BY n") == [(1,), (2,)]
    again.close()
    assert open_files(path) == []


def test_instance_of_a_large_or_removed_file_is_not_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, removed, kept in ((path.stat().st_size + 1, False, 1), (path.stat().st_size, False, 0), (2**60, True, 0)):
        monkeypatch.setattr(attached, "_LARGE_BYTES", size)
        file = AttachedFile(path, read_only=True)
        if removed:
            path.unlink()
        file.close()
        assert len(attached._idle) == kept


def test_instance_that_wrote_to_its_folder_for_large_queries_ends_with_its_file(path: Path) -> None:
    file = AttachedFile(path, read_only=True)
    folder = path.with_name("store.duckdb.tmp")
    file.connection.execute("SET memory_limit = '30MB'")
    cursor = file.cursor()
    cursor.execute("CREATE TEMP TABLE large AS SELECT i, hash(i) AS h FROM range(4000000) t(i)")
    assert folder.exists()
    cursor.close()
    file.close()
    assert attached._idle == []
    assert not folder.exists()
    other = AttachedFile(path, read_only=True)
    assert rows(other, "SELECT current_setting('memory_limit') = '28.6 MiB', current_setting('temp_directory')") == [(False, str(folder))]
    other.close()


LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
file.seek(100)
file.write(b"x" * 12000)
file.flush()
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files are others there")
@pytest.mark.parametrize("read_only", [True, False])
def test_file_that_another_process_locks_is_busy_and_the_instance_is_kept(path: Path, read_only: bool, started: list[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(3):
            with pytest.raises(duckdb.Error) as caught:
                AttachedFile(path, read_only=read_only)
            assert busy(caught.value)
        process.communicate("\n")
    with pytest.raises(duckdb.Error) as caught:
        AttachedFile(path, read_only=read_only)
    assert not busy(caught.value)
    assert started == [""]  # kept while another process had the file
    assert attached._idle == []


def test_file_that_another_part_of_the_process_writes_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_connection, "PATIENCE_S", 0.1)
    with duckdb.connect(str(path)):
        for use in (lambda: Store(path.parent).status("x"), lambda: Store(path.parent).put_cards([], [])):
            with raises("unreadable-store"):
                use()
    with raises("foreign-database"):
        Store(path.parent).status("x")


def test_file_of_another_kind_of_database_is_refused_without_a_download(tmp_path: Path) -> None:
    content = b"SQLite format 3\0" + bytes(5000)
    (tmp_path / "store.duckdb").write_bytes(content)
    for use in (lambda: Store(tmp_path).status("x"), lambda: Store(tmp_path).put_cards([], [])):
        with raises("not-a-database"):
            use()
    assert (tmp_path / "store.duckdb").read_bytes() == content


def test_error_in_one_store_leaves_the_other_open_and_its_instance_is_not_kept(tmp_path: Path) -> None:
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    for store in (one, other):
        store.put_cards([], [])
    with other.database.reading() as reading:
        held = other.database._shared._held
        with pytest.raises(duckdb.CatalogException), one.database.writing() as connection:
            connection.execute("SELECT 1 FROM nowhere")
        assert not one.database._shared.is_open
        assert attached._idle == []
        assert reading.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
        one.put_cards([], [])
    assert other.database._shared._held is held


def test_watching_thread_ends_with_its_opening_though_the_instance_is_the_same(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_connection, "IDLE_S", 600.0)
    store = Store(tmp_path)
    store.put_cards([], [])
    watchers = []
    for _ in range(4):
        store.database.close()
        store.status("x")
        watchers.append(store.database._shared._watcher)
    for watcher in watchers[:-1]:
        assert watcher is not None
        watcher.join(30)
        assert not watcher.is_alive()
    assert watchers[-1] is not None
    assert watchers[-1].is_alive()
    assert started == [""]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_no_instance_is_kept_over_a_fork(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_cards([], [])
    store.database.close()
    assert len(attached._idle) == 1
    child = os.fork()
    if not child:
        os._exit(0 if attached._idle == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert attached._idle == []


FULL_AT_FIRST = """
import resource, signal, sys
from pathlib import Path
from benchmarks.core.errors import UserError
from results.store.store import Store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for size in (0, 100, 4096, 8192, 12288):
    store = Store(Path(sys.argv[1]) / str(size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        store.database.open_to_write()
    except UserError as error:
        assert error.code == "disk-full", error
    else:
        raise AssertionError(size)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.database.open_to_write()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit on the size of files here")
def test_store_that_a_full_disk_could_not_hold_is_made_later(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_AT_FIRST, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_log_of_a_missing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "store.duckdb.wal").write_bytes(b"rows")
    with raises("damaged-store"):
        Store(tmp_path).database.open_to_write()
    assert (tmp_path / "store.duckdb.wal").read_bytes() == b"rows"
    assert not (tmp_path / "store.duckdb").exists()


FULL = """
import resource, signal, sys
from pathlib import Path
from benchmarks.core.errors import UserError
from results.store.store import Store

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
one, other = (Store(Path(sys.argv[1]) / name) for name in ("one", "other"))
many = "INSERT INTO violations SELECT hash(i)::VARCHAR, hash(i, 1)::VARCHAR FROM range(?) t(i)"

def count(store):
    with store.database.reading() as connection:
        return connection.execute("SELECT count(*) FROM violations").fetchall()[0][0]

def write(store, rows):
    with store.database.writing() as connection:
        connection.execute(many, [rows])

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

for store in (one, other):
    write(store, 10)
limit(2_000_000)
for rows in (60_000, 1_000_000):  # the log is full, or the file
    try:
        write(one, rows)
    except UserError as error:
        assert error.code == "disk-full", error
    else:
        raise AssertionError(rows)
    write(other, 10)
    write(one, 10)
assert (count(one), count(other)) == (30, 30)
write(one, 20_000)
limit(500_000)  # the log cannot be merged
one.database.close()
assert (one.folder / "store.duckdb.wal").stat().st_size > 500_000
limit(resource.RLIM_INFINITY)
assert (count(one), count(other)) == (20_030, 30)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit on the size of files here")
def test_full_disk_in_one_store_loses_nothing_and_leaves_the_other_usable(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_open_files_at_once(tmp_path: Path) -> None:
    counts: dict[int, int] = {}

    def use(number: int) -> None:
        store = Store(tmp_path / f"{number}")
        for _ in range(3):
            store.put_experiment(f"{number}", "name: x", None, None, None, [])
            with store.database.reading() as connection:
                counts[number] = len(connection.execute("SELECT name FROM experiments WHERE name = ?", [f"{number}"]).fetchall())
            store.database.close()

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert counts == dict.fromkeys(range(4), 1)
    assert len(attached._idle) <= attached._KEPT
