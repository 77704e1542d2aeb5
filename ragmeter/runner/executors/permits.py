"""Limits, budgets and cached replies stay in one process, and workers on other machines use them over a connection.

Each worker holds one connection to the `PermitServer` of the process that writes the results. A call of a model enters the
one rate limiter of its endpoint there, spends from the one budget of its task and passes the one account of the experiment
there, and reads and writes the one cache of replies. If a worker is killed, its connection ends: its slots become free, and
what it had reserved counts as spent.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import queue
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from methods.flow import event_loop
from methods.models.limits import Address, Budget, RateLimiter, Signal, Ticket, budget_of, limiters
from methods.models.reply_cache import Call, Kept, ResponseCache, shared
from methods.spending import NO_LIMITS, Account, LimitReached, current

Place = tuple[str, int]
"""Host and port of a server."""


class PermitServer:
    """Server that shares this process's rate limits, budgets and reply cache with worker processes.

    Args:
        host: Address at which workers reach this machine.
        cache: File of cached replies; None: no cache.

    Attributes:
        place: Host and port for workers.
        key: Key with which workers authenticate.
        limited: Whether every call must reserve its cost, although no part states a limit.
        account: Account of the experiment's spending, which all calls pass; None without limits.
    """

    def __init__(self, host: str, cache: Path | None) -> None:
        self.key = secrets.token_bytes(32)
        self.limited = not budget_of(Address("", "", ""), None, None).unlimited
        self.account = current()
        self._cache = shared(cache) if cache is not None else None
        self._context = contextvars.copy_context()
        self._listener = Listener((host, 0), backlog=64)
        self.place: Place = (host, self._listener.address[1])
        self._closed = False
        threading.Thread(target=self._accept, name="permits", daemon=True).start()

    def close(self) -> None:
        """Accept no more workers; existing connections end with their workers."""
        self._closed = True
        with suppress(OSError):
            socket.create_connection(self.place, timeout=1).close()  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError:
                continue
            if self._closed:
                connection.close()
                return
            threading.Thread(target=_Served(self, connection).serve, name="permits of a worker", daemon=True).start()

    def budget(self, address: Address, tokens: int | None, usd: float | None) -> Budget:
        """Return the budget of an endpoint in the current execution."""
        return self._context.copy().run(budget_of, address, tokens, usd)

    def cached(self, name: str, *arguments: Any) -> Any:
        """Call a function of the reply cache by name."""
        return getattr(self._cache, name)(*arguments)

    def late(self) -> LimitReached | None:
        """Return an error if the experiment's hours are used up; else None."""
        return self.account.error() if self.account is not None and self.account.late() else None


