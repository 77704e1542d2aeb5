"""Call language models behind an OpenAI-compatible endpoint: many conversations at once, each only paid for once.

A call passes the cache, the limits, the rate limiter and the endpoint, in this order. A permanent failure becomes a
`Reply` with the reason; an error that affects all calls (wrong key, unknown model, no server) stops the run with `Broke`.
"""

from __future__ import annotations

import asyncio
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.core.errors import Broke, MissingPackage
from methods.api import Call as KeptCall
from methods.api import Usage, kept
from methods.flow import event_loop, ordered, run, trace
from methods.models.batch import MOST_REQUESTS, BatchEndpoint, marked_waiting
from methods.models.chat_config import ChatConfig
from methods.models.counting import Estimate
from methods.models.endpoint import Backend, Endpoint, Fault, Messages, token_ids, token_message
from methods.models.limits import LIMIT, CallCost, RateLimiter, UsageByRole, budget_of, limiters
from methods.models.reply import Completion, Content, Logprobs, read
from methods.models.reply_cache import Call, Kept, ResponseCache, shared
from methods.models.structured import WAYS, asked, refuses, strict_schema
from methods.spending import charged, current

SCRIPTED = "scripted/"
"""Prefix of model names of scripts, which marks their answers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to one conversation.

    Attributes:
        text: The answer without the thought; the whole text if `ask(raw=True)`; "" if there is none.
        failed: Why there is no answer.
        prompt_tokens, completion_tokens: Counts of the endpoint; 0 if it reports none.
        calls: Number of tries; 1 for a reply from the cache, 0 if a limit prevented the call.
        seconds: Wall time, including pauses between tries but not waiting for a slot.
        cost_usd: Cost as the endpoint reports it, else by the configured prices; for a reply from the cache, its original
            cost.
        model: The model as the endpoint names it.
        system_fingerprint, version: Identification of the server, as the endpoint reports it; "" if it does not.
        key: Key of the call in the cache and its exports.
        cached: Whether it came from the cache, or from an identical call in flight.
        created: When a reply from the cache was first received, in seconds since 1970; None for a new reply.
        thought: The model's thought before the answer; "" if there is none.
        raw: The whole reply as the model wrote it, including the thought.
        finish_reason: `stop`, `length` …; "" if no reply came.
        refusal: The model's words in the field `refusal`.
        cached_tokens: Number of prompt tokens that the endpoint read from its own cache.
        priced: Whether the cost is known.
        logprobs: Log-probabilities of its tokens, if requested and received.
    """

    text: str
    failed: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 1
    seconds: float = 0.0
    cost_usd: float = 0.0
    model: str = ""
    key: str = ""
    cached: bool = False
    system_fingerprint: str = ""
    version: str = ""
    created: float | None = None
    thought: str = ""
    raw: str = ""
    finish_reason: str = ""
    refusal: str = ""
    cached_tokens: int = 0
    priced: bool = True
    logprobs: Logprobs | None = None

    @property
    def usage(self) -> Usage:
        """Return the cost of the call."""
        return Usage(self.prompt_tokens, self.completion_tokens, model_calls=self.calls, cost_usd=self.cost_usd)

    @property
    def served(self) -> str:
        """Return the model that served the reply: `gpt-4.1-mini-2025-04-14, system_fingerprint fp_1`."""
        parts = {"": self.model, "system_fingerprint ": self.system_fingerprint, "version ": self.version}
        return ", ".join(name + value for name, value in parts.items() if value)

    @property
    def scripted(self) -> bool:
        """Return whether the reply came from a script instead of a model."""
        return self.model.startswith(SCRIPTED)


__all__ = ["ChatConfig", "ChatModel", "Messages", "Reply", "reach_model"]

BRIEF = 0.1
"""Fraction of the normal pause before a retry after an isolated fault."""
DOUBT = 4
"""Maximum number of tries while an endpoint has never responded."""
LEAST_USD = 1e-12
_Request = tuple[list[dict[str, str]], dict[str, Any]]

