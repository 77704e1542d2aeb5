"""Run one coroutine per question, and batch local model calls across the questions that are waiting.

All programs of a process run on one event loop in its own thread, so that callers can be ordinary functions (also
inside a notebook's loop). Local computation runs in one worker thread per device, through a `Batcher`.
`stream` runs several programs at a time and yields each result as soon as it is ready.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from benchmarks.core.errors import UserError, message_of
from methods.api import Call
from methods.spending import LimitReached, current

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")


NOTICE_S = 0.2
"""Maximum seconds of a single blocking wait. Longer waits are split, so that Ctrl-C takes effect."""
# Reentrant, because the garbage collector may close a generator while the lock is held.
_lock = threading.RLock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
WORKER = "worker "
"""Prefix of the names of worker threads."""
_workers: dict[tuple[int, str], queue.SimpleQueue[Callable[[], None]]] = {}


def event_loop() -> asyncio.AbstractEventLoop:
    """Return this process's event loop, which runs in its own thread; start it on first use."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=_forever, args=(loop,), name="flow", daemon=True).start()
            _loops[os.getpid()] = loop
        return loop


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop forever, restarting it after SystemExit or KeyboardInterrupt, because other tasks still wait."""
    while True:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            return


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the event loop from synchronous code and return its result; interrupting the caller cancels it.

    Raises:
        RuntimeError: Called from the loop itself, which would wait forever.
    """
    loop = event_loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise RuntimeError("a synchronous function that waits for a model must not be called from the event loop of its calls")
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        while not futures.wait([future], NOTICE_S).done:
            pass
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _worker(device: str) -> queue.SimpleQueue[Callable[[], None]]:
    """Return the queue of a device's worker thread."""
    key = (os.getpid(), device)
    with _lock:
        if key not in _workers:
            todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

            def work() -> None:
                while True:
                    todo.get()()

            # A daemon, so that an interrupted process does not wait for its batch.
            threading.Thread(target=work, name=f"{WORKER}{device}", daemon=True).start()
            _workers[key] = todo
        return _workers[key]


@dataclass(slots=True)
class Trace:
    """Record of one program's model calls and waiting times. Call its methods only on the event loop.

    Attributes:
        calls: Model calls, in the order in which they ended.
        waited_s: Seconds spent only waiting: for a slot, a rate limiter, a batch to begin, or the event loop to hand on a batch's result.
        company_s: Seconds that its batches spent on other programs: the share 1 − m/n of a batch of n items, m of them its own.
        scripted: The name of the script that stood in for a model; "" if none did.
        endpoints: How endpoints identified themselves: (requested model, model, system fingerprint, version).
        cached_tokens: Prompt tokens that endpoints read from their own caches.
        unpriced: Calls of unknown cost.
    """

    calls: list[Call] = field(default_factory=list)
    waited_s: float = 0.0
    company_s: float = 0.0
    scripted: str = ""
    endpoints: set[tuple[str, str, str, str]] = field(default_factory=set)
    cached_tokens: int = 0
    unpriced: int = 0
    _waiting: int = 0
    _serving: int = 0
    _since: float = 0.0

    def change(self, waiting: int = 0, serving: int = 0, at: float | None = None) -> None:
        """Add to the number of calls that wait for a slot, and of calls being served; the trace derives the waiting time from
        both.

        Args:
            waiting: Change in the number of calls that wait.
            serving: Change in the number of calls being served.
            at: Time of the change (`time.perf_counter`), for changes that the event loop learns of later; None: now.
        """
        now = max(time.perf_counter() if at is None else at, self._since)
        if self._waiting and not self._serving:
            self.waited_s += now - self._since
        self._since = now
        self._waiting += waiting
        self._serving += serving

    @contextmanager
    def during(self, waiting: int = 0, serving: int = 0) -> Iterator[None]:
        """Context manager that applies `change` on entry and reverts it on exit."""
        self.change(waiting, serving)
        try:
            yield
        finally:
            self.change(-waiting, -serving)


_trace: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)


def trace() -> Trace:
    """Return the trace of the calling program; outside a program, a new trace that is discarded."""
    return _trace.get() or Trace()


@dataclass(slots=True, eq=False)
class _Waiting(Generic[In, Out]):
    item: In
    future: asyncio.Future[Out]
    trace: Trace


