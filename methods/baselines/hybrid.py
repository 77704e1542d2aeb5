"""Fuse the rankings of several retrievers by reciprocal rank.

    score(d) = Σ_r 1 / (k + rank_r(d))

The sum is over the retrievers r that found d, with ranks from 1. Ranks are used instead of scores because retrievers have
no common scale. Equal sums are common (first in one and second in the other, and the reverse): they keep the order of the
query's candidates, or of the corpus if it has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services, Usage
from methods.composed import Composed
from methods.flow import in_flight, one, together
from methods.pipeline import RetrieverChoice, RetrieverPart, index_folder
from methods.registry import MethodConfig, register
from methods.retrieval.ranking import best_rows, comparable
from methods.work import Lengths, Needs, Work, all_needs, total


class HybridConfig(MethodConfig):
    """Options of the fusion."""

    retrievers: tuple[RetrieverPart, ...] = Field(
        (RetrieverChoice(id="bm25"), RetrieverChoice(id="dense")),
        min_length=1,
        description="retrievers to fuse; a bare name stands for {id: …}",
    )
    k: float = Field(
        60, gt=0, description="constant k of reciprocal-rank fusion, which lowers the weight of first ranks; Cormack et al. use 60"
    )
    pool: int = Field(100, ge=1, description="passages taken from each retriever (more if more are requested)")

    def preflight(self) -> None:
        """Check every retriever."""
        for part in self.retrievers:
            part.component.preflight()


def _work(config: HybridConfig, lengths: Lengths) -> Work:
    return total(part.component.work(lengths) for part in config.retrievers)


def _needs(config: HybridConfig) -> Needs | None:
    return all_needs(part.component.needs for part in config.retrievers)


@register(
    "hybrid",
    kind="retriever",
    summary="reciprocal-rank fusion of any retrievers; BM25 and MiniLM by default",
    version=2,
    paper="Cormack, Clarke and Buettcher 2009, Reciprocal Rank Fusion",
    extra="models",
    checkpoint_hash=lambda config: fingerprint([part.component.fingerprint for part in config.retrievers]),
    work=_work,
    needs=_needs,
)
class Hybrid:
    """Retriever role: fuses the rankings of several retrievers.

    Args:
        config: Options.
        services: Services for every retriever; their indexes are shared with runs of a single retriever.
    """

    def __init__(self, config: HybridConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._components = [part.component for part in config.retrievers]
        self._retrievers = [component.build(services) for component in self._components]

    def index(self, corpus: Corpus, folder: Path | None = None) -> HybridIndex:
        """Build or reopen the index of every retriever."""
        indexes = []
        for position, (component, retriever) in enumerate(zip(self._components, self._retrievers, strict=True)):
            own = index_folder(component, corpus, self._services)
            if own is None and folder is not None:
                own = folder / f"{position}-{component.id}"
            indexes.append(retriever.index(corpus, own))
        return HybridIndex(self.config, corpus, indexes)


class HybridIndex(Composed):
    """Indexes of the fused retrievers."""

    def __init__(self, config: HybridConfig, corpus: Corpus, indexes: Sequence[Index]) -> None:
        super().__init__(*indexes)
        self._config = config
        self._corpus = corpus
        self._retrieve = [one(index, "retrieve") for index in indexes]
        self.in_flight = in_flight((index, "retrieve") for index in indexes)

    async def retrieve_one(self, query: Query, k: int) -> Ranking:
        """Search with each retriever and fuse the rankings."""
        # The pool does not shrink with k, so that the first five of a ranking do not depend on k.
        pool = max(k, self._config.pool)
        rankings = await together(*(retrieve(query, pool) for retrieve in self._retrieve))
        return fuse(query, rankings, k, self._corpus, self._config.k)


def fuse(query: Query, rankings: Sequence[Ranking], k: int, corpus: Corpus, damping: float) -> Ranking:
    """Fuse rankings by reciprocal rank, and add up their costs.

    Args:
        query: The query.
        rankings: Rankings of passages of the corpus.
        k: Maximum number of passages.
        corpus: Its order breaks ties if the query has no candidates.
        damping: Number added to every rank.
    """
    shares: dict[str, list[float]] = {}
    for ranking in rankings:
        for rank, identifier in enumerate(ranking.ids, start=1):
            shares.setdefault(identifier, []).append(1 / (damping + rank))
    order = corpus.row if query.candidates is None else {identifier: n for n, identifier in enumerate(query.candidates)}.__getitem__
    ids = sorted(shares, key=order)
    scores = comparable(np.array([math.fsum(shares[identifier]) for identifier in ids]))
    best = best_rows(scores, k).tolist()
    usage = sum((ranking.usage for ranking in rankings), Usage())
    notes = {key: value for ranking in rankings for key, value in ranking.notes.items()}
    return Ranking(query.id, tuple(ids[row] for row in best), tuple(scores[best].tolist()), usage, notes)
