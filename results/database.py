"""The DuckDB file itself: opening it, its schema, and sharing it between processes.

DuckDB lets one process write and nobody else read meanwhile, so every connection here is short-lived: writers
take turns on a lock file, and whoever finds the database busy tries again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from benchmarks.errors import Broke, UserError
from results.lingering import Lingering
from results.migrations import migrate, newest, version_of

FILE = "store.duckdb"
PATIENCE_S = 60.0
"""How long a connection waits for its turn before it gives up."""

_in_process = threading.RLock()
"""DuckDB refuses a read-only and a writing connection to one file in one process at once."""


class DiskFull(Broke):
    """The store's disk is full; what was written before is kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            "the disk is full", where=str(path), try_this="free some space, then `ragmeter resume`; every question finished before is kept"
        )


class Damaged(Broke):
    """The store's file has lost some of its content: it was cut off, or written over."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            "the store's file is damaged or cut off",
            where=str(path),
            try_this="put a backup in its place, or name another --store FOLDER and fill it with `ragmeter results "
            "merge` from exports or other stores; the file was left as it is",
        )


class Database:
    """A DuckDB file in a folder.

    Args:
        folder: The store folder; created when first written to.
        linger_s: Seconds that readers keep the file open after a question, unless a writer waits; 0 closes it at once.
    """

    def __init__(self, folder: Path, *, linger_s: float = 0.0) -> None:
        self.folder = folder
        self.path = folder / FILE
        self._checked = False
        self._lingering = _lingering(self, linger_s) if linger_s else None
        self._opened = threading.local()
        self.backup: Path | None = None
        """Where an older file was kept that had to be migrated."""

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
        try:
            with _in_process, self._alone_with() as connection:
                if not self._checked:
                    self.backup = migrate(connection, self.path) or self.backup
                    self._checked = True
                connection.execute("BEGIN")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    _roll_back(connection)
                    raise
        except Timeout:
            raise self._kept_busy() from None
        except (OSError, duckdb.Error) as error:
            raise _explained(error, self.path) from error

    @contextmanager
    def alone(self) -> Iterator[Path]:
        """The file itself, closed and complete, while nobody else writes; for those who replace it.

        Raises:
            UserError: There is no store here, the disk is full, or the lock stays taken.
        """
        with self.reading():
            pass
        try:
            with _in_process, self._queue(), self._lock():
                with self._connect(read_only=False) as connection:
                    connection.execute("CHECKPOINT")
                yield self.path
        except Timeout:
            raise self._kept_busy() from None
        except (OSError, duckdb.Error) as error:
            raise _explained(error, self.path) from error

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection; within another such block of this thread, that block's.

        Raises:
            UserError: There is no store here, or the file belongs to another program.
        """
        opened: duckdb.DuckDBPyConnection | None = getattr(self._opened, "connection", None)
        if opened is not None:
            yield opened
            return
        if not self.exists:
            what = "this is a file; a store is a folder" if self.folder.is_file() else "there is no store here yet"
            raise UserError(what, where=str(self.folder), try_this="ragmeter demo, or --store FOLDER")
        try:
            if not self._checked:
                with self._reader() as connection:
                    current = version_of(connection, self.path) == newest()
                if current:
                    self._checked = True
                else:
                    self._bring_up_to_date()
            with self._reader() as connection:
                self._opened.connection = connection
                try:
                    yield connection
                finally:
                    self._opened.connection = None
        except duckdb.Error as error:
            raise _explained(error, self.path) from error

    @contextmanager
    def _reader(self) -> Iterator[duckdb.DuckDBPyConnection]:
        # Writers that wait for readers to leave go first. Where it cannot be told whether one does, nothing lingers.
        told = self._queue_is_free(PATIENCE_S) is not None
        if self._lingering is not None and told:
            with self._lingering.cursor() as connection:
                yield connection
            return
        with _in_process, self._connect(read_only=True) as connection:
            yield connection

    def _lock(self) -> FileLock:
        return FileLock(str(self.folder / "store.lock"), timeout=PATIENCE_S, poll_interval=0.005)

    def _queue(self) -> FileLock:
        return FileLock(str(self.folder / "store.queue"), timeout=PATIENCE_S, poll_interval=0.01)

    @contextmanager
    def _alone_with(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A writing connection.

        Whoever waits for it stands at the head of the queue until it has it: a process that writes without pause
        cannot take its turn before those that wait, and new readers let it pass.
        """
        with ExitStack() as held:
            with self._queue():
                held.enter_context(self._lock())
                connection = held.enter_context(self._connect(read_only=False))
            yield connection

    def _queue_is_free(self, patience_s: float) -> bool | None:
        """Whether no writer stands in the queue, or none does any more within so many seconds.

        None where that cannot be told: the folder belongs to somebody else, or is read-only.
        """
        try:
            with self._queue().acquire(timeout=patience_s):
                return True
        except Timeout:
            return False
        except OSError:
            return None

    def _kept_busy(self) -> Broke:
        return Broke(
            f"another process has been writing to the store for over {PATIENCE_S:.0f} s",
            where=str(self.folder),
            try_this="wait for it, or end it; nothing finished is lost",
        )

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the store folder cannot be made: {error.strerror}", where=str(self.folder), try_this="--store FOLDER"
            ) from error

    @contextmanager
    def _connect(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        connection = self._opened_file(read_only=read_only)
        try:
            yield connection
        finally:
            connection.close()

    def _opened_file(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return duckdb.connect(str(self.path), read_only=read_only)
            except duckdb.Error as error:
                if not _busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.005, 0.05))

    def _bring_up_to_date(self) -> None:
        """Migrate an older file, keeping a backup beside it."""
        with self.writing():
            pass


_lingering_by_path: dict[Path, Lingering] = {}
_registering = threading.Lock()


def _lingering(database: Database, idle_s: float) -> Lingering:
    """The one connection that readers of a file share in this process, whoever asked for it first."""

    def connect() -> duckdb.DuckDBPyConnection:
        with _in_process:
            return database._opened_file(read_only=True)

    def writer_waits() -> bool:
        return not database._queue_is_free(0)

    path = database.path.resolve()
    with _registering:
        return _lingering_by_path.setdefault(path, Lingering(path, connect, writer_waits, idle_s))


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("ROLLBACK")
    except duckdb.Error:
        # A failed commit has rolled back already; the error that matters is the first one.
        return


def _busy(error: duckdb.Error) -> bool:
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "different configuration" in text


def _damaged(text: str) -> bool:
    """Whether DuckDB says of the store's own file, and not of one that is read into it, that it is not whole."""
    cut = "Could not read enough bytes" in text and (f'{FILE}"' in text or f"{FILE}.wal" in text)
    return cut or "Corrupt database file" in text or "Failure while replaying WAL" in text


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
    if isinstance(error, duckdb.Error) and _damaged(text):
        return Damaged(path)
    if "Permission denied" in text or getattr(error, "errno", None) in (13, 30):
        return UserError("the store cannot be written", where=str(path), try_this="--store FOLDER")
    if isinstance(error, duckdb.Error) and _busy(error):
        return Broke("another program keeps the store open", where=str(path), try_this="close it, then try again")
    return error
