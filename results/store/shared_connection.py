"""Share the one connection that a process has to the store's file between its threads, and the file between processes.

DuckDB allows either one process that writes, or several that read. Opening the file takes longer than most queries, so
a process keeps it open. It closes the file after a moment without use, or between two transactions if another process
waits. A waiting process holds the lock `store.queue` until its turn, and touches `store.wanted`, which the process with
the open file checks. Locks end with their process, and each touch is one request.
"""

from __future__ import annotations

import atexit
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from results.store import holder, losses
from results.store.attached import AttachedFile, close_instances
from results.store.faults import Damaged, busy
from results.store.schema import check_schema, make_schema

WANTED = "store.wanted"
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


class SharedConnection:
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
        self._held: AttachedFile | None = None
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
        self._forked: AttachedFile | None = None
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
                self._held.connection.execute("CHECKPOINT")
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

    def _opened(self, read_only: bool) -> tuple[AttachedFile, bool]:
        if not read_only:
            self._lock.acquire()
            holder.note(self.path.parent)
        try:
            if not read_only and not self.path.exists():
                _make(self.path)
            with self._no_writer() if read_only else nullcontext():
                file = AttachedFile(self.path, read_only=read_only)
            try:
                known = check_schema(file.connection, self.path)
                if not known and not read_only:
                    make_schema(file.connection)
                if (known or not read_only) and self._whole(file.connection, read_only):
                    return file, read_only
            except BaseException:
                file.close(sound=False)
                raise
            file.close()
        except BaseException:
            if not read_only:
                self._release()
            raise
        # The process that made the file was killed before it wrote, or lost rows must be marked.
        return self._opened(read_only=False)

    @contextmanager
    def _no_writer(self) -> Iterator[None]:
        """Keep writers out while DuckDB opens the file for reading.

        A file that a writer has just created is empty until DuckDB locks it. A reader without write access to the folder does
        not hold `store.queue`, so only this lock keeps it from opening such a file.

        Raises:
            Timeout: A process writes.
        """
        try:
            self._lock.acquire()
        except Timeout:
            raise
        except OSError:
            # The folder belongs to another user, whose lock can be shared.
            with _shared(Path(self._lock.lock_file)):
                yield
            return
        try:
            yield
        finally:
            self._lock.release()

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
        file, self._held = self._held, None
        if file is not None:
            try:
                # At the end of the process, a thread may still use it.
                file.close(sound=not self._spoilt and not self._users)
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

    def _watch(self, file: AttachedFile) -> None:
        """Close the file in time, from a separate thread."""
        while not self._ending.wait(LOOK_S) and self._held is file:
            unused = time.monotonic() - self._left
            if not self._users and (unused > IDLE_S or self._due() or (unused > LOOK_S and self._last_request() != self._request)):
                with self._turn:
                    if self._held is file and not self._users:
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


@contextmanager
def _shared(lock: Path) -> Iterator[None]:
    """Share a lock whose file this user can only read; without such a file or such locks, continue without it."""
    with ExitStack() as stack:
        with suppress(FileNotFoundError, PermissionError, ImportError):
            import fcntl

            file = stack.enter_context(lock.open("rb"))
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Timeout(str(lock)) from None
        yield


def _make(path: Path) -> None:
    """Make an empty file, whole or not at all: DuckDB refuses one that a full disk or a killed process cut off.

    Raises:
        Damaged: The write-ahead log of a file that is gone is here; DuckDB would empty it.
    """
    if path.with_name(f"{path.name}.wal").exists():
        raise Damaged(path)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        AttachedFile(draft, read_only=False).close()
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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


_by_path: dict[Path, SharedConnection] = {}
_registering = threading.Lock()


def connection_to(path: Path) -> SharedConnection:
    """Return this process's connection to a file, without links on the way to it; the file is opened when it is needed."""
    with _registering:
        return _by_path.setdefault(path, SharedConnection(path))


@atexit.register
def _end() -> None:
    for shared in [*_by_path.values()]:
        shared.end()
    close_instances()


def _before_fork() -> None:
    _registering.acquire()
    for shared in _by_path.values():
        shared.before_fork()
    close_instances()


def _after_fork(child: bool) -> None:
    for shared in _by_path.values():
        shared.after_fork(child=child)
    _registering.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=lambda: _after_fork(False), after_in_child=lambda: _after_fork(True))
