"""A read-only connection that outlives a question by a moment, for servers that ask many small ones in a row.

Opening a store of a million rows takes longer than most questions to it. But while anybody has it open nobody can
write, so what lingers here goes as soon as a writer waits, and soon after its last use.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

LOOK_S = 0.02
"""How often it is looked whether a writer waits, while nobody reads."""
_FAREWELL_S = 5.0
"""Longest wait at the end of the process for the thread that closes."""


class Lingering:
    """One connection to a file for all threads of a process, open while it is used and for a while after.

    A process needs one for each file: DuckDB gives a second connection the first one's view.

    Args:
        path: The file.
        connect: Opens it.
        writer_waits: Whether a writer waits for readers to leave.
        idle_s: Seconds that it stays open without being used.
    """

    def __init__(
        self, path: Path, connect: Callable[[], duckdb.DuckDBPyConnection], writer_waits: Callable[[], bool], idle_s: float
    ) -> None:
        self._path, self._connect, self._writer_waits, self._idle_s = path, connect, writer_waits, idle_s
        self._turn = threading.Lock()
        self._held: list[duckdb.DuckDBPyConnection] = []
        self._file: tuple[int, int] | None = None
        self._users, self._left, self._opening = 0, 0.0, 0
        self._ending = threading.Event()
        self._closers: list[threading.Thread] = []
        # At the end of the process, too.
        weakref.finalize(self, _end, self._ending, self._closers, self._held)

    @property
    def is_open(self) -> bool:
        """Whether the file is held open now."""
        return bool(self._held)

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection for one thread; what is registered with it is seen by nobody else."""
        with self._turn:
            if self._held and not self._users and self._replaced():
                _close(self._held)
            if not self._held:
                self._open()
            own = self._held[0].cursor()
            self._users += 1
        try:
            yield own
        finally:
            try:
                own.close()
            finally:
                with self._turn:
                    self._users -= 1
                    self._left = time.monotonic()

    def _open(self) -> None:
        self._file = _identity(self._path)
        self._held.append(self._connect())
        self._opening += 1
        closer = threading.Thread(target=self._close_in_time, args=(self._opening,), name="lingering", daemon=True)
        try:
            closer.start()
            self._closers[:] = [*(one for one in self._closers if one.is_alive()), closer]
        except RuntimeError:
            # Nobody would ever close it.
            _close(self._held)
            raise

    def _replaced(self) -> bool:
        """Whether another file has been put in the place of the open one, by a restored backup for instance."""
        return _identity(self._path) != self._file

    def _close_in_time(self, opening: int) -> None:
        while not self._ending.wait(LOOK_S):
            if self._users:
                continue
            done = time.monotonic() - self._left > self._idle_s or self._waited() or self._replaced()
            with self._turn:
                if not self._held or self._opening != opening:
                    return
                if done and not self._users:
                    _close(self._held)
                    return

    def _waited(self) -> bool:
        try:
            return self._writer_waits()
        except Exception:
            # Whatever it is: better opened once more than held for ever.
            return True


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def _end(ending: threading.Event, closers: list[threading.Thread], held: list[duckdb.DuckDBPyConnection]) -> None:
    ending.set()
    # A thread that Python takes down while it is inside DuckDB takes the whole process down with it.
    for closer in closers:
        if closer is not threading.current_thread():
            closer.join(_FAREWELL_S)
    _close(held)


def _close(held: list[duckdb.DuckDBPyConnection]) -> None:
    # The process may end while the last reader's time is up: either takes it, once.
    with suppress(IndexError):
        while True:
            held.pop().close()
