"""The DuckDB file itself: its schema, and the one connection that a process has to it.

DuckDB allows either one process that writes, or several that read. Opening the file takes longer than most queries, so
a process keeps it open. It closes the file after a moment without use, or between two transactions if another process
waits. A waiting process holds the lock `store.queue` until its turn, and touches `store.wanted`, which the process with
the open file checks. Locks end with their process, and each touch is one request.
"""

from __future__ import annotations

import atexit
import errno
import importlib.resources
import os
import random
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from benchmarks.core.errors import Broke, UserError
from results.store import holder, losses
from results.store.mounts import refuse_network

FILE, WANTED = "store.duckdb", "store.wanted"
SCHEMA = 10
"""Version of `schema.sql`."""
PATIENCE_S = 60.0
"""Seconds that a connection waits for the file before it raises an error."""
IDLE_S = 0.5
"""Idle seconds after which the file is closed; less than the second between two writes of a run, for processes that cannot signal."""
LOOK_S = 0.02
"""Seconds between two checks for waiting processes while the file is idle."""
TENURE_S = 0.1
"""Minimum seconds that a busy process keeps the file while others wait, because a handover costs more than a write."""
_FAREWELL_S = 5.0
"""Maximum wait at the end of the process for closing threads."""


class DiskFull(Broke):
    """Raised if a file of the store cannot grow because the disk is full; data written before are kept."""

    def __init__(self, path: Path, what: str = "the disk is full") -> None:
        super().__init__(
            what,
            code="disk-full",
            where=str(path),
            try_this="free some space or raise the limit, then repeat the command (`ragmeter run --resume` for a run); "
            "finished work is kept",
        )


