"""Limits on what one execution of an experiment may spend: dollars, hours and calls of all its roles together.

Each request to a model or an app reserves its maximum cost with the process's account (`current`) and settles the actual cost
afterwards. Once a limit is reached, no further request starts. Requests in flight finish first, so that their replies are kept;
then every waiting request raises `LimitReached`, and its question stays pending. Cluster workers use the account of the process
that started them (`replace_account`). Local models cost nothing and reserve nothing; for them only `max_hours` applies
(`methods.flow.stream` starts no further question).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pydantic import Field, ValidationError

from benchmarks.core.errors import Incomplete, UserError, counted, described
from benchmarks.core.models import FrozenModel


class Limits(FrozenModel):
    """Spending limits of one execution; a null field sets no limit."""

    max_usd: float | None = Field(default=None, ge=0, description="dollars for all models and apps, from reported costs and stated prices")
    max_hours: float | None = Field(default=None, ge=0, description="hours from the start of the command")
    max_calls: int | None = Field(
        default=None, ge=0, description="requests to models and apps, including retries; local models do not count"
    )

    @classmethod
    def from_options(cls, **values: float | None) -> Limits:
        """Build the limits from command-line values.

        Raises:
            UserError: A value is negative or not a number.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            place, problem = described(error)
            option = f"--{place.replace('_', '-')}"
            raise UserError(problem, code="bad-limit", where=option, try_this="a number from 0 on; leave it out for no limit") from None

    @property
    def any(self) -> bool:
        """Return whether any limit is set."""
        return self != NO_LIMITS

    def options(self) -> list[str]:
        """Return the limits as command-line arguments, such as `["--max-usd", "5"]`."""
        configured = [(name, value) for name, value in self if value is not None]
        return [part for name, value in configured for part in (f"--{name.replace('_', '-')}", f"{value:.15g}")]


NO_LIMITS = Limits()


class LimitReached(Incomplete):
    """Raised if a spending limit is reached; answers so far are stored, and the other questions stay pending.

    Attributes:
        outcomes: Results of the experiment's tasks, if any ran before the limit was reached.
    """

    outcomes: Sequence[Any] = ()


class Charge:
    """A request that the account has admitted.

    Attributes:
        usd: Cost of the call; set it before the block ends. None: the call was not answered.
    """

    usd: float | None = None


class Costs:
    """Upper bound of the cost in dollars of one endpoint's calls in flight.

    A call is bounded by its configured price or by the most expensive call so far, whichever is higher. Some endpoints report
    costs although no price is configured. The first call without a price therefore runs alone, and its reported cost becomes
    the bound for the others.

    Attributes:
        dearest: Highest cost of a call that cost more than its configured price; 0 if none did.
    """

    def __init__(self) -> None:
        self.dearest = 0.0
        self._flying: Counter[float] = Counter()
        self._priced = 0.0
        self._answered = False

    @property
    def in_flight(self) -> int:
        """Return the number of calls in flight."""
        return self._flying.total()

    def most(self, priced: float) -> float:
        """Return the maximum cost of a call in dollars, given its cost at the configured price."""
        return max(priced, self.dearest)

    def unknown(self, priced: float) -> bool:
        """Return whether a call must wait, because the first call without a price has not reported its cost yet."""
        return not self.most(priced) and not self._answered and bool(self._flying)

    @property
    def reserved(self) -> float:
        """Return the maximum cost of all calls in flight, in dollars."""
        if not self.dearest:  # a batch has many calls in flight
            return self._priced
        return sum(count * self.most(priced) for priced, count in self._flying.items())

    def begin(self, priced: float) -> None:
        """Record the start of a call that costs `priced` dollars at the configured price."""
        self._flying[priced] += 1
        self._priced += priced

    def end(self, priced: float, usd: float | None) -> None:
        """Record the end of a call and its actual cost; None if it got no reply."""
        self._flying[priced] -= 1
        if not self._flying[priced]:
            del self._flying[priced]
        self._priced = max(0.0, self._priced - priced) if self._flying else 0.0
        if usd is not None:
            self._answered = True
            if usd > priced:
                self.dearest = max(self.dearest, usd)


