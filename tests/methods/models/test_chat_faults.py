"""Every kind of error in virtual time: wall time near the ideal, bounded calls in flight, and equal replies."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from tests.support.virtual import FAULTS, LASTING, TIMEOUT_S, Weather, virtual

CALLS, SLOTS, SHARE = 500, 32, 0.01


def _latency(prompt: str) -> float:
    """Return half a second, and two seconds one time in twenty."""
    return 2.0 if hashlib.blake2b(prompt.encode(), digest_size=1).digest()[0] % 20 == 0 else 0.5


def _answered(weather: Weather, url: str, **more: Any) -> tuple[list[Any], float, ChatModel]:
    with virtual(weather) as loop:
        options = {"model": "m", "key_variable": None, "concurrency": SLOTS, "timeout_s": TIMEOUT_S, **more}
        model = ChatModel(ChatConfig(base_url=url, **options))

        async def all_of() -> list[Any]:
            return list(await asyncio.gather(*(model.ask([{"role": "user", "content": f"say {n}"}]) for n in range(CALLS))))

        return loop.run_until_complete(all_of()), loop.time(), model


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_one_percent_of_errors_costs_only_their_own_time(fault: str) -> None:
    weather = Weather(str.upper, _latency, fault, SHARE)
    replies, wall, model = _answered(weather, f"http://{fault.replace('_', '-')}.test/v1")
    assert weather.played > 0
    assert weather.most == SLOTS
    assert wall <= 1.1 * weather.ideal(SLOTS)
    assert model.rate_limiter.limit == SLOTS
    wrong = [reply for number, reply in enumerate(replies) if reply.text != f"SAY {number}" or reply.model != "m"]
    if fault in LASTING:
        assert len(wrong) == weather.played
        assert all(reply.failed or reply.model == "other" for reply in wrong)
    else:
        assert wrong == []
    assert sum(reply.calls for reply in replies) == sum(weather.tries.values())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["reset", "503", "429"])
def test_full_concurrency_returns_soon_after_an_endpoint_recovers(fault: str) -> None:
    """The endpoint refuses everything for thirty seconds, starting after the first second."""
    weather = Weather(str.upper, _latency, fault)
    weather.due = lambda prompt, number: 2 < asyncio.get_running_loop().time() < 32  # type: ignore[method-assign]
    replies, wall, model = _answered(weather, f"http://recovers-{fault}.test/v1", attempts=60, longest_wait_s=4)
    assert all(reply.failed is None for reply in replies)
    assert model.rate_limiter.cuts > 0
    assert model.rate_limiter.limit == SLOTS
    assert wall < 32 + 1.5 * CALLS * 0.575 / SLOTS + 4
