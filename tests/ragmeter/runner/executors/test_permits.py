from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from pathlib import Path

import pytest

from methods.models.limits import LIMIT, Address, execution
from methods.models.reply_cache import Call, ResponseCache
from methods.spending import LimitReached, Limits, spending
from ragmeter.runner.executors.permits import Permits, PermitServer, RemoteAccount, RemoteCache
from tests.support.errors import raises


@pytest.fixture
def place(tmp_path: Path) -> Address:
    """Return an endpoint of this test only, because limiters are shared in a process."""
    return Address(f"http://{tmp_path}", "", "m")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PermitServer]:
    with execution():
        made = PermitServer("127.0.0.1", tmp_path / "cache.sqlite")
    yield made
    made.close()


def worker(server: PermitServer) -> Permits:
    return Permits(server.place, server.key, server.limited)


def vanish(worker: Permits) -> None:
    """End a connection as the system does for a killed process."""
    with socket.socket(fileno=os.dup(worker._connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_concurrent_calls_of_all_workers_respect_the_endpoint_limit(server: PermitServer, place: Address) -> None:
    now = most = 0

    async def call(limiter) -> None:
        nonlocal now, most
        ticket = await limiter.enter()
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.002)
        now -= 1
        limiter.ended(ticket, "ok")
        limiter.leave()

    async def calls() -> None:
        several = [worker(server).limiter(place) for _ in range(3)]
        for limiter in several:
            limiter.join(3)
        await asyncio.gather(*(call(limiter) for limiter in several for _ in range(20)))

    asyncio.run(calls())
    assert most == 3


def test_workers_share_one_budget(server: PermitServer, place: Address) -> None:
    async def calls() -> list[str | None]:
        replies = []
        for permits in (worker(server), worker(server)):
            budget = permits.budget(place)
            budget.tokens = 30
            for _ in range(2):
                replies.append(await budget.reserve(10, 0.0))
                if replies[-1] is None:
                    budget.settle((10, 0.0), (10, 0.0))
        return replies

    replies = asyncio.run(calls())
    assert replies[:3] == [None] * 3
    assert replies[3].startswith(LIMIT)


def test_lost_worker_frees_its_slots_and_its_reservations_count_as_spent(server: PermitServer, place: Address) -> None:
    lost, other = worker(server), worker(server)

    async def hold() -> None:
        limiter, budget = lost.limiter(place), lost.budget(place)
        limiter.join(1)
        other.limiter(place).join(1)
        budget.tokens = 100
        await limiter.enter()
        assert await budget.reserve(40, 0.0) is None

    asyncio.run(hold())
    vanish(lost)

    async def take() -> str | None:
        await asyncio.wait_for(other.limiter(place).enter(), 10)
        budget = other.budget(place)
        budget.tokens = 100
        return await budget.reserve(61, 0.0)

    assert asyncio.run(take()).startswith(LIMIT)


def test_canceled_call_frees_its_slot(server: PermitServer, place: Address) -> None:
    permits = worker(server)
    limiter = permits.limiter(place)
    limiter.join(1)

    async def story() -> None:
        await limiter.enter()
        waiting = asyncio.ensure_future(limiter.enter())
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        limiter.leave()
        await asyncio.wait_for(limiter.enter(), 10)

    asyncio.run(story())


def test_only_the_server_opens_the_cache_and_the_first_reply_is_kept(server: PermitServer, tmp_path: Path) -> None:
    one, other = RemoteCache(worker(server)), RemoteCache(worker(server))
    call = Call("http://x", "m", [{"role": "user", "content": "why?"}])
    assert one.find([call]) == {}
    assert one.put(call, {"text": "first"}).reply == other.put(call, {"text": "second"}).reply == {"text": "first"}
    assert ResponseCache(tmp_path / "cache.sqlite").find([call])[call.key].reply == {"text": "first"}


def test_connection_without_the_key_is_refused_without_blocking_others(server: PermitServer) -> None:
    with pytest.raises(AuthenticationError):
        Permits(server.place, b"another key", False)
    assert RemoteCache(worker(server)).find([Call("http://x", "m", [])]) == {}


def test_all_worker_calls_use_one_account_and_lost_reservations_count_as_spent(tmp_path: Path) -> None:
    with spending(Limits(max_usd=1.0, max_calls=4), "`again`") as account:
        server = PermitServer("127.0.0.1", None)
        lost, other = worker(server), worker(server)

        async def call(permits: Permits, usd: float) -> None:
            async with RemoteAccount(permits).charged(0.3, "m") as charge:
                charge.usd = usd

        async def calls() -> None:
            await call(other, 0.1)
            await call(lost, 0.1)
            await RemoteAccount(lost).reserve(0.3, "m")
            vanish(lost)
            await call(other, 0.1)
            with raises("limit-reached"):
                await call(other, 0.1)

        asyncio.run(calls())
        server.close()
    assert account is not None
    assert (account.calls, round(account.usd, 6), account.reached) == (4, 0.6, "max_calls 4")


def test_workers_respect_a_dollar_limit_with_costs_reported_by_the_endpoint() -> None:
    with spending(Limits(max_usd=1.0), "`again`") as account:
        server = PermitServer("127.0.0.1", None)
        workers = [RemoteAccount(worker(server)) for _ in range(3)]

        async def call(number: int) -> None:
            async with workers[number % 3].charged(0.0, "m") as charge:
                await asyncio.sleep(0.001)
                charge.usd = 0.3

        async def calls() -> list[BaseException | None]:
            return await asyncio.gather(*map(call, range(12)), return_exceptions=True)

        refused = [error for error in asyncio.run(calls()) if error is not None]
        server.close()
    assert account is not None
    assert (account.calls, round(account.usd, 6)) == (3, 0.9)
    assert [type(error) for error in refused] == [LimitReached] * 9


def test_workers_stop_at_the_time_limit_of_the_server() -> None:
    with spending(Limits(max_hours=0), "`again`"):
        server = PermitServer("127.0.0.1", None)
        account = RemoteAccount(worker(server))
        with raises("limit-reached") as caught:
            account.check()
        assert "max_hours 0" in caught.value.what
        server.close()
