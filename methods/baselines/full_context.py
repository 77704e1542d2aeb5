"""Full context: the reader gets every candidate, or the whole document, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.ranking import Scope
from methods.registry import MethodConfig, register


@register("full_context", kind="retriever", summary="all candidates, or the whole document, in their order")
class FullContext:
    """Retriever that leaves nothing out."""

    reads_all = True
    """Read by the pipeline: unless an experiment says otherwise, the reader gets the whole ranking."""

    def __init__(self, config: MethodConfig, services: Services) -> None:
        pass

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Nothing to build."""
        return FullContextIndex(corpus)


class FullContextIndex:
    """A corpus of which each query gets its whole share."""

    def __init__(self, corpus: Corpus) -> None:
        self._scope = Scope(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """The candidates, or the document's passages, in their order.

        Raises:
            UserError: A query has neither: a whole corpus is no context.
        """
        return [self._all(query, k) for query in queries]

    def _all(self, query: Query, k: int) -> Ranking:
        rows = self._scope.rows(query)
        if rows is None:
            raise UserError(
                "full_context needs candidates or a document: a whole corpus is no context",
                where=f"query {query.id}",
                try_this="use the setting distractor, gold_only, oracle or document, or a retriever such as bm25",
            )
        return self._scope.ranking(query, rows[:k], [1 / rank for rank in range(1, len(rows[:k]) + 1)])
