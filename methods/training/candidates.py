"""What a retriever finds for questions in a whole corpus: candidates of training rows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.registry import Benchmark
from benchmarks.schema import Query, Question
from methods.api import Index, Services
from methods.flow import each
from methods.pipeline import index_folder
from methods.registry import Component


class Search:
    """A retriever over a benchmark's whole corpus.

    Args:
        benchmark: With the corpus.
        retriever: What searches.
        n: Most passages of a question.
        services: Device, folder of indexes.
        keep: Whether the index stays in memory between two calls; else it is opened for each.
    """

    def __init__(self, benchmark: Benchmark, retriever: Component, n: int, services: Services, *, keep: bool = False) -> None:
        self._benchmark, self._retriever, self._n = benchmark, retriever, n
        self._services, self._keep = services, keep
        self._index: Index | None = None

    def __call__(self, questions: Sequence[Question]) -> dict[str, tuple[str, ...]]:
        """What is found, by question id, the best ranked first."""
        if not questions:
            return {}
        index = self._index or self._opened()
        if self._keep:
            self._index = index
        # Without its candidates a question is asked over the whole corpus.
        queries = [Query(question.query_id, question.text) for question in questions]
        rankings = each(index, "retrieve", queries, self._n)
        return {question.id: ranking.ids for question, ranking in zip(questions, rankings, strict=True)}

    def _opened(self) -> Index:
        retriever, corpus, services = self._retriever, self._benchmark.corpus, self._services
        index: Index = retriever.build(services).index(corpus, index_folder(retriever, corpus, services))
        return index


def retrieved(
    benchmark: Benchmark, questions: Sequence[Question], retriever: Component, n: int, services: Services
) -> dict[str, tuple[str, ...]]:
    """What a retriever finds in the whole corpus, by question id."""
    return Search(benchmark, retriever, n, services)(questions)
