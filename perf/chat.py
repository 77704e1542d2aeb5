"""What the chat client costs: a thousand calls at concurrency 64 against a bare `AsyncOpenAI` loop.

The server runs in a process of its own and answers at once, so that both sides measure the client alone; rounds
alternate. The bare loop has neither retries nor limits nor accounting, only a semaphore. Its client is made before the
clock starts and kept, as ours is.

python -m perf.chat [--calls 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from perf.measuring import Bench
from tests.support.server import ChatRequest, OpenAIServer, Written

TARGET = 1.2
CONCURRENCY = 64


def _answer(request: ChatRequest) -> Written:
    return Written("Ann", 10, 1)


def _serve(pipe: Connection) -> None:
    server = OpenAIServer("m", _answer)
    pipe.send(server.url)
    server.serve_forever()


def _conversations(calls: int, tag: str) -> list[list[dict[str, str]]]:
    passages = "\n\n".join(f"[{n}] Title: " + "some words of a passage " * 20 for n in range(5))
    return [[{"role": "user", "content": f"{passages}\n\nQuestion {tag}-{number}?"}] for number in range(calls)]


class Bare:
    """Minimal client for comparison: a plain loop on its own event loop."""

    def __init__(self, url: str) -> None:
        import openai

        self.loop = asyncio.new_event_loop()
        self.client = openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0)

    def __call__(self, conversations: Sequence[Any]) -> float:
        started = time.perf_counter()
        texts = self.loop.run_until_complete(self._all(conversations))
        assert len(texts) == len(conversations)
        return time.perf_counter() - started

    async def _all(self, conversations: Sequence[Any]) -> list[Any]:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def one(messages: Any) -> Any:
            async with slots:
                completion = await self.client.chat.completions.create(model="m", messages=messages, temperature=0.0, max_tokens=64)
            return completion.choices[0].message.content

        return list(await asyncio.gather(*map(one, conversations)))

    def close(self) -> None:
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


def _ours(model: ChatModel, conversations: Sequence[Any]) -> float:
    started = time.perf_counter()
    replies = model.complete(conversations)
    assert all(reply.failed is None for reply in replies)
    return time.perf_counter() - started


def measure(calls: int, rounds: int) -> dict[str, list[float]]:
    """Measure seconds per round: the plain loop, ragmeter without and with the cache, and ragmeter from the cache only."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    url = ours.recv()
    config = ChatConfig(model="m", base_url=url, key_variable=None, concurrency=CONCURRENCY)
    seconds: dict[str, list[float]] = {"bare": [], "plain": [], "cached": [], "replayed": []}
    with tempfile.TemporaryDirectory() as folder:
        bare, plain = Bare(url), ChatModel(config)
        keeping = ChatModel(config, cache=Path(folder) / "cache.sqlite")
        bare(_conversations(100, "warm"))
        _ours(plain, _conversations(100, "warm"))
        _ours(keeping, _conversations(100, "warm"))
        for number in range(rounds):
            query = _conversations(calls, str(number))
            seconds["bare"].append(bare(query))
            seconds["plain"].append(_ours(plain, query))
            seconds["cached"].append(_ours(keeping, query))
            seconds["replayed"].append(_ours(keeping, query))
        bare.close()
        plain.close()
        keeping.close()
    server.terminate()
    server.join()
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    query = parser.parse_args(argv)
    seconds = measure(query.calls, query.rounds)
    bench = Bench("chat")
    for name, target in (("plain", TARGET), ("cached", TARGET), ("replayed", None)):
        # The median over rounds of a ratio within a round: what else the machine does falls on both alike.
        ratio = statistics.median(a / b for a, b in zip(seconds[name], seconds["bare"], strict=True))
        ours, theirs = (query.calls / statistics.median(seconds[key]) for key in (name, "bare"))
        remark = f" (ours {ours:.0f} calls/s, bare AsyncOpenAI {theirs:.0f} calls/s)"
        bench.figure(name, ratio, "times_plain", at_most=target, remark=remark)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
