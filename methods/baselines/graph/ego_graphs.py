"""Ego graphs: of every node, what lies within some hops of it; and the mean vector of each.

Which node reaches which is a product of sparse matrices. From it the sums over the nodes and edges of many ego graphs
come at once: a node counts in every ego graph that it is in, an edge in every one that both of its ends are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from methods.baselines.graph.question_graph import Places, QuestionGraph
from methods.models.encoder import Vectors

CELLS = 1 << 21
"""Pairs of an edge and an ego graph looked at together: few enough to stay in a cache."""
DENSE = 0.02
"""Share of a block's pairs of nodes from which plain arrays are faster than sparse ones."""


class EgoGraphs:
    """The ego graphs of all nodes of a graph.

    Args:
        graph: The graph.
        hops: How far they reach; with 0 each is its node alone.
        directed: Whether a hop leads from an edge's tail to its head alone, so that an ego graph holds what reaches
            its node; else directions play no role.
    """

    def __init__(self, graph: QuestionGraph, hops: int, *, directed: bool = False) -> None:
        self.graph = graph
        self.hops = hops
        self.directed = directed

    @cached_property
    def _inside(self) -> Any:
        """Which nodes (rows) are in the ego graph of which (columns): `scipy.sparse.csc_array` of ones, uint8."""
        from scipy.sparse import coo_array, eye_array

        heads, tails, size = self.graph.heads, self.graph.tails, len(self.graph.nodes)
        if not self.directed:
            heads, tails = np.concatenate([heads, tails]), np.concatenate([tails, heads])
        step = coo_array((np.ones(len(heads), np.float32), (heads, tails)), shape=(size, size)).tocsc()
        step = step + eye_array(size, dtype=np.float32, format="csc")
        inside = eye_array(size, dtype=np.float32, format="csc")
        for _ in range(self.hops):
            inside = inside @ step
            # Only whether there is a way counts, not how many there are.
            inside.data[:] = 1
        return inside.astype(np.uint8)

    def members(self, centre: int) -> tuple[Places, Places]:
        """The nodes and edges of the ego graph of one node, ascending."""
        inside = np.zeros(len(self.graph.nodes), bool)
        start, end = self._inside.indptr[centre : centre + 2]
        inside[self._inside.indices[start:end]] = True
        edges = inside[self.graph.heads] & inside[self.graph.tails] & (self.hops > 0)
        return np.flatnonzero(inside), np.flatnonzero(edges)

    def vectors(self, nodes: Vectors, relations: Vectors, relation_of_edge: Places) -> Vectors:
        """The mean over the vectors of all nodes and edges of each ego graph.

        Args:
            nodes: Shape (nodes, dimension).
            relations: Shape (relations, dimension).
            relation_of_edge: Which of them each edge has, shape (edges,).

        Returns:
            Shape (nodes, dimension).
        """
        if self.hops == 0 or not len(self.graph):
            return nodes
        means = np.empty_like(nodes)
        for start, inside, edges in self._blocks(relation_of_edge, len(relations)):
            sizes = inside.sum(axis=0, dtype=np.int64) + edges.sum(axis=0, dtype=np.int64)
            sums = inside.T.astype(np.float32) @ nodes + edges.T.astype(np.float32) @ relations
            means[start : start + len(sizes)] = sums / sizes[:, None]
        return means

    def _blocks(self, relation_of_edge: Places, relations: int) -> Iterator[tuple[int, Any, Any]]:
        """Ego graphs in blocks: the first, which nodes they hold, and how many edges of each relation.

        Yields:
            A number; shape (nodes, block); shape (relations, block). Both plain, or both sparse.
        """
        from scipy.sparse import csr_array

        size, edges = len(self.graph.nodes), len(self.graph)
        ones = np.ones(edges, np.int32)
        of_relation = csr_array((ones, (relation_of_edge, np.arange(edges))), shape=(relations, edges))
        width = max(1, CELLS // edges)
        for start in range(0, size, width):
            inside = self._inside[:, start : start + width]
            if inside.nnz >= DENSE * size * inside.shape[1]:
                inside = inside.toarray()
                both = np.take(inside, self.graph.heads, axis=0) & np.take(inside, self.graph.tails, axis=0)
            else:
                rows = inside.tocsr()
                both = rows[self.graph.heads] * rows[self.graph.tails]
            edges_inside = of_relation @ both
            # Columns are what is read next: a transposed column-wise matrix is a row-wise one.
            yield start, inside, edges_inside if isinstance(both, np.ndarray) else edges_inside.tocsc()