class _Served:
    """One worker's connection, with the slots and budget that the worker holds."""

    def __init__(self, server: PermitServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._sending = threading.Lock()
        self._waiting: dict[int, asyncio.Task[Any]] = {}
        self._limiters: dict[Address, RateLimiter] = {}
        self._joined: dict[tuple[Address, int], int] = {}
        self._held: Counter[Address] = Counter()
        self._reserved: list[tuple[Budget, tuple[int, float]]] = []
        self._charged: list[tuple[float, str]] = []

    def serve(self) -> None:
        """Serve the worker's requests until it ends."""
        loop = event_loop()
        try:
            deliver_challenge(self._connection, self._server.key)
            answer_challenge(self._connection, self._server.key)
            while True:
                number, name, arguments = self._connection.recv()
                if name in ("find", "put"):
                    self._reply(number, partial(self._server.cached, name, *arguments))
                elif name == "late":
                    self._reply(number, self._server.late)
                else:
                    loop.call_soon_threadsafe(self._begin, number, name, arguments)
        except (EOFError, OSError, AuthenticationError):
            pass
        finally:
            loop.call_soon_threadsafe(self._release)
            self._connection.close()

    def _reply(self, number: int, work: Callable[[], Any]) -> None:
        try:
            reply = (number, True, work())
        except BaseException as error:
            reply = (number, False, error)
        with self._sending, suppress(OSError):
            self._connection.send(reply)

    def _begin(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if name not in ("enter", "reserve", "charge"):
            getattr(self, f"_{name}")(*arguments)
            return
        task = asyncio.get_running_loop().create_task(getattr(self, f"_{name}")(*arguments))
        self._waiting[number] = task

        def ended(task: asyncio.Task[Any]) -> None:
            self._waiting.pop(number, None)
            self._reply(number, task.result)

        task.add_done_callback(ended)

    def _cancel(self, number: int) -> None:
        if (task := self._waiting.get(number)) is not None:
            task.cancel()

    def _limiter(self, address: Address) -> RateLimiter:
        # Kept here: a limiter exists as long as it is referenced.
        return self._limiters.setdefault(address, limiters(address))

    def _join(self, address: Address, name: int, most: int) -> None:
        self._joined[address, name] = self._limiter(address).join(most)

    def _part(self, address: Address, name: int) -> None:
        self._limiter(address).part(self._joined.pop((address, name)))

    async def _enter(self, address: Address, again: bool) -> tuple[Ticket, bool]:
        limiter = self._limiter(address)
        ticket = await limiter.enter(again=again)
        self._held[address] += 1
        return ticket, limiter.troubled

    def _ended(self, address: Address, ticket: Ticket, signal: Signal, faulty: bool) -> None:
        self._limiter(address).ended(ticket, signal, faulty=faulty)

    def _leave(self, address: Address, after: float | None) -> None:
        self._held[address] -= 1
        self._limiter(address).leave(after)

    async def _reserve(self, address: Address, limits: tuple[int | None, float | None], most: tuple[int, float]) -> str | None:
        budget = self._server.budget(address, *limits)
        refused = await budget.reserve(*most)
        if refused is None:
            self._reserved.append((budget, most))
        return refused

    def _settle(self, address: Address, reserved: tuple[int, float], used: tuple[int, float] | None) -> None:
        budget = self._server.budget(address, None, None)
        self._reserved.remove((budget, reserved))
        budget.settle(reserved, used)

    async def _charge(self, most: float, place: str) -> None:
        assert self._server.account is not None
        await self._server.account.reserve(most, place)
        self._charged.append((most, place))

    def _spend(self, most: float, usd: float | None, place: str) -> None:
        assert self._server.account is not None
        self._charged.remove((most, place))
        self._server.account.settle(most, usd, place)

    def _release(self) -> None:
        for task in list(self._waiting.values()):
            task.cancel()
        for address, count in self._held.items():
            for _ in range(count):
                self._limiters[address].leave()
        for (address, _), name in self._joined.items():
            self._limiters[address].part(name)
        for budget, most in self._reserved:
            budget.settle(most, most)  # the calls may have been answered, and their cost is unknown
        for usd, place in list(self._charged):
            self._spend(usd, usd or None, place)
        self._held.clear()


class Permits:
    """Worker's connection to a `PermitServer`.

    Args:
        place: Host and port of the server.
        key: Key to authenticate with.
        limited: `PermitServer.limited` of the server.
    """

    def __init__(self, place: Place, key: bytes, limited: bool) -> None:
        self.limited = limited
        self._connection = Client(place, authkey=key)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._abandoned: dict[int, Callable[[Any], None]] = {}
        # The garbage collector may come by with something to send while something is being sent.
        self._outgoing: queue.SimpleQueue[tuple[int, str, tuple[Any, ...]]] = queue.SimpleQueue()
        threading.Thread(target=self._send_all, name="permits out", daemon=True).start()
        threading.Thread(target=self._receive, name="permits in", daemon=True).start()

    def tell(self, name: str, *arguments: Any) -> None:
        """Send a message that has no reply."""
        self._outgoing.put((-1, name, arguments))

    def ask(self, name: str, *arguments: Any) -> Any:
        """Send a request that is answered quickly (at most a cache look-up), and return the reply."""
        return self._send(name, arguments)[1].result()

    async def wait(self, undo: Callable[[Any], None], name: str, *arguments: Any) -> Any:
        """Send a request that may wait long, and return the reply.

        Args:
            undo: Called with a reply that arrives after the caller was cancelled.
            name: Name of the request.
            *arguments: Its arguments.
        """
        number, future = self._send(name, arguments)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            with self._lock:
                came = future.done() and not future.cancelled()
                if not came:
                    self._abandoned[number] = undo
            if came:
                undo(future.result())
            else:
                self.tell("cancel", number)
            raise

    def _send(self, name: str, arguments: tuple[Any, ...]) -> tuple[int, Future[Any]]:
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._pending[number] = future
        self._outgoing.put((number, name, arguments))
        return number, future

    def _send_all(self) -> None:
        with suppress(OSError):  # the server is gone, which `_receive` notices
            while True:
                self._connection.send(self._outgoing.get())

    def _receive(self) -> None:
        try:
            while True:
                number, fine, value = self._connection.recv()
                with self._lock:
                    future, undo = self._pending.pop(number), self._abandoned.pop(number, None)
                    if not future.done():
                        (future.set_result if fine else future.set_exception)(value)
                if undo is not None and fine:
                    undo(value)
        except (EOFError, OSError):
            with self._lock:
                pending, self._pending = self._pending, {}
            for future in pending.values():
                if not future.done():
                    future.set_exception(ConnectionError("the process that started this worker is gone"))

    def limiter(self, address: Address) -> RateLimiter:
        """Return the rate limiter of an endpoint, which the server keeps (`limits.limiters.make`)."""
        return _Limiter(self, address)

    def budget(self, address: Address) -> Budget:
        """Return the budget of an endpoint, which the server keeps (`limits.execution`)."""
        return _Budget(self, address)


class _Limiter(RateLimiter):
    """Slots that the server grants."""

    def __init__(self, permits: Permits, address: Address) -> None:
        super().__init__()
        self._permits = permits
        self._address = address
        self._trouble = False

    def join(self, most: int) -> int:
        name = next(self._names)
        self._permits.tell("join", self._address, name, most)
        return name

    def part(self, name: int) -> None:
        self._permits.tell("part", self._address, name)

    async def enter(self, *, again: bool = False) -> Ticket:
        ticket, self._trouble = await self._permits.wait(lambda _: self.leave(), "enter", self._address, again)
        return ticket

    def leave(self, after: float | None = None) -> None:
        self._permits.tell("leave", self._address, after)

    @property
    def troubled(self) -> bool:
        return self._trouble

    def ended(self, ticket: Ticket, signal: Signal, *, faulty: bool = False) -> None:
        self._permits.tell("ended", self._address, ticket, signal, faulty)


class _Budget(Budget):
    """A budget on the server."""

    def __init__(self, permits: Permits, address: Address) -> None:
        super().__init__(None, None)
        self._permits = permits
        self._address = address

    @property
    def unlimited(self) -> bool:
        return super().unlimited and not self._permits.limited

    async def reserve(self, tokens: int, usd: float) -> str | None:
        def undo(refused: str | None) -> None:
            if refused is None:
                self.settle((tokens, usd), None)

        limits = (self.tokens, self.usd)
        refused: str | None = await self._permits.wait(undo, "reserve", self._address, limits, (tokens, usd))
        return refused

    def settle(self, reserved: tuple[int, float], used: tuple[int, float] | None) -> None:
        self._permits.tell("settle", self._address, tuple(reserved), used)


class RemoteAccount(Account):
    """Account of the experiment's spending, kept by the server."""

    def __init__(self, permits: Permits) -> None:
        super().__init__(NO_LIMITS, "")
        self._permits = permits
        self._late: LimitReached | None = None

    def late(self) -> bool:
        self._late = self._permits.ask("late")
        return self._late is not None

    def error(self) -> LimitReached:
        assert self._late is not None
        return self._late

    async def reserve(self, most: float, place: str) -> None:
        await self._permits.wait(lambda _: self.settle(most, None, place), "charge", most, place)

    def settle(self, most: float, usd: float | None, place: str) -> None:
        self._permits.tell("spend", most, usd, place)


class RemoteCache(ResponseCache):
    """Reply cache, kept by the server; only the server opens the file."""

    def __init__(self, permits: Permits) -> None:
        super().__init__(Path())
        self._permits = permits

    def find(self, calls: Iterable[Call]) -> dict[str, Kept]:
        replies: dict[str, Kept] = self._permits.ask("find", list(calls))
        return replies

    def put(self, call: Call, reply: Mapping[str, Any]) -> Kept:
        kept: Kept = self._permits.ask("put", call, dict(reply))
        return kept