class Batcher(Generic[In, Out]):
    """Async front end of a batch function: collects items from concurrent programs and runs them as one batch.

    If a batch raises, its items are retried one by one, so that each gets its own result or error.

    Args:
        work: Function from a list of items to one result per item, in order; runs in the device's worker thread. A result
            must not depend on the other items.
        size: Maximum items per batch.
        device: Device whose worker thread runs the batches.
        length: Function that returns an item's length. If too many items wait, those closest to the first in length are taken.
    """

    def __init__(
        self, work: Callable[[list[In]], Sequence[Out]], size: int = 32, *, device: str = "cpu", length: Callable[[In], int] | None = None
    ) -> None:
        self.size = size
        self._work = work
        self._device = device
        self._length = length
        self._queue: list[_Waiting[In, Out]] = []
        self._busy = False

    async def __call__(self, item: In) -> Out:
        """Process one item in a batch, and return its result."""
        loop = asyncio.get_running_loop()
        entry: _Waiting[In, Out] = _Waiting(item, loop.create_future(), trace())
        self._queue.append(entry)
        entry.trace.change(waiting=1)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._next)  # after all others that are ready have joined
        try:
            return await entry.future
        finally:
            if queued := entry in self._queue:  # cancelled before its batch began
                self._queue.remove(entry)
            if queued or not entry.future.cancelled():
                entry.trace.change(waiting=-1)

    def _next(self) -> None:
        """Start the next batch."""
        batch = self._batch()
        if not batch:
            self._busy = False
            return
        for entry in batch:
            self._queue.remove(entry)
        _worker(self._device).put(partial(self._run, batch, asyncio.get_running_loop()))

    def _batch(self) -> list[_Waiting[In, Out]]:
        if len(self._queue) <= self.size or self._length is None:
            return self._queue[: self.size]
        first, *others = self._queue
        middle = self._length(first.item)
        others.sort(key=lambda entry: abs(self._length(entry.item) - middle))  # type: ignore[misc]
        return [first, *others[: self.size - 1]]

    def _run(self, batch: list[_Waiting[In, Out]], loop: asyncio.AbstractEventLoop) -> None:
        """Run a batch in the worker thread."""
        started = time.perf_counter()
        loop.call_soon_threadsafe(self._begun, batch, started)
        results = self._results([entry.item for entry in batch])
        loop.call_soon_threadsafe(self._done, batch, results, started, time.perf_counter())

    def _results(self, items: list[In]) -> Sequence[Out | BaseException]:
        try:
            results = self._work(items)
            if len(results) != len(items):
                raise ContractError(f"{len(results)} results for {len(items)} items")
            return results
        except ContractError as error:
            return [error] * len(items)
        except BaseException as error:  # any exception must reach the waiting task
            if len(items) == 1 or isinstance(error, UserError | MemoryError):
                return [error] * len(items)
            return [self._results([item])[0] for item in items]

    @staticmethod
    def _begun(batch: Sequence[_Waiting[In, Out]], started: float) -> None:
        for entry in batch:
            entry.trace.change(waiting=-1, serving=1, at=started)

    def _done(self, batch: Sequence[_Waiting[In, Out]], results: Sequence[Out | BaseException], started: float, ended: float) -> None:
        own: dict[int, int] = {}
        for entry in batch:
            own[id(entry.trace)] = own.get(id(entry.trace), 0) + 1
        for entry, result in zip(batch, results, strict=True):
            entry.trace.change(serving=-1, at=ended)
            entry.trace.company_s += (ended - started) * (1 / own[id(entry.trace)] - 1 / len(batch))
            if entry.future.done():  # cancelled meanwhile
                continue
            # Until its turn on the loop, which other programs and the caller's own work may delay.
            entry.trace.change(waiting=1, at=ended)
            if isinstance(result, BaseException):
                # A future does not accept StopIteration, and GeneratorExit would close the awaiting coroutine.
                plain = isinstance(result, Exception) and not isinstance(result, StopIteration)
                entry.future.set_exception(result if plain else RuntimeError(f"{type(result).__name__}: {message_of(result)}"))
            else:
                entry.future.set_result(result)
        self._next()


async def in_worker(work: Callable[[], T], device: str = "cpu") -> T:
    """Run a function in the worker thread of a device while other programs continue, and return its result."""
    batcher: Batcher[Callable[[], T], T] = Batcher(lambda works: [some() for some in works], device=device)
    return await batcher(work)


