"""The write-ahead log is switched on even while another process is using the file."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from methods.models.reply_cache import use_wal


def locked(path: Path) -> sqlite3.Connection:
    """Return a connection that locks the file until it commits."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("CREATE TABLE there (number INTEGER)")
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_use_wal_waits_for_a_locked_file(tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    with closing(locked(path)) as holder, closing(sqlite3.connect(path, timeout=0.0)) as asking:
        release = threading.Timer(0.1, lambda: holder.execute("COMMIT"))
        release.start()
        use_wal(asking, 60.0)
        release.join()
        assert asking.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_use_wal_fails_after_its_time_limit(tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    with (
        closing(locked(path)),
        closing(sqlite3.connect(path, timeout=0.0)) as asking,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        use_wal(asking, 0.05)


def test_use_wal_raises_other_errors_immediately(tmp_path: Path) -> None:
    path = tmp_path / "file.sqlite"
    path.write_bytes(b"no database, but long enough to be taken for the header of one " * 20)
    with closing(sqlite3.connect(path)) as asking, pytest.raises(sqlite3.DatabaseError, match="not a database"):
        use_wal(asking, 3600.0)
