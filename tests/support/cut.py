"""Interrupt a training at a step, as Ctrl-C does."""

from __future__ import annotations

from methods.training import Silent


class Cut(Silent):
    """Progress that raises `KeyboardInterrupt` once, after some steps of the first loop.

    Args:
        after: Number of steps before the interruption.

    Attributes:
        resumed: Number of finished steps at the start of each loop.
    """

    def __init__(self, after: int) -> None:
        self._left, self._trains, self.resumed = after, False, list[int]()

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        self._trains = what.startswith("training")
        if self._trains:
            self.resumed.append(done)

    def advance(self, steps: int = 1) -> None:
        self._left -= steps if self._trains else 0
        if self._trains and self._left == 0:
            raise KeyboardInterrupt
