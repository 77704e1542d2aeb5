"""A question's graph as arrays, with vectors of entity and relation names.

Entities that differ only in case are merged, as in G-Retriever and GRAG.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus, Triples
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.models.embeddings import read_array, write_vectors
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.question_vectors import QuestionVectors
from methods.models.towers import Vectors
from methods.registry import ModelMethodConfig
from methods.retrieval.ranking import Rows, built_once
from methods.retrieval.triples import TripleScope, triple_corpus
from methods.work import Lengths, Work, encode, index, vectors

Places = NDArray[np.int64]


@dataclass(frozen=True)
class QuestionGraph:
    """A directed multigraph.

    Attributes:
        heads, tails: Source and target node of each edge, shape (edges,); nodes are numbered from 0 in order of first
            occurrence, heads first.
        nodes: Index of each node's name in `Names.nodes`, shape (nodes,).
        relations: Index of each edge's relation, shape (edges,).
    """

    heads: Places
    tails: Places
    nodes: Places
    relations: Places

    def __len__(self) -> int:
        return len(self.heads)

    def only(self, edges: NDArray[Any]) -> QuestionGraph:
        """Return a graph with the same nodes and only the given edges."""
        return QuestionGraph(self.heads[edges], self.tails[edges], self.nodes, self.relations[edges])


class Names:
    """Builder of question graphs from a triple corpus; their nodes are distinct lower-cased entity names.

    Args:
        triples: The corpus.
    """

    def __init__(self, triples: Triples) -> None:
        self._triples = triples

    @cached_property
    def _lowered(self) -> pa.DictionaryArray:
        return pc.utf8_lower(self._triples.entities).dictionary_encode()

    @property
    def nodes(self) -> pa.Array:
        """Return all distinct entity names, in lower case."""
        return self._lowered.dictionary

    @property
    def relations(self) -> pa.Array:
        """Return all relation names."""
        return self._triples.relations

    @cached_property
    def _node_of_entity(self) -> NDArray[np.int32]:
        return self._lowered.indices.to_numpy()

    def graph(self, rows: Rows) -> QuestionGraph:
        """Build the graph of some triples, with one edge per triple."""
        table = self._triples.table[rows]
        ends = self._node_of_entity[np.stack([table["head"], table["tail"]], axis=1)]
        names, firsts, positions = np.unique(ends, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        heads, tails = np.argsort(order)[positions.reshape(ends.shape)].T
        return QuestionGraph(heads, tails, names[order].astype(np.int64), table["relation"].astype(np.int64))


# A node's text is its entity in lower case, an edge's text its relation. Every distinct text of a corpus is encoded once.


CHUNK = 2048
"""Texts per write; fixed, so that a resumed index equals one built without interruption."""
DISTILBERT = "distilbert-base-uncased"
ROBERTA = "sentence-transformers/all-roberta-large-v1"

Floats = NDArray[np.float64]


class GraphEncoderConfig(EncoderConfig, ModelMethodConfig):
    """Options of the encoder of entity and relation names."""

    model: str = Field(
        DISTILBERT,
        description=f"a folder or hub id; minilm: all-MiniLM-L6-v2; in GPR's comparison {DISTILBERT}, in the releases of both "
        f"methods {ROBERTA}",
    )
    pooling: Literal["cls", "mean", "lasttoken"] | None = Field(
        "mean", description="pooling of token vectors: the first, their mean, the last; null: the model's own"
    )


def names_work(config: GraphEncoderConfig, lengths: Lengths) -> Work:
    """Estimate the work of encoding a graph's names (at most two per triple) and the questions."""
    names = 2 * lengths.corpus
    built = encode(config, names, lengths.passage / 3) + vectors(config, lengths, names)
    return index(built) + encode(config, lengths.questions, lengths.question)


def cosines(query: Vectors, vectors: Vectors) -> Floats:
    """Compute the cosine similarity of a vector with many others.

    Args:
        query: Shape (dimension,).
        vectors: Shape (n, dimension).

    Returns:
        Shape (n,), in float64, each summed independently, so that equal vectors have equal cosines; 0 for zero vectors.
    """
    item, many = query.astype(np.float64), vectors.astype(np.float64)
    lengths = np.linalg.norm(many, axis=1) * np.linalg.norm(item)
    return np.divide((many * item).sum(axis=1), lengths, out=np.zeros(len(many)), where=lengths > 0)


