"""The passages that SARK's labels and lists are about: a question's candidates, and negatives from further down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Services
from methods.retrieved import Search
from methods.sark.data_config import CandidatesConfig

Candidates = Callable[[Sequence[Question]], Mapping[str, tuple[str, ...]]]
"""From questions to passages by their ids, as retrieved; each passage once."""


def candidates_of(
    benchmark: Benchmark, questions: Sequence[Question], config: CandidatesConfig, services: Services, *, keep: bool
) -> Candidates:
    """What gives questions their candidates.

    Args:
        benchmark: The data.
        questions: All that may be asked for.
        config: Where candidates come from.
        services: Device, folder of indexes.
        keep: Whether an index stays in memory, as it should where questions are asked for a few at a time.

    Raises:
        UserError: The dataset gives no candidates, and no retriever is named to find them.
    """
    if config.source == "retriever":
        return Search(benchmark, config.component, config.depth, services, keep=keep)
    if questions and not any(question.candidates for question in questions):
        raise UserError(
            f"{benchmark.reference} gives its questions no candidates",
            where="candidates.source",
            try_this="candidates: {source: retriever, retriever: bm25}",
        )
    return lambda some: {one.id: tuple(dict.fromkeys(one.candidates or ()))[: config.depth] for one in some}


def further(search: Candidates, questions: Sequence[Question], seen: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Passages further down that were not tried yet, by question id, the best ranked first."""
    found = search(questions)
    return {one: tuple(p for p in ids if p not in set(seen.get(one, ()))) for one, ids in found.items()}
