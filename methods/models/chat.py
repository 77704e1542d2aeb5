"""Language models behind an OpenAI-compatible endpoint: many conversations at once, each paid for once.

A call passes, in this order: the cache, the limits, the pace, the endpoint. What fails for good becomes a `Reply`
that says why; what no call can survive (wrong key, unknown model, nothing there) stops the run with `Broke`.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from benchmarks.errors import Broke, MissingPackage
from methods.models.background import event_loop, run
from methods.models.chat_options import ChatConfig, Messages
from methods.models.endpoint import Completion, Endpoint, Fault
from methods.models.limits import LIMIT, Budget, Ledger, Spent
from methods.models.pace import Pace
from methods.models.replies import Reply, Structured
from methods.models.response_cache import Call, ResponseCache, shared
from methods.models.structured import WAYS, Parsed, asked, parse, refuses, strict_schema
from methods.models.tokens import Estimate, TokenCounter

__all__ = ["ChatConfig", "ChatModel", "Messages", "Reply", "Structured", "reach_model"]

DOUBT = 4
"""Tries, where so far nothing at all answers at an endpoint."""
M = TypeVar("M", bound=BaseModel)
_Request = tuple[list[dict[str, str]], dict[str, Any]]

PREFLIGHT = "Reply with the word ok."
"""What an endpoint is asked before anything is spent."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The JSON that a reply must be."""

    name: str
    schema: Mapping[str, Any]