PREFLIGHT = "Reply with the word ok."
"""User message that tests an endpoint before the first call of a run."""
PREFLIGHT_SYSTEM = "You answer in one word."
"""System message of the test request."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The JSON shape that a reply must have."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Further:
    """Further fields of a request, and the function that selects what to keep of the completion."""

    fields: Mapping[str, Any]
    kept: Callable[[Completion], Completion] = lambda completion: completion


_Form = _Shape | _Further | None


@lru_cache(maxsize=64)
def _shape(model: type[BaseModel]) -> _Shape:
    return _Shape(model.__name__, strict_schema(model))


class _Tries:
    """Number of attempts of a call and their total time, without waiting for a slot."""

    def __init__(self) -> None:
        self.number = 0
        self._started = time.perf_counter()
        self._waited = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started - self._waited

    @contextmanager
    def waiting(self) -> Iterator[None]:
        since = time.perf_counter()
        with trace().during(waiting=1):
            try:
                yield
            finally:
                self._waited += time.perf_counter() - since


class ChatModel:
    """A client of one model at one endpoint; may be used from several threads.

    Args:
        config: Options.
        role: Name under which usage is counted.
        cache: File of cached replies; None calls the endpoint every time.
        usage_by_role: Usage shared with other models; None creates a new one.
        backend: Source of the replies; None: the endpoint in the options.
        replies: Scope of the cached replies: a token of `--fresh`, or "" for the newest of all.
        repeat: Number of the repeat; each repeat has its own replies.
        known: Whether its calls are known before the first reply, so that `batch: true` may send them in batches.

    Attributes:
        usage_by_role: The cost of calls, by role.
        rate_limiter: Limits the number of calls in flight; shared by all models of this process with the same
            endpoint, key and name. Each local model and script has its own.
        counter: Counter of tokens: the model's own, or the one in its options.
        room: Longest prompt in tokens; None: unknown.
        batches: Whether its calls wait for batches.

    Raises:
        UserError: The key is not set, or the tokenizer cannot be read.
        MissingPackage: The client's packages are not installed.
    """

    def __init__(
        self,
        config: ChatConfig,
        *,
        role: str = "chat",
        cache: Path | None = None,
        usage_by_role: UsageByRole | None = None,
        backend: Backend | None = None,
        replies: str = "",
        repeat: int = 0,
        known: bool = False,
    ) -> None:
        try:
            import tenacity
        except ImportError as error:
            raise MissingPackage("tenacity", "llm", f"the chat model {config.model!r}") from error
        self._tenacity = tenacity
        self.config = config
        self.role = role
        self.usage_by_role = usage_by_role or UsageByRole()
        self._cache: ResponseCache | None = shared(cache) if cache is not None else None
        self._revision, self._replies, self._repeat = config.resolved_revision(), replies, repeat
        self.batches = config.batch and known and cache is not None and backend is None
        if self.batches and cache is not None:
            backend = BatchEndpoint(config, cache.absolute().parent, f"{replies}/{repeat}/{self._revision}")
        elif config.batch and backend is None and not known:
            _say_live(config.model, role)
        self._backend: Backend = backend or Endpoint(config)
        address = config.address if isinstance(self._backend, Endpoint) else None
        self._place = f"{config.url} {config.model}"
        self._budget = budget_of(address, config.run_tokens, config.run_usd)
        self.rate_limiter = limiters(address) if address is not None and not self.batches else RateLimiter()
        weakref.finalize(self, self.rate_limiter.part, self.rate_limiter.join(MOST_REQUESTS if self.batches else config.concurrency))
        self.counter = self._backend.counter
        self.room = self._backend.room
        self._way = WAYS.index(config.structured_output)
        self._backoff = tenacity.wait_random_exponential(multiplier=config.backoff_s, max=config.longest_wait_s)
        # Connections belong to the chat loop, and only it may close them.
        weakref.finalize(self, _close, self._backend)

    @property
    def in_flight(self) -> int:
        """Return the number of concurrent questions that keeps the endpoint busy; with batches, the size of a batch."""
        return MOST_REQUESTS if self.batches else 2 * self.config.concurrency

    async def ask(
        self, messages: Messages, *, shape: type[BaseModel] | None = None, repetition: int = 0, step: str = "", raw: bool = False
    ) -> Reply:
        """Ask the model and return its reply to a conversation.

        Args:
            messages: What to ask.
            shape: Model of the requested JSON reply (`parse` reads it); None for text.
            repetition: 0, 1 … to draw further replies to the same conversation (with a temperature above 0).
            step: Name of the program's prompt, for readers of its calls.
            raw: Return the whole text, including the thought, as `Reply.text`, for protocols that contain the thought.

        Returns:
            The reply; after a permanent failure, it has the reason.

        Raises:
            Broke: All further calls would fail: wrong key, unknown model, or no server.
        """
        reply = await self._answered(messages, _shape(shape) if shape is not None else None, repetition, raw)
        self._trace(reply, step, "\n\n".join(f"{message['role']}: {message['content']}" for message in messages))
        return reply

    async def resume(
        self,
        ids: Sequence[int],
        fields: Mapping[str, Any],
        *,
        shown: str,
        step: str = "",
        keep: Callable[[Completion], Completion] = lambda completion: completion,
    ) -> Reply:
        """Continue a prompt of token ids by the endpoint's `/completions`; otherwise as `ask` with `raw=True`.

        Args:
            ids: The prompt, used without a chat template.
            fields: Further fields of the request, including `max_tokens`.
            shown: The prompt as text, for the log of calls.
            step: As in `ask`.
            keep: Function from the received completion to the one that is cached and returned.
        """
        reply = await self._answered([token_message(ids)], _Further(fields, keep), 0, True)
        self._trace(reply, step, shown)
        return reply

    async def _answered(self, messages: Messages, form: _Form, repetition: int, raw: bool) -> Reply:
        return await self._reply(self._call(messages, repetition, form), form, raw)

    def _trace(self, reply: Reply, step: str, prompt: str) -> None:
        """Record a call for the running question."""
        done = trace()
        if reply.scripted:
            done.scripted = reply.model
        if isinstance(self._backend, Endpoint) and reply.model:
            done.endpoints.add((self.config.model, reply.model, reply.system_fingerprint, reply.version))
        done.cached_tokens += reply.cached_tokens
        done.unpriced += not reply.priced
        done.calls.append(
            KeptCall(
                self.role,
                step,
                kept(prompt),
                kept(reply.text if reply.failed is None else reply.failed),
                reply.prompt_tokens,
                reply.completion_tokens,
                reply.seconds,
                reply.cached,
                reply.failed is not None,
                kept(reply.thought),
                kept(reply.raw) if reply.raw != reply.text else "",
                reply.finish_reason,
                reply.refusal,
                reply.model,
                reply.created,
            )
        )

    def complete(self, conversations: Sequence[Messages], *, shape: type[BaseModel] | None = None, repetition: int = 0) -> list[Reply]:
        """Return replies to conversations, for synchronous code: many concurrently, in order; otherwise as `ask`."""
        return ordered(lambda messages: self.ask(messages, shape=shape, repetition=repetition), conversations, self.in_flight)

    def estimate(self, conversations: Sequence[Messages], *, repetition: int = 0) -> Estimate:
        """Estimate the calls and tokens of these conversations, without calls; with a cache, equal ones count once."""
        calls = [self._call(messages, repetition) for messages in conversations]
        pending, cached = calls, 0
        if self._cache is not None:
            distinct = {call.key: call for call in calls}
            known = self._cache.find(distinct.values())
            pending = [call for key, call in distinct.items() if key not in known]
            cached = len(calls) - len(pending)
        prompt = 0
        for call in pending:
            prompt += self.counter.count(call.messages)
        reply = len(pending) * self.config.longest
        return Estimate(len(pending), cached, prompt, reply, self.config.usd(prompt, reply), self.counter.name)

    def preflight(self) -> Reply:
        """Make one short call without cache and limits, to check endpoint, key and model.

        Raises:
            Broke: One of them does not work; the message says which and what to do.
        """
        return run(self._preflight())

    def close(self) -> None:
        """Close the connections; they open again when next used."""
        run(self._backend.close())

    def _call(self, messages: Messages, repetition: int, form: _Form = None) -> Call:
        """Return the cache key of a call; the way in which JSON is requested is not part of it."""
        parameters = {"temperature": self.config.temperature, "max_tokens": self.config.max_tokens}
        further = {"schema": form.schema} if isinstance(form, _Shape) else form.fields if form else {}
        every = {**self.config.parameters, **parameters, **further}
        return Call(self._backend.url, self.config.model, messages, every, repetition, self._revision, self._replies, self._repeat)

    def _kept(self, call: Call, entry: Kept, seconds: float, raw: bool) -> Reply:
        """Read a cached reply; a reply that ends within a thought fails as it did when received."""
        self.usage_by_role.add(self.role, CallCost(cached=1))
        reply = self._read(call, Completion.from_json(entry.reply), 1, seconds, raw)
        return replace(reply, cached=True, key=entry.key, created=entry.created)

    async def _reply(self, call: Call, shape: _Form, raw: bool) -> Reply:
        """Return the reply to a call, from the cache or an identical call in flight if possible."""
        started = time.perf_counter()
        cache = self._cache
        if cache is None:
            return await self._ask(call, shape, raw)
        flying = f"{call.key}/raw" if raw else call.key
        while (flight := cache.flights.get(flying)) is not None:
            with marked_waiting():
                reply: Reply | None = await asyncio.shield(flight)
            if reply is not None:  # None: it was cancelled, and this one takes its place
                self.usage_by_role.add(self.role, CallCost(cached=0 if reply.failed else 1, failed=1 if reply.failed else 0))
                return replace(reply, calls=1 if reply.calls else 0, cached=reply.failed is None)
        known = cache.find([call])
        if known:
            return self._kept(call, known[call.key], time.perf_counter() - started, raw)
        landing = cache.flights[flying] = asyncio.get_running_loop().create_future()
        reply = None
        try:
            reply = await self._ask(call, shape, raw)
            return reply
        finally:
            del cache.flights[flying]
            landing.set_result(reply)

    async def _ask(self, call: Call, shape: _Form, raw: bool) -> Reply:
        """Call the endpoint within the limits, and record the cost."""
        config, tries = self.config, _Tries()
        if self._budget.unlimited and config.call_tokens is None and config.call_usd is None and self.room is None:
            reply = await self._try(call, shape, tries, raw)
        else:
            prompt = self._count(call.messages)
            most = (prompt + config.longest, self._priced(prompt))
            refused = self._too_large(prompt, *most)
            if refused is None:
                with tries.waiting():
                    refused = await self._budget.reserve(*most)
            if refused:
                reply = Reply("", refused, calls=0, seconds=tries.seconds, key=call.key)
            else:
                used: tuple[int, float] | None = None
                try:
                    reply = await self._try(call, shape, tries, raw)
                    used = (reply.prompt_tokens + reply.completion_tokens, reply.cost_usd)
                    if used[0] == 0 and reply.failed is None:  # an endpoint that does not count
                        wrote = self.counter.counts([reply.raw])[0]
                        used = (prompt + wrote, config.usd(prompt, wrote))
                finally:
                    self._budget.settle(most, used)
        failed = 0 if reply.failed is None else 1
        self.usage_by_role.add(self.role, _cost_of(reply, failed))
        return reply

    def _too_large(self, prompt: int, tokens: int, usd: float) -> str | None:
        if self.room is not None and not 0 < prompt <= self.room:
            return f"the prompt has {prompt:,} tokens, and {self.config.model} has room for {self.room:,}"
        if self.config.call_tokens is not None and tokens > self.config.call_tokens:
            return f"{LIMIT}: call_tokens {self.config.call_tokens:,}, and this call may need {tokens:,}"
        if self.config.call_usd is not None and usd > self.config.call_usd:
            return f"{LIMIT}: call_usd {self.config.call_usd:g}, and this call may cost {usd:.6g}"
        return None

    async def _try(self, call: Call, shape: _Form, tries: _Tries, raw: bool) -> Reply:
        """Retry until a reply comes or a further retry cannot help."""
        completion: Completion | None = None
        while completion is None:
            way = WAYS[self._way]

            def request() -> _Request:
                nonlocal way
                way = WAYS[self._way]  # as known when the call leaves, not when it began to wait
                if not isinstance(shape, _Shape):
                    return [dict(message) for message in call.messages], dict(shape.fields) if shape else {}
                return asked(way, call.messages, shape.name, shape.schema)

            try:
                completion = await self._persist(request, tries, call.repetition)
            except Fault as fault:
                if isinstance(shape, _Shape) and way != WAYS[-1] and refuses(fault.status, fault.reason):
                    self._way = max(self._way, WAYS.index(way) + 1)
                    continue
                if self._backend.hopeless(fault):
                    raise await self._backend.error(fault) from None
                return Reply("", fault.reason, calls=tries.number, seconds=tries.seconds, key=call.key)
        if isinstance(shape, _Further):
            completion = shape.kept(completion)
        if self._cache is not None and self._content(completion, raw).failed is None:
            cached = self._cache.put(call, completion.to_json()).reply
            completion = replace(Completion.from_json(cached), seconds=completion.seconds)
        return self._read(call, completion, tries.number, tries.seconds if completion.seconds is None else completion.seconds, raw)

    async def _persist(
        self, request: Callable[[], _Request], tries: _Tries, repetition: int = 0, attempts: int | None = None
    ) -> Completion:
        most = attempts or self.config.attempts

        def stop(state: Any) -> bool:
            # If the endpoint never answered, a long wait only delays the error.
            return state.attempt_number >= (min(most, DOUBT) if self._backend.hopeless(state.outcome.exception()) else most)

        retrying = self._tenacity.AsyncRetrying(
            stop=stop, wait=self._pause, retry=self._tenacity.retry_if_exception(_worth_retrying), reraise=True
        )
        async for attempt in retrying:
            with attempt:
                # The slot is released during pauses, so that one slow question does not block the others.
                with tries.waiting():
                    ticket = await self.rate_limiter.enter(again=tries.number > 0)
                after = None
                try:
                    messages, extra = request()
                    async with AsyncExitStack() as stack:
                        if self._backend.charged:
                            with tries.waiting():
                                charge = await stack.enter_async_context(charged(self._most(messages), self._place))
                        tries.number += 1
                        completion = await self._backend.send(messages, extra, repetition)
                        if self._backend.charged:
                            charge.usd = self._spent(completion, messages)
                    self.rate_limiter.ended(ticket, "ok")
                    return completion
                except Fault as fault:
                    self.rate_limiter.ended(ticket, fault.signal, faulty=fault.advice == "retry")
                    after = fault.after  # the endpoint asks this call to wait, and no other
                    raise
                finally:
                    self.rate_limiter.leave(after)
        raise AssertionError("the last try returns or raises")

    def _count(self, messages: Sequence[Mapping[str, str]]) -> int:
        ids = token_ids(messages)
        return self.counter.count(messages) if ids is None else len(ids)

    def _most(self, messages: Messages) -> float:
        """Return the maximum cost of a request in dollars; 0 if no limit is set."""
        if current() is None:
            return 0.0
        return self._priced(self._count(messages))

    def _priced(self, prompt: int) -> float:
        """Return the maximum cost of a call by its price; above 0 in a batch, which cannot wait for the cost of a first call."""
        return max(self.config.usd(prompt, self.config.longest), LEAST_USD if self.batches else 0.0)

    def _spent(self, completion: Completion, messages: Messages) -> float:
        """Return the cost of a completion in dollars, estimated if the endpoint does not count tokens."""
        cost = self.config.cost(completion)
        if cost is None:
            return self.config.usd(self._count(messages), self.counter.counts([completion.raw])[0])
        return cost

    def _pause(self, state: Any) -> float:
        """Return the seconds before the next try: those that the endpoint asks for, else doubling with full jitter.

        A pause gives an endpoint time to recover. While it answers most calls, a fault affects one connection or
        replica, so a tenth of the pause suffices.
        """
        fault = state.outcome.exception()
        if fault.after is not None:
            return float(fault.after)
        brief = fault.signal != "busy" and not self.rate_limiter.troubled
        return float(self._backoff(state)) * (BRIEF if brief else 1.0)

    def _content(self, completion: Completion, raw: bool) -> Content:
        return read(completion, raw=raw, max_tokens=self.config.max_tokens)

    def _read(self, call: Call, completion: Completion, calls: int, seconds: float, raw: bool = False) -> Reply:
        content = self._content(completion, raw)
        cost = self.config.cost(completion)
        return Reply(
            content.text,
            content.failed,
            completion.prompt_tokens,
            completion.completion_tokens,
            calls,
            seconds,
            cost or 0.0,
            completion.model,
            call.key,
            system_fingerprint=completion.system_fingerprint,
            version=completion.version,
            thought=content.thought,
            raw=completion.raw.strip(),
            finish_reason=completion.finish_reason,
            refusal=completion.refusal,
            cached_tokens=completion.cached_tokens,
            priced=cost is not None,
            logprobs=completion.logprobs,
        )

    async def _preflight(self) -> Reply:
        messages = [{"role": "system", "content": PREFLIGHT_SYSTEM}, {"role": "user", "content": PREFLIGHT}]
        call = self._call(messages, 0)
        tries = _Tries()
        try:
            completion = await self._persist(lambda: (messages, {}), tries, attempts=min(2, self.config.attempts))
        except Fault as fault:
            raise await self._backend.error(fault) from None
        reply = self._read(call, completion, tries.number, tries.seconds)
        self.usage_by_role.add(self.role, _cost_of(reply, 0))
        if reply.failed is not None:
            raise Broke(
                f"{self.config.url} replies, but gives no answer: {reply.failed}",
                code="reply-without-answer",
                where=f"model {self.config.model!r}",
                try_this="if the model thinks before it answers: a higher max_tokens, or parameters: "
                "{chat_template_kwargs: {enable_thinking: false}}",
            )
        return reply


def reach_model(config: ChatConfig, cache: Path | None) -> None:
    """Check that an endpoint responds, unless replies of its model are cached.

    Raises:
        Broke: It does not respond.
    """
    if cache is None or not cache.exists() or not shared(cache).holds(config.model):
        ChatModel(config.model_copy(update={"batch": False}), role="preflight").preflight()


@cache
def _say_live(model: str, role: str) -> None:
    """Warn once that a role calls a model live, although its options request batches."""
    sys.stderr.write(f"note: {role} asks {model} live, not in batches (`batch: true`), as its calls may depend on earlier replies\n")


def _cost_of(reply: Reply, failed: int) -> CallCost:
    tokens = reply.prompt_tokens, reply.completion_tokens
    return CallCost(reply.calls, 0, failed, *tokens, reply.cost_usd, reply.cached_tokens, 0 if reply.priced else 1)


def _worth_retrying(error: BaseException) -> bool:
    return isinstance(error, Fault) and error.advice == "retry"


def _close(backend: Backend) -> None:
    """Let the chat loop close connections, without waiting, because the garbage collector may call this anywhere."""
    if backend.connected:
        asyncio.run_coroutine_threadsafe(backend.close(), event_loop())
