"""An event loop whose clock jumps to the next timer, and an endpoint on it with faults: minutes of calls in seconds.

The endpoint replaces the transport below the real client, so that tests include the client, its errors and all code above it.
Only the network is missing.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import importlib
import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from unittest import mock

import openai

from methods import flow

T = TypeVar("T")

http: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
"""The library that the installed client uses to send requests."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: if nothing is ready, its clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        # The clock would jump while a thread works: the client uses one to read the platform name.
        done = self.create_future()
        done.set_result(func(*args))
        return done

    def _run_once(self) -> None:
        loop: Any = self
        while loop._scheduled and loop._scheduled[0]._cancelled:
            heapq.heappop(loop._scheduled)._scheduled = False
            loop._timer_cancelled_count -= 1
        if not loop._ready and loop._scheduled:
            self._now = max(self._now, loop._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


RETRY_AFTER_S = 20.0
FAULTS = (
    "reset",
    "refused_connection",
    "closed_before_reply",
    "half_reply",
    "slow_first_byte",
    "timeout",
    "read_timeout",
    "429",
    "429_after",
    "429_after_ms",
    "503",
    "503_after",
    "500",
    "502_html",
    "504",
    "html_200",
    "invalid_json",
    "not_an_object",
    "empty_body",
    "empty_choices",
    "no_message",
    "error_200",
    "wrong_model",
    "truncated",
    "refused",
)
"""Faults of a call; all except the last three disappear on another attempt."""
LASTING = ("wrong_model", "truncated", "refused")
"""Faults that belong to a reply, which is reported as invalid."""
PAUSES = {"429_after": RETRY_AFTER_S, "429_after_ms": RETRY_AFTER_S, "503_after": RETRY_AFTER_S}
SLOW_FIRST_BYTE_S = 4.0
TENTH = 10
TIMEOUT_S = 10.0


@dataclass
class Weather:
    """An endpoint in virtual time that replies by `answer` and simulates one kind of fault.

    Args:
        answer: Maps a prompt to a reply's text.
        latency: Maps a prompt to the seconds of a reply.
        fault: One of `FAULTS`; "" is a healthy endpoint.
        share: Share of attempts with the fault, sampled by prompt and attempt; the tenth attempt always has it.
        whole: Whether the calls of a question depend on each other and form one chain.

    Attributes:
        slot_s: Sum of seconds in which attempts occupied a slot.
        chains: Seconds of attempts and requested pauses, by prompt or question.
        most: Maximum attempts in flight.
        tries: Number of attempts by prompt.
    """

    answer: Callable[[str], str]
    latency: Callable[[str], float]
    fault: str = ""
    share: float = 0.01
    whole: bool = False
    slot_s: float = 0.0
    played: int = 0
    most: int = 0
    now: int = 0
    tries: dict[str, int] = field(default_factory=dict)
    chains: dict[Any, float] = field(default_factory=dict)
    _traces: list[Any] = field(default_factory=list)

    def ideal(self, slots: int) -> float:
        """Return the shortest wall time: seconds of all tries per slot, and the longest chain."""
        return self.slot_s / slots + max(self.chains.values(), default=0.0)

    def _chain(self, prompt: str) -> Any:
        question = flow.trace()
        if not self.whole:
            return prompt
        if not any(question is known for known in self._traces):
            self._traces.append(question)  # kept alive, so that no other object gets its address
        return id(question)

    def due(self, prompt: str, number: int) -> bool:
        digest = hashlib.blake2b(f"{self.fault} {number} {prompt}".encode(), digest_size=8).digest()
        return bool(self.fault) and int.from_bytes(digest, "big") < self.share * 2**64

    async def reply(self, request: Any) -> Any:
        """Answer a request of the HTTP library."""
        body = json.loads(request.content)
        prompt = body["messages"][-1]["content"]
        number = self.tries[prompt] = self.tries.get(prompt, 0) + 1
        tenth = sum(self.tries.values()) == TENTH
        fault = self.fault if tenth or self.due(prompt, number) else ""
        self.played += bool(fault)
        loop = asyncio.get_running_loop()
        self.now += 1
        self.most = max(self.most, self.now)
        started = loop.time()
        try:
            return await self._played(request, fault, body, prompt)
        finally:
            self.now -= 1
            spent = loop.time() - started
            self.slot_s += spent + PAUSES.get(fault, 0.0)
            chain = self._chain(prompt)
            self.chains[chain] = self.chains.get(chain, 0.0) + spent + PAUSES.get(fault, 0.0)

    async def _played(self, request: Any, fault: str, body: Any, prompt: str) -> Any:
        def respond(status: int, content: bytes, kind: str = "application/json", **headers: str) -> Any:
            names = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
            return http.Response(status, headers=names, content=content, request=request)

        error = json.dumps({"error": {"message": "try again", "type": "server_error"}}).encode()
        seconds = self.latency(prompt)
        match fault:
            case "refused_connection":
                raise http.ConnectError("connection refused", request=request)
            case "timeout":
                await asyncio.sleep(10 * TIMEOUT_S)  # the client stops waiting
            case "read_timeout":
                await asyncio.sleep(TIMEOUT_S)
                raise http.ReadTimeout("timed out", request=request)
            case "slow_first_byte":
                await asyncio.sleep(SLOW_FIRST_BYTE_S)
        await asyncio.sleep(seconds / 2 if fault == "reset" else seconds)
        whole = self._completion(body, prompt, fault)
        match fault:
            case "reset":
                raise http.ReadError("connection reset by peer", request=request)
            case "closed_before_reply":
                raise http.RemoteProtocolError("server disconnected", request=request)
            case "half_reply":
                return respond(200, whole[: len(whole) // 2])
            case "429" | "503" | "500" | "504":
                return respond(int(fault), error)
            case "429_after" | "503_after":
                return respond(int(fault[:3]), error, retry_after=f"{RETRY_AFTER_S:g}")
            case "429_after_ms":
                return respond(429, error, retry_after_ms=f"{1000 * RETRY_AFTER_S:g}")
            case "502_html":
                return respond(502, b"<html>bad gateway</html>", "text/html")
            case "html_200":
                return respond(200, b"<html>please log in</html>", "text/html")
            case "invalid_json":
                return respond(200, b'{"choices": [{"message": {"content": "a')
            case "not_an_object":
                return respond(200, b"[1, 2]")
            case "empty_body":
                return respond(200, b"")
            case "empty_choices":
                return respond(200, b'{"choices": [], "model": "m"}')
            case "no_message":
                return respond(200, b'{"choices": [{"index": 0, "finish_reason": "stop"}], "model": "m"}')
            case "error_200":
                return respond(200, error)
        return respond(200, whole)

    def _completion(self, body: Any, prompt: str, fault: str) -> bytes:
        text, finish = self.answer(prompt), "stop"
        if fault == "truncated":
            text, finish = "", "length"
        if fault == "refused":
            text, finish = "", "content_filter"
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": finish, "message": message}
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 4, "total_tokens": len(prompt) // 4 + 4}
        model = "other" if fault == "wrong_model" else body["model"]
        reply = {"id": "v", "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage}
        return json.dumps(reply).encode()


class _Transport(http.AsyncBaseTransport):  # type: ignore[name-defined,misc]
    def __init__(self, weather: Weather) -> None:
        self.weather = weather

    async def handle_async_request(self, request: Any) -> Any:
        return await self.weather.reply(request)


def stream(loop: VirtualLoop, program: Callable[[Any], Awaitable[T]], queries: Iterable[Any], in_flight: int) -> Generator[T, None, None]:
    """Behave like `methods.flow.stream`, on a loop that runs only while a result is awaited."""
    source, running, ended = iter(queries), set[Any](), list[Any]()
    try:
        while True:
            for query in islice(source, in_flight - len(running)):
                context = contextvars.copy_context()
                context.run(flow._trace.set, flow.Trace())
                task = loop.create_task(flow._awaited(program, query), context=context)
                running.add(task)
                task.add_done_callback(ended.append)
                task.add_done_callback(lambda _: loop.stop())
            while running and not ended:
                loop.run_forever()
            if not running:
                return
            task = ended.pop(0)
            running.discard(task)
            yield task.result()
    finally:
        for task in running:
            task.cancel()
        if running:
            loop.run_until_complete(asyncio.wait(running))


@contextmanager
def virtual(weather: Weather) -> Iterator[VirtualLoop]:
    """Run all endpoint calls and awaits of this block in virtual time, at this endpoint."""
    loop = VirtualLoop()
    client: Callable[..., Any] = partial(http.AsyncClient, transport=_Transport(weather))
    inline = mock.Mock(put=lambda work: work())
    streamed = partial(stream, loop)
    with (
        mock.patch.object(openai, "DefaultAsyncHttpxClient", client),
        mock.patch.object(flow, "event_loop", return_value=loop),
        mock.patch.object(flow, "_worker", return_value=inline),
        # First those that have imported the name: if they were imported with the patch in place, they would keep it.
        mock.patch("methods.pipeline.stream", streamed),
        mock.patch("ragmeter.runner.judging.stream", streamed),
        mock.patch.object(flow, "stream", streamed),
    ):
        try:
            yield loop
        finally:
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


async def in_flight(program: Callable[[Any], Awaitable[T]], items: Sequence[Any]) -> list[T]:
    """Run the programs of all items concurrently."""
    return list(await asyncio.gather(*map(program, items)))
