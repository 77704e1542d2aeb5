"""Use OpenAI's batch API: upload requests as a file and receive replies within 24 hours at a lower price.

Requests of a `BatchEndpoint` collect in a `Pool` until all running questions wait, or no request has arrived for a while. The
pool then submits files of at most 50,000 requests and 200 MB. A `Ledger` next to the reply cache records which request is in
which batch, so that a restarted or parallel process waits for an existing batch instead of submitting it again. Replies are
cached like those of live calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.core.errors import Broke, UserError, counted, message_of
from benchmarks.core.files import whole_text
from methods.flow import trace, under_way
from methods.models.chat_config import ChatConfig
from methods.models.endpoint import Endpoint, Fault
from methods.models.limits import Address
from methods.models.reply import Completion
from methods.spending import LimitReached, current

T = TypeVar("T")
PATH = "/v1/chat/completions"
WINDOW = "24h"
MOST_REQUESTS = 50_000
MOST_BYTES = 200_000_000
"""Maximum size of a request file."""
SETTLE_S = 0.1
"""Seconds between two checks of whether every question waits."""
QUIET_S = 10.0
"""Seconds without a further request after which the collected requests are submitted."""
FIRST_PAUSE_S = 1.0
"""Pause before the second look at a batch; grows up to `poll_s`."""
SAID_S = 60.0
"""Minimum seconds between two progress lines about a batch with unchanged status."""
FINAL = frozenset({"completed", "failed", "expired", "cancelled"})
KEPT_S = 29 * 86400.0
"""Seconds after which a request is submitted again, because servers delete files after 30 days."""
_CLOCK_S = 300
"""Maximum assumed difference between the server's clock and the local one, in seconds."""


class BatchFault(Fault):
    """Failure of the batch API itself, after which no further call could succeed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason, "stop", status=fault.status, reached=fault.reached)


class _Lost(Fault):
    """A batch that the server no longer knows; a retry submits its requests again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "fail")


@dataclass(frozen=True)
class Record:
    """Entry of a batch in the ledger.

    Attributes:
        name: Name of its file in the ledger.
        file: Id of the uploaded request file.
        requests: Ids of the requests whose replies have not been fetched.
        created: When it was submitted, in seconds since 1970.
        batch: Id of the batch; "" until the server assigns one.
    """

    name: str
    file: str
    requests: tuple[str, ...]
    created: float
    batch: str = ""


class Ledger:
    """Record on disk of which request is in which batch: a folder with one file per batch.

    Args:
        folder: The folder; created on first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def records(self) -> Iterator[Record]:
        """Yield all batches, oldest first."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                row = json.loads(path.read_text("utf-8"))
            except FileNotFoundError:  # another process took the last reply
                continue
            if time.time() - row["created"] > KEPT_S:
                path.unlink(missing_ok=True)
                continue
            yield Record(**row | {"requests": tuple(row["requests"])})

    def put(self, record: Record) -> Record:
        """Write or update a batch's record; a record without requests is deleted."""
        path = self.folder / f"{record.name}.json"
        if record.requests:
            self.folder.mkdir(parents=True, exist_ok=True)
            whole_text(path, json.dumps(asdict(record)))
        else:
            path.unlink(missing_ok=True)
        return record


@dataclass(eq=False)
class _Request:
    """A request that waits for a batch, with its waiting program."""

    line: bytes
    program: int
    reply: asyncio.Future[Mapping[str, Any]] = field(repr=False)


