"""Programs of one question each: none waits for another, and batching does not change results."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import Broke
from methods import flow, pipeline


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-20, 20), max_size=40), st.integers(1, 7), st.integers(1, 20), st.booleans())
def test_each_item_gets_its_own_result_or_error_in_any_batch(items: list[int], size: int, in_flight: int, sorts: bool) -> None:
    batches: list[int] = []

    def work(batch: list[int]) -> list[int]:
        batches.append(len(batch))
        if min(batch) < 0:
            raise ValueError("a negative number")
        return [item * item for item in batch]

    batcher = flow.Batcher(work, size, length=abs if sorts else None)

    async def program(item: int) -> int | str:
        try:
            return await batcher(item)
        except ValueError as error:
            return str(error)

    assert flow.ordered(program, items, in_flight) == [item * item if item >= 0 else "a negative number" for item in items]
    assert max(batches, default=0) <= min(size, in_flight)


def test_batcher_groups_waiting_items_by_length() -> None:
    batches: list[list[str]] = []

    def work(batch: list[str]) -> list[str]:
        batches.append(batch)
        return batch

    batcher = flow.Batcher(work, 4, length=len)
    texts = ["a" * (1 if number % 2 else 100) for number in range(16)]
    assert flow.ordered(batcher, texts, 16) == texts
    assert all(len(set(map(len, batch))) == 1 and len(batch) == 4 for batch in batches)


def test_fatal_batch_error_is_not_retried_one_by_one() -> None:
    calls = []

    def work(batch: list[int]) -> list[int]:
        calls.append(len(batch))
        raise Broke("no disk")

    with pytest.raises(Broke):
        flow.ordered(flow.Batcher(work, 8), range(8), 8)
    assert calls == [8]


@pytest.mark.slow
def test_slow_question_delays_no_other_within_the_concurrency_limit() -> None:
    under_way, most = set[int](), 0

    async def program(number: int) -> int:
        nonlocal most
        under_way.add(number)
        most = max(most, len(under_way))
        await asyncio.sleep(0.5 if number == 0 else 0.001)
        under_way.discard(number)
        return number

    drawn = []
    source = (drawn.append(number) or number for number in range(60))  # type: ignore[func-returns-value]
    stream = flow.stream(program, source, 4)
    first = next(stream)
    assert len(drawn) == 4
    results = [first, *stream]
    assert results[-1] == 0
    assert sorted(results) == list(range(60))
    assert most == 4


def test_stream_releases_finished_tasks() -> None:
    async def program(item: int) -> int:
        return item

    before = list(flow._streams)
    held = []
    for _ in flow.stream(program, range(50), 3):
        (running,) = [tasks for tasks in flow._streams if not any(tasks is other for other in before)]
        held.append(len(running))
    assert max(held) < 3


def test_error_or_closed_stream_cancels_other_tasks() -> None:
    cancelled: list[int] = []
    begun = threading.Event()

    async def program(number: int) -> int:
        if number == 8:
            begun.set()
        try:
            await asyncio.sleep(0.01 if number == 3 else 60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        if number == 3:
            raise KeyError(number)
        return number

    with pytest.raises(KeyError):
        list(flow.stream(program, range(6), 6))
    assert sorted(cancelled) == [0, 1, 2, 4, 5]
    cancelled.clear()
    raised: list[BaseException] = []

    def consume() -> None:
        try:
            list(flow.stream(program, [7, 8], 2))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    assert begun.wait(30)
    flow.interrupt()
    thread.join(30)
    assert sorted(cancelled) == [7, 8]
    assert isinstance(raised[0], flow.Cancelled)


def test_trace_belongs_to_one_program_and_separates_waiting_from_service() -> None:
    seconds: list[float] = []

    def work(batch: list[int]) -> list[int]:
        began = time.monotonic()
        time.sleep(0.1)
        seconds.append(time.monotonic() - began)
        return batch

    batcher = flow.Batcher(work, 2)

    async def program(number: int) -> flow.Trace:
        await asyncio.gather(batcher(number), batcher(number))
        return flow.trace()

    traces = flow.ordered(program, range(3), 3)
    assert len({id(trace) for trace in traces}) == 3
    # Three batches, one after another, each of one program alone: nobody's company, and two programs wait.
    assert [round(trace.company_s, 2) for trace in traces] == [0, 0, 0]
    waited = sorted(trace.waited_s for trace in traces)
    assert waited[0] < seconds[0]
    assert seconds[0] - 0.02 < waited[1] < sum(seconds[:2])
    assert sum(seconds[:2]) - 0.02 < waited[2] < sum(seconds)


def test_time_of_a_batch_excludes_the_event_loops_other_work() -> None:
    batches: list[float] = []

    def work(batch: list[int]) -> list[int]:
        began = time.perf_counter()
        time.sleep(0.02)
        batches.append(time.perf_counter() - began)
        return batch

    batcher = flow.Batcher(work, 8)

    async def program(number: int) -> float:
        clock = pipeline._Clock()
        with clock("retrieve"):
            await batcher(number)
        time.sleep(0.02)  # work on the loop, while the other programs of the batch wait to resume
        return clock.seconds["retrieve"]

    seconds = flow.ordered(program, range(8), 8)
    assert sum(seconds) - sum(batches) < 0.2, "the time of the batch, without 0.02 s × (1 + … + 7) of the others"


def test_batch_and_single_roles_are_called_alike_with_each_querys_arguments() -> None:
    class Doubles:
        def retrieve(self, queries: Sequence[int], k: int) -> list[int]:
            return [query * k for query in queries]

    class Single:
        async def retrieve_one(self, query: int, k: int) -> int:
            await asyncio.sleep(random.random() / 100)
            return query * k

    class Query(int):
        id = ""

    queries = [Query(number) for number in range(50)]
    for role in (Doubles(), Single()):
        assert flow.each(role, "retrieve", queries, 3) == [3 * number for number in range(50)]
        retrieve = flow.one(role, "retrieve")
        assert flow.ordered(lambda q, r=retrieve: r(q, q % 4), queries, 20) == [n * (n % 4) for n in range(50)]  # type: ignore[misc]


def test_waiting_for_programs_in_a_worker_thread_raises_instead_of_deadlocking() -> None:
    async def program(number: int) -> int:
        return number

    batcher = flow.Batcher(lambda batch: flow.ordered(program, batch, 2), 4)
    with pytest.raises(RuntimeError, match="single form"):
        flow.ordered(batcher, range(4), 4)


def test_flow_runs_inside_the_callers_event_loop() -> None:
    async def program(number: int) -> int:
        await asyncio.sleep(0.001)
        return -number

    async def cell() -> list[int]:
        return flow.ordered(program, range(10), 3)

    assert asyncio.run(cell()) == [-number for number in range(10)]


def test_error_of_one_gathered_task_cancels_the_others() -> None:
    ended: list[str] = []

    async def waits(number: int) -> int:
        try:
            await asyncio.sleep(0 if number == 1 else 20)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise KeyError(number)

    async def program(_: int) -> list[int]:
        return await flow.together(*map(waits, range(3)))

    with pytest.raises(KeyError):
        flow.ordered(program, [0], 1)
    assert ended == ["cancelled", "cancelled"]


def test_single_form_that_is_not_async_is_named() -> None:
    class Role:
        def answer_one(self, query: str) -> str:
            return query

    with pytest.raises(flow.ContractError, match="async def answer_one"):
        asyncio.run(flow.one(Role(), "answer")("q"))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_fatal_error_reaches_its_caller_and_the_shared_loop_keeps_running(error: type[BaseException]) -> None:
    async def fails() -> None:
        raise error

    async def works() -> str:
        return "yes"

    with pytest.raises(error):
        flow.run(fails())
    assert flow.run(works()) == "yes"