@dataclass(frozen=True)
class EncodedNames:
    """Names of a triple corpus with their vectors.

    Attributes:
        names: The names.
        nodes: Shape (distinct nodes, dimension), in memory or mapped.
        relations: Shape (relations, dimension), in memory or mapped.
    """

    names: Names
    nodes: Vectors
    relations: Vectors

    @classmethod
    def of(cls, corpus: TripleCorpus, encoder: Encoder, folder: Path | None) -> EncodedNames:
        """Encode all names, or memory-map the vectors in `folder`; an interrupted build resumes."""
        names = Names(corpus.triples)
        kinds = {"nodes": names.nodes, "relations": names.relations}
        if folder is None:
            return cls(names, *(_in_memory(texts, encoder) for texts in kinds.values()))

        def save(target: Path) -> None:
            for kind, texts in kinds.items():
                encode = _chunks(texts, encoder)
                write_vectors(target / f"{kind}.npy", range(0, len(texts), CHUNK), encode, encoder.dimension)

        built_once(folder, len(corpus), save)
        return cls(names, *(read_array(folder / f"{kind}.npy", mapped=len(kinds[kind]) > 0) for kind in kinds))

    def graph(self, rows: Rows) -> QuestionGraph:
        """Build the graph of some triples."""
        return self.names.graph(rows)

    def node_vectors(self, graph: QuestionGraph) -> Vectors:
        """Return the vector of each node: shape (nodes, dimension)."""
        return np.asarray(self.nodes[graph.nodes])

    def relation_vectors(self, graph: QuestionGraph) -> tuple[Vectors, Places]:
        """Return the vectors of a graph's distinct relations, and the index of each edge's relation among them."""
        distinct, positions = np.unique(graph.relations, return_inverse=True)
        return np.asarray(self.relations[distinct]), positions.reshape(-1)

    def node_cosines(self, graph: QuestionGraph, query: Vectors) -> Floats:
        """Compute the cosine of each node with a question."""
        return cosines(query, self.node_vectors(graph))

    def edge_cosines(self, graph: QuestionGraph, query: Vectors) -> Floats:
        """Compute the cosine of each edge with a question; edges with the same relation get identical values."""
        vectors, positions = self.relation_vectors(graph)
        return cosines(query, vectors)[positions]


def _chunks(texts: pa.Array, encoder: Encoder) -> Callable[[int], Vectors]:
    return lambda start: encoder.passages(texts[start : start + CHUNK].to_pylist())


def _in_memory(texts: pa.Array, encoder: Encoder) -> Vectors:
    encode = _chunks(texts, encoder)
    chunks: list[Vectors] = [encode(start) for start in range(0, len(texts), CHUNK)]
    return np.concatenate([np.empty((0, encoder.dimension), np.float32), *chunks])


class NamesIndex(ABC):
    """Base class of indexes over a triple corpus with name vectors."""

    def __init__(self, config: Any, encoder: Encoder, corpus: TripleCorpus, names: EncodedNames) -> None:
        self._config, self._corpus, self._names = config, corpus, names
        self._questions, self._scope = QuestionVectors(encoder), TripleScope(corpus)

    def build_for(self, queries: Sequence[Query]) -> None:
        """Divide all queries of a run into fixed batches (`QuestionVectors`)."""
        self._questions.build_for(queries)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank each query's triples; returns at most k."""
        encoded = self._questions.of([query.text for query in queries])
        return [self.ranked(query, vector, k) for query, vector in zip(queries, encoded, strict=True)]

    @abstractmethod
    def ranked(self, query: Query, vector: Vectors, k: int) -> Ranking:
        """Rank a query's triples, given its vector; returns at most k."""


class NamesRetriever:
    """Base class of retrievers that compare a question with the names in its graph.

    Args:
        config: Options.
        services: Services; device and embedding cache are used.
    """

    over_triples = True
    name: ClassVar[str]
    """Id of the method."""
    indexes: ClassVar[type[NamesIndex]]
    """Class of the index."""

    def __init__(self, config: GraphEncoderConfig, services: Services) -> None:
        self.config = config
        self.encoder = Encoder(config, services.device, services.folder("embeddings"))

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the names of a triple corpus, or memory-map the vectors in `folder`."""
        triples = triple_corpus(corpus, self.name)
        return self.indexes(self.config, self.encoder, triples, EncodedNames.of(triples, self.encoder, folder))