class Damaged(Broke):
    """Raised if the store's file lost content because it was truncated or overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            "the store's file is damaged or cut off",
            code="damaged-store",
            where=str(path),
            try_this="put a backup in its place, or name another --store FOLDER and fill it with `ragmeter results "
            "merge` from exports or other stores; the file was left as it is",
        )


class Database:
    """DuckDB file in a folder; all `Database` objects for one file share a connection per process.

    Args:
        folder: The store folder; created on the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE

    @property
    def exists(self) -> bool:
        """Return whether the store's file exists.

        Raises:
            UserError: The folder's path is a file.
        """
        if self.path.exists():
            return True
        if self.folder.is_file():
            what = "this is a file; a store is a folder"
            raise UserError(what, code="unreadable-store", where=str(self.folder), try_this="--store FOLDER")
        return False

    @cached_property
    def _shared(self) -> _Shared:
        path = self.path.resolve()
        with _registering:
            return _by_path.setdefault(path, _Shared(path))

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a write transaction, committed to disk when the block ends or rolled back on an error.

        Raises:
            UserError: The disk is full, the file belongs to another program or version, or the lock stays taken.
        """
        self._make_folder()
        self._require_file()
        with self._explaining(), self._shared.writing() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection for reading a consistent snapshot; a nested block in the same thread shares the outer one's.

        Raises:
            UserError: There is no store here, or the file belongs to another program or version.
        """
        if not self.exists:
            what = "there is no store here yet"
            raise UserError(what, code="unreadable-store", where=str(self.folder), try_this="ragmeter demo, or --store FOLDER")
        self._require_file()
        with self._explaining(), self._shared.reading() as connection:
            yield connection

    def rows(self, query: str, values: Sequence[object] = (), *, lenient: bool = False) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; with `lenient`, return no rows if there is no store yet.

        A query that was asked before within this thread's outermost block of `reading` is not asked again.

        Raises:
            UserError: As for `reading`.
        """
        if lenient and not self.exists:
            return []
        with self.reading() as connection:
            known, key = self._shared.known, (query, repr(values))
            if key not in known:
                known[key] = connection.execute(query, values).fetchall()
            return [*known[key]]

    def open_to_write(self) -> None:
        """Open the file for writing now: if it is read before the first write, it need not be opened twice.

        Raises:
            UserError: As `writing`.
        """
        self._make_folder()
        self._require_file()
        with self._explaining(), self._shared.cursor(read_only=False):
            pass

    @contextmanager
    def alone(self) -> Iterator[Path]:
        """Lock out other processes and provide the closed database file, so that it can be replaced.

        Raises:
            UserError: There is no store here, the disk is full, or the lock stays taken.
        """
        with self.reading():
            pass
        with self._explaining(), self._shared.alone():
            yield self.path

    def close(self) -> None:
        """Close the file unless a thread is using it; it is reopened when needed."""
        self._shared.close()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except Timeout:
            raise Broke(
                f"the store was in use for over {PATIENCE_S:.0f} s: {holder.named(self.folder)}",
                code="store-busy",
                where=str(self.folder),
                try_this="wait for that process, or end it; nothing finished is lost",
            ) from None
        except (OSError, duckdb.Error) as error:
            raise _explained(error, self.path) from error

    def _require_file(self) -> None:
        if self.path.is_dir():
            raise UserError(
                f"{FILE} is a folder; it must be a file",
                code="folder-instead-of-file",
                where=str(self.path),
                try_this="rename or remove it, or --store FOLDER",
            )

    def _make_folder(self) -> None:
        refuse_network(self.folder.absolute())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the store folder cannot be made: {error.strerror}",
                code="unwritable-store-folder",
                where=str(self.folder),
                try_this="--store FOLDER",
            ) from error


class _Shared:
    """The only connection of this process to a file, for all threads: for reading until one writes.

    Args:
        path: The file, without links on the way to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wanted = path.with_name(WANTED)
        # Readers of a process that writes are not kept apart by the lock of DuckDB, which any copying of the file in
        # this process would free.
        self._lock = FileLock(str(path.with_name("store.lock")), timeout=0, thread_local=False)
        self._turn = threading.Condition()
        self._one_writer = threading.Lock()
        self._mine = threading.local()
        self._held: duckdb.DuckDBPyConnection | None = None
        self._read_only = True
        self._users = 0
        self._cursors: list[duckdb.DuckDBPyConnection] = []
        self._writer_waits = False
        self._spoilt = False
        self._file: tuple[int, int] | None = None
        self._request: int | None = None
        self._since = self._left = 0.0
        self._ending = threading.Event()
        self._watcher: threading.Thread | None = None
        self._forked: duckdb.DuckDBPyConnection | None = None
        self._explained_once = False

    @property
    def is_open(self) -> bool:
        """Return whether the file is open."""
        return self._held is not None

    @property
    def known(self) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        """Return the rows, by query and values, that this thread has read in its outermost block, which sees one state."""
        return self._mine.known

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a cursor of this thread in a transaction."""
        outer: duckdb.DuckDBPyConnection | None = getattr(self._mine, "reading", None)
        if outer is not None:
            yield outer
            return
        with self.cursor(read_only=True) as own:
            own.execute("BEGIN")
            self._mine.reading, self._mine.known = own, {}
            try:
                yield own
            finally:
                self._mine.reading, self._mine.known = None, {}

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a cursor in a transaction that is committed at the end; for one thread at a time."""
        if getattr(self._mine, "reading", None) is not None or getattr(self._mine, "writes", False):
            raise RuntimeError("a thread cannot begin to write to a store while it reads it or writes to it")
        with self._one_writer, self.cursor(read_only=False) as own:
            self._mine.writes = True
            try:
                own.execute("BEGIN")
                yield own
                recording = losses.Recording(self.path.parent, own)
                own.execute("COMMIT")
                recording.committed()
            except BaseException:
                # A failed commit has rolled back already; the error that matters is the first one.
                with suppress(duckdb.Error):
                    own.execute("ROLLBACK")
                raise
            finally:
                self._mine.writes = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Close the file for a block, and keep all threads and processes from opening it for writing."""
        with self._one_writer, self._turn:
            self._turn.wait_for(lambda: not self._users)
            self._close()
            waiting = _Waiting(self.path.parent)
            with self._queue(waiting):
                self._open(waiting, read_only=False)
                assert self._held is not None
                self._held.execute("CHECKPOINT")
                self._close(keep_lock=True)
                try:
                    yield
                finally:
                    self._release()

    def close(self) -> None:
        """Close the file unless it is in use."""
        with self._turn:
            if not self._users:
                self._close()

    def end(self) -> None:
        """Close at exit, because Python would abort a thread inside DuckDB."""
        self._ending.set()
        watcher = self._watcher
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join(_FAREWELL_S)
        if self._turn.acquire(timeout=_FAREWELL_S):
            try:
                if self._held is not None:
                    # DuckDB does not close a file in use; a thread that still asks gets an error instead.
                    for cursor in self._cursors:
                        cursor.interrupt()
                    self._turn.wait_for(lambda: not self._users, _FAREWELL_S)
                with suppress(duckdb.Error):
                    self._close()
            finally:
                self._turn.release()

    @contextmanager
    def cursor(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a cursor of this thread outside a transaction; open the file if necessary."""
        with self._turn:
            self._writer_waits = self._writer_waits or not read_only
            try:
                if not self._turn.wait_for(lambda: self._ready(read_only), PATIENCE_S):
                    raise Timeout(str(self.path))
                assert self._held is not None
                own = self._held.cursor()
            finally:
                if not read_only:
                    self._writer_waits = False
                    self._turn.notify_all()
            self._users += 1
            self._cursors.append(own)
        try:
            yield own
        except duckdb.Error:
            # The connection may be unusable from now on, for example after a full disk.
            self._spoilt = True
            raise
        finally:
            own.close()
            with self._turn:
                self._cursors.remove(own)
                self._users -= 1
                self._left = time.monotonic()
                if not self._users and self._due():
                    self._close()
                self._turn.notify_all()

    def _ready(self, read_only: bool) -> bool:
        """Return whether this thread can get a cursor; open the file if necessary."""
        if self._forked is not None:
            raise RuntimeError("this process was forked while a thread used the store; start it by `spawn`")
        fits = self._held is not None and (read_only or not self._read_only)
        if fits and getattr(self._mine, "writes", False):
            return True  # or the thread would wait for itself
        if read_only and self._writer_waits and self._read_only:
            return False
        if self._users:
            return fits and not self._due()
        if not fits or self._due():
            self._close()
            waiting = _Waiting(self.path.parent)
            with ExitStack() as stack:
                try:
                    stack.enter_context(self._queue(waiting))
                except Timeout:
                    raise
                except OSError:
                    # The folder belongs to another user: reading needs no write access.
                    if not read_only:
                        raise
                self._open(waiting, read_only=read_only)
        return True

    @contextmanager
    def _queue(self, waiting: _Waiting) -> Iterator[None]:
        """Wait for this process's turn; a process that uses the file continuously cannot overtake waiting ones."""
        lock = FileLock(str(self.path.with_name("store.queue")), poll_interval=0.01)
        try:
            lock.acquire(timeout=holder.TELL_S)
        except Timeout:
            waiting.tell(None)
            lock.acquire(timeout=waiting.left)
        try:
            yield
        finally:
            lock.release()

    def _open(self, waiting: _Waiting, *, read_only: bool) -> None:
        """Open the file; ask the process that holds it to close it."""
        while True:
            try:
                self._held, self._read_only = self._opened(read_only)
                break
            except (Timeout, duckdb.Error) as error:
                if (isinstance(error, duckdb.Error) and not busy(error)) or not waiting.left:
                    raise
                if waiting.seconds > holder.TELL_S:
                    waiting.tell(error)
            with suppress(OSError):
                self._wanted.touch()
            time.sleep(random.uniform(0.002, 0.02))
        self._file, self._request, self._spoilt = self._identity(), self._last_request(), False
        self._since = self._left = time.monotonic()
        self._watcher = threading.Thread(target=self._watch, args=(self._held,), name="store", daemon=True)
        try:
            self._watcher.start()
        except RuntimeError:
            # It would never be closed.
            self._close()
            raise

    def _opened(self, read_only: bool) -> tuple[duckdb.DuckDBPyConnection, bool]:
        if not read_only:
            self._lock.acquire()
            holder.note(self.path.parent)
        try:
            connection = duckdb.connect(str(self.path), read_only=read_only)
            try:
                known = _check_schema(connection, self.path)
                if not known and not read_only:
                    _make_schema(connection)
                if (known or not read_only) and self._whole(connection, read_only):
                    return connection, read_only
            except BaseException:
                connection.close()
                raise
            connection.close()
        except BaseException:
            if not read_only:
                self._release()
            raise
        # The process that made the file was killed before it wrote, or lost rows must be marked.
        return self._opened(read_only=False)

    def _whole(self, connection: duckdb.DuckDBPyConnection, read_only: bool) -> bool:
        """Report the rows lost since the last commit, and mark their runs; return False if that needs a writing connection."""
        folder = self.path.parent
        recorded, present = losses.read(folder), losses.count(connection)
        missing = losses.lost(recorded or {}, present)
        if not missing and (recorded is not None or not present):
            return True
        if read_only and os.access(self.path, os.W_OK) and os.access(folder, os.W_OK):
            return False
        if not self._explained_once:
            sys.stderr.write((losses.described(missing, folder) if missing else losses.unknown(folder)) + "\n")
        self._explained_once = read_only or not missing
        if not read_only:
            # On a full disk nothing can be marked; the store can still be read, and the next opening reports the loss again.
            with suppress(duckdb.Error):
                losses.mark(connection, missing)
                losses.write(folder, losses.count(connection))
        return True

    def _close(self, *, keep_lock: bool = False) -> None:
        connection, self._held = self._held, None
        if connection is not None:
            try:
                connection.close()
            finally:
                if not self._read_only and not keep_lock:
                    self._release()

    def _release(self) -> None:
        holder.forget(self.path.parent)
        self._lock.release()

    def _due(self) -> bool:
        """Return whether the file must be closed as soon as no thread uses it."""
        if self._spoilt or self._identity() != self._file:
            return True
        return time.monotonic() - self._since > TENURE_S and self._last_request() != self._request

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode, which change if another file replaces this one, for example a restored backup."""
        with suppress(OSError):
            result = os.stat(self.path)
            return result.st_dev, result.st_ino
        return None

    def _last_request(self) -> int | None:
        """Return the time of the last request of a waiting process."""
        with suppress(OSError):
            return os.stat(self._wanted).st_mtime_ns
        return None

    def _watch(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Close the file in time, from a separate thread."""
        while not self._ending.wait(LOOK_S) and self._held is connection:
            unused = time.monotonic() - self._left
            if not self._users and (unused > IDLE_S or self._due() or (unused > LOOK_S and self._last_request() != self._request)):
                with self._turn:
                    if self._held is connection and not self._users:
                        self._close()
                        self._turn.notify_all()

    def before_fork(self) -> None:
        """Close the file before a fork, which threads and locks of a database do not survive."""
        self._turn.acquire()
        if not self._users:
            self._close()

    def after_fork(self, *, child: bool) -> None:
        """Continue after a fork; the child gets new locks."""
        if not child:
            self._turn.release()
            return
        used = self._held
        self.__init__(self.path)  # type: ignore[misc]
        self._forked = used


