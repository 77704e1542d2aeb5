"""Retrieve passages for training questions: candidates of training rows, and hard negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.registry import Benchmark
from benchmarks.schema import Query, Question
from benchmarks.text import has_answer
from methods.api import Index, Services
from methods.flow import each
from methods.pipeline import index_folder
from methods.registry import Component


class Search:
    """Retrieval over a benchmark's whole corpus, or over each question's own candidates.

    Args:
        benchmark: Benchmark with the corpus.
        retriever: The retriever.
        n: Maximum passages per question.
        services: Services; device and index folder are used.
        keep: Whether to keep the index in memory between calls.
        own: Whether to search only a question's own candidates, if it has some.
    """

    def __init__(
        self, benchmark: Benchmark, retriever: Component, n: int, services: Services, *, keep: bool = False, own: bool = False
    ) -> None:
        self._benchmark, self._retriever, self._n = benchmark, retriever, n
        self._services, self._keep, self._own = services, keep, own
        self._index: Index | None = None

    def __call__(self, questions: Sequence[Question]) -> dict[str, tuple[str, ...]]:
        """Return the results by question id, best first."""
        if not questions:
            return {}
        index = self._index or self._opened()
        if self._keep:
            self._index = index
        # Without its candidates a question is asked over the whole corpus.
        queries = [question.query() if self._own else Query(question.query_id, question.text) for question in questions]
        rankings = each(index, "retrieve", queries, self._n)
        return {question.id: ranking.ids for question, ranking in zip(questions, rankings, strict=True)}

    def _opened(self) -> Index:
        retriever, corpus, services = self._retriever, self._benchmark.corpus, self._services
        index: Index = retriever.build(services).index(corpus, index_folder(retriever, corpus, services))
        return index


def retrieved(
    benchmark: Benchmark, questions: Sequence[Question], retriever: Component, n: int, services: Services
) -> dict[str, tuple[str, ...]]:
    """Retrieve passages from the whole corpus for each question; returns passage ids by question id."""
    return Search(benchmark, retriever, n, services)(questions)


@dataclass(frozen=True, slots=True)
class Mined:
    """Training question with its positives and two groups of negatives: near ones, which are drawn first, and others."""

    id: str
    question: str
    positives: tuple[str, ...]
    near: tuple[str, ...]
    others: tuple[str, ...]


def mined(benchmark: Benchmark, n: int, own: bool, answers: bool, services: Services) -> list[Mined]:
    """Collect the questions of a benchmark that have at least one positive and one negative.

    Args:
        benchmark: Benchmark with text passages.
        n: Maximum negatives that BM25 retrieves from the whole corpus.
        own: Whether the other candidates of a question are its near negatives.
        answers: Whether passages that contain an answer may be negatives.
        services: Services; the index folder is used.
    """
    corpus = benchmark.corpus
    questions = [question for question in benchmark.questions if any(item in corpus for item in question.evidence)]
    retrieved_ids = retrieved(benchmark, questions, Component.of("bm25"), n, services)
    result = []
    for question in questions:
        right = tuple(passage.full_text for passage in corpus.get([item for item in question.evidence if item in corpus]))
        taken = set(right)

        def texts(ids: Sequence[str], taken: set[str] = taken, golds: Sequence[str] = question.answers) -> tuple[str, ...]:
            wrong = [passage.full_text for passage in corpus.get(ids) if passage.full_text not in taken]
            taken.update(wrong)
            return tuple(wrong) if answers else tuple(text for text in wrong if not has_answer(text, golds))

        near = texts(question.candidates or ()) if own else ()
        row = Mined(question.id, question.text, right, near, texts(retrieved_ids[question.id]))
        if row.near or row.others:
            result.append(row)
    return result
