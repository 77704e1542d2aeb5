"""Closed book: the reader gets the question and nothing else, whatever the setting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.registry import MethodConfig, register


@register("no_retrieval", kind="retriever", summary="closed book: the reader answers from what it knows")
class NoRetrieval:
    """Retriever that finds nothing."""

    def __init__(self, config: MethodConfig, services: Services) -> None:
        pass

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Nothing to build."""
        return EmptyIndex()


class EmptyIndex:
    """An index without passages."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """One empty ranking per query."""
        return [Ranking(query.id, (), ()) for query in queries]
