"""BM25 by tantivy against bm25s: the overlap of the first ten passages, with CPU seconds of building and searching.

python -m perf.tantivy_engine [--quick]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from benchmarks.registry import load
from benchmarks.schema import Query
from methods.api import Services
from methods.registry import Component
from perf.measuring import Bench, parser, timed

K = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record."""
    query = parser(__doc__).parse_args(argv)
    bench = Bench("tantivy_engine", quick=query.quick)
    benchmark = load("worlds/long:test")
    queries = [Query(question.id, question.text) for question in benchmark.questions[: 20 if query.quick else 200]]
    rankings = {}
    with tempfile.TemporaryDirectory() as folder:
        for engine in ("bm25s", "tantivy"):
            method = Component.of("bm25", {"k1": 1.2, "b": 0.75, "engine": engine}).build(Services())
            target = Path(folder) / engine
            built, index = timed(partial(method.index, benchmark.corpus, target))
            searched, rankings[engine] = timed(partial(index.retrieve, queries, K))
            bench.figure(f"{engine}: build", built, "s")
            bench.figure(f"{engine}: search", searched, "s")
    pairs = zip(rankings["bm25s"], rankings["tantivy"], strict=True)
    bench.figure("tantivy", mean(len({*a.ids} & {*b.ids}) / max(1, len(a.ids)) for a, b in pairs), f"overlap@{K} with bm25s")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
