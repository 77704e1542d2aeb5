"""Rerankers that ask a language model again and again: many queries at once against one comparison after another.

With a tiny model of random weights on this machine: 100 queries by heapsort together, against the same comparisons one
after another; wall time decides, of written replies and of likelihoods, and processor time stands beside it. At an
endpoint in a process of its own, whose replies take half a second, one, or two: 100 queries by heapsort, 64 calls in
flight, against the ideal (the sum of the latencies / 64 + the longest), and beside it a bare `AsyncOpenAI` loop over the
same prompts, which need not wait for one another.

python -m perf.llm_reranking [--queries 100] [--only local|endpoint]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Ranking, Services
from methods.flow import each
from methods.registry import Component
from perf.flow import IN_FLIGHT, Endpoint, bare
from perf.measuring import Bench
from tools.tiny_checkpoints import make

FASTER, SLOWER = 5.0, 1.25
LATENCIES_S = (0.5, 1.0, 2.0)
CANDIDATES = 12
TURNS = 3
TOGETHER = {"generation": 128, "likelihood": 8}
"""`batch_size`; four times as many are read at once for likelihoods, and as many others write their prompts meanwhile."""


def candidates(queries: int) -> tuple[list[Query], list[Ranking], Corpus]:
    """Make queries with distinct passages, so that no two replies are equal."""
    texts = [[f"Bridge {number} of town {query} is of stone." for number in range(CANDIDATES)] for query in range(queries)]
    corpus = Corpus.of(Passage(passage_id("", text), "", text) for own in texts for text in own)
    requests = [Query(f"q{query}", f"Which bridge of town {query} is old?") for query in range(queries)]
    rankings = [
        Ranking(query.id, tuple(passage_id("", text) for text in own), tuple(-float(n) for n in range(CANDIDATES)))
        for query, own in zip(requests, texts, strict=True)
    ]
    return requests, rankings, corpus


def reranker(llm: dict[str, Any], **options: Any) -> Any:
    return Component.of("setwise", {"llm": llm, "k": 3, **options}).build(Services(device="cpu"))


def local(bench: Bench, queries: int, score: str) -> None:
    """Measure local reranking of queries together against one by one; the results must be equal.

    One by one means batches of one comparison. The two sides alternate, so that other load on the machine affects both; the
    median of the ratios counts.
    """
    requests, rankings, corpus = candidates(queries)
    turns, same = [], 0
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), ["qwen2.5"])
        single, made = (reranker({"local": f"{folder}/qwen2.5", "batch_size": size}, score=score) for size in (1, TOGETHER[score]))
        for side in (single, made):
            each(side, "rerank", requests[:2], rankings[:2], corpus)  # what is loaded and compiled when first used
        for turn in range(TURNS):
            own = list(zip(requests, rankings, strict=True))[turn::TURNS]
            started = time.perf_counter(), time.process_time()
            alone = [each(single, "rerank", [query], [ranking], corpus)[0] for query, ranking in own]
            between = time.perf_counter(), time.process_time()
            together = each(made, "rerank", requests, rankings, corpus)
            ended = time.perf_counter(), time.process_time()
            turns.append([queries / len(own) * (between[n] - started[n]) / (ended[n] - between[n]) for n in (0, 1)])
            same += sum(one.ids == other.ids for one, other in zip(alone, together[turn::TURNS], strict=True))
    calls = sum(result.usage.model_calls for result in together)
    wall_ms, cpu_ms = (1000 * (ended[n] - between[n]) / calls for n in (0, 1))
    ratio, of_cpu = (statistics.median(ratios) for ratios in zip(*turns, strict=True))
    remark = (
        f" ({queries} queries, {calls} comparisons: together {wall_ms:.1f} ms each, CPU {cpu_ms:.1f}; ratio of CPU {of_cpu:.1f}; "
        f"equal orders {same} of {queries})"
    )
    bench.figure(f"local {score}", ratio, "x", at_least=FASTER, remark=remark)


def endpoint(bench: Bench, queries: int, latency_s: float) -> None:
    """Measure reranking at an endpoint."""
    requests, rankings, corpus = candidates(queries)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "prompts"
        with Endpoint(str(latency_s), log) as served:
            made = reranker({"model": "m", "base_url": served.url, "key_variable": None, "concurrency": IN_FLIGHT})
            cpu = time.process_time()
            results = each(made, "rerank", requests, rankings, corpus)
            wall_s = time.time() - served.totals[3]  # from the first request on
            cpu, ideal_s = time.process_time() - cpu, served.ideal
        bare_s, bare_cpu = bare(log, str(latency_s))
    calls = sum(result.usage.model_calls for result in results)
    remark = (
        f" ({queries} queries, {calls} comparisons, {IN_FLIGHT} in flight: {wall_s:.1f} s, ideal {ideal_s:.1f} s, bare AsyncOpenAI "
        f"{bare_s:.1f} s; CPU {1000 * cpu / calls:.1f} ms a call, bare {1000 * bare_cpu / calls:.1f})"
    )
    bench.figure(f"endpoint, {latency_s:g} s a call", wall_s / ideal_s, "times_plain", at_most=SLOWER, remark=remark)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--only", choices=("local", "endpoint"))
    options = parser.parse_args(argv)
    bench = Bench("llm_reranking")
    for score in ("generation", "likelihood") if options.only != "endpoint" else ():
        local(bench, options.queries, score)
    for latency_s in LATENCIES_S if options.only != "local" else ():
        endpoint(bench, options.queries, latency_s)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
