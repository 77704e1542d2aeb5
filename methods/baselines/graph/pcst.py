"""Prize-collecting Steiner tree: a connected subgraph that maximizes node prizes minus edge costs.

G-Retriever also gives prizes to edges. An edge whose prize exceeds its cost is replaced by a node between two free edges, with
the difference as its prize.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from methods.baselines.graph.question_graph import QuestionGraph

# A moat grows around every node with a prize. If moats fill an edge, its two clusters are merged. A cluster whose moats have
# used up its prizes stops growing until another cluster reaches it. When at most one cluster grows, its edges are the
# result, without branches that were only reached after they had stopped (pruning "gw"). The cost of the tree plus the prizes
# that it misses is at most twice the minimum.
#
# The library `pcst_fast` does the same, in Hegde, Indyk and Schmidt's formulation, and cannot be used: its last release
# (1.0.10) was built for NumPy 1, and under NumPy 2 all items of its answer are one number.


Places = NDArray[np.int64]
Floats = NDArray[np.float64]

TIGHT = 1e-12
"""Rounding tolerance for treating an edge as tight."""
STOPS, FILLS = 0, 1
"""Kinds of events; at equal times, a cluster deactivates before an edge becomes tight."""


def prize_collecting_tree(ends: Places, prizes: Floats, costs: Floats) -> tuple[Places, Places]:
    """Find a connected subgraph with large prizes minus edge costs (Goemans–Williamson approximation).

    Args:
        ends: The two nodes of each edge, shape (edges, 2); parallel edges and loops are possible.
        prizes: Non-negative prize of each node.
        costs: Non-negative cost of each edge.

    Returns:
        Ascending indices of the nodes and edges of a tree; a single node if no edge pays off; empty without prizes.
    """
    growth = _Growth(ends.tolist(), prizes.tolist(), costs.tolist())
    growth.run()
    nodes, edges = growth.pruned()
    return np.array(sorted(nodes), np.int64), np.array(sorted(edges), np.int64)


class _Growth:
    """Growth phase of the Goemans–Williamson algorithm: clusters of nodes that grow and merge.

    Attributes:
        left: Time that each cluster may still grow from its start.
        grown: Time that it grew, once it has stopped.
        merged: Per merge, its edge, and the inactive cluster with the end of the edge in it (−1, −1 if none).
    """

    def __init__(self, ends: list[list[int]], prizes: list[float], costs: list[float]) -> None:
        size = len(prizes)
        self.ends, self.costs = ends, costs
        self.at: dict[int, list[int]] = defaultdict(list)
        for edge, (item, other) in enumerate(ends):
            if item != other:
                self.at[item].append(edge)
                self.at[other].append(edge)
        self.time = 0.0
        self.left = prizes
        self.since = [0.0] * size
        self.grown = [0.0] * size
        self.growing = [prize > 0 for prize in prizes]
        self.parent = [-1] * size
        self.members = [[node] for node in range(size)]
        self.merged: list[tuple[int, int, int]] = []
        # Shortcuts (path compression): an enclosing cluster, and the total growth from this cluster to below that one.
        self.above = list(range(size))
        self.below = [0.0] * size
        self.events: list[tuple[float, int, int]] = []

    def run(self) -> None:
        """Grow until at most one cluster is active."""
        active = [node for node, growing in enumerate(self.growing) if growing]
        for node in active:
            self._begin(node, [node])
        number = len(active)
        while number > 1:
            self.time, kind, what = heapq.heappop(self.events)
            if kind == FILLS:
                number -= self._fill(what)
            elif self.growing[what]:
                self._stop(what)
                number -= 1

    def _begin(self, cluster: int, new_nodes: list[int]) -> None:
        """Schedule when a growing cluster stops, and when edges at its new nodes become tight."""
        heapq.heappush(self.events, (self.time + self.left[cluster], STOPS, cluster))
        for node in new_nodes:
            for edge in self.at[node]:
                self._note(edge)

    def _note(self, edge: int) -> None:
        full = self._full(edge)
        if full is not None:
            heapq.heappush(self.events, (max(full, self.time), FILLS, edge))

    def _full(self, edge: int) -> float | None:
        """Return the time at which an edge becomes tight at the current growth; None if never."""
        (item, moat), (other, opposite) = map(self._moat, self.ends[edge])
        rate = self.growing[item] + self.growing[other]
        if item == other or not rate:
            return None
        return self.time + (self.costs[edge] - moat - opposite) / rate

    def _moat(self, node: int) -> tuple[int, float]:
        """Return a node's outermost cluster, and the total width of the moats around the node."""
        way, cluster = [], node
        while self.above[cluster] != cluster:
            way.append(cluster)
            cluster = self.above[cluster]
        total = 0.0
        for inner in reversed(way):
            total += self.below[inner]
            self.above[inner], self.below[inner] = cluster, total
        return cluster, total + (self.time - self.since[cluster] if self.growing[cluster] else self.grown[cluster])

    def _fill(self, edge: int) -> int:
        """Merge the clusters at an edge if it is tight; returns by how many the number of growing clusters falls."""
        full = self._full(edge)
        if full is None:
            return 0
        if full > self.time + TIGHT:
            # A cluster stopped since this was foreseen.
            heapq.heappush(self.events, (full, FILLS, edge))
            return 0
        item, other = (self._moat(node)[0] for node in self.ends[edge])
        both = self.growing[item] and self.growing[other]
        stopped, inner = (item, self.ends[edge][0]) if self.growing[other] else (other, self.ends[edge][1])
        self.merged.append((edge, -1, -1) if both else (edge, stopped, inner))
        new_nodes = [] if both else self.members[stopped].copy()
        for side in (item, other):
            if self.growing[side]:
                self._stop(side)
        self._begin(self._union(item, other), new_nodes)
        return int(both)

    def _stop(self, cluster: int) -> None:
        self.grown[cluster] = self.time - self.since[cluster]
        self.left[cluster] -= self.grown[cluster]
        self.growing[cluster] = False

    def _union(self, item: int, other: int) -> int:
        """Merge two clusters into a growing one."""
        new = len(self.parent)
        for side in (item, other):
            self.parent[side] = self.above[side] = new
            self.below[side] = self.grown[side]
        few, many = sorted((item, other), key=lambda side: len(self.members[side]))
        self.members[many].extend(self.members[few])
        self.members.append(self.members[many])
        self.left.append(max(self.left[item] + self.left[other], 0.0))
        self.since.append(self.time)
        self.grown.append(0.0)
        self.growing.append(True)
        self.parent.append(-1)
        self.above.append(new)
        self.below.append(0.0)
        return new

    def pruned(self) -> tuple[set[int], list[int]]:
        """Return the nodes and edges of the remaining cluster after pruning.

        Merges are processed in reverse. A cluster that was inactive when reached is kept only if a later kept edge starts from
        it.
        """
        if True not in self.growing:
            return set(), []
        nodes = set(self.members[self.growing.index(True)])
        merged = [event for event in self.merged if self.ends[event[0]][0] in nodes]
        neighbors: dict[int, list[int]] = defaultdict(list)
        for edge, _, _ in merged:
            item, other = self.ends[edge]
            neighbors[item].append(other)
            neighbors[other].append(item)
        needed, kept = [False] * len(self.parent), []
        for edge, stopped, inner in reversed(merged):
            item, other = self.ends[edge]
            if item not in nodes and other not in nodes:
                continue
            if stopped >= 0 and not needed[stopped]:
                nodes -= _beyond(inner, item + other - inner, neighbors)
                continue
            kept.append(edge)
            for cluster in (item, other):
                while cluster >= 0 and not needed[cluster]:
                    needed[cluster] = True
                    cluster = self.parent[cluster]
        return nodes, kept


