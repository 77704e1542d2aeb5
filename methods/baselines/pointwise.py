"""What rerankers share that score each candidate by itself: how scores become a ranking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking
from methods.registry import MethodConfig


class PointwiseConfig(MethodConfig):
    """How far down to rerank."""

    depth: int | None = Field(None, ge=1, description="candidates to rerank, the rest following in their order; null: all. SARK: 50")


class PointwiseReranker(ABC):
    """Reranker that gives each candidate a score and sorts.

    Args:
        depth: Candidates to score; None: all.
    """

    def __init__(self, depth: int | None) -> None:
        self.depth = depth

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        """Order candidates by score; equal scores keep the order they came in."""
        return [
            reordered(query, ranking, self.scores(query, ranking.ids[: self.depth], corpus))
            for query, ranking in zip(queries, rankings, strict=True)
        ]

    @abstractmethod
    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """How well each candidate fits the query: shape (candidates,)."""


def reordered(query: Query, ranking: Ranking, scores: NDArray[np.floating]) -> Ranking:
    """A ranking whose first candidates are sorted by score, the rest following as they stand.

    Args:
        query: Whose.
        ranking: The candidates.
        scores: Of the first of them, in their order: shape (≤ candidates,).
    """
    order = np.argsort(-scores, kind="stable").tolist()
    rest = ranking.ids[len(order) :]
    # What was not read stands below what was; only the order of scores means anything.
    floor = float(scores.min()) if len(order) else 0.0
    below = (floor - place for place in range(1, len(rest) + 1))
    ids = (*(ranking.ids[place] for place in order), *rest)
    return Ranking(query.id, ids, (*(float(scores[place]) for place in order), *below))
