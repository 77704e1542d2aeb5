"""Shared code of retrievers and rerankers: candidates of a query, rankings from scores, and indexes that are built once."""

from __future__ import annotations

import errno
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.files import whole
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus, TripleIds
from benchmarks.schema import Passage, Query
from methods.api import MARKER, RERANKER_TRUNCATED, TRUNCATED, Ranking
from methods.registry import MethodConfig


class PointwiseConfig(MethodConfig):
    """Options with the number of candidates to rerank."""

    depth: int | None = Field(None, ge=1, description="number of candidates to rerank; the rest follow in their order; null: all. SARK: 50")


class PointwiseReranker(ABC):
    """Base class of rerankers that score each candidate and sort.

    Args:
        depth: Number of candidates to score; None for all.
    """

    def __init__(self, depth: int | None) -> None:
        self.depth = depth

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        """Sort candidates by score; ties keep their order."""
        scores = self.scores_of(queries, [ranking.ids[: self.depth] for ranking in rankings], corpus)
        return [reordered(*item) for item in zip(queries, rankings, scores, strict=True)]

    def scores_of(self, queries: Sequence[Query], ids: Sequence[Sequence[str]], corpus: Corpus) -> Sequence[NDArray[np.floating]]:
        """Score the candidates of several queries; returns one array of shape (candidates,) per query."""
        return [self.scores(query, own, corpus) for query, own in zip(queries, ids, strict=True)]

    @abstractmethod
    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Score the candidates of one query: shape (candidates,)."""


class ModelReranker(PointwiseReranker, ABC):
    """Base class of rerankers with one model."""

    def __init__(self, config: PointwiseConfig, model: Any) -> None:
        super().__init__(config.depth)
        self.config, self.model, self.device = config, model, model.device

    def corpus_notes(self, corpus: Corpus) -> dict[str, Any]:
        """Measure how much of the passages the model does not read, for `Indexed.notes`."""
        cut = self.model.truncation([passage.full_text for passage in _sampled(corpus)])
        return {RERANKER_TRUNCATED: cut} if cut else {}


def reordered(query: Query, ranking: Ranking, scores: NDArray[np.floating]) -> Ranking:
    """Sort the first candidates of a ranking by score; the others follow in their order.

    Args:
        query: The query.
        ranking: The candidates.
        scores: Scores of the first candidates, in their order: shape (≤ candidates,).

    Raises:
        UserError: A score is NaN.
    """
    require_numbers(scores)
    order = np.argsort(-scores, kind="stable").tolist()
    rest = ranking.ids[len(order) :]
    # Unscored passages go below scored ones; only the order of scores matters.
    floor = float(scores.min()) if len(order) else 0.0
    below = (floor - position for position in range(1, len(rest) + 1))
    ids = (*(ranking.ids[position] for position in order), *rest)
    return Ranking(query.id, ids, (*(float(scores[position]) for position in order), *below))


def require_numbers(scores: NDArray[np.floating]) -> None:
    """Raise an error if a score is NaN, because its rank would be undefined.

    Raises:
        UserError: A score is NaN.
    """
    bad = int(np.isnan(scores).sum())
    if bad:
        raise UserError(
            f"{bad:,} of {len(scores):,} scores are NaN",
            code="scores-nan",
            try_this="check the model's weights, set dtype: float32, and delete the folder `artifacts` of the store if it was built before",
        )


Rows = NDArray[np.int64]


class Scope:
    """Determines the rows of a corpus that each query may use."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    @cached_property
    def _documents(self) -> dict[str, Rows]:
        """Return the rows of each long document, in reading order."""
        results: dict[str, list[int]] = {}
        for row, passage in enumerate(self.corpus):
            if passage.document_id is not None:
                results.setdefault(passage.document_id, []).append(row)
        return {document: np.array(rows, dtype=np.int64) for document, rows in results.items()}

    def rows_for(self, query: Query) -> Rows | None:
        """Return the rows that a query may use, in the benchmark's order; None for the whole corpus.

        Candidates take precedence; a query with only a document uses the passages of that document.

        Raises:
            UserError: A candidate or the document is not in the corpus.
        """
        if query.candidates is not None:
            try:
                return self._rows_of(query.candidates)
            except KeyError as error:
                raise UserError(
                    f"candidate {error.args[0]!r} is not a passage of the corpus",
                    code="candidate-not-corpus",
                    where=f"query {query.id}",
                    try_this="index the corpus that these questions were loaded with",
                ) from None
        if query.document_id is not None:
            if query.document_id not in self._documents:
                raise UserError(
                    f"document {query.document_id!r} has no passage in the corpus",
                    code="document-without-passages",
                    where=f"query {query.id}",
                    try_this="index the corpus that these questions were loaded with",
                )
            return self._documents[query.document_id]
        return None

    def _rows_of(self, candidates: Sequence[str]) -> Rows:
        if isinstance(self.corpus, TripleCorpus) and isinstance(candidates, TripleIds):
            return self.corpus.rows_of(candidates).astype(np.int64)
        return np.array([self.corpus.row(identifier) for identifier in dict.fromkeys(candidates)], dtype=np.int64)

    def ranking(self, query: Query, rows: Sequence[int] | Rows, scores: Sequence[float] | NDArray) -> Ranking:
        """Convert rows and scores, best first, to a ranking of passage ids."""
        ids = self.corpus.ids
        return Ranking(query.id, tuple(ids[row] for row in rows), tuple(float(score) for score in scores))


