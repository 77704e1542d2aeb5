"""The number of calls in flight, and pauses between calls."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.connection import retry_after
from methods.models.endpoint import Fault
from methods.models.limits import Address, RateLimiter, Signal, limiters
from methods.models.llm import smallest_concurrency
from tests.support.server import ChatRequest, Refused, Written


def test_models_of_one_endpoint_share_its_concurrency(endpoint: Any, busy: ModuleType) -> None:
    """Four roles with `concurrency: 8`, one of them with 5: the server sees five calls at most."""
    endpoint.delay, endpoint.together = 0.01, 5
    models = [endpoint.chat(role=role, concurrency=8) for role in ("reader", "reranker", "judge")]
    threads = [threading.Thread(target=model.complete, args=(busy.prompts(12, model.role),)) for model in models]
    smaller = endpoint.chat(concurrency=5)
    for thread in threads:
        thread.start()
    smaller.complete(busy.prompts(12))
    for thread in threads:
        thread.join()
    assert endpoint.most == 5
    assert len(endpoint.starts) == 48


def test_limits_are_separate_per_key_and_model(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_KEY", "sk-one")
    first = endpoint.chat()
    assert endpoint.chat(temperature=0.5).rate_limiter is first.rate_limiter
    others = [endpoint.chat(model="n"), endpoint.chat(key_variable="ONE_KEY"), endpoint.chat(base_url="http://127.0.0.1:9/v1")]
    assert len({id(model.rate_limiter) for model in (first, *others)}) == 4


def test_custom_limiter_factory_is_used(endpoint: Any, busy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Address] = []

    def make(address: Address) -> RateLimiter:
        made.append(address)
        return RateLimiter(1)

    monkeypatch.setattr(limiters, "make", make)
    endpoint.delay = 0.002
    endpoint.chat(concurrency=8).complete(busy.prompts(8))
    assert endpoint.most == 1
    assert [(address.url, address.model) for address in made] == [(endpoint.server.url, "m")]


def test_limit_rises_when_its_smallest_member_leaves() -> None:
    pace = RateLimiter(64)
    name = pace.join(4)
    assert (pace.most, pace.limit) == (4, 4.0)
    pace.part(name)
    assert (pace.most, pace.limit) == (64, 64.0)


def test_smallest_configured_concurrency_applies_even_if_its_component_is_not_open(endpoint: Any, busy: ModuleType) -> None:
    endpoint.delay, endpoint.together = 0.02, 3
    model = endpoint.chat(concurrency=8)
    stated = [model.config, {"judge": [model.config.model_copy(update={"concurrency": 3})]}]
    with smallest_concurrency(stated) as lines:
        model.complete(busy.prompts(12))
    assert (endpoint.most, len(lines), model.rate_limiter.most) == (3, 1, 8)
    with smallest_concurrency([model.config]) as lines:
        assert lines == []


@pytest.mark.slow
def test_capacity_of_an_endpoint_is_detected(endpoint: Any, busy: ModuleType) -> None:
    """The endpoint serves six calls at a time and refuses the seventh, like gateways do."""
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
    model = endpoint.chat(concurrency=64, attempts=30, backoff_s=0.01)
    replies = model.complete(busy.prompts(300))
    assert all(reply.failed is None for reply in replies)
    tail = replies[150:]
    assert model.rate_limiter.cuts > 0
    # In the long run few calls are refused, though 64 would be allowed to try at once.
    assert sum(reply.calls for reply in tail) < 1.6 * len(tail)


@given(room=st.integers(2, 20))
def test_limit_converges_to_the_capacity_of_an_endpoint(room: int) -> None:
    """Each call takes ten turns of the event loop; without capacity it is refused and repeated later."""

    async def story() -> tuple[float, float]:
        pace, served, sent, limits = RateLimiter(64), 0, 0, []

        async def one() -> None:
            nonlocal served, sent
            while True:
                ticket = await pace.enter()
                sent += 1
                free = served < room
                if free:
                    served += 1
                    for _ in range(10):
                        await asyncio.sleep(0)
                    served -= 1
                    pace.ended(ticket, "ok")
                else:
                    await asyncio.sleep(0)
                    pace.ended(ticket, "busy")
                limits.append(pace.limit)
                pace.leave()
                if free:
                    return
                for _ in range(10):  # the pause before another try
                    await asyncio.sleep(0)

        await asyncio.gather(*(one() for _ in range(600)))
        tail = limits[len(limits) // 2 :]
        return sum(tail) / len(tail), sent / 600

    limit, tries = asyncio.run(story())
    assert room / 2 <= limit <= room + 1
    assert tries < 1.6


def _after(signals: Sequence[Signal], pace: RateLimiter | None = None, most: int = 64) -> RateLimiter:
    """Return a limiter after consecutive calls with these outcomes."""
    pace = pace or RateLimiter(most)

    async def story() -> None:
        for signal in signals:
            pace.ended(await pace.enter(), signal)
            pace.leave()

    asyncio.run(story())
    return pace


def test_few_errors_do_not_reduce_the_limit() -> None:
    assert _after((["ok"] * 49 + ["busy"]) * 10).cuts == 0
    assert _after((["ok"] * 4 + ["broken"]) * 50).cuts == 0
    assert _after(["broken"] * 10).cuts == 0


def test_pauses_are_brief_while_most_calls_are_answered() -> None:
    async def story(model: Any, faults: int) -> float:
        for number in range(50):
            model.rate_limiter.ended(await model.rate_limiter.enter(), "ok", faulty=number < faults)
            model.rate_limiter.leave()
        state = SimpleNamespace(attempt_number=1, outcome=SimpleNamespace(exception=lambda: Fault("reset", "retry", signal="broken")))
        return max(model._pause(state) for _ in range(50))

    pauses = [
        asyncio.run(story(ChatModel(ChatConfig(model=f"pause-{faults}", base_url="http://127.0.0.1:9/v1", key_variable=None)), faults))
        for faults in (10, 11)
    ]
    assert pauses[0] <= 0.1 < pauses[1] <= 1.0


def test_refusals_reduce_the_limit_in_proportion() -> None:
    pace = _after(["ok"] * 37 + ["busy"] * 3)
    assert (pace.cuts, pace.limit) == (1, pytest.approx(64 * 37 / 40))
    assert _after(["ok"] * 30 + ["broken"] * 11).limit == pytest.approx(64 * 30 / 41)


def test_refusals_within_one_round_trip_reduce_the_limit_once() -> None:
    async def story() -> list[float]:
        pace = RateLimiter(32)
        tickets = [await pace.enter() for _ in range(10)]
        seen = []
        for ticket in tickets:
            pace.ended(ticket, "busy")
            pace.leave()
            seen.append(pace.limit)
        return seen

    assert asyncio.run(story()) == [32.0, 32.0] + [16.0] * 8


def test_share_of_errors_counts_calls_in_flight() -> None:
    async def story() -> int:
        pace = RateLimiter(256)
        tickets = [await pace.enter() for _ in range(256)]
        for ticket in tickets[::50]:  # refused at once; the others are answered later
            pace.ended(ticket, "busy")
        return pace.cuts

    assert asyncio.run(story()) == 0


def test_previously_successful_limit_is_regained_quickly() -> None:
    pace = _after(["ok"] * 100 + ["busy"] * 30)
    assert pace.limit < 8
    assert _after(["ok"] * 64, pace).limit == 64


def test_untested_limit_is_approached_slowly() -> None:
    pace = _after(["busy"] * 30 + ["ok"] * 3 + ["busy"] * 3)
    assert _after(["ok"] * 20, pace).limit < 16


@given(seed=st.integers(0, 10**6), most=st.integers(1, 20))
def test_slots_are_neither_lost_nor_exceeded(seed: int, most: int) -> None:
    rng = random.Random(seed)

    async def story() -> int:
        pace = RateLimiter(most)
        running, highest = 0, 0

        async def one() -> None:
            nonlocal running, highest
            ticket = await pace.enter()
            running += 1
            highest, after = max(highest, running), None
            try:
                await asyncio.sleep(0)
                if rng.random() < 0.2:
                    pace.ended(ticket, rng.choice(["busy", "broken"]))
                    after = 0.0001 if rng.random() < 0.3 else None
                else:
                    pace.ended(ticket, "ok")
                await asyncio.sleep(0)
            finally:
                running -= 1
                pace.leave(after)

        tasks = [asyncio.create_task(one()) for _ in range(60)]
        await asyncio.sleep(0)
        for task in tasks:
            if rng.random() < 0.2:
                task.cancel()
            if rng.random() < 0.2:
                await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        await asyncio.sleep(0.001)
        assert (running, pace._running, list(pace._waiting)) == (0, 0, [])
        return highest

    assert asyncio.run(story()) <= most


def test_requested_pause_blocks_one_slot() -> None:
    async def story() -> tuple[int, int]:
        pace = RateLimiter(2)
        for _ in range(2):
            await pace.enter()
        waiting = [asyncio.create_task(pace.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        pace.leave(0.2)
        pace.leave()
        await asyncio.sleep(0)
        soon = sum(task.done() for task in waiting)
        await asyncio.sleep(0.25)
        return soon, sum(task.done() for task in waiting)

    assert asyncio.run(story()) == (1, 2)


def test_call_waits_for_the_requested_pause(endpoint: Any, busy: ModuleType) -> None:
    refused_at: list[float] = []

    def intercept(handler: Any, request: ChatRequest) -> bool:
        with endpoint.lock:
            first = not refused_at
            if first:
                refused_at.append(time.monotonic())
        if first:
            handler.send(429, {"error": {"message": "busy"}}, {"retry-after": "0.2"})
        return first

    endpoint.server.intercept = intercept
    replies = endpoint.chat(concurrency=1).complete(busy.prompts(3))
    assert all(reply.failed is None for reply in replies)
    assert min(endpoint.starts) >= refused_at[0] + 0.2


def test_pause_longer_than_the_maximum_wait_fails_the_call_with_the_reason(endpoint: Any, busy: ModuleType) -> None:
    responses = {"error": {"message": "busy"}}
    endpoint.server.intercept = lambda handler, request: handler.send(429, responses, {"retry-after": "3600"}) or True
    started = time.monotonic()
    reply = endpoint.chat(longest_wait_s=2).complete(busy.prompts(1))[0]
    assert time.monotonic() - started < 60
    assert reply.calls == 1
    assert "asks to wait 3600 s" in reply.failed


def test_retry_after_is_parsed_in_every_format() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after-ms": "250"}) == 0.25
    assert 27 < (retry_after({"retry-after": soon}) or 0) <= 30
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    fast = {"date": "Sat, 01 Jan 2050 00:00:00 GMT", "retry-after": "Sat, 01 Jan 2050 00:00:20 GMT"}
    assert retry_after(fast) == 20, "both are of the server's clock"
    assert retry_after(fast | {"date": "x"}) > 1e6
    assert [retry_after(headers) for headers in ({}, {"retry-after": "soon"}, {"retry-after-ms": "x"})] == [None] * 3
