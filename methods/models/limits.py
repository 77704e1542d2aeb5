"""Costs of calls by role, budgets that calls in flight cannot exceed, and how many calls are in flight at an endpoint."""

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
    """Totals of one role.

    Attributes:
        calls: Requests sent, tries included.
        cached: Replies that came from the cache.
        failed: Conversations that ended without a reply.
        prompt_tokens, completion_tokens, cost_usd: Of replies that were not cached.
        cached_tokens: Of the prompt tokens those that the endpoint read from its own cache.
        unpriced: Replies whose cost nobody knows.
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
        """Add another's totals to these."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with every field."""
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
        """Return a copy of a role's totals."""
        with self._lock:
            total = CallCost()
            total.add(self._roles.get(role, CallCost()))
            return total

    @property
    def total(self) -> CallCost:
        """Return all roles together."""
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
        self._costs = Costs()
        self._settled: asyncio.Future[None] | None = None

    @property
    def unlimited(self) -> bool:
        return self.tokens is None and self.usd is None

    async def reserve(self, tokens: int, usd: float) -> str | None:
        """Set aside what a call may need at most; returns why it must not be sent, None if it may."""
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
        """Replace what a call had reserved by what it used: each tokens and dollars; None: it was not answered."""
        self._reserved_tokens -= reserved[0]
        self._costs.end(reserved[1], None if used is None else used[1])
        tokens, usd = used or (0, 0.0)
        self.spent_tokens += tokens
        self.spent_usd += usd
        settled, self._settled = self._settled, None
        if settled is not None and not settled.done():
            settled.set_result(None)


WINDOW = 50
"""Calls that the share of faults is taken over."""
FROM_BUSY = 3
"""Fewer refusals (429 or 503) among them say nothing about the endpoint's room."""
BUSY_SHARE = 0.05
"""Share of refusals above which the limit is reduced."""
BROKEN_SHARE = 0.2
"""Share of resets and time-outs among the last `WINDOW` calls above which the limit is reduced."""
DEEPEST = 0.5
"""The most that one reduction takes the limit to."""
GROWTH = 1 / 16
"""Share by which the limit grows per round trip beyond the last limit that was good."""

Signal = Literal["ok", "busy", "broken"]
"""Outcome of a call: answered (with any status), rejected for lack of capacity (429, 503), or reset or timed out."""


Ticket = tuple[int, int]
"""Number of reductions of the limit before a call was sent, and number of calls sent since then."""


class RateLimiter:
    """Slots for calls, shared by everything that asks one endpoint; used from one event loop only.

    The limit starts at the most allowed. A window of calls with too many refusals reduces it by their share, since an
    endpoint with room for 6 of 64 calls refuses 58. Calls that left before a reduction do not count towards the next.
    Afterwards it doubles per round trip up to the last limit that was good, and grows by a sixteenth beyond that.

    Attributes:
        most: Never more slots than this: the smallest `concurrency` of those who joined.
        limit: Slots now, as a fraction that is rounded down when applied.
        cuts: How often it was reduced.
        troubled: Whether more than `BROKEN_SHARE` of the last calls met a fault of any kind.
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
        """Add somebody who allows so many calls in flight; returns the name to leave the group by."""
        name = next(self._names)
        first = not self._joined
        self._joined[name] = most
        self.most = min(self._joined.values())
        self.limit = float(self.most) if first else min(self.limit, float(self.most))
        return name

    def part(self, name: int) -> None:
        """Remove somebody who joined; the rest decide the most."""
        if self._joined.pop(name, None) is not None and self._joined:
            before, self.most = self.most, min(self._joined.values())
            if self.limit >= before:  # nothing but the one who left held it down
                self.limit = float(self.most)

    async def enter(self, *, again: bool = False) -> Ticket:
        """Wait for a slot; returns a ticket for `ended`.

        Args:
            again: This is a further try, which goes before calls that were not sent yet.
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
                self.leave()  # the slot had been handed over already
            else:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
            raise
        return self._ticket()

    def _ticket(self) -> Ticket:
        self._sent.append(None)
        return self.cuts, len(self._sent) - 1

    def leave(self, after: float | None = None) -> None:
        """Give a slot back: at once, or in this many seconds if the endpoint asked this call to wait."""
        if after:
            asyncio.get_running_loop().call_later(after, self.leave)
            return
        self._running -= 1
        self._hand_over()

    @property
    def troubled(self) -> bool:
        return sum(self._faults) > BROKEN_SHARE * len(self._faults)

    def ended(self, ticket: Ticket, signal: Signal, *, faulty: bool = False) -> None:
        """Note how a call ended that entered with this ticket, and whether another try may cure it."""
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
        # Without a reply since the last reduction it is one incident: what was good before still is.
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
        key: Hash of the API key, which itself is kept nowhere.
        model: The model's name there.
    """

    url: str
    key: str
    model: str

    @classmethod
    def of(cls, url: str, key: str, model: str) -> Address:
        """Return the address of a model for the owner of a key."""
        return cls(url, hashlib.blake2b(key.encode(), digest_size=16).hexdigest(), model)


class Limiters:
    """The limiter of each address in this process, as long as somebody uses it.

    Args:
        make: Makes the limiter of an address. Replace it (`limiters.make = …`) to share limits across processes: what it
            returns needs the methods of `RateLimiter`.
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
    """Let all models that are opened within this block spend from one budget per address: one execution of a task.

    Args:
        make: Makes the budget of an address. A worker passes one that asks the process in which the budgets are kept.
    """
    token = _execution.set(({}, make))
    try:
        yield
    finally:
        _execution.reset(token)


def budget_of(address: Address | None, tokens: int | None, usd: float | None) -> Budget:
    """Return the budget that a model spends from: of the execution that it is opened in, or else its own.

    If models of an execution state different limits, the smallest counts.
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
