"""Write finished results to disk within about a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

FLUSH_S = 1.0
"""Maximum seconds that finished results wait in memory (plus one write)."""


class Recorder(Generic[T]):
    """Collects finished items and writes them once per second in a background thread; the rest when the block ends.

    Args:
        write: Called with the items finished since the last call; items that it failed to write are passed again at the end.

    Attributes:
        busy_s: Total seconds spent writing.
    """

    def __init__(self, write: Callable[[list[T]], None]) -> None:
        self._write = write
        self._waiting: list[T] = []
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="recorder", daemon=True)
        self.busy_s = 0.0

    def __enter__(self) -> Recorder[T]:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        try:
            self._thread.join()
        finally:
            # Results that were finished before an error or an interruption are kept.
            self._flush()
        if self._error is not None and error is None:
            raise self._error

    def add(self, finished: T) -> None:
        """Add a finished item; raises the error of an earlier write, if any."""
        if self._error is not None:
            raise self._error
        with self._lock:
            self._waiting.append(finished)

    def _loop(self) -> None:
        while not self._stop.wait(FLUSH_S):
            try:
                self._flush()
            except BaseException as error:
                self._error = error
                return

    def _flush(self) -> None:
        with self._writing:
            with self._lock:
                batch, self._waiting = self._waiting, []
            if not batch:
                return
            started = time.perf_counter()
            try:
                self._write(batch)
            except BaseException:
                # What could not be written now may be when the block ends.
                with self._lock:
                    self._waiting = batch + self._waiting
                raise
            self.busy_s += time.perf_counter() - started
