"""The DuckDB file itself: opening it, its schema, and sharing it between processes.

DuckDB lets one process write and nobody else read meanwhile, so every connection here is short-lived: writers
take turns on a lock file, and whoever finds the database busy tries again.
"""

from __future__ import annotations

import importlib.resources
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from benchmarks.errors import Broke, UserError

FILE = "store.duckdb"
PATIENCE_S = 60.0
"""How long a connection waits for its turn before it gives up."""
SCHEMA_VERSION = 1

_in_process = threading.RLock()
"""DuckDB refuses a read-only and a writing connection to one file in one process at once."""


class DiskFull(Broke):
    """The store's disk is full; what was written before is kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            "the disk is full",
            where=str(path),
            try_this="free some space, then `ragmeter resume`; every question finished before is kept",
        )


class Database:
    """A DuckDB file in a folder.

    Args:
        folder: The store folder; created when first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        self._checked = False

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction: all of it is on disk when the block ends, or none of it.

        Raises:
            UserError: The disk is full, the file belongs to another program, or the lock stays taken.
        """
        self._make_folder()
        lock = FileLock(str(self.folder / "store.lock"), timeout=PATIENCE_S)
        try:
            with _in_process, lock, self._connect(read_only=False) as connection:
                if not self._checked:
                    self._check_schema(connection)
                connection.execute("BEGIN")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise
        except Timeout:
            raise Broke(
                f"another process has been writing to the store for over {PATIENCE_S:.0f} s",
                where=str(self.folder),
                try_this="wait for it, or end it; nothing finished is lost",
            ) from None
        except (OSError, duckdb.Error) as error:
            raise _explained(error, self.path) from error

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection.

        Raises:
            UserError: There is no store here, or the file belongs to another program.
        """
        if not self.exists:
            raise UserError(
                "there is no store here yet", where=str(self.folder), try_this="ragmeter demo, or --store FOLDER"
            )
        try:
            with _in_process, self._connect(read_only=True) as connection:
                if not self._checked:
                    _require_ours(connection, self.path)
                    self._checked = True
                yield connection
        except duckdb.IOException as error:
            raise _explained(error, self.path) from error

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the store folder cannot be made: {error.strerror}", where=str(self.folder), try_this="--store FOLDER"
            ) from error

    @contextmanager
    def _connect(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = duckdb.connect(str(self.path), read_only=read_only)
                break
            except duckdb.Error as error:
                if not _busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.005, 0.05))
        try:
            yield connection
        finally:
            connection.close()

    def _check_schema(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create our tables in an empty file; refuse a file that is not ours."""
        tables = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone()
        if tables == (0,):
            script = importlib.resources.files("results").joinpath("schema/0001.sql").read_text("utf-8")
            connection.execute("BEGIN")
            connection.execute(script)
            connection.execute(
                "INSERT INTO ragmeter_schema VALUES (?, ?, ?)", [SCHEMA_VERSION, now(), _ragmeter_version()]
            )
            connection.execute("COMMIT")
        else:
            _require_ours(connection, self.path)
        self._checked = True


def now() -> datetime:
    """The present moment, UTC without a zone, as the store keeps it."""
    return datetime.now(UTC).replace(tzinfo=None)


def _ragmeter_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ragmeter")
    except PackageNotFoundError:
        return "source"


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("ROLLBACK")
    except duckdb.Error:
        # A failed commit has rolled back already; the error that matters is the first one.
        return


def _require_ours(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    names = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "ragmeter_schema" not in names:
        raise UserError(
            "this DuckDB file belongs to another program",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        )
    found: Any = connection.execute("SELECT max(version) FROM ragmeter_schema").fetchone()
    if found[0] != SCHEMA_VERSION:
        raise UserError(
            f"the store has schema version {found[0]}, this ragmeter speaks {SCHEMA_VERSION}",
            where=str(path),
            try_this="use the ragmeter release that wrote it, or another --store FOLDER",
        )


def _busy(error: duckdb.Error) -> bool:
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "different configuration" in text


def _explained(error: Exception, path: Path) -> Exception:
    """A user's error for what a user can mend; anything else as it is."""
    text = str(error)
    if "No space left" in text or getattr(error, "errno", None) == 28:
        return DiskFull(path)
    if "not a valid DuckDB database" in text or "magic bytes" in text:
        return UserError(
            "this file is not a DuckDB database",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        )
    if "Permission denied" in text or getattr(error, "errno", None) in (13, 30):
        return UserError("the store cannot be written", where=str(path), try_this="--store FOLDER")
    if isinstance(error, duckdb.Error) and _busy(error):
        return Broke("another program keeps the store open", where=str(path), try_this="close it, then try again")
    return error
