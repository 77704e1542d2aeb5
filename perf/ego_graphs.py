"""Mean vectors of all 2-hop ego graphs of a graph, by products of matrices against one node after another.

`as published` does for every node what GRAG's code does: it marks hop by hop which nodes reach it, as PyG's
`k_hop_subgraph` does, takes the edges between them, looks each of these up in a list of all edges, which is written
anew for every node, and takes the mean over the vectors of both. It takes long, so a few nodes are timed and their mean
is multiplied. `marks alone` is the same loop at its best: the marks say which edges they are, nothing is looked up.

Graphs: `hubs`, where few entities have most of the triples, as in CWQ (in four of its graphs the mean ego graph holds 9
to 25 % of all nodes), and `even`, where every entity has about as many. Seconds are the processor's, one thread
(`OMP_NUM_THREADS=1`); all sides take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np

from methods.baselines.graph.grag import EgoGraphs
from methods.baselines.graph.question_graph import QuestionGraph
from perf.measuring import Bench, parser, say, timed

NODES, EDGES, RELATIONS, DIMENSION, HOPS = 3_000, 9_000, 300, 384, 2
SAMPLED = 30
TARGET = 50.0
AGREE = 2e-5


def graph(kind: str, nodes: int, edges: int, seed: int) -> QuestionGraph:
    """Generate a graph of distinct pairs of entities, so that a pair identifies an edge."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, nodes + 1) if kind == "hubs" else np.ones(nodes)
    heads = rng.permutation(nodes)[rng.choice(nodes, edges, p=weights / weights.sum())]
    pairs = np.unique(np.stack([heads, rng.integers(0, nodes, edges)], axis=1), axis=0)
    return QuestionGraph(pairs[:, 0], pairs[:, 1], np.arange(nodes), rng.integers(0, RELATIONS, len(pairs)))


def marked(query: QuestionGraph, center: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which nodes are within reach of a node, and which edges are between them."""
    inside = np.zeros(len(query.nodes), bool)
    inside[center] = True
    for _ in range(HOPS):
        inside[np.concatenate([query.heads[inside[query.tails]], query.tails[inside[query.heads]]])] = True
    return inside, inside[query.heads] & inside[query.tails]


def marks_alone(query: QuestionGraph, nodes: np.ndarray, edges: np.ndarray, centers: Iterable[int]) -> np.ndarray:
    means = []
    for center in centers:
        inside, between = marked(query, center)
        means.append(np.concatenate([nodes[inside], edges[between]]).mean(axis=0))
    return np.array(means)


def as_published(query: QuestionGraph, nodes: np.ndarray, edges: np.ndarray, centers: Iterable[int]) -> np.ndarray:
    index = np.stack([query.heads, query.tails], axis=1)
    means = []
    for center in centers:
        inside, between = marked(query, center)
        listed = index.tolist()
        positions = [listed.index(pair) for pair in index[between].tolist()]
        means.append(np.concatenate([nodes[inside], edges[positions]]).mean(axis=0))
    return np.array(means)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure mean vectors of 2-hop ego graphs against a node-by-node loop.

    Returns:
        1 if the target was missed or results differ, else 0.
    """
    arguments = parser(__doc__)
    arguments.add_argument("--turns", type=int, default=3)
    query = arguments.parse_args(argv)
    nodes, edges, turns = (200, 400, 1) if query.quick else (NODES, EDGES, query.turns)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((nodes, DIMENSION), dtype=np.float32)
    relations = rng.standard_normal((RELATIONS, DIMENSION), dtype=np.float32)
    # The first call pays for imports.
    small = graph("even", 10, 20, 0)
    EgoGraphs(small, HOPS).vectors(vectors[:10], relations, small.relations)
    say(f"# {nodes:,} nodes, {edges:,} triples, {RELATIONS} relations, {HOPS} hops, vectors of {DIMENSION}")
    bench = Bench("ego_graphs", quick=query.quick)
    for kind in ("hubs", "even"):
        ours: list[float] = []
        theirs: dict[str, list[float]] = {"as published": [], "marks alone": []}
        apart, size = 0.0, 0.0
        for turn in range(turns):
            drawn = graph(kind, nodes, edges, turn)
            egos, edge_vectors = EgoGraphs(drawn, HOPS), relations[drawn.relations]
            seconds, result = timed(lambda: egos.vectors(vectors, relations, drawn.relations))  # noqa: B023
            ours.append(seconds)
            some = rng.choice(nodes, min(SAMPLED, nodes), replace=False)
            for side, loop, centers in (("as published", as_published, some), ("marks alone", marks_alone, np.arange(nodes))):
                seconds, expected = timed(lambda: loop(drawn, vectors, edge_vectors, centers))  # noqa: B023
                theirs[side].append(seconds * nodes / len(centers))
                apart = max(apart, float(np.abs(result[centers] - expected).max()))
            size += float(np.mean([len(egos.members(int(node))[0]) for node in some])) / turns
        for side, spent in theirs.items():
            target = TARGET if side == "as published" else None
            remark = f"; {size:.0f} nodes and triples per ego graph, apart by {apart:.1g}"
            bench.ratio(f"{kind}, {side}", float(np.median(ours)), float(np.median(spent)), target, equal=apart <= AGREE, remark=remark)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
