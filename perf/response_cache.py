"""How fast the cache of replies keeps and finds them: one process, two at once, against a bare SQLite table.

Each put is a commit of its own; a get is one key at a time, and many keys at once. The bare table has two columns, the
same pragmas, and puts in the same way.

python -m perf.response_cache [--replies 5000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from methods.models.reply_cache import Call, ResponseCache
from perf.measuring import Bench, timed

TARGETS = {"put": 2_000.0, "get": 5_000.0}
"""Operations per second with two processes, together: ten times what a machine's clients can call."""
REPLY = {"text": "Ann", "finish_reason": "stop", "prompt_tokens": 900, "completion_tokens": 2, "model": "m"}
_PASSAGES = "some words of a passage " * 150


def _call(number: int) -> Call:
    return Call("http://localhost/v1", "m", [{"role": "user", "content": f"{_PASSAGES}{number}"}], {"temperature": 0})


def _work(path: Path, kind: str, first: int, count: int, barrier: Any, seconds: Any) -> None:
    cache = ResponseCache(path)
    calls = [_call(number) for number in range(first, first + count)]
    assert all(call.key for call in calls)  # the bare table is handed its keys as well
    len(cache)
    barrier.wait()
    started = time.perf_counter()
    for call in calls:
        if kind == "put":
            cache.put(call, REPLY)
        else:
            assert cache.find([call])
    seconds.put(time.perf_counter() - started)
    cache.close()


def together(path: Path, kind: str, replies: int, processes: int) -> float:
    """Return the operations per second of all processes together, limited by the slowest."""
    context = multiprocessing.get_context("spawn")
    barrier, seconds = context.Barrier(processes), context.Queue()
    share = replies // processes
    workers = [context.Process(target=_work, args=(path, kind, share * number, share, barrier, seconds)) for number in range(processes)]
    for worker in workers:
        worker.start()
    slowest = max(seconds.get() for _ in workers)
    for worker in workers:
        worker.join()
    return share * processes / slowest


def bare(path: Path, replies: int) -> dict[str, float]:
    """Return the operations per second of a plain SQLite table in one process."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE t (key TEXT PRIMARY KEY, value TEXT)")
    calls = [_call(number) for number in range(replies)]
    assert all(call.key for call in calls)
    rates = {}

    def put() -> None:
        for call in calls:
            connection.execute("INSERT OR IGNORE INTO t VALUES (?, ?)", (call.key, call.request))

    def get() -> None:
        for call in calls:
            connection.execute("SELECT value FROM t WHERE key = ?", (call.key,)).fetchone()

    for name, work in (("put", put), ("get", get)):
        rates[name] = replies / timed(work, time.perf_counter)[0]
    connection.close()
    return rates


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=5000)
    query = parser.parse_args(argv)
    bench = Bench("response_cache")
    with tempfile.TemporaryDirectory() as folder:
        plain = bare(Path(folder) / "bare.sqlite", query.replies)
        for processes in (1, 2):
            path = Path(folder) / f"cache{processes}.sqlite"
            for kind in ("put", "get"):
                rate = together(path, kind, query.replies, processes)
                target = TARGETS[kind] if processes == 2 else None
                remark = f" (bare SQLite in one process {plain[kind]:,.0f}/s: {rate / plain[kind]:.2f} x)"
                bench.figure(f"{kind}, {processes} process{'es' if processes > 1 else ''}", rate, "1/s", at_least=target, remark=remark)
        cache = ResponseCache(Path(folder) / "cache2.sqlite")
        keys = [_call(number).key for number in range(query.replies // 2 * 2)]
        seconds, cached = timed(lambda: cache.get(keys), time.perf_counter)
        cache.close()
        remark = f" (bare SQLite one by one {plain['get']:,.0f}/s)"
        bench.figure("get many", len(keys) / seconds, "1/s", equal=len(cached) == len(keys), remark=remark)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
