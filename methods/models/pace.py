"""How many calls may be in flight: more while all goes well, fewer as soon as the endpoint is too busy.

Additive increase, multiplicative decrease, as TCP does it: before the first cut every clean call adds one (doubling
each round trip), afterwards one per round trip; a cut halves, once per round trip however many calls fail together.

Source: Chiu and Jain, Analysis of the increase and decrease algorithms for congestion avoidance, 1989.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

START = 8
"""Calls in flight before anything is known of an endpoint."""


class Pace:
    """Slots for calls; used from one event loop only.

    Args:
        most: Never more slots than this.

    Attributes:
        limit: Slots now, as a fraction that grows and is rounded down.
        cuts: How often it was cut.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(min(most, START))
        self.cuts = 0
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0

    async def enter(self) -> int:
        """Wait for a slot, and for the end of a pause that the endpoint asked for; returns a ticket for `cut`."""
        loop = asyncio.get_running_loop()
        if self._running < int(self.limit) and not self._waiting:
            self._running += 1
        else:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.leave()  # the slot had been handed over already
                else:
                    with suppress(ValueError):
                        self._waiting.remove(waiter)
                raise
        try:
            while (pause := self._closed_until - loop.time()) > 0:
                await asyncio.sleep(pause)
        except asyncio.CancelledError:
            self.leave()
            raise
        return self.cuts

    def leave(self) -> None:
        """Give a slot back."""
        self._running -= 1
        self._hand_over()

    def clean(self) -> None:
        """A call went well."""
        self.limit = min(float(self.most), self.limit + (1.0 / self.limit if self.cuts else 1.0))
        self._hand_over()

    def cut(self, ticket: int, pause: float | None = None) -> None:
        """The endpoint was too busy for a call that entered with this ticket; start none for `pause` seconds."""
        if pause:
            self._closed_until = max(self._closed_until, asyncio.get_running_loop().time() + pause)
        if ticket == self.cuts:  # calls that were in flight together are one sign, not many
            self.limit = max(1.0, self.limit / 2)
            self.cuts += 1

    def _hand_over(self) -> None:
        while self._waiting and self._running < int(self.limit):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._running += 1
                waiter.set_result(None)
