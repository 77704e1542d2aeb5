"""G-Retriever's retrieval: a connected subgraph with high similarity to the question (prize-collecting Steiner tree).

The graph neural network is not included. The number of triples is determined by the tree, so a reader receives all of them
unless an experiment sets `k`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from benchmarks.schema import Query
from methods.api import Ranking
from methods.baselines.graph.pcst import best_tree, edge_cost, edge_prizes, node_prizes
from methods.baselines.graph.question_graph import ROBERTA, GraphEncoderConfig, NamesIndex, NamesRetriever, names_work
from methods.models.towers import Vectors
from methods.registry import register

NOTE = "g_retriever"
"""Key in `notes`: number of selected triples and entities, and of all."""


class GRetrieverConfig(GraphEncoderConfig):
    """Options of G-Retriever's retrieval; the numbers are those that it uses on WebQSP."""

    nodes: int = Field(3, ge=0, description="number of entities that get a prize")
    edges: int = Field(5, ge=0, description="number of distinct relation similarities that get a prize")
    cost: float = Field(0.5, ge=0, description="cost of an edge, before it is lowered so that at least one edge pays off")
    order: Literal["graph", "cosine"] = Field(
        "graph", description="order of triples: as in the graph (released), or by their relation's cosine, for a cutoff at k"
    )


class GRetrieverIndex(NamesIndex):
    """Index of a triple corpus for G-Retriever."""

    def ranked(self, query: Query, vector: Vectors, k: int) -> Ranking:
        rows = self._scope.rows_for(query)
        graph = self._names.graph(rows)
        cosines = self._names.edge_cosines(graph, vector)
        prizes = edge_prizes(cosines, self._config.edges)
        tree = best_tree(
            graph,
            node_prizes(self._names.node_cosines(graph, vector), self._config.nodes),
            prizes,
            edge_cost(prizes, self._config.cost) if self._config.edges else self._config.cost,
        )
        chosen, scores = tree.edges, None
        if self._config.order == "cosine":
            chosen = chosen[np.argsort(-cosines[chosen], kind="stable")]
            scores = cosines[chosen][:k]
        note = {"triples": len(tree.edges), "entities": len(tree.nodes), "of": [len(rows), len(graph.nodes)]}
        return self._scope.ranking(query, rows[chosen][:k], scores, {NOTE: note})


@register(
    "g_retriever",
    kind="retriever",
    summary="G-Retriever's retrieval: a prize-collecting Steiner tree in the question's graph",
    version=3,
    config=GRetrieverConfig,
    paper="He et al. 2024, G-Retriever (arXiv:2402.07630)",
    presets={"minilm": {"model": "minilm"}, "released": {"model": ROBERTA}},
    work=names_work,
)
class GRetriever(NamesRetriever):
    """Retriever role: returns the triples of a connected subgraph."""

    reads_all = True
    name, indexes = "g_retriever", GRetrieverIndex
