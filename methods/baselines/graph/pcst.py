"""A prize-collecting Steiner tree: the connected part of a graph that is worth most after what its edges cost.

G-Retriever gives prizes to edges too. An edge whose prize is more than its cost is worth its own way: it becomes a
node in the middle of two free edges, and the difference is that node's prize.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from methods.baselines.graph.prize_collecting import prize_collecting_tree
from methods.baselines.graph.question_graph import Places, QuestionGraph

Floats = NDArray[np.float64]

DECAY = 0.99
"""A lower rank of edges is worth at most this share of the one above it."""
CHEAPER = 0.995
"""An edge costs at most this share of the largest prize, so that one edge at least pays for itself."""


def node_prizes(cosines: Floats, number: int) -> Floats:
    """The nodes closest to the question get n, n − 1, …, 1, all others nothing; of equals the first go first.

    Args:
        cosines: Of each node with the question.
        number: How many get a prize (n).
    """
    prizes = np.zeros(len(cosines))
    number = min(number, len(cosines))
    prizes[np.argsort(-cosines, kind="stable")[:number]] = np.arange(number, 0, -1)
    return prizes


def edge_prizes(cosines: Floats, number: int) -> Floats:
    """The edges with the highest distinct cosines share prizes: the value of rank k gets (e − k) over its edges.

    It gets no more than 0.99 of what the rank above it got, and the first no more than 0.99 · e.

    Args:
        cosines: Of each edge with the question.
        number: How many distinct values get a prize (e); fewer where there are fewer.
    """
    values, ranks, ties = np.unique(-cosines, return_inverse=True, return_counts=True)
    number = min(number, len(values))
    worth = np.zeros(len(values))
    previous = float(number)
    for rank in range(number):
        previous = worth[rank] = min((number - rank) / ties[rank], previous * DECAY)
    return worth[ranks.reshape(-1)]


def edge_cost(prizes: Floats, cost: float) -> float:
    """What an edge costs: no more than lets the best of them pay for itself."""
    return min(cost, float(prizes.max(initial=0.0)) * CHEAPER)


@dataclass(frozen=True)
class Tree:
    """What was chosen of a graph.

    Attributes:
        nodes: Places of nodes, ascending: those chosen, and the ends of chosen edges.
        edges: Places of edges, ascending.
    """

    nodes: Places
    edges: Places


def best_tree(graph: QuestionGraph, nodes: Floats, edges: Floats, cost: float) -> Tree:
    """The connected part of a graph with the largest prizes less costs, as well as the algorithm finds it.

    Args:
        graph: The graph; directions play no role, parallel edges are edges of their own, loops are possible.
        nodes: Prize of each node.
        edges: Prize of each edge.
        cost: Of each edge.
    """
    # A loop connects nothing: one that does not pay for itself is never worth its cost.
    plain = np.flatnonzero((edges <= cost) & (graph.heads != graph.tails))
    paying = np.flatnonzero(edges > cost)
    size = len(graph.nodes)
    middles = size + np.arange(len(paying))
    links = np.concatenate(
        [
            np.stack([graph.heads[plain], graph.tails[plain]], axis=1),
            np.stack([graph.heads[paying], middles], axis=1),
            np.stack([middles, graph.tails[paying]], axis=1)[graph.heads[paying] != graph.tails[paying]],
        ]
    )
    costs = np.zeros(len(links))
    costs[: len(plain)] = cost - edges[plain]
    prizes = np.concatenate([nodes, edges[paying] - cost])
    vertices, chosen = prize_collecting_tree(links, prizes, costs)
    kept = np.sort(np.concatenate([plain[chosen[chosen < len(plain)]], paying[vertices[vertices >= size] - size]]))
    ends = np.concatenate([vertices[vertices < size], graph.heads[kept], graph.tails[kept]])
    return Tree(np.unique(ends), kept)
