"""Account for calls by role, enforce token and dollar budgets, and limit concurrent calls per endpoint."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any, Literal

from methods.spending import Costs

LIMIT = "limit reached"
"""Prefix of the reason of a call that was not sent because of a limit."""


@dataclass(slots=True)
class CallCost:
    """Totals of calls, tokens and dollars of one role.

    Attributes:
        calls: Number of requests sent, including retries.
        cached: Number of replies from the cache.
        failed: Number of conversations without a reply.
        prompt_tokens, completion_tokens, cost_usd: Totals of replies that were not cached.
        cached_tokens: Prompt tokens that the endpoint read from its own cache.
        unpriced: Number of replies with unknown cost.
    """

    calls: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    cached_tokens: int = 0
    unpriced: int = 0

    def add(self, other: CallCost) -> None:
        """Add another role's totals."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


class UsageByRole:
    """Thread-safe totals of calls per role (reader, judge, extractor …), which models may share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roles: dict[str, CallCost] = {}

    def add(self, role: str, cost: CallCost) -> None:
        """Add the cost of a call."""
        with self._lock:
            self._roles.setdefault(role, CallCost()).add(cost)

    def of(self, role: str) -> CallCost:
        """Return a copy of a role's totals."""
        with self._lock:
            total = CallCost()
            total.add(self._roles.get(role, CallCost()))
            return total

    @property
    def total(self) -> CallCost:
        """Return the sum over all roles."""
        with self._lock:
            total = CallCost()
            for cost in self._roles.values():
                total.add(cost)
            return total

    def to_json(self) -> dict[str, Any]:
        """Return the costs by role."""
        with self._lock:
            return {role: cost.to_json() for role, cost in sorted(self._roles.items())}


class Budget:
    """Token and dollar limit of one execution. Use it from one event loop only.

    A call reserves its maximum before it is sent and settles its actual usage afterwards, so that concurrent calls cannot
    exceed a limit. A call waits while others may still return part of their reservation, and is refused if the used amount
    leaves no room.

    Args:
        tokens: Maximum tokens, None for no limit.
        usd: Maximum dollars, None for no limit.
    """

    def __init__(self, tokens: int | None, usd: float | None) -> None:
        self.tokens = tokens
        self.usd = usd
        self.spent_tokens = 0
        self.spent_usd = 0.0
        self._reserved_tokens = 0
        self._costs = Costs()
        self._settled: asyncio.Future[None] | None = None

    @property
    def unlimited(self) -> bool:
        return self.tokens is None and self.usd is None

    async def reserve(self, tokens: int, usd: float) -> str | None:
        """Reserve a call's maximum tokens and dollars, waiting if necessary; returns None if the call may be sent, else the
        reason for refusing it.
        """
        while True:
            if self.tokens is not None and self.spent_tokens + tokens > self.tokens:
                return f"{LIMIT}: run_tokens {self.tokens:,}, of which {self.spent_tokens:,} are used"
            if self.usd is not None and self.spent_usd + self._costs.most(usd) > self.usd:
                return f"{LIMIT}: run_usd {self.usd:g}, of which {self.spent_usd:.6g} are spent"
            fits_tokens = self.tokens is None or self.spent_tokens + self._reserved_tokens + tokens <= self.tokens
            wanted = self.spent_usd + self._costs.reserved + self._costs.most(usd)
            if fits_tokens and (self.usd is None or (wanted <= self.usd and not self._costs.unknown(usd))):
                self._reserved_tokens += tokens
                self._costs.begin(usd)
                return None
            if self._settled is None:
                self._settled = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._settled)

    def settle(self, reserved: tuple[int, float], used: tuple[int, float] | None) -> None:
        """Replace a reservation (tokens, dollars) with the actual usage; None if the call got no reply."""
        self._reserved_tokens -= reserved[0]
        self._costs.end(reserved[1], None if used is None else used[1])
        tokens, usd = used or (0, 0.0)
        self.spent_tokens += tokens
        self.spent_usd += usd
        settled, self._settled = self._settled, None
        if settled is not None and not settled.done():
            settled.set_result(None)


WINDOW = 50
"""Number of recent calls for measuring the fault rate."""
FROM_BUSY = 3
"""Minimum number of refusals (429 or 503) in the window before the limit is reduced."""
BUSY_SHARE = 0.05
"""Fraction of refusals above which the limit is reduced."""
BROKEN_SHARE = 0.2
"""Fraction of resets and time-outs among the last `WINDOW` calls above which the limit is reduced."""
DEEPEST = 0.5
"""Smallest factor of a single reduction of the limit."""
GROWTH = 1 / 16
"""Relative growth of the limit per round trip beyond the last good limit."""

Signal = Literal["ok", "busy", "broken"]
"""Outcome of a call: answered (with any status), rejected for lack of capacity (429, 503), or reset or timed out."""


Ticket = tuple[int, int]
"""Number of earlier reductions of the limit, and of calls sent since then, at the time a call was sent."""