class ContractError(RuntimeError):
    """Raised if a role violates its interface, for example returns too few results; it stops the run."""


_streams: list[set[asyncio.Task[Any]]] = []
"""Running programs by stream."""


def under_way() -> int:
    """Return the number of programs in this process that have started but not finished."""
    return sum(len(running) for running in list(_streams))


def stream(program: Callable[[In], Awaitable[Out]], queries: Iterable[In], in_flight: int) -> Generator[Out, None, None]:
    """Run programs concurrently, and yield each result as soon as it is ready.

    Args:
        program: An `async` function of one query.
        queries: Queries, taken one by one when a program can start.
        in_flight: Maximum number of concurrent programs.

    Raises:
        Exception: The exception of a program; the others are then cancelled, as they are if the caller stops.
        LimitReached: A limit on spending was reached; running programs have ended first, and their results were yielded.
        RuntimeError: Called from a worker thread, which programs may wait for.
    """
    if threading.current_thread().name.startswith(WORKER):
        raise RuntimeError("a role in batch form must not wait for programs: write roles that call other roles or models in single form")
    ended: queue.SimpleQueue[asyncio.Task[Out]] = queue.SimpleQueue()
    loop = event_loop()
    running: set[asyncio.Task[Out]] = set()

    def launch(fresh: list[In]) -> None:
        for query in fresh:
            context = contextvars.copy_context()
            context.run(_trace.set, Trace())
            task = loop.create_task(_awaited(program, query), context=context)
            running.add(task)
            task.add_done_callback(ended.put)

    source = iter(queries)
    out = 0
    limit: LimitReached | None = None
    _streams.append(running)
    try:
        while True:
            if limit is None and (fresh := list(islice(source, in_flight - out))):
                account = current()
                if account is not None and account.late():
                    limit = account.error()
                else:
                    loop.call_soon_threadsafe(launch, fresh)
                    out += len(fresh)
            if not out:
                if limit is not None:
                    raise limit
                return
            try:
                task = ended.get(timeout=NOTICE_S)
            except queue.Empty:
                continue
            out -= 1
            running.discard(task)
            if task.cancelled():
                raise Cancelled
            if isinstance(error := task.exception(), LimitReached):
                limit = error
                continue
            yield task.result()
    finally:
        _streams[:] = [other for other in _streams if other is not running]  # sets are equal by content
        if out:
            run(_cancel(running))


class Cancelled(BaseException):
    """Programs were cancelled by `interrupt`."""


def interrupt() -> None:
    """Cancel all programs of this process; threads that wait for one receive `Cancelled`."""

    def cancel() -> None:
        for running in list(_streams):
            for task in list(running):
                task.cancel()

    event_loop().call_soon_threadsafe(cancel)


async def _awaited(program: Callable[[In], Awaitable[Out]], query: In) -> Out:
    try:
        return await program(query)
    except BaseException as error:
        if isinstance(error, Exception) or is_cancelled():
            raise
        # A question's program must not raise exceptions that end loops, threads or processes.
        raise RuntimeError(f"{type(error).__name__}: {message_of(error)}") from error


