"""How CPU seconds grow with questions, nodes of a graph and score rows: exponents of power laws fitted to three sizes.

An exponent of 1 is linear. That of passages is in the generated page, from `perf.corpus`.

python -m perf.growth [--quick]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from methods.graphs.pagerank import power_iteration
from perf import overhead, pagerank, store
from perf.measuring import Bench, parser, timed
from results.store.store import Store

TURNS = 3


def exponent(by_size: Mapping[int, float]) -> float:
    """Fit the exponent b of the power law a · size^b by least squares on logarithms."""
    return float(np.polyfit(np.log(list(by_size)), np.log(list(by_size.values())), 1)[0])


def questions_s(size: int) -> float:
    """Measure CPU seconds of answering and scoring `size` questions with a method that answers instantly."""
    return overhead.seconds(size, time.process_time)[0]


def graph_s(nodes: int) -> float:
    """Measure CPU seconds of personalized PageRank for ten questions on a graph with four edges per node."""
    matrix = pagerank.graph("uniform", nodes, 4 * nodes)
    starts = pagerank.restarts(matrix, 10)
    return timed(lambda: power_iteration(matrix, starts))[0]


def rows_s(size: int) -> float:
    """Measure CPU seconds of appending `size` score rows to an empty store in one transaction."""
    with tempfile.TemporaryDirectory() as folder:
        return store.append(Store(Path(folder)), "run", np.random.default_rng(0), size // store.METRICS, time.process_time)


SIDES: Mapping[str, tuple[Callable[[int], float], Sequence[int]]] = {
    "questions": (questions_s, (2_000, 4_000, 8_000)),
    "graph": (graph_s, (50_000, 100_000, 200_000)),
    "rows": (rows_s, (250_000, 500_000, 1_000_000)),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and record."""
    query = parser(__doc__).parse_args(argv)
    bench = Bench("growth", quick=query.quick)
    for name, (work, sizes) in SIDES.items():
        used = [size // 20 for size in sizes] if query.quick else sizes
        work(used[0])
        by_size = {size: median(work(size) for _ in range(1 if query.quick else TURNS)) for size in used}
        remark = f" ({', '.join(f'{size:,}: {spent:.3g} s' for size, spent in by_size.items())})"
        seconds = {str(size): spent for size, spent in by_size.items()}
        bench.figure(name, exponent(by_size), "exponent", remark=remark, seconds=seconds)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