class Pool:
    """Requests to one address that wait for a batch. Use it from one event loop only.

    Args:
        config: Options of the endpoint.
        ledger: Record of submitted batches.
    """

    def __init__(self, config: ChatConfig, ledger: Ledger) -> None:
        self._endpoint, self._ledger = Endpoint(config), ledger
        self._waiting: dict[str, _Request] = {}
        self._submitted: dict[str, _Request] = {}
        self._followed: dict[str, set[str]] = {}
        self._early: dict[str, Mapping[str, Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = 0.0
        self._attached = False
        self._settling = False

    async def ask(self, identifier: str, line: bytes) -> Mapping[str, Any]:
        """Add a request, wait for its batch, and return its line of the output or error file.

        Raises:
            Fault: The request got no reply.
            LimitReached: `max_hours` passed before the reply arrived.
        """
        if identifier in self._early:
            return self._early.pop(identifier)  # the ledger forgets it when it is old
        request = _Request(line, id(trace()), asyncio.get_running_loop().create_future())
        if not self._attached:
            self._attached = True
            for record in list(self._ledger.records()):
                self._begin(self._follow(record), record)
        if any(identifier in names for names in self._followed.values()):
            self._submitted[identifier] = request
        else:
            self._waiting[identifier] = request
            self._last = time.monotonic()
            if not self._settling:
                self._settling = True
                self._begin(self._settle())
        try:
            return await request.reply
        finally:
            for place in (self._waiting, self._submitted):
                if place.get(identifier) is request:
                    del place[identifier]

    def _begin(self, work: Any, record: Record | None = None) -> None:
        if record is not None:
            self._followed[record.name] = set(record.requests)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self) -> None:
        """Submit the collected requests once all programs wait."""
        try:
            while self._waiting:
                await asyncio.sleep(SETTLE_S)
                programs = len({request.program for request in self._waiting.values()} | _held.keys())
                quiet = time.monotonic() - self._last
                if (quiet >= SETTLE_S and programs >= under_way()) or quiet >= QUIET_S or len(self._waiting) >= MOST_REQUESTS:
                    for chunk in chunks(self._waiting):
                        await self._submit(chunk)
        finally:
            self._settling = False

    async def _forget(self, taken: set[str]) -> None:
        """Remove requests from the ledger."""
        for record in list(self._ledger.records()):
            left = tuple(name for name in record.requests if name not in taken)
            if left != record.requests:
                self._ledger.put(replace(record, requests=left))

    async def _submit(self, chunk: Sequence[str]) -> None:
        """Upload requests, record them, create their batch and start following it."""
        requests = {name: self._waiting.pop(name) for name in chunk if name in self._waiting}
        self._submitted |= requests
        data = b"".join(request.line for request in requests.values())
        try:
            file = await self._tried(lambda client, how: client.files.create(file=("batch.jsonl", data), purpose="batch", **how))
            name = f"{int(time.time() * 1000):015d}-{uuid.uuid4().hex[:8]}"
            record = self._ledger.put(Record(name, file.id, tuple(requests), time.time()))
            self._followed[name] = set(requests)
            record = await self._create(record)
        except Exception as error:
            self._fail(requests, error)
            return
        self._begin(self._follow(record), record)

    async def _create(self, record: Record) -> Record:
        def create(client: Any, how: Any) -> Any:
            return client.batches.create(completion_window=WINDOW, endpoint=PATH, input_file_id=record.file, **how)

        batch = await self._tried(create)
        _say(f"batch {batch.id}: submitted with {counted(len(record.requests), 'request')}; if you stop, the same command attaches to it")
        return self._ledger.put(replace(record, batch=batch.id))

    async def _follow(self, record: Record) -> None:
        """Wait for a batch, and deliver its replies."""
        try:
            if not record.batch:
                record = await self._found(record)
            batch = await self._ended(record)
            lines = await self._lines(batch)
        except Exception as error:
            self._followed.pop(record.name, None)
            if isinstance(error, Fault) and error.status == 404:
                self._ledger.put(replace(record, requests=()))
                error = _Lost(f"the server does not know batch {record.batch} or its files any more")
            self._fail(record.requests, error)
            return
        self._followed.pop(record.name, None)
        lost = {name for name in record.requests if name not in lines or not _answers(lines[name])}
        # A retry must not find a failure again, and failures are not billed.
        await self._forget(lost)
        taken = set()
        for name in record.requests:
            request = self._submitted.pop(name, None)
            if request is not None and not request.reply.done():
                taken.add(name)
                if name in lines:
                    request.reply.set_result(lines[name])
                else:
                    request.reply.set_exception(Fault(_why(batch), "fail"))
            elif name not in lost:  # its question is not asked yet
                self._early[name] = lines[name]
        # Those who waited put replies into the cache when they run next; a kill before that loses nothing.
        for _ in range(3):
            await asyncio.sleep(0)
        await self._forget(taken)
        if not self._followed and not self._waiting:
            await self._endpoint.close()

    async def _found(self, record: Record) -> Record:
        """Find the batch of an uploaded file whose process was killed before it recorded the batch."""

        async def search(client: Any, how: Any) -> str:
            async for batch in client.batches.list(limit=100, **how):
                if batch.input_file_id == record.file:
                    return str(batch.id)
                if batch.created_at < record.created - _CLOCK_S:
                    break
            return ""

        if identifier := await self._tried(search):
            return self._ledger.put(replace(record, batch=identifier))
        return await self._create(record)

    async def _ended(self, record: Record) -> Any:
        """Wait until a batch ends, printing its progress."""
        pause, status, shown = FIRST_PAUSE_S, "", 0.0
        while True:
            batch = await self._tried(lambda client, how: client.batches.retrieve(record.batch, **how))
            if batch.status != status or time.monotonic() - shown >= SAID_S:
                status, shown = batch.status, time.monotonic()
                count = batch.request_counts
                _say(f"batch {batch.id}: {status}" + (f", {count.completed:,} of {count.total:,} answered" if count else ""))
            if status in FINAL:
                return batch
            if (account := current()) is not None:
                account.check()
            await asyncio.sleep(min(pause, self._endpoint.config.poll_s))
            pause *= 1.5

    async def _lines(self, batch: Any) -> dict[str, Mapping[str, Any]]:
        """Return the lines of a batch's output and error files by request; incomplete lines are dropped."""
        results: dict[str, Mapping[str, Any]] = {}
        for file in filter(None, (batch.error_file_id, batch.output_file_id)):
            content = await self._tried(lambda client, how, file=file: client.files.content(file, **how))  # type: ignore[misc]
            for line in content.content.splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
                    continue
                known = results.get(row["custom_id"])
                if known is None or not _answers(known):  # of two lines about a request, the first answer counts
                    results[row["custom_id"]] = row
        return results

    def _fail(self, names: Sequence[str] | Mapping[str, Any], error: Exception) -> None:
        self._attached = False  # the next caller looks for the batch again
        if not isinstance(error, Fault | LimitReached):
            error = Fault(f"it is not a batch API: {type(error).__name__}: {message_of(error)}"[:300], "fail")
        if isinstance(error, Fault) and not isinstance(error, _Lost) and error.status not in (401, 403):
            error = BatchFault(error)
        for name in names:
            request = self._submitted.pop(name, None)
            if request is not None and not request.reply.done():
                request.reply.set_exception(error)

    async def _tried(self, call: Callable[[Any, Mapping[str, Any]], Awaitable[T]]) -> T:
        """Call the API with retries.

        Raises:
            Fault: The call failed permanently.
        """
        config = self._endpoint.config
        for number in range(1, config.attempts + 1):
            try:
                return await self._endpoint.called(call)
            except Fault as fault:
                if fault.advice != "retry" or number == config.attempts:
                    raise
                pause = config.backoff_s * 2 ** (number - 1) if fault.after is None else fault.after
            await asyncio.sleep(min(pause, config.longest_wait_s))
        raise AssertionError("the last try returns or raises")


def _answers(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a file holds a reply."""
    response = line.get("response")
    return isinstance(response, dict) and response.get("status_code") == 200


_held: Counter[int] = Counter()


@contextmanager
def marked_waiting() -> Iterator[None]:
    """Context manager that marks a program as waiting while it waits for another program's identical call."""
    program = id(trace())
    _held[program] += 1
    try:
        yield
    finally:
        _held[program] -= 1
        if not _held[program]:
            del _held[program]


def _why(batch: Any) -> str:
    """Return the reason why a batch has no reply to a request."""
    messages = [item.message for item in (batch.errors.data if batch.errors and batch.errors.data else ()) if item.message]
    if batch.status == "completed":
        return f"batch {batch.id} is completed, and its files have no line for this request"
    return " ".join(f"batch {batch.id} is {batch.status}: {messages[0] if messages else 'this request was not answered'}".split())[:300]


def chunks(requests: Mapping[str, _Request]) -> Iterator[list[str]]:
    """Yield the request ids of each file to submit."""
    names: list[str] = []
    size = 0
    for name, request in list(requests.items()):
        if names and (len(names) >= MOST_REQUESTS or size + len(request.line) > MOST_BYTES):
            yield names
            names, size = [], 0
        names.append(name)
        size += len(request.line)
    if names:
        yield names


_pools: weakref.WeakValueDictionary[tuple[int, Address, Path], Pool] = weakref.WeakValueDictionary()


class BatchEndpoint(Endpoint):
    """`Backend` that sends requests to an endpoint's batch API.

    Args:
        config: Options.
        home: Folder of the reply cache, where the ledger is stored.
        salt: Scope and repeat of the execution, which distinguish otherwise equal requests.
    """

    def __init__(self, config: ChatConfig, home: Path, salt: str = "") -> None:
        super().__init__(config)
        self._salt = salt
        address = config.address
        place = re.sub(r"\W+", "-", f"{address.model}-{hashlib.blake2b(str(address).encode(), digest_size=6).hexdigest()}")
        key = os.getpid(), address, home
        self._pool = _pools.get(key) or Pool(config, Ledger(home / "batches" / place))
        _pools[key] = self._pool

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Send one request through the batch pool; see `Backend.send`."""
        with trace().during(waiting=1):
            return self._hidden(await self._send(messages, extra, repetition))

    async def _post(self, body: Mapping[str, Any], repetition: int) -> Completion:
        text = json.dumps(body, sort_keys=True, ensure_ascii=False)
        identifier = hashlib.blake2b(f"{self._salt}\0{repetition}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        request = {"custom_id": identifier, "method": "POST", "url": PATH, "body": dict(body)}
        row = await self._pool.ask(identifier, json.dumps(request).encode() + b"\n")
        response = row["response"] if isinstance(row.get("response"), dict) else {}
        if not _answers(row):
            raise self._lost(response, row.get("error"))
        self.reached = True
        try:
            completion = self._read("application/json", json.dumps(response.get("body")).encode())
        except Fault as fault:
            raise Fault(fault.reason, "fail", status=fault.status) from None
        self.dialect.answered = True
        return replace(completion, batched=True, seconds=0.0)

    def _lost(self, response: Mapping[str, Any], error: Any) -> Fault:
        """Return the fault behind a line without a completion."""
        body = response.get("body")
        details = (body.get("error") if isinstance(body, dict) else None) or error or {}
        details = details if isinstance(details, dict) else {"message": str(details)}
        status = response.get("status_code")
        reason = self.clean(str(details.get("message") or details.get("code") or "the batch has no reply to this request"))
        reason = f"HTTP {status}: {reason}" if status else reason
        return Fault(reason, "fail", status=status if isinstance(status, int) else None, parameter=str(details.get("param") or ""))

    async def error(self, fault: Fault) -> UserError:
        """Convert a permanent fault to an error for the user."""
        if not isinstance(fault, BatchFault):
            return await super().error(fault)
        remedy = "the same command attaches to the batches that were submitted"
        if fault.status in (404, 405, 501):
            remedy = "`batch: false`, if this endpoint has no batch API (/files and /batches)"
        where = f"model {self.config.model!r}"
        return Broke(f"the batch API of {self.config.url} fails: {fault.reason}", code="batch-api-failed", where=where, try_this=remedy)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