class RateLimiter:
    """Adaptive limit on concurrent calls to one endpoint, shared by all its users. Use it from one event loop only.

    The limit starts at the maximum. If too many calls in a window are refused, it is reduced by their fraction (an endpoint
    with capacity for 6 of 64 calls refuses 58). Calls sent before a reduction do not count toward the next one. Afterwards the
    limit doubles per round trip up to the last good limit, and grows by 1/16 beyond it.

    Attributes:
        most: Maximum limit: the smallest `concurrency` of all users.
        limit: Current limit, rounded down when applied.
        cuts: Number of reductions.
        troubled: Whether more than `BROKEN_SHARE` of the last calls failed in any way.
    """

    def __init__(self, most: int | None = None) -> None:
        self._joined: dict[int, int] = {}
        self._names = itertools.count()
        self.most = 0
        self.limit = 0.0
        self.cuts = 0
        self._good = 0.0
        self._kept = 0
        self._sent: list[Signal | None] = []
        self._faults: deque[bool] = deque(maxlen=WINDOW)
        self._answered = False
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        if most is not None:
            self.join(most)

    def join(self, most: int) -> int:
        """Add a user that allows `most` concurrent calls; returns its number for `part`."""
        name = next(self._names)
        first = not self._joined
        self._joined[name] = most
        self.most = min(self._joined.values())
        self.limit = float(self.most) if first else min(self.limit, float(self.most))
        return name

    def part(self, name: int) -> None:
        """Remove a user; the maximum is recomputed from the others."""
        if self._joined.pop(name, None) is not None and self._joined:
            before, self.most = self.most, min(self._joined.values())
            if self.limit >= before:  # nothing but the one who left held it down
                self.limit = float(self.most)

    async def enter(self, *, again: bool = False) -> Ticket:
        """Wait for a free slot; returns a ticket for `ended`.

        Args:
            again: Whether this is a retry, which takes precedence over new calls.
        """
        if self._running < int(self.limit) and not self._waiting:
            self._running += 1
            return self._ticket()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(waiter)
        self._hand_over()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # the slot was already passed on
            else:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
            raise
        return self._ticket()

    def _ticket(self) -> Ticket:
        self._sent.append(None)
        return self.cuts, len(self._sent) - 1

    def leave(self, after: float | None = None) -> None:
        """Free a slot, immediately or after the seconds that the endpoint asked to wait."""
        if after:
            asyncio.get_running_loop().call_later(after, self.leave)
            return
        self._running -= 1
        self._hand_over()

    @property
    def troubled(self) -> bool:
        return sum(self._faults) > BROKEN_SHARE * len(self._faults)

    def ended(self, ticket: Ticket, signal: Signal, *, faulty: bool = False) -> None:
        """Record how the call with this ticket ended; `faulty` means that a retry may help."""
        self._faults.append(faulty)
        cuts, number = ticket
        if cuts != self.cuts:  # it left before the last reduction
            return
        self._sent[number] = signal
        if signal == "ok":
            self._grow()
            return
        # Faults are quicker than replies. So the share is taken over the calls that were sent up to this one, those in
        # flight included, not over those that ended up to now.
        window = self._sent[max(0, number + 1 - WINDOW) : number + 1]
        count = window.count(signal)
        share = count / len(window)
        if share > BUSY_SHARE and count >= FROM_BUSY if signal == "busy" else count > BROKEN_SHARE * WINDOW:
            self._cut(share)

    def _cut(self, share: float) -> None:
        # Failures without a reply in between are one incident, so the last good limit stays.
        if self._answered or not self.cuts:
            self._good = self.limit if self._kept >= self.limit else self.limit * (1 - share)
        self.limit = max(1.0, self.limit * max(1 - share, DEEPEST))
        self.cuts += 1
        self._kept = 0
        self._answered = False
        self._sent.clear()

    def _grow(self) -> None:
        self._answered = True
        self._kept += 1  # calls answered at about this limit
        if self.limit < self.most:
            step = 1.0 if self.limit < self._good else GROWTH
            self.limit = min(float(self.most), self.limit + step)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting and self._running < int(self.limit):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._running += 1
                waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class Address:
    """Endpoint and credentials that a limit applies to.

    Attributes:
        url: Base URL of the endpoint.
        key: Hash of the API key; the key itself is not stored.
        model: The model's name there.
    """

    url: str
    key: str
    model: str

    @classmethod
    def of(cls, url: str, key: str, model: str) -> Address:
        """Build the address of a model for an API key."""
        return cls(url, hashlib.blake2b(key.encode(), digest_size=16).hexdigest(), model)


class Limiters:
    """Registry of this process's rate limiters by address; a limiter exists while it has users.

    Args:
        make: Factory of limiters. Replace it (`limiters.make = …`) to share limits across processes; its results need the
            methods of `RateLimiter`.
    """

    def __init__(self, make: Callable[[Address], RateLimiter] = lambda address: RateLimiter()) -> None:
        self.make = make
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[tuple[int, Address], RateLimiter] = weakref.WeakValueDictionary()

    def __call__(self, address: Address) -> RateLimiter:
        """Return the limiter of an address."""
        with self._lock:
            place = (os.getpid(), address)  # calls of a parent are not in flight in its forked child
            limiter = self._known.get(place)
            if limiter is None:
                limiter = self._known[place] = self.make(address)
            return limiter


limiters = Limiters()
"""The limiters of this process."""

_execution: contextvars.ContextVar[tuple[dict[Address, Budget], Callable[[Address], Budget]] | None]
_execution = contextvars.ContextVar("execution", default=None)


def _unlimited(address: Address) -> Budget:
    return Budget(None, None)


@contextmanager
def execution(make: Callable[[Address], Budget] = _unlimited) -> Iterator[None]:
    """Context manager in which all opened models share one budget per address, for one execution of a task.

    Args:
        make: Factory of budgets. A worker passes one that forwards to the process with the budgets.
    """
    token = _execution.set(({}, make))
    try:
        yield
    finally:
        _execution.reset(token)


def budget_of(address: Address | None, tokens: int | None, usd: float | None) -> Budget:
    """Return the budget of a model: that of the current execution, or else a new one.

    If models of an execution have different limits, the smallest applies.
    """
    current = _execution.get()
    if current is None or address is None:
        return Budget(tokens, usd)
    budgets, make = current
    budget = budgets[address] if address in budgets else budgets.setdefault(address, make(address))
    budget.tokens = _least(budget.tokens, tokens)
    budget.usd = _least(budget.usd, usd)
    return budget


def _least(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else min(one, other)
