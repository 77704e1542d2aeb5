"""Pace, limits, accounting, estimates and the pre-flight call."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import UserError
from methods.api import Services
from methods.models.chat import ChatConfig, ChatModel
from methods.models.endpoint import retry_after
from methods.models.limits import LIMIT, Budget, Ledger
from methods.models.openai_server import ChatRequest, OpenAIServer, Refused, Written
from methods.models.pace import START, Pace
from methods.models.tokens import PER_MESSAGE, TokenCounter
from methods.registry import Component

PRICES = {"usd_per_million_prompt_tokens": 1e6, "usd_per_million_completion_tokens": 2e6}
"""A dollar a prompt token, two a token of the reply."""


class Endpoint:
    """A server that can be told to be busy; counts what is in flight."""

    def __init__(self) -> None:
        self.refuse: Any = lambda request: None
        self.delay = 0.0
        self.now = self.most = 0
        self.starts: list[float] = []
        self.lock = threading.Lock()
        self.server = OpenAIServer("m", self.answer)

    def answer(self, request: ChatRequest) -> Written:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.starts.append(time.monotonic())
        try:
            time.sleep(self.delay)
            refused = self.refuse(request)
            if refused is not None:
                raise refused
            return Written("ok", 10, 2)
        finally:
            with self.lock:
                self.now -= 1


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    with endpoint.server.running():
        yield endpoint


def chat(endpoint: Endpoint, **options: Any) -> ChatModel:
    extra = {name: options.pop(name) for name in ("cache", "role", "ledger") if name in options}
    config = {"model": "m", "base_url": endpoint.server.url, "key_variable": None, "backoff_s": 0.001, **options}
    return ChatModel(ChatConfig(**config), **extra)


def prompts(count: int, text: str = "say") -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": f"{text} {number}"}] for number in range(count)]


# --- pace ---


def test_calls_in_flight_double_each_round_trip_up_to_the_most_allowed(endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    model = chat(endpoint, concurrency=24)
    assert model.pace.limit == START
    model.complete(prompts(100))
    assert START < endpoint.most <= 24
    assert model.pace.limit == 24
    assert model.pace.cuts == 0


def test_an_endpoint_with_room_for_few_is_found_out(endpoint: Endpoint) -> None:
    """It serves six at a time and refuses the seventh, as gateways do."""
    room = threading.Semaphore(6)
    inner = endpoint.answer

    def answer(request: ChatRequest) -> Written:
        if not room.acquire(blocking=False):
            raise Refused(429, "busy")
        try:
            return inner(request)
        finally:
            room.release()

    endpoint.server.answer = answer
    endpoint.delay = 0.01
    model = chat(endpoint, concurrency=64, attempts=30, backoff_s=0.01)
    replies = model.complete(prompts(300))
    assert all(reply.failed is None for reply in replies)
    tail = replies[150:]
    assert model.pace.cuts > 0
    assert model.pace.limit < 20
    # In the long run few calls are refused, though 64 would be allowed to try at once.
    assert sum(reply.calls for reply in tail) < 1.6 * len(tail)


def test_refusals_of_one_round_trip_cut_once() -> None:
    async def story() -> list[float]:
        pace = Pace(64)
        pace.limit = 32.0
        tickets = [await pace.enter() for _ in range(10)]
        seen = []
        for ticket in tickets:
            pace.cut(ticket)
            pace.leave()
            seen.append(pace.limit)
        late = await pace.enter()
        pace.cut(late)
        return [*seen, pace.limit]

    assert asyncio.run(story()) == [16.0] * 10 + [8.0]


def test_after_a_cut_a_round_trip_adds_one() -> None:
    pace = Pace(64)
    pace.limit, pace.cuts = 10.0, 1
    for _ in range(10):
        pace.clean()
    assert 10.9 < pace.limit < 11.0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), most=st.integers(1, 20))
def test_whatever_happens_slots_are_neither_lost_nor_exceeded(seed: int, most: int) -> None:
    rng = random.Random(seed)

    async def story() -> int:
        pace = Pace(most)
        running, highest = 0, 0

        async def one() -> None:
            nonlocal running, highest
            ticket = await pace.enter()
            running += 1
            highest = max(highest, running)
            try:
                await asyncio.sleep(0)
                if rng.random() < 0.2:
                    pace.cut(ticket, 0.0001 if rng.random() < 0.3 else None)
                else:
                    pace.clean()
                await asyncio.sleep(0)
            finally:
                running -= 1
                pace.leave()

        tasks = [asyncio.create_task(one()) for _ in range(60)]
        await asyncio.sleep(0)
        for task in tasks:
            if rng.random() < 0.2:
                task.cancel()
            if rng.random() < 0.2:
                await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert (running, pace._running, list(pace._waiting)) == (0, 0, [])
        return highest

    assert asyncio.run(story()) <= most


def test_a_pause_that_is_asked_for_holds_every_call(endpoint: Endpoint) -> None:
    refused_at: list[float] = []

    def refuse(request: ChatRequest) -> None:
        return None

    def intercept(handler: Any, request: ChatRequest) -> bool:
        with endpoint.lock:
            first = not refused_at
            if first:
                refused_at.append(time.monotonic())
        if first:
            handler.send(429, {"error": {"message": "busy"}}, {"retry-after": "0.5"})
        return first

    endpoint.server.intercept = intercept
    model = chat(endpoint, concurrency=1)
    replies = model.complete(prompts(3))
    assert all(reply.failed is None for reply in replies)
    assert min(endpoint.starts) >= refused_at[0] + 0.5


def test_a_pause_beyond_patience_fails_the_call_with_the_reason(endpoint: Endpoint) -> None:
    busy = {"error": {"message": "busy"}}
    endpoint.server.intercept = lambda handler, request: handler.send(429, busy, {"retry-after": "3600"}) or True
    started = time.monotonic()
    reply = chat(endpoint, longest_wait_s=2).complete(prompts(1))[0]
    assert time.monotonic() - started < 60
    assert reply.calls == 1
    assert "asks to wait 3600 s" in reply.failed


def test_retry_after_in_every_form() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after-ms": "250"}) == 0.25
    assert 27 < (retry_after({"retry-after": soon}) or 0) <= 30
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert [retry_after(headers) for headers in ({}, {"retry-after": "soon"}, {"retry-after-ms": "x"})] == [None] * 3


# --- limits ---


def test_a_run_stops_at_its_limit_and_loses_nothing(endpoint: Endpoint, tmp_path: Path) -> None:
    """A call may need 6 + 10 tokens and uses 12: five fit into 64 as spent, the sixth might not."""
    path = tmp_path / "cache.sqlite"
    model = chat(endpoint, run_tokens=64, max_tokens=10, cache=path)
    replies = model.complete(prompts(20))
    done = [reply for reply in replies if reply.failed is None]
    rest = [reply for reply in replies if reply.failed is not None]
    assert len(done) == len(endpoint.starts) == 5
    assert {(reply.calls, reply.failed[: len(LIMIT)]) for reply in rest} == {(0, LIMIT)}
    assert "run_tokens 64, of which 60 are used" in rest[0].failed
    assert model.ledger.of("chat").prompt_tokens + model.ledger.of("chat").completion_tokens == 60
    # With a higher limit the run continues; what is paid for is not paid again.
    again = chat(endpoint, run_tokens=10_000, max_tokens=10, cache=path).complete(prompts(20))
    assert all(reply.failed is None for reply in again)
    assert len(endpoint.starts) == 20


def test_money_is_limited_likewise(endpoint: Endpoint) -> None:
    """A call costs 10 + 2 · 2 dollars and may cost 6 + 2 · 4."""
    model = chat(endpoint, run_usd=50.0, max_tokens=4, **PRICES)
    replies = model.complete(prompts(9))
    assert sum(reply.failed is None for reply in replies) == 3
    assert model.ledger.total.cost_usd == pytest.approx(42)
    assert "run_usd 50" in next(reply.failed for reply in replies if reply.failed)


def test_calls_in_flight_cannot_pass_a_limit_together(endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    model = chat(endpoint, run_tokens=160, max_tokens=10, concurrency=64)
    replies = model.complete(prompts(100))
    spent = sum(reply.prompt_tokens + reply.completion_tokens for reply in replies)
    assert spent <= 160
    assert spent > 160 - 16 - 12  # and the room there is gets used


def test_one_call_that_is_too_large_is_not_sent(endpoint: Endpoint) -> None:
    model = chat(endpoint, call_tokens=100, max_tokens=10)
    small, large = model.complete([[{"role": "user", "content": "x"}], [{"role": "user", "content": "x" * 400}]])
    assert small.failed is None
    assert large.failed == f"{LIMIT}: call_tokens 100, and this call may need 114"
    assert len(endpoint.starts) == 1
    (dear,) = chat(endpoint, call_usd=5.0, max_tokens=10, **PRICES).complete([[{"role": "user", "content": "x"}]])
    assert dear.failed == f"{LIMIT}: call_usd 5, and this call may cost 25"


def test_an_endpoint_that_does_not_count_is_counted_for(endpoint: Endpoint) -> None:
    endpoint.server.answer = lambda request: Written("x" * 40, 0, 0)
    replies = chat(endpoint, run_tokens=60, max_tokens=10).complete(prompts(10))
    # 4 + 2 for the prompt and 10 for the reply, each time.
    assert sum(reply.failed is None for reply in replies) == 3


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(0, 200),
    calls=st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), max_size=30),
)
def test_a_budget_is_never_passed_and_never_blocks(limit: int, calls: list[tuple[int, float]]) -> None:
    async def story() -> int:
        budget = Budget(limit, None)

        async def one(most: int, share: float) -> int:
            if await budget.reserve(most, 0.0):
                assert budget.spent_tokens + most > limit
                return 0
            await asyncio.sleep(0)
            used = int(most * share)
            budget.settle((most, 0.0), (used, 0.0))
            return used

        return sum(await asyncio.wait_for(asyncio.gather(*(one(*call) for call in calls)), 5))

    assert asyncio.run(story()) <= limit


def test_limits_and_haste_are_no_part_of_the_fingerprint() -> None:
    options = {"model": "m", "base_url": "http://localhost/v1", "key_variable": None}
    before = Component.of("chat", options).fingerprint
    assert Component.of("chat", {**options, "run_usd": 1.0, "concurrency": 2, "attempts": 1}).fingerprint == before
    assert Component.of("chat", {**options, "max_tokens": 65}).fingerprint != before


# --- accounting ---


def test_a_ledger_keeps_roles_apart(endpoint: Endpoint, tmp_path: Path) -> None:
    ledger = Ledger()
    endpoint.refuse = lambda request: Refused(400, "no") if request.prompt == "judge 1" else None
    cache = tmp_path / "cache.sqlite"
    chat(endpoint, role="reader", ledger=ledger, cache=cache, **PRICES).complete(prompts(3))
    chat(endpoint, role="reader", ledger=ledger, cache=cache, **PRICES).complete(prompts(4))
    chat(endpoint, role="judge", ledger=ledger).complete(prompts(2, "judge"))
    assert ledger.to_json() == {
        "judge": {
            "calls": 2, "cached": 0, "failed": 1, "prompt_tokens": 10, "completion_tokens": 2, "cost_usd": 0.0
        },
        "reader": {
            "calls": 4, "cached": 3, "failed": 0, "prompt_tokens": 40, "completion_tokens": 8, "cost_usd": 56.0
        },
    }  # fmt: skip
    assert ledger.total.calls == 6


# --- estimates ---


def test_an_estimate_counts_what_is_not_kept_and_sends_nothing(endpoint: Endpoint, tmp_path: Path) -> None:
    model = chat(endpoint, cache=tmp_path / "cache.sqlite", max_tokens=7, **PRICES)
    model.complete(prompts(2))
    estimate = model.estimate([*prompts(5), *prompts(5)])
    assert (estimate.calls, estimate.cached) == (3, 7)
    # "say 4" is five characters, two tokens by characters / 4.
    assert estimate.prompt_tokens == 3 * (PER_MESSAGE + 2)
    assert estimate.completion_tokens == 21
    assert estimate.usd == pytest.approx(18 + 42)
    assert "characters / 4" in str(estimate)
    assert len(endpoint.starts) == 2


def test_tokens_are_counted_by_a_tokenizer_where_there_is_one(tiny_llama: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    text = "Where did Ann live?"
    expected = len(AutoTokenizer.from_pretrained(tiny_llama)(text, add_special_tokens=False)["input_ids"])
    assert TokenCounter(tiny_llama).count([{"role": "user", "content": text}]) == expected + PER_MESSAGE
    with pytest.raises(UserError, match="tokenizer cannot be read"):
        TokenCounter(str(tmp_path / "absent.json"))


def test_the_reader_estimates_its_prompts(endpoint: Endpoint) -> None:
    from benchmarks.schema import Passage, Query
    from methods.api import Context

    options = {"model": "m", "base_url": endpoint.server.url, "key_variable": None}
    reader = Component.of("chat", options).build(Services())
    query, context = Query("q", "Who?"), Context("q", (Passage("p", "", "x" * 400),))
    more = Context("q", (Passage("p", "", "x" * 800),))
    few, many = (reader.estimate([query], [one]).prompt_tokens for one in (context, more))
    assert many - few == 100
    assert endpoint.starts == []


# --- pre-flight ---


def test_a_working_endpoint_passes_preflight_by_one_call(endpoint: Endpoint) -> None:
    assert chat(endpoint).preflight().text == "ok"
    assert len(endpoint.starts) == 1


@pytest.mark.parametrize(
    ("options", "refused", "message"),
    [
        ({"model": "mm"}, None, "does not know this model or path[^$]*model: m; the endpoint offers m"),
        ({}, Refused(401, "Incorrect API key provided: sk-secret-1234"), "refuses the key[^$]*check the key in MY_KEY"),
        ({}, Refused(403, "no"), "refuses access"),
        ({}, Refused(429, "pay", "insufficient_quota"), "quota is used up"),
        ({}, Refused(400, "use 'max_completion_tokens' instead"), "limit_name: max_completion_tokens"),
        ({}, Refused(500, "broken"), "does not answer: [^$]*broken"),
    ],
)
def test_preflight_says_what_is_wrong(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], refused: Refused | None, message: str
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    endpoint.refuse = lambda request: refused
    with pytest.raises(UserError, match=message) as caught:
        chat(endpoint, key_variable="MY_KEY", **options).preflight()
    assert "sk-secret-1234" not in "".join(traceback.format_exception(caught.value))


def test_preflight_finds_a_wrong_path_and_an_empty_reply(endpoint: Endpoint) -> None:
    with pytest.raises(UserError, match="usually ends in /v1"):
        chat(endpoint, base_url=endpoint.server.url.removesuffix("/v1")).preflight()
    endpoint.server.answer = lambda request: Written("", 1, 16, "length")
    with pytest.raises(UserError, match="a higher max_tokens"):
        chat(endpoint).preflight()


def test_the_key_is_in_no_repr_no_dump_and_no_log(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    caplog.set_level("DEBUG")
    model = chat(endpoint, key_variable="MY_KEY", cache=tmp_path / "cache.sqlite")
    replies = model.complete(prompts(2))
    shown = [repr(model), repr(model.config), model.config.model_dump_json(), repr(replies), caplog.text]
    assert "sk-secret-1234" not in "".join(shown)
    assert b"sk-secret-1234" not in (tmp_path / "cache.sqlite").read_bytes()
    assert b"sk-secret-1234" not in (tmp_path / "cache.sqlite-wal").read_bytes()
