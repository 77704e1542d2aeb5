"""Personalized PageRank of a hundred questions, against networkx and scikit-network, in one process, taking turns.

Each library is called as its documentation shows, once per question, in float64 and with the same tolerance. A library
stops by its own norm (networkx: L1 below nodes × tolerance; scikit-network: L1 below the tolerance; ours: the largest
change), so networkx is given the tolerance divided by the number of nodes. networkx comes with torch. It takes long, so
a few questions are timed in full and their mean is multiplied. Seconds are the processor's, one thread
(`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import networkx
import numpy as np
from scipy.sparse import csr_array, csr_matrix
from sknetwork.ranking import PageRank

from methods.graphs.pagerank import power_iteration
from perf.measuring import Bench, parser, say, timed

NODES, EDGES, QUESTIONS, SEEDS = 50_000, 200_000, 100, 3
TELEPORT = 0.15
TOLERANCE = 1e-4
AGREE = 6e-4
TARGETS = {"networkx": 50.0, "scikit-network": 4.0}


def graph(kind: str, nodes: int, edges: int) -> csr_array:
    """Generate an undirected graph, `hubs` (preferential attachment) or `uniform`."""
    rng = np.random.default_rng(0)
    if kind == "hubs":
        pairs = np.array(networkx.barabasi_albert_graph(nodes, edges // nodes, seed=1).edges)
        pairs = rng.permutation(nodes)[pairs]  # numbers say nothing about age
    else:
        pairs = rng.integers(0, nodes, (edges, 2))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(nodes, nodes))
    matrix.data[:] = 1.0
    return matrix


def restarts(matrix: csr_array, questions: int) -> np.ndarray:
    """Draw restart nodes per question, none of them isolated (for which libraries differ)."""
    rng = np.random.default_rng(1)
    able = np.flatnonzero(np.diff(matrix.indptr))
    chi = np.zeros((matrix.shape[0], questions))
    for column in range(questions):
        chi[rng.choice(able, SEEDS, replace=False), column] = 1.0
    return chi


def by_networkx(nodes: Any, tolerance: float, start: np.ndarray) -> np.ndarray:
    seeds = {int(node): 1.0 for node in np.flatnonzero(start)}
    result = networkx.pagerank(nodes, alpha=1 - TELEPORT, personalization=seeds, weight=None, max_iter=1000, tol=tolerance / len(nodes))
    return np.array([result[node] for node in range(len(nodes))])


def by_sknetwork(matrix: csr_matrix, tolerance: float, start: np.ndarray) -> np.ndarray:
    model = PageRank(damping_factor=1 - TELEPORT, solver="piteration", n_iter=1000, tol=tolerance)
    return model.fit_predict(matrix, weights=start)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare personalized PageRank with networkx and scikit-network.

    Returns:
        1 if a target was missed or results differ, else 0.
    """
    arguments = parser(__doc__)
    arguments.add_argument("--turns", type=int, default=3)
    query = arguments.parse_args(argv)
    nodes, edges, turns = (2_000, 8_000, 1) if query.quick else (NODES, EDGES, query.turns)
    say(f"# {QUESTIONS} questions, {nodes:,} nodes, {edges:,} edges, float64, tolerance {TOLERANCE:g}")
    bench = Bench("pagerank", quick=query.quick)
    for kind in ("hubs", "uniform"):
        matrix = graph(kind, nodes, edges)
        chi = restarts(matrix, QUESTIONS)
        plain = networkx.from_scipy_sparse_array(matrix)
        sides: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
            "networkx": (1, partial(by_networkx, plain, TOLERANCE)),
            "scikit-network": (10, partial(by_sknetwork, csr_matrix(matrix), TOLERANCE)),
        }
        mine: list[float] = []
        theirs: dict[str, list[float]] = {side: [] for side in sides}
        apart = dict.fromkeys(sides, 0.0)
        for turn in range(turns):
            seconds, result = timed(partial(power_iteration, matrix, chi, teleport=TELEPORT, tolerance=TOLERANCE))
            mine.append(seconds)
            for side, (questions, work) in sides.items():
                for question in range(questions):
                    column = (turn * questions + question) % QUESTIONS
                    seconds, scores = timed(partial(work, chi[:, column]))
                    theirs[side].append(seconds)
                    apart[side] = max(apart[side], float(np.abs(scores - result.scores[:, column]).max()))
        ours = float(np.median(mine))
        for side in sides:
            other = float(np.mean(theirs[side])) * QUESTIONS
            equal = apart[side] <= AGREE
            bench.ratio(f"{kind}, {side}", ours, other, TARGETS[side], equal=equal, remark=f"; apart by {apart[side]:.1g}")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
