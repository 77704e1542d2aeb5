"""The labels of a benchmark's questions: its candidates tried, and further down what misleads whoever knows better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from methods.api import Services
from methods.sark.answers import answerer_of
from methods.sark.candidates import further
from methods.sark.data_config import SarkDataConfig
from methods.sark.labels import Labeller, Request, Tried
from methods.sark.verify import verifier_of
from methods.training import Progress


def labels_of(
    config: SarkDataConfig,
    benchmark: Benchmark,
    questions: Sequence[Question],
    candidates: Mapping[str, Sequence[str]],
    services: Services,
    folder: Path,
    progress: Progress,
    counts: Counter[str],
) -> dict[str, dict[str, int]]:
    """Labels by passage, by question id.

    Args:
        config: Who answers and verifies.
        benchmark: The formal data.
        questions: Those that are tried.
        candidates: The passages that each is tried with.
        services: Judge, cache of replies, device.
        folder: Where answers are kept.
        progress: Told of questions.
        counts: Told what became of them.

    Raises:
        UserError: A judge is wanted and none is lent, or a model cannot be loaded.
        Broke: A model that is needed cannot be used.
    """
    options = config.labels
    answerer, verifier = answerer_of(options, services, config.seed), verifier_of(options, services.judge)

    def labeller(name: str) -> Labeller:
        return Labeller(answerer, verifier, options, config.seed, folder / f"{name}.jsonl")

    first = labeller("labels")
    requests = [_request(benchmark, one, candidates[one.id]) for one in questions]
    tried = first.tried(requests, progress)
    known = {one.id: one.evidence if options.known else () for one in questions}
    labels = {one.question_id: first.labels(one, known[one.question_id]) for one in tried}
    counts.update(first.counts)
    if options.extra is None:
        return labels
    right = {one.question_id: one.direct for one in tried if first.answers_right(one)}
    asked = [one for one in questions if one.id in right]
    below = further(benchmark, asked, candidates, options.extra, services)
    second = labeller("further")
    for one in second.tried([_request(benchmark, q, below[q.id]) for q in asked], progress, right):
        found = _misleading(second, one, options.extra.most)
        labels[one.question_id] |= found
        counts["further_passages"] += len(one.attempts)
        counts["further_negatives"] += len(found)
    return labels


def _misleading(labeller: Labeller, tried: Tried, most: int | None) -> dict[str, int]:
    labels = labeller.labels(tried)
    return dict([(passage, label) for passage, label in labels.items() if label == 0][:most])


def _request(benchmark: Benchmark, question: Question, passages: Sequence[str]) -> Request:
    corpus = benchmark.corpus
    memory: list[Passage] = corpus.get(one for one in dict.fromkeys(question.evidence) if one in corpus)
    return Request(question, tuple(corpus.get(passages)), tuple(memory))
