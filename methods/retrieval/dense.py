"""Retrieve passages by the exact inner product of passage and query vectors.

Search uses a fast blocked matrix product and decides in float64: the product finds every passage that could be among the
k best given its rounding, then these few are scored again in float64, row by row. Results therefore do not depend on
other queries of the batch, and equal scores keep the order of the candidates, or of the corpus.

A passage may be split into parts for encoders with short inputs; its score is that of its best part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Index, Ranking, Services
from methods.models.approximate_search import ApproximateSearch
from methods.models.embeddings import ExactSearch, Search, exact_scores, read_array, write_vectors
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.encoder_presets import PRESETS
from methods.models.question_vectors import QuestionVectors
from methods.models.towers import Vectors
from methods.registry import ModelMethodConfig, register
from methods.retrieval.ranking import Rows, Scope, best_rows, built_once, indexed_so_far, truncation_notes
from methods.work import WORDS_PER_TOKEN, Lengths, Work, encode, index, vectors

CHUNK = 2048
"""Passages encoded between two writes; constant, so that a resumed index equals one built without interruption."""
CACHED = 1_000_000
"""Largest corpus whose vectors are also cached by text; above that, a second copy on disk costs more than it saves."""
DPR_WORDS = 100
"""Words per part for DPR, which was trained on passages of this length and reads 256 tokens."""


class DenseConfig(EncoderConfig, ModelMethodConfig):
    """Options of dense retrieval: those of its encoder and of the search."""

    part_words: int | None = Field(None, ge=1, description="split passages into parts of this many words, each its own vector; null: whole")
    search: Literal["exact", "hnsw", "ivfpq"] = Field(
        "exact", description="exact: suits up to about a million passages; above that, use a FAISS index (extra ann)"
    )

    def preflight(self) -> None:
        """Check the models, their code and the search."""
        super().preflight()
        if self.search != "exact":
            from importlib.util import find_spec

            if find_spec("faiss") is None:
                raise MissingPackage("faiss-cpu", "ann", f"search: {self.search}")


def presets() -> dict[str, Mapping[str, Any]]:
    """Return the encoder presets as options of dense retrieval."""
    return {
        name: {**values, "part_words": DPR_WORDS} if values.get("architecture") == "dpr" else values for name, values in PRESETS.items()
    }


def dense_work(config: DenseConfig, lengths: Lengths) -> Work:
    """Estimate the work: encode and store the corpus once, then encode every question."""
    parts = 1.0 if config.part_words is None else max(1, round(lengths.passage * WORDS_PER_TOKEN / config.part_words))
    copies = 2 if lengths.corpus <= CACHED else 1
    built = encode(config, lengths.corpus, lengths.passage) + vectors(config, lengths, copies * lengths.corpus * parts)
    return index(built) + encode(config, lengths.questions, lengths.question)


@register(
    "dense",
    kind="retriever",
    summary="any SentenceTransformer with exact inner-product search; MiniLM by default",
    paper="Reimers and Gurevych 2019, Sentence-BERT (arXiv:1908.10084)",
    presets=presets(),
    work=dense_work,
)
class Dense:
    """Retriever role: compares vectors of queries and passages.

    Args:
        config: Options.
        services: Services; device and embedding cache are used.
    """

    def __init__(self, config: DenseConfig, services: Services) -> None:
        self.config = config
        self.encoder = Encoder(config, services.device, services.folder("embeddings"))

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the corpus, or memory-map the vectors in `folder`; an interrupted build resumes."""
        if folder is None:
            made = self._in_memory(corpus)
        else:
            built_once(folder, len(corpus), lambda target: self._save(corpus, target))
            vectors = read_array(folder / "vectors.npy", mapped=len(corpus) > 0)
            starts = read_array(folder / "starts.npy", mapped=False) if self.config.part_words else None
            made = DenseIndex(self.encoder, corpus, vectors, self._search(vectors, folder / "faiss.index"), starts)
        made.notes = truncation_notes(folder, corpus, self.encoder.truncation, self._texts) | self.encoder.notes
        return made

    def _in_memory(self, corpus: Corpus) -> DenseIndex:
        if self.config.search != "exact":
            raise UserError(
                f"search: {self.config.search} needs an index on disk, but there is no folder for artifacts",
                code="search-without-folder",
                try_this="give a folder for artifacts, or search: exact",
            )
        chunks = [self._encode(corpus, start) for start in range(0, len(corpus), CHUNK)]
        vectors = np.concatenate(chunks) if chunks else np.empty((0, self.encoder.dimension), dtype=np.float32)
        return DenseIndex(self.encoder, corpus, vectors, self._search(vectors, None), self._starts(corpus))

    def _search(self, vectors: Vectors, path: Path | None) -> Search:
        if path is None or self.config.search == "exact":
            return ExactSearch(vectors, self.encoder.device)
        return ApproximateSearch(path)

    def _encode(self, corpus: Corpus, start: int) -> Vectors:
        """Encode a chunk of passages, or all their parts."""
        passages = corpus[start : start + CHUNK]
        cached = len(corpus) <= CACHED
        if self.encoder.reads_titles:
            parts = [(passage.title, part) for passage in passages for part in self._parts(passage)]
            return self.encoder.passages([text for _, text in parts], [title for title, _ in parts], cached=cached)
        return self.encoder.passages([text for passage in passages for text in self._texts(passage)], cached=cached)

    def _texts(self, passage: Passage) -> list[str]:
        """Return the texts of a passage to encode: each part with the title as its first line."""
        return [f"{passage.title}\n{part}" if passage.title else part for part in self._parts(passage)]

    def _parts(self, passage: Passage) -> list[str]:
        """Split a passage's text into parts if needed; there is at least one."""
        if self.config.part_words is None:
            return [passage.text]
        words = passage.text.split()
        starts = range(0, max(1, len(words)), self.config.part_words)
        return [" ".join(words[start : start + self.config.part_words]) for start in starts]

    def _starts(self, corpus: Corpus) -> Rows | None:
        """Return the row of each passage's first part, and one past the last: shape (passages + 1,)."""
        if self.config.part_words is None:
            return None
        counts = np.fromiter((len(self._parts(passage)) for passage in corpus), dtype=np.int64, count=len(corpus))
        return np.concatenate([[0], np.cumsum(counts)])

    def _save(self, corpus: Corpus, folder: Path) -> None:
        parts = self._starts(corpus)
        if parts is not None:
            np.save(folder / "starts.npy", parts)
        path = folder / "vectors.npy"

        def encode(start: int) -> Vectors:
            indexed_so_far(start, len(corpus))
            return self._encode(corpus, start)

        write_vectors(path, range(0, len(corpus), CHUNK), encode, self.encoder.dimension)
        if len(corpus) and self.config.search != "exact":
            vectors = read_array(path, mapped=True)
            ApproximateSearch.build(vectors, folder / "faiss.index", self.config.search)


