"""Retrieve passages from a whole corpus with ColBERT, by MaxSim over token vectors.

    score(q, p) = Σ over the query's tokens of max over the passage's tokens of their inner product

Up to a million token vectors, every passage is scored: a blocked product finds those that could be among the k best given
its rounding, and these are scored again in float64, so that a ranking does not depend on other passages of the corpus.
Above that, FAISS finds vectors near each query vector, and their passages get the same exact scores; a passage without a
near vector is missed. A token takes 4 bytes per dimension on disk.

Source: Santhanam et al. 2022, ColBERTv2 (arXiv:2112.01488).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.models.approximate_search import ApproximateSearch
from methods.models.embeddings import EPSILON, read_array, write_vectors
from methods.models.late_interaction import LateInteraction, LateInteractionConfig, TokenVectors
from methods.registry import ModelMethodConfig, register
from methods.retrieval.ranking import Rows, Scope, best_rows, built_once, comparable, truncation_notes
from methods.work import Lengths, Work, encode, index, vectors

CHUNK = 1024
"""Passages encoded between two writes; constant, so that a resumed index equals one built without interruption."""
BLOCK = 65536
"""Approximate number of token vectors multiplied at once."""


class ColbertConfig(LateInteractionConfig, ModelMethodConfig):
    """Options of ColBERT: those of its encoder and of the search."""

    exact_up_to: int = Field(
        1_000_000, ge=0, description="maximum number of token vectors for exhaustive scoring; above it, FAISS finds candidates (extra ann)"
    )
    near: int = Field(256, ge=1, description="vectors that FAISS returns per query vector")


def _work(config: ColbertConfig, lengths: Lengths) -> Work:
    """Estimate the work: encode the corpus with one vector per token, then every question."""
    kept = vectors(config, lengths, lengths.corpus * lengths.passage)
    return index(encode(config, lengths.corpus, lengths.passage) + kept) + encode(config, lengths.questions, lengths.question)


@register(
    "colbert",
    kind="retriever",
    summary="passages of a corpus by MaxSim over token vectors; ColBERTv2 by default, any ColBERT or PyLate checkpoint",
    paper="Santhanam et al. 2022, ColBERTv2 (arXiv:2112.01488)",
    presets={"answerai-small": {"model": "answerdotai/answerai-colbert-small-v1"}},
    work=_work,
)
class Colbert:
    """Retriever role: late interaction (MaxSim over token vectors).

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: ColbertConfig, services: Services) -> None:
        self.config = config
        self.model = LateInteraction(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the corpus, or memory-map the vectors in `folder`; an interrupted build resumes.

        Raises:
            UserError: The corpus needs an index of FAISS, but there is no folder for it.
            MissingPackage: The corpus needs FAISS, which is not installed.
        """
        if folder is None:
            chunks = [matrix for start in range(0, len(corpus), CHUNK) for matrix in self._encode(corpus, start)]
            vectors = np.concatenate(chunks) if chunks else np.empty((0, 1), dtype=np.float32)
            if self._large(vectors):
                raise UserError(
                    f"{len(vectors):,} token vectors need an index on disk, but there is no folder for artifacts",
                    code="index-without-folder",
                    try_this="give a folder for artifacts, or a larger exact_up_to",
                )
            starts, search = _starts(list(map(len, chunks))), None
        else:
            built_once(folder, len(corpus), lambda target: self._save(corpus, target))
            vectors = read_array(folder / "vectors.npy", mapped=len(corpus) > 0)
            starts = read_array(folder / "starts.npy", mapped=False)
            search = ApproximateSearch(folder / "faiss.index", overfetch=1) if self._large(vectors) else None
        made = ColbertIndex(self.model, corpus, vectors, starts, search, self.config.near)
        made.notes = truncation_notes(folder, corpus, self.model.truncation)
        return made

    def _large(self, vectors: TokenVectors) -> bool:
        return len(vectors) > self.config.exact_up_to

    def _encode(self, corpus: Corpus, start: int) -> list[TokenVectors]:
        return self.model.passages([passage.full_text for passage in corpus[start : start + CHUNK]])

    def _save(self, corpus: Corpus, folder: Path) -> None:
        """Encode the corpus chunk by chunk, saving the number of tokens per passage."""
        chunks = {start: folder / f"lengths-{start}.npy" for start in range(0, len(corpus), CHUNK)}

        def encode(start: int) -> TokenVectors:
            matrices = self._encode(corpus, start)
            np.save(chunks[start], np.array([len(matrix) for matrix in matrices], dtype=np.int64))
            return np.concatenate(matrices)

        path = folder / "vectors.npy"
        write_vectors(path, chunks, encode, self.model.queries([""])[0].shape[1])
        np.save(folder / "starts.npy", _starts([int(length) for chunk in chunks.values() for length in np.load(chunk)]))
        vectors = read_array(path, mapped=len(corpus) > 0)
        if self._large(vectors):
            ApproximateSearch.build(vectors, folder / "faiss.index", "ivfpq")
        for chunk in chunks.values():
            chunk.unlink()


def _starts(lengths: Sequence[int]) -> Rows:
    """Return the row of each passage's first token, and one past the last: shape (passages + 1,)."""
    return np.cumsum([0, *lengths], dtype=np.int64)


class ColbertIndex:
    """Index of a corpus's token vectors.

    Args:
        model: Encoder of the queries.
        corpus: The passages.
        vectors: Token vectors, shape (tokens, dimension), in the order of the passages; in memory or mapped.
        starts: The row of each passage's first token, and one past the last.
        search: Index that finds vectors near a query's; None: every passage is scored.
        near: Number of vectors that it finds per query vector.
    """

    def __init__(
        self, model: LateInteraction, corpus: Corpus, vectors: TokenVectors, starts: Rows, search: ApproximateSearch | None, near: int
    ) -> None:
        self.device = model.device
        self.notes: Mapping[str, Any] = {}
        self._model, self._scope = model, Scope(corpus)
        self._vectors, self._starts = vectors, starts
        self._filled = np.flatnonzero(np.diff(starts))
        self._search, self._near = search, near

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank passages by MaxSim; a passage without a token is not found."""
        return [self._ranking(query, k) for query in queries]

    def _ranking(self, query: Query, k: int) -> Ranking:
        (tokens,) = self._model.queries([query.text])
        rows = self._scope.rows_for(query)
        rows = self._close(tokens, k) if rows is None else rows[np.diff(self._starts)[rows] > 0]
        scores = self._scores(tokens, rows)
        best = best_rows(scores, k)
        return self._scope.ranking(query, rows[best], scores[best])

    def _close(self, query: TokenVectors, k: int) -> Rows:
        """Return the passages that may be among the k best, ascending."""
        if self._search is not None:
            owners = np.searchsorted(self._starts, np.concatenate(self._search.near(query, self._near)), side="right") - 1
            return np.unique(owners)
        if not len(self._filled) or k <= 0:
            return self._filled[:0]
        scores = np.concatenate([self._rounded(query, rows) for rows in self._blocks()])
        k = min(k, len(scores))
        # Each inner product of unit vectors is off by at most d · ε, in any order of summation.
        slack = 2.1 * query.size * EPSILON
        return self._filled[scores >= np.partition(scores, len(scores) - k)[len(scores) - k] - slack]

    def _blocks(self) -> list[Rows]:
        """Yield passages with tokens, about `BLOCK` tokens at a time."""
        cuts = np.flatnonzero(np.diff(self._starts[self._filled] // BLOCK)) + 1
        return np.split(self._filled, cuts)

    def _rounded(self, query: TokenVectors, rows: Rows) -> NDArray[np.float64]:
        """Score consecutive passages in float32."""
        first, last = self._starts[rows[0]], self._starts[rows[-1] + 1]
        products = query @ self._vectors[first:last].T
        return np.maximum.reduceat(products, self._starts[rows] - first, axis=1).sum(axis=0, dtype=np.float64)

    def _scores(self, query: TokenVectors, rows: Rows) -> NDArray[np.float64]:
        """Score some passages, each independently in float64."""
        exact = query.astype(np.float64).T
        tokens = (self._vectors[self._starts[row] : self._starts[row + 1]].astype(np.float64) for row in rows)
        return comparable(np.array([(own @ exact).max(axis=0).sum() for own in tokens], dtype=np.float64))
