"""GRAG's retrieval: the surroundings of every entity, ranked by their mean vector, and the best of them pruned by text.

Only the retrieval is here, not the graph neural network that prunes softly behind it. Of its code two habits are left
out by default and kept in the preset `official`: hops follow the direction of edges, so that an ego graph holds what
reaches its centre, and where several triples lead from one entity to another, none of them is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.graph.ego_graphs import EgoGraphs
from methods.baselines.graph.encoded import ROBERTA, EncodedNames, Floats, GraphEncoderConfig, cosines
from methods.baselines.graph.question_graph import Places, QuestionGraph
from methods.baselines.graph.triples import TripleScope, triple_corpus
from methods.baselines.ranking import Rows, best_rows
from methods.models.encoder import Encoder, Vectors
from methods.registry import register

NOTE = "grag"
"""Key in `notes`: how many triples were kept before any cut, of how many, in how many ego graphs, and how many of the
entities kept are in no kept triple, so that a reader of triples does not see them."""

OFFICIAL = {"hop_direction": "against_edges", "repeated_pairs": "drop"}


class GragConfig(GraphEncoderConfig):
    """Options of GRAG's retrieval; the numbers are those that it uses on WebQSP."""

    hops: int = Field(2, ge=0, description="how far an ego graph reaches")
    ego_graphs: int = Field(20, ge=1, description="how many are kept; the default of the released function: 10")
    nodes: int = Field(10, ge=0, description="entities kept in each")
    edges: int = Field(10, ge=1, description="triples kept in each")
    hop_direction: Literal["any", "against_edges"] = Field(
        "any", description="whether a hop may follow a triple both ways, or from its tail to its head alone (released)"
    )
    repeated_pairs: Literal["keep", "drop"] = Field(
        "keep", description="triples that share head and tail with another: kept, or all of them dropped (released)"
    )


@register(
    "grag",
    kind="retriever",
    summary="GRAG's retrieval: ego graphs ranked by their mean vector, pruned by text",
    config=GragConfig,
    paper="Hu et al. 2024, GRAG (arXiv:2405.16506)",
    presets={"minilm": {"model": "minilm"}, "official": OFFICIAL, "released": {"model": ROBERTA, **OFFICIAL}},
    extra="models",
    checkpoint_hash=lambda config: config.weights(),
)
class Grag:
    """Retriever of the surroundings of entities.

    Args:
        config: Options.
        services: Lends the device, and a folder where vectors are kept for other corpora with the same names.
    """

    over_triples = True

    def __init__(self, config: GragConfig, services: Services) -> None:
        self.config = config
        self.encoder = Encoder(config, services.device, services.folder("embeddings"))

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the entities and relations of a corpus of triples, or map the vectors in `folder`."""
        triples = triple_corpus(corpus, "grag")
        return GragIndex(self.config, self.encoder, triples, EncodedNames.of(triples, self.encoder, folder))


class GragIndex:
    """A corpus of triples with the vectors of its names."""

    def __init__(self, config: GragConfig, encoder: Encoder, corpus: TripleCorpus, names: EncodedNames) -> None:
        self._config = config
        self._encoder = encoder
        self._corpus = corpus
        self._scope = TripleScope(corpus)
        self._names = names

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The first k triples of each query's best ego graphs, those of the best one first."""
        encoded = self._encoder.queries([query.text for query in queries])
        return [self._rank(query, vector, k) for query, vector in zip(queries, encoded, strict=True)]

    def _rank(self, query: Query, vector: Vectors, k: int) -> Ranking:
        rows = self._scope.rows(query)
        found = self._whole if query.candidates is None else self._surroundings(rows)
        kept, note = self._pruned(found, vector)
        return self._scope.ranking(query, rows[found.edges[kept]][:k], notes={NOTE: {**note, "of": len(rows)}})

    @cached_property
    def _whole(self) -> _Surroundings:
        """Of the whole corpus: the same for every query that names no graph of its own."""
        return self._surroundings(np.arange(len(self._corpus)))

    def _surroundings(self, rows: Rows) -> _Surroundings:
        graph = self._names.graph(rows)
        edges = unrepeated(graph) if self._config.repeated_pairs == "drop" else np.arange(len(graph))
        egos = EgoGraphs(graph.only(edges), self._config.hops, directed=self._config.hop_direction != "any")
        vectors = egos.vectors(self._names.node_vectors(graph), *self._names.relation_vectors(egos.graph))
        return _Surroundings(egos, edges, vectors)

    def _pruned(self, found: _Surroundings, query: Vectors) -> tuple[Places, dict[str, Any]]:
        """The edges kept, ego graph after ego graph, each once; and what there is to say of them."""
        graph = found.egos.graph
        by_node, by_edge = self._names.node_cosines(graph, query), self._names.edge_cosines(graph, query)
        centres = best_rows(cosines(query, found.vectors), self._config.ego_graphs)
        nodes: list[Places] = []
        edges: list[Places] = [np.empty(0, np.int64)]
        for centre in centres:
            its_nodes, its_edges = found.egos.members(int(centre))
            nodes.append(_best(its_nodes, by_node, self._config.nodes))
            edges.append(_best(its_edges, by_edge, self._config.edges))
        kept = np.array(list(dict.fromkeys(np.concatenate(edges).tolist())), np.int64)
        seen = np.union1d(graph.heads[kept], graph.tails[kept])
        unseen = len(np.setdiff1d(np.concatenate(nodes), seen)) if nodes else 0
        return kept, {"triples": len(kept), "ego_graphs": len(centres), "entities_without_triple": unseen}


@dataclass(frozen=True)
class _Surroundings:
    """Ego graphs of a graph, which of its edges they are over, and their vectors."""

    egos: EgoGraphs
    edges: Places
    vectors: Vectors


def unrepeated(graph: QuestionGraph) -> NDArray[np.int64]:
    """Places of the edges that alone lead from their head to their tail, ascending."""
    pairs = graph.heads * len(graph.nodes) + graph.tails
    _, place, times = np.unique(pairs, return_inverse=True, return_counts=True)
    return np.flatnonzero(times[place.reshape(-1)] == 1)


def _best(members: Places, scores: Floats, number: int) -> Places:
    return members[best_rows(scores[members], number)]