def is_cancelled() -> bool:
    """Return whether the running program was cancelled or closed. A `CancelledError` by itself can also come from a library."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs any more
        return True
    return task is not None and task.cancelling() > 0


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def together(*programs: Awaitable[T]) -> list[T]:
    """Await several programs concurrently and return their results; if one raises, the others are cancelled."""
    tasks = [asyncio.ensure_future(program) for program in programs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        await _cancel(set(tasks))
        raise


def in_order(program: Callable[[In], Awaitable[Out]], queries: Iterable[In], in_flight: int) -> Iterator[Out]:
    """Yield the results of `stream` in the order of the queries, holding back each until the results before it are ready."""

    async def numbered(item: tuple[int, In]) -> tuple[int, Out]:
        return item[0], await program(item[1])

    ready: dict[int, Out] = {}
    following = 0
    for number, result in stream(numbered, enumerate(queries), in_flight):
        ready[number] = result
        while following in ready:
            yield ready.pop(following)
            following += 1


def ordered(program: Callable[[In], Awaitable[Out]], queries: Iterable[In], in_flight: int) -> list[Out]:
    """Return the results of all programs, in the order of the queries."""
    return list(in_order(program, queries, in_flight))


_OWN = {
    1: ("answer", "retrieve", "ask", "answers", "orders", "names", "generate"),
    2: ("rerank", "compress", "contexts", "read", "verdicts", "objections"),
}
FORMS = {name: own for own, names in _OWN.items() for name in names}
"""Method names that roles, judges and data generators implement in batch form, with the number of arguments that are lists over
queries. The single form is named `…_one`.
"""
SIZE = 32
"""Default number of queries per batch, for roles without `batch_size`."""
IN_FLIGHT = 32
"""Default number of concurrent questions, for roles in single form without `in_flight`."""


def form_of(role: Any, name: str) -> str | None:
    """Return the form of a role's method: `batch`, `single`, or None if the role does not have it.

    Raises:
        ContractError: The role has both forms.
    """
    batch, single = hasattr(role, name), hasattr(role, f"{name}_one")
    if batch and single:
        raise ContractError(f"{type(role).__name__} has both {name} and {name}_one: a role has one form")
    return "batch" if batch else "single" if single else None


def one(role: Any, name: str) -> Callable[..., Awaitable[Any]]:
    """Return a role's method as an `async` function of one query; a batch method is wrapped in a `Batcher`.

    Args:
        role: The role.
        name: One of `FORMS`.

    Raises:
        ContractError: The role has both forms or neither; when awaited, its result belongs to another query.
    """
    match form_of(role, name):
        case "single":
            single = getattr(role, f"{name}_one")

            async def awaited(*arguments: Any) -> Any:
                result = single(*arguments)
                if not inspect.isawaitable(result):
                    raise ContractError(
                        f"{type(role).__name__}.{name}_one returned {type(result).__name__} without waiting: write `async def {name}_one`"
                    )
                return matched(await result, arguments[0], role)

            return awaited
        case "batch":
            own = FORMS[name]
            batcher: Batcher[tuple[Any, ...], Any] = Batcher(
                partial(_batch, role, getattr(role, name), own),
                int(getattr(role, "batch_size", SIZE)),
                device=str(getattr(role, "device", "cpu")),
            )

            async def batched(*arguments: Any) -> Any:
                return await batcher(arguments)

            return batched
    raise ContractError(f"{type(role).__name__} has neither {name} nor {name}_one")


def _batch(role: Any, work: Callable[..., Any], own: int, items: list[tuple[Any, ...]]) -> list[Any]:
    """Return the results of a batch; items with different further arguments (k, corpus, budget) form separate batches."""
    results: list[Any] = [None] * len(items)
    waiting = list(range(len(items)))
    while waiting:
        further = items[waiting[0]][own:]
        batch = [number for number in waiting if items[number][own:] == further]
        waiting = [number for number in waiting if number not in batch]
        columns = zip(*(items[number][:own] for number in batch), strict=True)
        made = list(work(*map(list, columns), *further))
        if len(made) != len(batch):
            raise ContractError(f"{type(role).__name__} gave {len(made)} results to {len(batch)} queries")
        for number, result in zip(batch, made, strict=True):
            results[number] = matched(result, items[number][0], role)
    return results


def matched(result: Any, query: Any, role: Any) -> Any:
    """Return a role's result unchanged after checking that its query id is the query's, because a shifted list would give wrong
    scores.
    """
    if hasattr(result, "query_id") and result.query_id != query.id:
        raise ContractError(
            f"{type(role).__name__} must return one result per query, in order: got that of {result.query_id} for {query.id}"
        )
    return result


def each(role: Any, name: str, *arguments: Any) -> list[Any]:
    """Call a role's method for many queries from synchronous code, whichever form it has, and return the results in order.

    Programs and roles await `one` instead.
    """
    if form_of(role, name) == "batch":
        return list(getattr(role, name)(*arguments))
    program, own = one(role, name), FORMS[name]
    items = list(zip(*arguments[:own], strict=True))
    return ordered(lambda item: program(*item, *arguments[own:]), items, in_flight([(role, name)]))


def in_flight(roles: Iterable[tuple[Any, str]]) -> int:
    """Return how many concurrent questions keep all roles busy: a role's own `in_flight`, or two of its batches (one runs, one
    fills).
    """
    wanted = [
        2 * int(getattr(role, "batch_size", SIZE)) if form_of(role, name) == "batch" else int(getattr(role, "in_flight", IN_FLIGHT))
        for role, name in roles
    ]
    return max(wanted, default=SIZE)
