"""What calls cost, by role, and limits that stop before they are passed."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

LIMIT = "limit reached"
"""How the reason of a call that was not sent begins."""


@dataclass(slots=True)
class CallCost:
    """Totals of one role.

    Attributes:
        calls: Requests sent, tries included.
        cached: Replies that came from the cache.
        failed: Conversations that ended without a reply.
        prompt_tokens, completion_tokens, cost_usd: Of replies that were not cached.
    """

    calls: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0

    def add(self, other: CallCost) -> None:
        """Add another's totals to these."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every field."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


class UsageByRole:
    """The cost of calls of each role (reader, judge, extractor …); may be shared by models and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roles: dict[str, CallCost] = {}

    def add(self, role: str, cost: CallCost) -> None:
        """Add the cost of a call."""
        with self._lock:
            self._roles.setdefault(role, CallCost()).add(cost)

    def of(self, role: str) -> CallCost:
        """A copy of a role's totals."""
        with self._lock:
            total = CallCost()
            total.add(self._roles.get(role, CallCost()))
            return total

    @property
    def total(self) -> CallCost:
        """All roles together."""
        with self._lock:
            total = CallCost()
            for cost in self._roles.values():
                total.add(cost)
            return total

    def to_json(self) -> dict[str, Any]:
        """By role."""
        with self._lock:
            return {role: cost.to_json() for role, cost in sorted(self._roles.items())}


class Budget:
    """Limits on one execution; used from one event loop only.

    A call reserves the most that it may need before it is sent and settles what it used, so that calls in flight
    together cannot pass a limit. While others may still give back what they reserved, a call waits; once what is
    used leaves no room for it, it is refused.

    Args:
        tokens: Most tokens, None for no limit.
        usd: Most dollars, None for no limit.
    """

    def __init__(self, tokens: int | None, usd: float | None) -> None:
        self.tokens = tokens
        self.usd = usd
        self.spent_tokens = 0
        self.spent_usd = 0.0
        self._reserved_tokens = 0
        self._reserved_usd = 0.0
        self._settled: asyncio.Future[None] | None = None

    @property
    def unlimited(self) -> bool:
        return self.tokens is None and self.usd is None

    async def reserve(self, tokens: int, usd: float) -> str | None:
        """Set aside what a call may need at most; returns why it must not be sent, None if it may."""
        while True:
            if self.tokens is not None and self.spent_tokens + tokens > self.tokens:
                return f"{LIMIT}: run_tokens {self.tokens:,}, of which {self.spent_tokens:,} are used"
            if self.usd is not None and self.spent_usd + usd > self.usd:
                return f"{LIMIT}: run_usd {self.usd:g}, of which {self.spent_usd:.6g} are spent"
            fits_tokens = self.tokens is None or self.spent_tokens + self._reserved_tokens + tokens <= self.tokens
            fits_usd = self.usd is None or self.spent_usd + self._reserved_usd + usd <= self.usd
            if fits_tokens and fits_usd:
                self._reserved_tokens += tokens
                self._reserved_usd += usd
                return None
            if self._settled is None:
                self._settled = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._settled)

    def settle(self, reserved: tuple[int, float], used: tuple[int, float]) -> None:
        """Replace what a call had reserved by what it used: each tokens and dollars."""
        self._reserved_tokens -= reserved[0]
        self._reserved_usd = max(0.0, self._reserved_usd - reserved[1])
        self.spent_tokens += used[0]
        self.spent_usd += used[1]
        settled, self._settled = self._settled, None
        if settled is not None and not settled.done():
            settled.set_result(None)


# -- How many calls may be in flight: more while all goes well, fewer as soon as the endpoint is too busy --
# Additive increase, multiplicative decrease, as TCP does it: before the first cut every clean call adds one (doubling
# each round trip), afterwards one per round trip; a cut halves, once per round trip however many calls fail together.
#
# Source: Chiu and Jain, Analysis of the increase and decrease algorithms for congestion avoidance, 1989.


START = 8
"""Calls in flight before anything is known of an endpoint."""


class RateLimiter:
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
