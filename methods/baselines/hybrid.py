"""Hybrid retrieval: several rankings fused by reciprocal rank.

    score(d) = Σ_r 1 / (k + rank_r(d))

over the retrievers r that found d, ranks from 1. Ranks, not scores, so that retrievers need no common scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from benchmarks.corpus import Corpus
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.pipeline import index_folder
from methods.registry import Component, MethodConfig, register


class Part(BaseModel):
    """One of the retrievers to fuse."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    config: dict[str, Any] = Field(default_factory=dict)

    @property
    def component(self) -> Component:
        """The retriever with validated options."""
        return Component.of(self.id, self.config)


class HybridConfig(MethodConfig):
    """Options of the fusion."""

    retrievers: tuple[Part, ...] = Field(
        (Part(id="bm25"), Part(id="dense")), min_length=1, description="what to fuse; a bare name stands for {id: …}"
    )
    k: float = Field(60, gt=0, description="damps the weight of first ranks; Cormack et al. use 60")
    pool: int = Field(100, ge=1, description="passages taken from each retriever (more where more are asked for)")

    @field_validator("retrievers", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [{"id": item} if isinstance(item, str) else item for item in value]
        return value

    @field_validator("retrievers")
    @classmethod
    def _are_retrievers(cls, value: tuple[Part, ...]) -> tuple[Part, ...]:
        for part in value:
            if (kind := part.component.entry.kind) != "retriever":
                raise ValueError(f"{part.id!r} is a {kind}, not a retriever")
        return value

    def preflight(self) -> None:
        """Check every retriever."""
        for part in self.retrievers:
            part.component.preflight()


@register(
    "hybrid",
    kind="retriever",
    summary="reciprocal-rank fusion of any retrievers; BM25 and MiniLM by default",
    config=HybridConfig,
    paper="Cormack, Clarke and Buettcher 2009, Reciprocal Rank Fusion",
    extra="models",
    checkpoint_hash=lambda config: fingerprint([part.component.fingerprint for part in config.retrievers]),
)
class Hybrid:
    """Retriever that fuses others.

    Args:
        config: Options.
        services: Handed to every retriever; their indexes are shared with runs of each alone.
    """

    def __init__(self, config: HybridConfig, services: Services) -> None:
        self.config = config
        self._services = services
        self._components = [part.component for part in config.retrievers]
        self._retrievers = [component.build(services) for component in self._components]

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Build or reopen the index of every retriever."""
        indexes = []
        for place, (component, retriever) in enumerate(zip(self._components, self._retrievers, strict=True)):
            own = index_folder(component, corpus, self._services)
            if own is None and folder is not None:
                own = folder / f"{place}-{component.id}"
            indexes.append(retriever.index(corpus, own))
        return HybridIndex(self.config, corpus, indexes)


class HybridIndex:
    """Indexes whose rankings are fused."""

    def __init__(self, config: HybridConfig, corpus: Corpus, indexes: Sequence[Index]) -> None:
        self._config = config
        self._corpus = corpus
        self._indexes = indexes

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Retrieve with each and fuse."""
        # The pool does not shrink with k, so that the first five of a hundred are the five of five.
        pool = max(k, self._config.pool)
        runs = [index.retrieve(queries, pool) for index in self._indexes]
        return [self._fuse(query, rankings, k) for query, *rankings in zip(queries, *runs, strict=True)]

    def _fuse(self, query: Query, rankings: Sequence[Ranking], k: int) -> Ranking:
        fused: dict[str, float] = {}
        for ranking in rankings:
            for rank, identifier in enumerate(ranking.ids, start=1):
                fused[identifier] = fused.get(identifier, 0.0) + 1 / (self._config.k + rank)
        # Equal scores are common here (first in one, first in the other): corpus order decides.
        best = sorted(fused, key=lambda identifier: (-fused[identifier], self._corpus.row(identifier)))[:k]
        return Ranking(query.id, tuple(best), tuple(fused[identifier] for identifier in best))
