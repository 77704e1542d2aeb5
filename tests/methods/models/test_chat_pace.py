"""How many calls are in flight, and when none may be."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.models.endpoint import retry_after
from methods.models.limits import START, RateLimiter
from tests.support.server import ChatRequest, Refused, Written


@pytest.mark.slow
def test_calls_in_flight_double_each_round_trip_up_to_the_most_allowed(endpoint: Any, busy: ModuleType) -> None:
    endpoint.delay = 0.05
    model = endpoint.chat(concurrency=24)
    assert model.rate_limiter.limit == START
    model.complete(busy.prompts(100))
    assert START < endpoint.most <= 24
    assert model.rate_limiter.limit == 24
    assert model.rate_limiter.cuts == 0


@pytest.mark.slow
def test_an_endpoint_with_room_for_few_is_found_out(endpoint: Any, busy: ModuleType) -> None:
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
    model = endpoint.chat(concurrency=64, attempts=30, backoff_s=0.01)
    replies = model.complete(busy.prompts(300))
    assert all(reply.failed is None for reply in replies)
    tail = replies[150:]
    assert model.rate_limiter.cuts > 0
    # In the long run few calls are refused, though 64 would be allowed to try at once.
    assert sum(reply.calls for reply in tail) < 1.6 * len(tail)


@given(room=st.integers(2, 20))
def test_the_limit_settles_around_the_room_of_an_endpoint(room: int) -> None:
    """Each call holds its place for ten turns of the loop; while there is no place, it is refused and tries again."""

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
                    pace.clean()
                else:
                    await asyncio.sleep(0)
                    pace.cut(ticket)
                limits.append(pace.limit)
                pace.leave()
                if free:
                    return

        await asyncio.gather(*(one() for _ in range(600)))
        tail = limits[len(limits) // 2 :]
        return sum(tail) / len(tail), sent / 600

    limit, tries = asyncio.run(story())
    assert room / 2 <= limit <= room + 1
    assert tries < 1.6


def test_refusals_of_one_round_trip_cut_once() -> None:
    async def story() -> list[float]:
        pace = RateLimiter(64)
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
    pace = RateLimiter(64)
    pace.limit, pace.cuts = 10.0, 1
    for _ in range(10):
        pace.clean()
    assert 10.9 < pace.limit < 11.0


@given(seed=st.integers(0, 10**6), most=st.integers(1, 20))
def test_whatever_happens_slots_are_neither_lost_nor_exceeded(seed: int, most: int) -> None:
    rng = random.Random(seed)

    async def story() -> int:
        pace = RateLimiter(most)
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


def test_a_pause_that_is_asked_for_holds_every_call(endpoint: Any, busy: ModuleType) -> None:
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
    model = endpoint.chat(concurrency=1)
    replies = model.complete(busy.prompts(3))
    assert all(reply.failed is None for reply in replies)
    assert min(endpoint.starts) >= refused_at[0] + 0.5


def test_a_pause_beyond_patience_fails_the_call_with_the_reason(endpoint: Any, busy: ModuleType) -> None:
    responses = {"error": {"message": "busy"}}
    endpoint.server.intercept = lambda handler, request: handler.send(429, responses, {"retry-after": "3600"}) or True
    started = time.monotonic()
    reply = endpoint.chat(longest_wait_s=2).complete(busy.prompts(1))[0]
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
