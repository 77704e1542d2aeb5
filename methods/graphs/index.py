"""Graph index over the chunks of a document or corpus: knowledge graph, vectors, and matrices for graph RAG methods.

The records that models extract are saved chunk by chunk during the build, so that an interrupted build resumes and the cost is
known when the index is reopened. Everything else is computed from them on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.fingerprint import content_hash
from methods.graphs.chunking import Chunk
from methods.graphs.extraction import ChunkRead, merged
from methods.graphs.knowledge_graph import KnowledgeGraph, TextEncoder
from methods.models.towers import Vectors
from methods.training import Silent
from methods.training.journal import Journal, each_once

JOURNAL = "extraction.jsonl"


def read_chunks(extractor: Any, texts: Sequence[str], folder: Path | None, in_flight: int, where: str = "llm") -> list[ChunkRead]:
    """Extract records from each chunk, reusing saved ones; a chunk whose call failed is retried the next time.

    Args:
        extractor: Extractor with `read_one(text)` and `fingerprint`.
        texts: Texts of the chunks.
        folder: Folder for the records; None saves nothing.
        in_flight: Maximum number of chunks processed concurrently.
        where: Name of the option with the model, for messages.

    Raises:
        Broke: All calls, or many consecutive ones, failed.
    """
    items = [(content_hash((text,)), extractor.fingerprint, text) for text in dict.fromkeys(texts)]
    journal = Journal(folder / JOURNAL) if folder is not None else None
    reads = each_once(extractor.read_one, items, ChunkRead, journal, Silent(), in_flight, where)
    by_text = {text: read for (_, _, text), read in zip(items, reads, strict=True)}
    return [by_text[text] for text in texts]


class GraphIndex:
    """A knowledge graph over chunks, with vectors and matrices derived from it.

    Args:
        texts: Texts of the chunks, in order.
        reads: Extracted records of each chunk.
        encoder: Function from texts to unit vectors, shape (texts, dimension).
        document_id: Id of the graph's document.
        sentences: Whether descriptions of nodes and edges are sentences of the chunks (rule-based extraction).

    Attributes:
        texts: Texts of the chunks.
        graph: Entities and relations of all chunks.
        reads: Extracted records of each chunk.
    """

    def __init__(
        self, texts: Sequence[str], reads: Sequence[ChunkRead], encoder: TextEncoder, document_id: str = "", sentences: bool = False
    ) -> None:
        self.texts = list(texts)
        self.reads = list(reads)
        self.graph: KnowledgeGraph = merged(document_id, dict(enumerate(reads)))
        self._encoder = encoder
        self._sentences = sentences
        self._made: dict[Any, Any] = {}

    def once(self, name: Any, make: Callable[[], Any]) -> Any:
        """Return a method's own computation over this index, cached by name."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Encode texts as unit vectors, shape (texts, dimension)."""
        return self._encoder.passages(list(texts))

    @cached_property
    def entities(self) -> Vectors:
        """Return one vector per node, of its name and descriptions (mean over name and sentences if descriptions are
        sentences). Shape (nodes, dimension).
        """
        if self._sentences:
            return self._means([(node.name.lower(), *node.descriptions) for node in self.graph.nodes])
        return self.vectors([node.text for node in self.graph.nodes])

    @cached_property
    def relations(self) -> Vectors:
        """Return one vector per edge, of its keywords, ends and descriptions (mean over sentences if descriptions are
        sentences). Shape (edges, dimension).
        """
        if self._sentences:
            return self._means([edge.descriptions for edge in self.graph.edges])
        return self.vectors([" ".join((*e.keywords, e.source, e.target, *e.descriptions)) for e in self.graph.edges])

    def _means(self, groups: Sequence[Sequence[str]]) -> Vectors:
        """Return the unit mean vector of each group of texts; each distinct text is encoded once."""
        rows = {text: row for row, text in enumerate(dict.fromkeys(text for group in groups for text in group))}
        sums = incidence([[rows[text] for text in group] for group in groups], len(rows)) @ self.vectors(list(rows))
        return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), np.float32)

    @cached_property
    def chunks(self) -> Vectors:
        """Return one unit vector per chunk, shape (chunks, dimension)."""
        return self.vectors(self.texts)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Return the node indices of each edge's ends, shape (edges, 2)."""
        positions = self.graph.positions
        return np.array([(positions[e.source], positions[e.target]) for e in self.graph.edges], np.int64).reshape(-1, 2)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """Return the edge weights, shape (edges,)."""
        return np.array([edge.weight for edge in self.graph.edges], np.float64)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Return the number of edges of each node, shape (nodes,)."""
        return np.bincount(self.ends.ravel(), minlength=len(self.graph.nodes))

    @cached_property
    def node_chunks(self) -> Any:
        """Return the incidence matrix of nodes and the chunks that mention them: sparse 0/1, shape (nodes, chunks)."""
        return incidence([node.chunks for node in self.graph.nodes], len(self.texts))

    @cached_property
    def edge_chunks(self) -> Any:
        """Return the incidence matrix of edges and the chunks that state them: sparse 0/1, shape (edges, chunks)."""
        return incidence([edge.chunks for edge in self.graph.edges], len(self.texts))


def incidence(rows: Sequence[Sequence[int]], columns: int) -> Any:
    """Build a sparse 0/1 matrix with ones at the listed columns of each row: CSR, shape (rows, columns), sorted indices."""
    from scipy.sparse import csr_array

    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    indices = np.fromiter((column for row in rows for column in row), np.int64, int(counts.sum()))
    matrix = csr_array((np.ones(len(indices)), indices, np.concatenate([[0], np.cumsum(counts)])), shape=(len(rows), columns))
    matrix.sort_indices()
    return matrix


def chunks_of(texts: Sequence[str]) -> list[Chunk]:
    """Wrap texts as consecutive chunks, for extractors that process documents."""
    starts = np.cumsum([0, *(len(text) for text in texts)]).tolist()
    return [Chunk(index, text, start, start + len(text)) for index, (text, start) in enumerate(zip(texts, starts, strict=False))]


def read_locally(extractor: Any, texts: Sequence[str]) -> list[ChunkRead]:
    """Extract records from texts with a rule-based extractor; the texts count as chunks of one document."""
    return [ChunkRead(item.entities, item.relations) for item in extractor.records(chunks_of(texts))]
