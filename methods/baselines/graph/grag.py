"""GRAG's retrieval: ego graphs of all entities, ranked by mean vector; the best ones are pruned by text similarity.

The graph neural network for soft pruning is not included. Two peculiarities of the released code are only in the preset
`official`: hops follow edge directions, so that an ego graph contains the nodes that reach its center; and parallel triples
between two entities are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.schema import Query
from methods.api import Ranking
from methods.baselines.graph.question_graph import (
    ROBERTA,
    Floats,
    GraphEncoderConfig,
    NamesIndex,
    NamesRetriever,
    Places,
    QuestionGraph,
    cosines,
    names_work,
)
from methods.models.towers import Vectors
from methods.registry import register
from methods.retrieval.ranking import Rows, best_rows

# Which node reaches which is a product of sparse matrices. From it the sums over the nodes and edges of many ego graphs
# come at once: a node counts in every ego graph that it is in, an edge in every one that both of its ends are in.


CELLS = 1 << 21
"""(Edge, ego graph) pairs processed at a time, chosen to fit the CPU cache."""
DENSE = 0.02
"""Density of node pairs above which dense arrays are faster than sparse ones."""


class EgoGraphs:
    """Ego graphs of all nodes of a graph.

    Args:
        graph: The graph.
        hops: Radius in hops; 0 gives single nodes.
        directed: Whether hops only go from an edge's tail to its head, so that an ego graph contains the nodes that reach its
            center; otherwise directions are ignored.
    """

    def __init__(self, graph: QuestionGraph, hops: int, *, directed: bool = False) -> None:
        self.graph = graph
        self.hops = hops
        self.directed = directed

    @cached_property
    def _inside(self) -> Any:
        """Return the ego graphs as a `scipy.sparse.csc_array` of ones (uint8): entry (n, e) is set if node n is in the ego
        graph of e.
        """
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

    def members(self, center: int) -> tuple[Places, Places]:
        """Return the nodes and edges of one node's ego graph, ascending."""
        inside = np.zeros(len(self.graph.nodes), bool)
        start, end = self._inside.indptr[center : center + 2]
        inside[self._inside.indices[start:end]] = True
        edges = inside[self.graph.heads] & inside[self.graph.tails] & (self.hops > 0)
        return np.flatnonzero(inside), np.flatnonzero(edges)

    def vectors(self, nodes: Vectors, relations: Vectors, relation_of_edge: Places) -> Vectors:
        """Compute the mean vector of the nodes and edges of each ego graph.

        Args:
            nodes: Shape (nodes, dimension).
            relations: Shape (relations, dimension).
            relation_of_edge: Relation index of each edge, shape (edges,).

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
        """Yield blocks of ego graphs: first index, membership of nodes, and number of edges per relation.

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
            # The next step reads columns, which is fast in the CSC format.
            yield start, inside, edges_inside if isinstance(both, np.ndarray) else edges_inside.tocsc()


NOTE = "grag"
"""Key in `notes`: number of kept triples (before any cut) and of all triples, number of ego graphs, and number of kept entities
that occur in no kept triple.
"""

OFFICIAL = {"hop_direction": "against_edges", "repeated_pairs": "drop"}


class GragConfig(GraphEncoderConfig):
    """Options of GRAG's retrieval; the numbers are those that it uses on WebQSP."""

    hops: int = Field(2, ge=0, description="how far an ego graph reaches")
    ego_graphs: int = Field(20, ge=1, description="ego graphs to keep; default of the released function: 10")
    nodes: int = Field(10, ge=0, description="entities kept in each")
    edges: int = Field(10, ge=1, description="triples kept in each")
    hop_direction: Literal["any", "against_edges"] = Field(
        "any", description="any: a hop follows a triple in both directions; against_edges: only from tail to head (released)"
    )
    repeated_pairs: Literal["keep", "drop"] = Field(
        "keep", description="triples that share head and tail with another triple: keep them, or drop all of them (released)"
    )


class GragIndex(NamesIndex):
    """Index of a triple corpus for GRAG."""

    def ranked(self, query: Query, vector: Vectors, k: int) -> Ranking:
        rows = self._scope.rows_for(query)
        result = self._whole if query.candidates is None else self._surroundings(rows)
        kept, note = self._pruned(result, vector)
        return self._scope.ranking(query, rows[result.edges[kept]][:k], notes={NOTE: {**note, "of": len(rows)}})

    @cached_property
    def _whole(self) -> _Surroundings:
        """Return the ego graphs of the whole corpus, shared by queries without their own graph."""
        return self._surroundings(np.arange(len(self._corpus)))

    def _surroundings(self, rows: Rows) -> _Surroundings:
        graph = self._names.graph(rows)
        edges = unrepeated(graph) if self._config.repeated_pairs == "drop" else np.arange(len(graph))
        egos = EgoGraphs(graph.only(edges), self._config.hops, directed=self._config.hop_direction != "any")
        vectors = egos.vectors(self._names.node_vectors(graph), *self._names.relation_vectors(egos.graph))
        return _Surroundings(egos, edges, vectors)

    def _pruned(self, result: _Surroundings, query: Vectors) -> tuple[Places, dict[str, Any]]:
        """Return the distinct edges kept, ego graph by ego graph, and notes."""
        graph = result.egos.graph
        by_node, by_edge = self._names.node_cosines(graph, query), self._names.edge_cosines(graph, query)
        centers = best_rows(cosines(query, result.vectors), self._config.ego_graphs)
        nodes: list[Places] = []
        edges: list[Places] = [np.empty(0, np.int64)]
        for center in centers:
            its_nodes, its_edges = result.egos.members(int(center))
            nodes.append(_best(its_nodes, by_node, self._config.nodes))
            edges.append(_best(its_edges, by_edge, self._config.edges))
        kept = np.array(list(dict.fromkeys(np.concatenate(edges).tolist())), np.int64)
        seen = np.union1d(graph.heads[kept], graph.tails[kept])
        unseen = len(np.setdiff1d(np.concatenate(nodes), seen)) if nodes else 0
        return kept, {"triples": len(kept), "ego_graphs": len(centers), "entities_without_triple": unseen}


@register(
    "grag",
    kind="retriever",
    summary="GRAG's retrieval: ego graphs ranked by their mean vector, pruned by text",
    version=2,
    config=GragConfig,
    paper="Hu et al. 2024, GRAG (arXiv:2405.16506)",
    presets={"minilm": {"model": "minilm"}, "official": OFFICIAL, "released": {"model": ROBERTA, **OFFICIAL}},
    work=names_work,
)
class Grag(NamesRetriever):
    """Retriever role: returns the triples of the best ego graphs."""

    name, indexes = "grag", GragIndex


@dataclass(frozen=True)
class _Surroundings:
    """Ego graphs with their vectors, and the edges that they cover."""

    egos: EgoGraphs
    edges: Places
    vectors: Vectors


def unrepeated(graph: QuestionGraph) -> NDArray[np.int64]:
    """Return the positions of edges without a parallel edge, ascending."""
    pairs = graph.heads * len(graph.nodes) + graph.tails
    _, position, times = np.unique(pairs, return_inverse=True, return_counts=True)
    return np.flatnonzero(times[position.reshape(-1)] == 1)


def _best(members: Places, scores: Floats, number: int) -> Places:
    return members[best_rows(scores[members], number)]