class _Waiting:
    """A wait for the store; its reason is printed once, on standard error.

    Args:
        folder: The store folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since = time.monotonic()
        self._explained_once = False

    @property
    def seconds(self) -> float:
        """Return the seconds so far."""
        return time.monotonic() - self._since

    @property
    def left(self) -> float:
        """Return the remaining seconds."""
        return max(0.0, PATIENCE_S - self.seconds)

    def tell(self, error: Exception | None) -> None:
        """Name the process that holds the store."""
        if not self._explained_once:
            self._explained_once = True
            sys.stderr.write(
                f"waiting for the store {self._folder}: {holder.named(self._folder, error)}; it gives up after {PATIENCE_S:.0f} s\n"
            )


_by_path: dict[Path, _Shared] = {}
_registering = threading.Lock()


@atexit.register
def _end() -> None:
    for shared in [*_by_path.values()]:
        shared.end()


def _before_fork() -> None:
    _registering.acquire()
    for shared in _by_path.values():
        shared.before_fork()


def _after_fork(child: bool) -> None:
    for shared in _by_path.values():
        shared.after_fork(child=child)
    _registering.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=lambda: _after_fork(False), after_in_child=lambda: _after_fork(True))


def now() -> datetime:
    """Return the current UTC time without a time zone, the form in which the store keeps times."""
    return datetime.now(UTC).replace(tzinfo=None)


def _check_schema(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Return whether an open file has a schema; False for an empty file.

    Raises:
        UserError: The file belongs to another program, or to another version of ragmeter.
    """
    try:
        row = connection.execute("SELECT version, ragmeter FROM ragmeter_schema ORDER BY version DESC LIMIT 1").fetchone()
    except duckdb.CatalogException:
        if not connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            return False
        raise UserError(
            "this DuckDB file belongs to another program",
            code="foreign-database",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        ) from None
    version, writer = row if row else (0, "?")
    if version != SCHEMA:
        # The command of those versions; from 7 on it is another.
        export = "results export FOLDER" if version < 7 else "store export -o FOLDER"
        raise UserError(
            f"the store has schema version {version}, this ragmeter reads {SCHEMA}",
            code="store-version-mismatch",
            where=str(path),
            try_this=f"with the ragmeter that wrote it (version {writer}): `ragmeter {export} --store {path.parent}`; "
            "then with this one: `ragmeter store import FOLDER --store NEW`; the file was left as it is",
        )
    return True


