"""A store that stays open between questions: quicker for readers, and never in a writer's way."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import duckdb
import pytest
from filelock import FileLock

from results.lingering import Lingering, _end
from results.store import Store

LONG_S = 600.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store(tmp_path).put_cards([], [])
    return tmp_path


def written(store: Store, name: str) -> None:
    store.put_experiment(name, "name: x", None, None, None, [])


def names(store: Store) -> set[str]:
    with store.database.reading() as connection:
        return {name for (name,) in connection.execute("SELECT name FROM experiments").fetchall()}


def lingering(store: Store) -> Lingering:
    found = store.database._lingering
    assert found is not None
    return found


def until(condition: object, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.01)
    return bool(condition())  # type: ignore[operator]


def test_the_file_stays_open_between_questions_and_closes_in_time(folder: Path) -> None:
    store = Store(folder, linger_s=0.3)
    for _ in range(3):
        names(store)
        assert lingering(store).is_open
    assert until(lambda: not lingering(store).is_open)


def test_an_ordinary_store_closes_at_once(folder: Path) -> None:
    store = Store(folder)
    names(store)
    assert store.database._lingering is None
    duckdb.connect(str(store.database.path)).close()  # refused, were a reading connection still open


@pytest.mark.parametrize("same_process_object", [True, False])
def test_a_writer_need_not_wait_until_readers_have_had_enough(folder: Path, same_process_object: bool) -> None:
    reader = Store(folder, linger_s=LONG_S)
    writer = reader if same_process_object else Store(folder)
    for number in range(3):
        names(reader)
        assert lingering(reader).is_open
        written(writer, f"experiment {number}")  # gives up after a minute, and says so
        assert f"experiment {number}" in names(reader)


def test_a_question_under_way_is_answered_before_a_writer_gets_in(folder: Path) -> None:
    store = Store(folder, linger_s=LONG_S)
    writer = threading.Thread(target=written, args=(Store(folder), "later"))
    with store.database.reading() as connection:
        writer.start()
        time.sleep(0.3)
        assert connection.execute("SELECT count(*) FROM experiments").fetchone() == (0,)
    writer.join(30)
    assert not writer.is_alive()
    assert names(store) == {"later"}


def test_threads_read_at_once_and_see_only_what_they_registered(folder: Path) -> None:
    store, both = Store(folder, linger_s=LONG_S), threading.Barrier(2, timeout=30)
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


def test_readers_and_writers_that_never_rest_all_come_to_their_turn(folder: Path) -> None:
    reader, stop, read = Store(folder, linger_s=LONG_S), threading.Event(), [0] * 3

    def ask(place: int) -> None:
        while not stop.is_set():
            names(reader)
            read[place] += 1

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(10):
            written(Store(folder), f"experiment {number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert len(names(reader)) == 10
    assert min(read) > 0


def test_a_store_that_cannot_be_opened_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path, linger_s=LONG_S)
    (tmp_path / "store.duckdb").write_bytes(b"not a database" * 100)
    for _ in range(2):
        with pytest.raises(Exception, match="not a DuckDB database"):
            names(store)
    (tmp_path / "store.duckdb").unlink()
    written(store, "mended")
    assert names(store) == {"mended"}


def test_a_file_put_in_the_place_of_the_open_one_is_read(folder: Path) -> None:
    store, other = Store(folder, linger_s=LONG_S), Store(folder / "other")
    assert names(store) == set()
    written(other, "restored")
    other.database.path.replace(store.database.path)
    assert names(store) == {"restored"}
    assert names(Store(folder)) == {"restored"}


def test_where_nobody_can_tell_whether_a_writer_waits_nothing_lingers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(folder, linger_s=LONG_S)

    def denied() -> FileLock:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store.database, "_queue", denied)
    assert names(store) == set()
    assert not lingering(store).is_open


@pytest.mark.parametrize("trouble", [RuntimeError("filelock"), OSError("gone")])
def test_trouble_in_looking_for_writers_closes_the_file(folder: Path, trouble: Exception) -> None:
    path = folder / "store.duckdb"

    def waits() -> bool:
        raise trouble

    kept = Lingering(path, lambda: duckdb.connect(str(path), read_only=True), waits, LONG_S)
    with kept.cursor() as cursor:
        assert cursor.execute("SELECT 1").fetchone() == (1,)
    assert until(lambda: not kept.is_open)


def test_a_file_that_nobody_would_close_is_not_left_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "store.duckdb"
    kept = Lingering(path, lambda: duckdb.connect(str(path), read_only=True), lambda: False, LONG_S)

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="new thread"), kept.cursor():
        pass
    assert not kept.is_open


def test_at_the_end_of_the_process_nobody_is_left_inside_the_database(folder: Path) -> None:
    path = folder / "store.duckdb"
    kept = Lingering(path, lambda: duckdb.connect(str(path), read_only=True), lambda: False, LONG_S)
    with kept.cursor() as cursor:
        cursor.execute("SELECT 1")
    (closer,) = kept._closers
    assert closer.is_alive()
    _end(kept._ending, kept._closers, kept._held)
    assert not closer.is_alive()
    assert not kept.is_open


def test_threads_that_have_closed_are_not_kept(folder: Path) -> None:
    path = folder / "store.duckdb"
    kept = Lingering(path, lambda: duckdb.connect(str(path), read_only=True), lambda: True, LONG_S)
    for _ in range(4):
        with kept.cursor():
            pass
        assert until(lambda: not any(one.is_alive() for one in kept._closers))
    assert len(kept._closers) == 1
