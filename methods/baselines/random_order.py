"""Random ranking: the floor that every retriever must clear."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.corpus import Corpus
from benchmarks.fingerprint import content_hash
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.ranking import Scope
from methods.registry import MethodConfig, register


@register("random", kind="retriever", summary="passages in random order, seeded per query")
class Random:
    """Retriever that draws.

    Args:
        config: No options.
        services: Lends the seed.
    """

    def __init__(self, config: MethodConfig, services: Services) -> None:
        self.seed = services.seed

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Nothing to build."""
        return RandomIndex(corpus, self.seed)


class RandomIndex:
    """Draws without replacement; the generator is seeded by the task's seed and the query's id."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self._scope = Scope(corpus)
        self._size = len(corpus)
        self._seed = seed

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Draw k passages per query."""
        return [self._draw(query, k) for query in queries]

    def _draw(self, query: Query, k: int) -> Ranking:
        generator = np.random.default_rng(int(content_hash([str(self._seed), query.id]), 16))
        rows = self._scope.rows(query)
        size = self._size if rows is None else len(rows)
        drawn = generator.choice(size, min(k, size), replace=False)
        if rows is not None:
            # Candidates are drawn from in corpus order, so that how a benchmark lists them changes nothing.
            drawn = np.sort(rows)[drawn]
        return self._scope.ranking(query, drawn, 1 / np.arange(1, len(drawn) + 1))