def _make_schema(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("BEGIN")
    try:
        connection.execute(importlib.resources.files("results.store").joinpath("schema.sql").read_text("utf-8"))
        connection.execute("INSERT INTO ragmeter_schema VALUES (?, ?, ?)", [SCHEMA, now(), _ragmeter_version()])
        connection.execute("COMMIT")
    except duckdb.Error:
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise


def _ragmeter_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ragmeter")
    except PackageNotFoundError:
        return "source"


def busy(error: duckdb.Error) -> bool:
    """Return whether a DuckDB error means that another process has the file open."""
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "different configuration" in text


def _damaged(text: str) -> bool:
    """Return whether DuckDB reports that the store's own file, not an imported one, is damaged."""
    cut = "Could not read enough bytes" in text and (f'{FILE}"' in text or f"{FILE}.wal" in text)
    return cut or "Corrupt database file" in text or "Failure while replaying WAL" in text


_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached the limit on the size of files (`ulimit -f`)",
}


def _explained(error: Exception, path: Path) -> Exception:
    """Return a `UserError` for errors that a user can fix, and all others unchanged."""
    text = str(error)
    for number, what in _FULL.items():
        if os.strerror(number) in text or getattr(error, "errno", None) == number:
            named = re.search(r'file \\?"([^"\\]+)', text)
            return DiskFull(Path(named[1]) if named else Path(getattr(error, "filename", None) or path), what)
    if "not a valid DuckDB database" in text or "magic bytes" in text:
        return UserError(
            "this file is not a DuckDB database",
            code="not-a-database",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        )
    if isinstance(error, duckdb.Error) and _damaged(text):
        return Damaged(path)
    if "Permission denied" in text or getattr(error, "errno", None) in (13, 30):
        return UserError("the store cannot be written", code="unwritable-store", where=str(path), try_this="--store FOLDER")
    if isinstance(error, duckdb.Error) and busy(error):
        what = f"the store was in use for over {PATIENCE_S:.0f} s: {holder.named(path.parent, error)}"
        return Broke(what, code="unreadable-store", where=str(path), try_this="wait for that process, or end it; nothing finished is lost")
    return error