class ChatModel:
    """A client of one model at one endpoint; may be used from several threads.

    Args:
        config: Options.
        role: Under which name the ledger enters what is spent.
        cache: File of kept replies; None asks every time.
        ledger: Shared with other models; None makes one.

    Attributes:
        ledger: What was spent, by role.
        pace: How many calls may be in flight now.

    Raises:
        UserError: The key is not set, or the tokenizer cannot be read.
        MissingPackage: The client's packages are not installed.
    """

    def __init__(self, config: ChatConfig, *, role: str = "chat", cache: Path | None = None, ledger: Ledger | None = None) -> None:
        try:
            import tenacity
        except ImportError as error:
            raise MissingPackage("tenacity", "llm", f"the chat model {config.model!r}") from error
        self._tenacity = tenacity
        self.config = config
        self.role = role
        self.ledger = ledger or Ledger()
        self.pace = Pace(config.concurrency)
        self._cache: ResponseCache | None = shared(cache) if cache is not None else None
        self._endpoint = Endpoint(config)
        self._budget = Budget(config.run_tokens, config.run_usd)
        self._counter = TokenCounter(config.tokenizer)
        self._way = WAYS.index(config.structured_output)
        self._backoff = tenacity.wait_random_exponential(multiplier=config.backoff_s, max=config.longest_wait_s)
        # Connections belong to the chat loop, which alone may close them.
        weakref.finalize(self, _close, self._endpoint)

    def complete(self, conversations: Sequence[Messages], *, repetition: int = 0) -> list[Reply]:
        """Reply to conversations, many at a time.

        A call that fails for good becomes a `Reply` that says why; the others are not affected.

        Args:
            conversations: What to ask.
            repetition: 0, 1 … to draw further replies to the same conversations (with a temperature above 0).

        Returns:
            One reply per conversation, in order.

        Raises:
            Broke: No further call could succeed: wrong key, unknown model, or nothing answers at all.
        """
        return self._all([self._call(messages, repetition) for messages in conversations], None)

    def complete_structured(self, conversations: Sequence[Messages], model: type[M], *, repetition: int = 0) -> list[Structured[M]]:
        """Reply to conversations by JSON that fits a pydantic model; otherwise as `complete`."""
        shape = _Shape(model.__name__, strict_schema(model))
        calls = [self._call(messages, repetition, shape) for messages in conversations]
        return [
            Structured(reply, Parsed(None, reply.failed) if reply.failed else parse(reply.text, model)) for reply in self._all(calls, shape)
        ]

    def estimate(self, conversations: Sequence[Messages], *, repetition: int = 0) -> Estimate:
        """What asking these would take, without asking; equal conversations count once where there is a cache."""
        calls = [self._call(messages, repetition) for messages in conversations]
        pending, cached = calls, 0
        if self._cache is not None:
            distinct = {call.key: call for call in calls}
            kept = self._cache.get(distinct)
            pending = [call for key, call in distinct.items() if key not in kept]
            cached = len(calls) - len(pending)
        prompt = 0
        for call in pending:
            prompt += self._counter.count(call.messages)
        reply = len(pending) * self.config.max_tokens
        return Estimate(len(pending), cached, prompt, reply, self.config.usd(prompt, reply), self._counter.name)

    def preflight(self) -> Reply:
        """Make one short call past cache and limits, to learn whether endpoint, key and model work.

        Raises:
            Broke: They do not; the message says which and what to do.
        """
        return run(self._preflight())

    def close(self) -> None:
        """Close the connections; they open again when next used."""
        run(self._endpoint.close())

    # -- what a call is --

    def _call(self, messages: Messages, repetition: int, shape: _Shape | None = None) -> Call:
        """A call as it is addressed; the way in which JSON is asked for is no part of it."""
        parameters = {"temperature": self.config.temperature, "max_tokens": self.config.max_tokens}
        further = {"schema": shape.schema} if shape else {}
        return Call(self.config.url, self.config.model, messages, {**self.config.parameters, **parameters, **further}, repetition)

    def _all(self, calls: list[Call], shape: _Shape | None) -> list[Reply]:
        kept: dict[str, dict[str, Any]] = {}
        if self._cache is not None:
            kept = self._cache.get(call.key for call in calls)
        missing = [call for call in calls if call.key not in kept] if kept else calls
        asked_for = iter(run(self._gather(missing, shape)) if missing else ())
        return [self._kept(call, kept[call.key]) if call.key in kept else next(asked_for) for call in calls]

    async def _gather(self, calls: Sequence[Call], shape: _Shape | None) -> list[Reply]:
        tasks = [asyncio.create_task(self._reply(call, shape)) for call in calls]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    # -- cache --

    def _kept(self, call: Call, reply: Mapping[str, Any], seconds: float = 0.0) -> Reply:
        self.ledger.add(self.role, Spent(cached=1))
        return replace(self._read(call, Completion.from_json(reply), 1, seconds), cached=True)

    async def _reply(self, call: Call, shape: _Shape | None) -> Reply:
        """Reply to a call, unless an equal one is in flight or was answered meanwhile."""
        started = time.perf_counter()
        cache = self._cache
        if cache is None:
            return await self._ask(call, shape, started)
        while (flight := cache.flights.get(call.key)) is not None:
            reply: Reply | None = await asyncio.shield(flight)
            if reply is not None:  # None: it was cancelled, and this one takes its place
                self.ledger.add(self.role, Spent(cached=0 if reply.failed else 1, failed=1 if reply.failed else 0))
                return replace(reply, calls=1 if reply.calls else 0, cached=reply.failed is None)
        kept = cache.get([call.key])
        if kept:
            return self._kept(call, kept[call.key], time.perf_counter() - started)
        landing = cache.flights[call.key] = asyncio.get_running_loop().create_future()
        reply = None
        try:
            reply = await self._ask(call, shape, started)
            return reply
        finally:
            del cache.flights[call.key]
            landing.set_result(reply)

    # -- limits --

    async def _ask(self, call: Call, shape: _Shape | None, started: float) -> Reply:
        """Ask within the limits; enters what was spent."""
        config = self.config
        if self._budget.unlimited and config.call_tokens is None and config.call_usd is None:
            reply = await self._try(call, shape, started)
        else:
            prompt = self._counter.count(call.messages)
            most = (prompt + config.max_tokens, config.usd(prompt, config.max_tokens))
            refused = self._too_large(*most) or await self._budget.reserve(*most)
            if refused:
                reply = Reply("", refused, calls=0, seconds=time.perf_counter() - started, key=call.key)
            else:
                used = (0, 0.0)
                try:
                    reply = await self._try(call, shape, started)
                    used = (reply.prompt_tokens + reply.completion_tokens, reply.cost_usd)
                    if used[0] == 0 and reply.failed is None:  # an endpoint that does not count
                        wrote = self._counter.counts([reply.text])[0]
                        used = (prompt + wrote, config.usd(prompt, wrote))
                finally:
                    self._budget.settle(most, used)
        failed = 0 if reply.failed is None else 1
        spent = Spent(reply.calls, 0, failed, reply.prompt_tokens, reply.completion_tokens, reply.cost_usd)
        self.ledger.add(self.role, spent)
        return reply

    def _too_large(self, tokens: int, usd: float) -> str | None:
        if self.config.call_tokens is not None and tokens > self.config.call_tokens:
            return f"{LIMIT}: call_tokens {self.config.call_tokens:,}, and this call may need {tokens:,}"
        if self.config.call_usd is not None and usd > self.config.call_usd:
            return f"{LIMIT}: call_usd {self.config.call_usd:g}, and this call may cost {usd:.6g}"
        return None

    # -- endpoint --

    async def _try(self, call: Call, shape: _Shape | None, started: float) -> Reply:
        """Ask until a reply comes or trying again cannot help."""
        tries = [0]
        completion: Completion | None = None
        while completion is None:
            way = WAYS[self._way]

            def request() -> _Request:
                nonlocal way
                way = WAYS[self._way]  # as known when the call leaves, not when it began to wait
                if shape is None:
                    return [dict(message) for message in call.messages], {}
                return asked(way, call.messages, shape.name, shape.schema)

            try:
                completion = await self._persist(request, tries)
            except Fault as fault:
                if shape is not None and way != WAYS[-1] and refuses(fault.status, fault.reason):
                    self._way = max(self._way, WAYS.index(way) + 1)
                    continue
                if self._endpoint.hopeless(fault):
                    raise await self._endpoint.error(fault) from None
                seconds = time.perf_counter() - started
                return Reply("", fault.reason, calls=tries[0], seconds=seconds, key=call.key)
        if self._cache is not None and completion.failed is None:
            completion = Completion.from_json(self._cache.put(call, completion.to_json()))
        return self._read(call, completion, tries[0], time.perf_counter() - started)

    async def _persist(self, request: Callable[[], _Request], tries: list[int], attempts: int | None = None) -> Completion:
        most = attempts or self.config.attempts

        def stop(state: Any) -> bool:
            # Where nothing ever answered, a long wait only puts off the message that says so.
            return state.attempt_number >= (min(most, DOUBT) if self._endpoint.hopeless(state.outcome.exception()) else most)

        retrying = self._tenacity.AsyncRetrying(
            stop=stop, wait=self._pause, retry=self._tenacity.retry_if_exception(_worth_retrying), reraise=True
        )
        async for attempt in retrying:
            with attempt:
                # The slot is given back during pauses, so that one slow question does not hold up the rest.
                ticket = await self.pace.enter()
                try:
                    tries[0] += 1
                    messages, extra = request()
                    completion = await self._endpoint.send(messages, extra, self.config.max_tokens)
                    self.pace.clean()
                    return completion
                except Fault as fault:
                    if fault.busy:
                        self.pace.cut(ticket, fault.after)
                    raise
                finally:
                    self.pace.leave()
        raise AssertionError("the last try returns or raises")

    def _pause(self, state: Any) -> float:
        """Seconds before the next try: what the endpoint asks for, else doubling with full jitter."""
        after = state.outcome.exception().after
        return float(after if after is not None else self._backoff(state))

    def _read(self, call: Call, completion: Completion, calls: int, seconds: float) -> Reply:
        failed = completion.failed
        prompt, wrote = completion.prompt_tokens, completion.completion_tokens
        return Reply(
            completion.text.strip() if failed is None else "",
            failed,
            prompt,
            wrote,
            calls,
            seconds,
            self.config.usd(prompt, wrote),
            completion.model,
            call.key,
        )

    async def _preflight(self) -> Reply:
        started = time.perf_counter()
        messages = [{"role": "user", "content": PREFLIGHT}]
        call = self._call(messages, 0)
        tries = [0]
        try:
            completion = await self._persist(lambda: (messages, {}), tries, attempts=min(2, self.config.attempts))
        except Fault as fault:
            raise await self._endpoint.error(fault) from None
        reply = self._read(call, completion, tries[0], time.perf_counter() - started)
        self.ledger.add(self.role, Spent(reply.calls, 0, 0, reply.prompt_tokens, reply.completion_tokens, reply.cost_usd))
        if reply.failed is not None:
            raise Broke(
                f"{self.config.url} replies, but says nothing: {reply.failed}",
                where=f"model {self.config.model!r}",
                try_this="a higher max_tokens, where the model thinks before it answers",
            )
        return reply


def reach_model(config: ChatConfig, cache: Path | None) -> None:
    """Ask an endpoint whether it is there, unless replies of its model are kept.

    Raises:
        Broke: It is not.
    """
    if cache is None or not cache.exists() or not shared(cache).holds(config.model):
        ChatModel(config, role="preflight").preflight()


def _worth_retrying(error: BaseException) -> bool:
    return isinstance(error, Fault) and error.advice == "retry"


def _close(endpoint: Endpoint) -> None:
    """Have the chat loop close connections, without waiting: this runs wherever the garbage collector does."""
    if endpoint.connected:
        asyncio.run_coroutine_threadsafe(endpoint.close(), event_loop())