class Account:
    """Spending of one execution, checked against its limits. All requests use it on one event loop.

    Args:
        limits: The limits.
        resume: Command, in backticks, that error messages name for resuming.
        clock: Monotonic clock in seconds.

    Attributes:
        usd, calls: Dollars and requests so far.
        reached: Description of the limit that was reached first; "" if none.
    """

    def __init__(self, limits: Limits, resume: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.usd = 0.0
        self.calls = 0
        self.reached = ""
        self._resume = resume
        self._clock = clock
        self._started = clock()
        self._costs: defaultdict[str, Costs] = defaultdict(Costs)
        self._changed: asyncio.Future[None] | None = None

    @property
    def hours(self) -> float:
        """Return the hours since the account was opened."""
        return (self._clock() - self._started) / 3600

    def late(self) -> bool:
        """Return whether `max_hours` have passed."""
        most = self.limits.max_hours
        if most is not None and self.hours >= most:
            self.reached = self.reached or f"max_hours {most:g}"
        return self.reached.startswith("max_hours")

    def check(self) -> None:
        """Raise an error if `max_hours` have passed.

        Raises:
            LimitReached: `max_hours` have passed.
        """
        if self.late():
            raise self.error()

    def error(self) -> LimitReached:
        """Build the exception that describes the limit reached and the spending so far."""
        spent = f"spent: US$ {self.usd:.4f}, {counted(self.calls, 'call')}, {self.hours:.2g} hours"
        over = self.usd - (math.inf if self.limits.max_usd is None else self.limits.max_usd)
        spent += f"; US$ {over:.4f} too much, as calls cost more than their price and than all calls before them" if over > 1e-9 else ""
        return LimitReached(
            f"{self.reached} has been reached ({spent}); all answers so far are stored",
            code="limit-reached",
            where="limits",
            try_this=f"{self._resume} continues with what is left; the limit counts from zero again, and cached replies cost nothing",
        )

    @asynccontextmanager
    async def charged(self, most: float, place: str) -> AsyncIterator[Charge]:
        """Async context manager around one request: reserves its maximum cost, and settles the actual cost set in the `Charge`.

        Args:
            most: Maximum cost in dollars at the configured price; 0 if the price is unknown.
            place: Name of the endpoint and model, or of the app.

        Raises:
            LimitReached: A limit does not allow the request.
        """
        await self.reserve(most, place)
        charge = Charge()
        try:
            yield charge
        finally:
            self.settle(most, charge.usd, place)

    async def reserve(self, most: float, place: str) -> None:
        """Wait until a request fits the limits and reserve its maximum cost in dollars; call `settle` afterwards.

        Raises:
            LimitReached: A limit does not allow the request.
        """
        while not self._fits(most, self._costs[place]):
            if self.reached and not any(costs.in_flight for costs in self._costs.values()):
                raise self.error()
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)
        self.calls += 1
        self._costs[place].begin(most)

    def settle(self, most: float, usd: float | None, place: str) -> None:
        """Replace a request's reservation with its actual cost in dollars; None if it got no reply."""
        self._costs[place].end(most, usd)
        self.usd += usd or 0.0
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def _fits(self, priced: float, costs: Costs) -> bool:
        """Return whether a request may be sent now; if it never may, record the limit."""
        if self.late() or self.reached:
            return False
        limits, most = self.limits, costs.most(priced)
        if limits.max_calls is not None and self.calls >= limits.max_calls:
            self.reached = f"max_calls {limits.max_calls:,}"
        elif limits.max_usd is not None and self.usd + most > limits.max_usd:
            next_one = f", and the next call may cost {most:.6g}" if self.usd < limits.max_usd else ""
            self.reached = f"max_usd {limits.max_usd:g}{next_one}"
        if limits.max_usd is None or self.reached:
            return not self.reached
        reserved = sum(item.reserved for item in self._costs.values())
        return not costs.unknown(priced) and self.usd + reserved + most <= limits.max_usd


_open: Account | None = None


def current() -> Account | None:
    """Return this process's open account, or None."""
    return _open


def replace_account(account: Account) -> None:
    """Use another process's account in this process (for cluster workers)."""
    global _open
    _open = account


@asynccontextmanager
async def charged(most: float, place: str) -> AsyncIterator[Charge]:
    """Async context manager around one request that uses this process's account, if one is open; see `Account.charged`."""
    if _open is None:
        yield Charge()
        return
    async with _open.charged(most, place) as charge:
        yield charge


@contextmanager
def spending(limits: Limits, resume: str) -> Iterator[Account | None]:
    """Context manager that enforces spending limits on all requests of this process; yields the account, or None without
    limits.

    Args:
        limits: The limits.
        resume: Command, in backticks, that error messages name for resuming.

    Raises:
        UserError: Another experiment with limits runs in this process.
    """
    global _open
    if not limits.any:
        yield None
        return
    if _open is not None:
        raise UserError(
            "another experiment with limits is running in this process",
            code="limits-in-use",
            where="limits",
            try_this="run one after the other, or each in its own process",
        )
    _open = Account(limits, resume)
    try:
        yield _open
    finally:
        _open = None