class DenseIndex:
    """Index of a corpus's passage vectors.

    Args:
        encoder: Encoder of the queries.
        corpus: The passages.
        vectors: Vectors, shape (passages or parts, dimension), in row order; in memory or mapped.
        search: Index that finds the rows near a query.
        starts: The row of each passage's first part and one past the last; None if each passage is one row.
    """

    def __init__(self, encoder: Encoder, corpus: Corpus, vectors: Vectors, search: Search, starts: Rows | None = None) -> None:
        self.device = encoder.device
        self.notes: Mapping[str, Any] = {}
        self._questions = QuestionVectors(encoder)
        self._scope = Scope(corpus)
        self._vectors = vectors
        self._search = search
        self._starts = starts
        self._most_parts = 1 if starts is None else int(np.diff(starts).max(initial=1))

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank passages by inner product with each query."""
        return self.nearest(queries, self._questions.of([query.text for query in queries]), k)

    def build_for(self, queries: Sequence[Query]) -> None:
        """Divide all queries of a run into fixed batches (`QuestionVectors`)."""
        self._questions.build_for(queries)

    def vectors_of(self, texts: Sequence[str]) -> Vectors:
        """Encode queries in the batches of `build_for`, if they are part of one."""
        return self._questions.of(texts)

    def nearest(self, queries: Sequence[Query], encoded: Vectors, k: int) -> list[Ranking]:
        """Rank the passages that each query may use by their inner product with the given query vectors.

        Args:
            queries: Queries to rank passages for.
            encoded: Their vectors, shape (queries, dimension).
            k: Maximum number of passages.
        """
        allowed = [self._scope.rows_for(query) for query in queries]
        open_ones = [position for position, rows in enumerate(allowed) if rows is None]
        # The k best passages are among the owners of the k · (most parts) best parts.
        close = self._search.near(encoded[open_ones], k * self._most_parts) if open_ones else []
        results = dict(zip(open_ones, map(self._owners, close), strict=True))
        rankings = []
        for position, query in enumerate(queries):
            rows = allowed[position]
            if rows is None:
                rows = results[position]
            scores = self._scores(encoded[position], rows)
            best = best_rows(scores, k)
            rankings.append(self._scope.ranking(query, rows[best], scores[best]))
        return rankings

    def _owners(self, parts: Rows) -> Rows:
        """Return the distinct passages of some parts, ascending."""
        if self._starts is None:
            return parts
        return np.unique(np.searchsorted(self._starts, parts, side="right") - 1)

    def _scores(self, query: NDArray, rows: Rows) -> NDArray[np.float64]:
        """Score passages; a passage's score is that of its best part."""
        if self._starts is None or not len(rows):
            return exact_scores(self._vectors, query, rows)
        parts = np.concatenate([np.arange(self._starts[row], self._starts[row + 1]) for row in rows])
        scores = exact_scores(self._vectors, query, parts)
        firsts = np.cumsum(np.concatenate([[0], np.diff(self._starts)[rows][:-1]]))
        return np.maximum.reduceat(scores, firsts)
