"""A read-only connection that outlives a question by a moment, for servers that ask many small ones in a row.

Opening a store of a million rows takes longer than most questions to it. But while anybody has it open nobody can
write, so what lingers here goes as soon as a writer waits, and soon after its last use.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

LOOK_S = 0.01
"""How often it is looked whether a writer waits."""


class Lingering:
    """One connection for all threads of a process, open while it is used and for a while after.

    Args:
        connect: Opens it.
        writer_waits: Whether a writer waits for readers to leave.
        idle_s: Seconds that it stays open without being used.
    """

    def __init__(
        self, connect: Callable[[], duckdb.DuckDBPyConnection], writer_waits: Callable[[], bool], idle_s: float
    ) -> None:
        self._connect, self._writer_waits, self._idle_s = connect, writer_waits, idle_s
        self._turn = threading.Lock()
        self._held: list[duckdb.DuckDBPyConnection] = []
        self._users, self._left = 0, 0.0
        # At the end of the process, too.
        weakref.finalize(self, _close, self._held)

    @property
    def is_open(self) -> bool:
        """Whether the file is held open now."""
        return bool(self._held)

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The connection for one thread; what is registered with it is seen by nobody else."""
        with self._turn:
            if not self._held:
                self._held.append(self._connect())
                threading.Thread(target=self._close_in_time, name="lingering", daemon=True).start()
            own = self._held[0].cursor()
            self._users += 1
        try:
            yield own
        finally:
            own.close()
            with self._turn:
                self._users -= 1
                self._left = time.monotonic()

    def _close_in_time(self) -> None:
        while True:
            time.sleep(LOOK_S)
            waited = self._writer_waits()
            with self._turn:
                if self._users or not (waited or time.monotonic() - self._left > self._idle_s):
                    continue
                _close(self._held)
                return


def _close(held: list[duckdb.DuckDBPyConnection]) -> None:
    while held:
        held.pop().close()