def _beyond(start: int, barrier: int, neighbors: dict[int, list[int]]) -> set[int]:
    """Return the nodes of a tree on the other side of a node, seen from one of its neighbors."""
    result, frontier = {start}, [start]
    while frontier:
        following = [node for node in neighbors[frontier.pop()] if node != barrier and node not in result]
        result.update(following)
        frontier += following
    return result


DECAY = 0.99
"""Maximum ratio between the prizes of consecutive edge ranks."""
CHEAPER = 0.995
"""Maximum ratio of an edge's cost to the largest prize, so that at least one edge pays off."""


def node_prizes(cosines: Floats, number: int) -> Floats:
    """Give the nodes most similar to the question the prizes n, n − 1, …, 1, and all others 0; ties in order.

    Args:
        cosines: Cosine of each node with the question.
        number: Number of nodes with a prize (n).
    """
    prizes = np.zeros(len(cosines))
    number = min(number, len(cosines))
    prizes[np.argsort(-cosines, kind="stable")[:number]] = np.arange(number, 0, -1)
    return prizes


def edge_prizes(cosines: Floats, number: int) -> Floats:
    """Divide prizes among the edges with the e highest distinct cosines: rank k (from 0) shares e − k equally.

    A rank's prize per edge is at most 0.99 of the previous rank's.

    Args:
        cosines: Cosine of each edge with the question.
        number: Maximum number of distinct cosines with a prize (e).
    """
    values, ranks, ties = np.unique(-cosines, return_inverse=True, return_counts=True)
    number = min(number, len(values))
    worth = np.zeros(len(values))
    previous = float(number)
    for rank in range(number):
        worth[rank] = min((number - rank) / ties[rank], previous)
        previous = worth[rank] * DECAY
    return worth[ranks.reshape(-1)]


def edge_cost(prizes: Floats, cost: float) -> float:
    """Return the cost of an edge, capped so that the best edge still pays for itself."""
    return min(cost, float(prizes.max(initial=0.0)) * CHEAPER)


@dataclass(frozen=True)
class Tree:
    """Selected nodes and edges of a graph.

    Attributes:
        nodes: Ascending node indices, including the ends of selected edges.
        edges: Ascending edge indices.
    """

    nodes: Places
    edges: Places


def best_tree(graph: QuestionGraph, nodes: Floats, edges: Floats, cost: float) -> Tree:
    """Find an approximately optimal connected subgraph by prizes minus costs, with prizes on nodes and edges.

    Args:
        graph: The graph; directions are ignored, parallel edges and loops are allowed.
        nodes: Prize of each node.
        edges: Prize of each edge.
        cost: Cost of each edge.
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
