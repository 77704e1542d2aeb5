"""What a retriever finds for questions in a whole corpus: candidates of training rows."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.registry import Benchmark
from benchmarks.schema import Query, Question
from methods.api import Services
from methods.pipeline import index_folder
from methods.registry import Component


def retrieved(
    benchmark: Benchmark, questions: Sequence[Question], retriever: Component, n: int, services: Services
) -> dict[str, tuple[str, ...]]:
    """What a retriever finds in the whole corpus, by question id."""
    if not questions:
        return {}
    index = retriever.build(services).index(benchmark.corpus, index_folder(retriever, benchmark.corpus, services))
    # Without its candidates a question is asked over the whole corpus.
    queries = [Query(question.query_id, question.text) for question in questions]
    rankings = index.retrieve(queries, n)
    return {question.id: ranking.ids for question, ranking in zip(questions, rankings, strict=True)}