SIGNIFICANT = 40
"""Significant bits of a score, about twelve digits; the lower bits of a float64 depend on rounding in its sums."""


def comparable(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round scores to `SIGNIFICANT` bits, so that scores that are equal in exact arithmetic are equal on any processor."""
    mantissas, exponents = np.frexp(scores)
    return np.ldexp(np.round(np.ldexp(mantissas, SIGNIFICANT)), exponents - SIGNIFICANT)


def best_rows(scores: NDArray, k: int, *, above: float | None = None) -> Rows:
    """Return the positions of the k best scores, best first; ties in order of position, so that a ranking is unique.

    If a query has its own candidates, positions are those among the candidates, because their rows in the corpus depend
    on other questions.

    Args:
        scores: Shape (n,).
        k: Maximum number of positions.
        above: Return only positions whose score is strictly above this.

    Returns:
        Positions in `scores`, shape (≤ k,).

    Raises:
        UserError: A score is NaN.
    """
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    require_numbers(scores)
    if k < len(scores):
        # All passages that tie with the k-th best are kept, so that ties are decided below, not by partition.
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)
    else:
        kept = np.arange(len(scores))
    if above is not None:
        kept = kept[scores[kept] > above]
    return kept[np.argsort(-scores[kept], kind="stable")][:k]


SAMPLE = 10_000
"""Maximum number of passages for measuring truncation, evenly spaced; for a larger corpus the shares are estimates."""
_NOTES = "truncated.json"


def truncation_notes(
    folder: Path | None,
    corpus: Corpus,
    count: Callable[[Sequence[str]], dict[str, Any]],
    texts: Callable[[Passage], Sequence[str]] = lambda passage: [passage.full_text],
) -> dict[str, Any]:
    """Measure how much text an index's encoder truncates; the result is stored with the index.

    Args:
        folder: Folder of the index; None stores nothing.
        corpus: Its passages.
        count: Function that counts as `checks.truncation`.
        texts: Function that returns the encoded texts of a passage.
    """
    path = folder / _NOTES if folder is not None else None
    cut: dict[str, Any] | None = None
    if path is not None:
        with suppress(OSError, ValueError):
            cut = json.loads(path.read_text("utf-8"))
    if cut is None:
        cut = count([text for passage in _sampled(corpus) for text in texts(passage)])
        if path is not None:
            text = json.dumps(cut)
            with suppress(OSError):  # a store that cannot be written to is counted again
                whole(path, lambda partial: partial.write_text(text, "utf-8"))
    return {TRUNCATED: cut} if cut else {}


def _sampled(corpus: Corpus) -> Iterator[Passage]:
    return (corpus[row] for row in range(0, len(corpus), max(1, -(-len(corpus) // SAMPLE))))


_reports: ContextVar[Callable[[int, int], None] | None] = ContextVar("reports", default=None)


@contextmanager
def reporting(report: Callable[[int, int], None]) -> Iterator[None]:
    """Context manager that calls `report(done, total)` with the number of indexed passages while indexes are built in its
    block.
    """
    token = _reports.set(report)
    try:
        yield
    finally:
        _reports.reset(token)


def indexed_so_far(done: int, total: int) -> None:
    """Report the progress of the index being built, if `reporting` is active."""
    if (report := _reports.get()) is not None:
        report(done, total)


def built_once(folder: Path, rows: int, build: Callable[[Path], None]) -> Path:
    """Build an index in a folder unless a complete one exists; returns the folder.

    If several processes call this at once, one builds and the others wait. An interrupted build is repeated;
    `build` may find and use its own unfinished files.

    Args:
        folder: Folder of the index; its name must be a fingerprint of everything that the index depends on.
        rows: Number of passages, compared with that of an existing index.
        build: Function that builds the index in a folder.

    Raises:
        UserError: The folder has an index over another number of passages, or a damaged marker; or the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / MARKER
    with FileLock(str(folder) + ".lock"):
        if not marker.exists():
            try:
                build(folder)
                partial = folder / f"{MARKER}.part"
                partial.write_text(json.dumps({"rows": rows}))
                os.replace(partial, marker)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                advice = "free some space: what is complete is kept, and the same command continues"
                raise unwritable(error, folder, what="the index", try_this=advice) from error
    try:
        result = json.loads(marker.read_text()).get("rows")
    except (ValueError, AttributeError):
        result = None
    if result != rows:
        raise UserError(
            f"the index has {result} passages, but the corpus has {rows}",
            code="index-count-mismatch",
            where=str(folder),
            try_this="delete this folder: it will be built again",
        )
    return folder
