"""The labels of a benchmark's questions: its candidates tried, and further down what misleads whoever knows better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from methods.api import Services
from methods.retrieved import Search
from methods.sark.answers import answerer_of
from methods.sark.candidates import further
from methods.sark.data_config import ExtraConfig, SarkDataConfig
from methods.sark.labels import Attempt, Labeller, Request, Tried
from methods.sark.verify import verifier_of
from methods.training import Progress

FURTHER = "further: "
"""Before the names of counts that are about passages from further down."""


class Labelling:
    """Labels the questions of a benchmark, all at once or some at a time.

    Args:
        config: Who answers and verifies.
        benchmark: The formal data.
        services: Judge, cache of replies, device.
        folder: Where answers are kept.
        counts: Told what became of questions.

    Raises:
        UserError: A judge is wanted and none is lent, or a model cannot be loaded.
    """

    def __init__(self, config: SarkDataConfig, benchmark: Benchmark, services: Services, folder: Path, counts: Counter[str]) -> None:
        self._options, self._benchmark, self._counts = config.labels, benchmark, counts
        options = config.labels
        answerer, verifier = answerer_of(options, services, config.seed), verifier_of(options, services.judge)

        def labeller(name: str) -> Labeller:
            return Labeller(answerer, verifier, options, config.seed, folder / f"{name}.jsonl")

        self._first, self._second = labeller("labels"), labeller("further")
        self._search: Search | None = None
        if options.extra is not None:
            keep = config.rows is not None
            self._search = Search(benchmark, options.extra.component, options.extra.n, services, keep=keep)

    def labels(
        self, questions: Sequence[Question], candidates: Mapping[str, Sequence[str]], progress: Progress
    ) -> dict[str, dict[str, int]]:
        """Labels by passage, by question id.

        Args:
            questions: Those that are tried.
            candidates: The passages that each is tried with.
            progress: Told of questions.

        Raises:
            Broke: A model that is needed cannot be used.
        """
        first = self._first
        tried = first.tried([self._request(one, candidates[one.id]) for one in questions], progress)
        known = {one.id: one.evidence if self._options.known else () for one in questions}
        labels = {one.question_id: first.labels(one, known[one.question_id]) for one in tried}
        if self._options.extra is not None and self._search is not None:
            right = {one.question_id: one.direct for one in tried if first.answers_right(one)}
            asked = [one for one in questions if one.id in right]
            below = further(self._search, asked, candidates)
            for identifier, found in self._further(asked, below, right, self._options.extra, progress).items():
                labels[identifier] |= found
        bounded = {identifier: first.few_negatives(identifier, found) for identifier, found in labels.items()}
        self._counts.update(first.taken_counts())
        self._counts.update({f"{FURTHER}{name}": n for name, n in self._second.taken_counts().items()})
        return bounded

    def _further(
        self,
        questions: Sequence[Question],
        below: Mapping[str, Sequence[str]],
        right: Mapping[str, Attempt],
        extra: ExtraConfig,
        progress: Progress,
    ) -> dict[str, dict[str, int]]:
        """The negatives from further down, by question id."""
        requests = [self._request(one, below[one.id]) for one in questions]
        labels = {}
        for one in self._second.tried(requests, progress, right):
            labels[one.question_id] = self._misleading(one, extra.most)
            self._counts["further_passages"] += len(one.attempts)
            self._counts["further_negatives"] += len(labels[one.question_id])
        return labels

    def _misleading(self, tried: Tried, most: int | None) -> dict[str, int]:
        # The answer without context was counted with the candidates.
        labels = self._second.labels(tried, direct=False)
        return dict([(passage, label) for passage, label in labels.items() if label == 0][:most])

    def _request(self, question: Question, passages: Sequence[str]) -> Request:
        corpus = self._benchmark.corpus
        memory: list[Passage] = corpus.get(one for one in dict.fromkeys(question.evidence) if one in corpus)
        return Request(question, tuple(corpus.get(passages)), tuple(memory))
