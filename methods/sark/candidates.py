"""The passages that SARK's labels and lists are about: a question's candidates, and negatives from further down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Services
from methods.retrieved import retrieved
from methods.sark.data_config import CandidatesConfig, ExtraConfig


def candidates_of(
    benchmark: Benchmark, questions: Sequence[Question], config: CandidatesConfig, services: Services
) -> dict[str, tuple[str, ...]]:
    """The candidates of questions by their ids, as retrieved; each passage once.

    Raises:
        UserError: The dataset gives no candidates, and no retriever is named to find them.
    """
    if config.source == "retriever":
        return retrieved(benchmark, questions, config.component, config.depth, services)
    if questions and not any(question.candidates for question in questions):
        raise UserError(
            f"{benchmark.reference} gives its questions no candidates", where="candidates.source",
            try_this="candidates: {source: retriever, retriever: bm25}",
        )  # fmt: skip
    return {
        question.id: tuple(dict.fromkeys(question.candidates or ()))[: config.depth] for question in questions
    }  # fmt: skip


def further(
    benchmark: Benchmark,
    questions: Sequence[Question],
    seen: Mapping[str, Sequence[str]],
    config: ExtraConfig,
    services: Services,
) -> dict[str, tuple[str, ...]]:
    """Passages further down that were not tried yet, by question id, the best ranked first."""
    found = retrieved(benchmark, questions, config.component, config.n, services)
    return {one: tuple(p for p in ids if p not in set(seen.get(one, ()))) for one, ids in found.items()}
