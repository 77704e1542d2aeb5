"""Passage-level labels (eq. 1-2): what one passage does to the answer.

| without context | with the passage | label |
| --- | --- | --- |
| Mismatch | Match | 1: it brings what the answer lacked |
| Match | Mismatch | 0: it misleads |
| Match | Match | none |
| Mismatch | Mismatch | none |

So all labels of one question agree: a model that knows the answer finds passages that mislead, one that does not finds
such that help. Answers and verdicts are kept in a file, question by question.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from methods.api import Services
from methods.flow import in_flight, one, together
from methods.sark.answers import Answerer, AnswerRequest, answerer_of, verifier_of
from methods.sark.config import CandidatesConfig, LabelsConfig, SarkDataConfig
from methods.training import Progress, Silent
from methods.training.candidates import Search
from methods.training.journal import Journal, each_once
from methods.training.verdicts import JUDGE, MATCH, MISMATCH, PARTIAL, Verdict, Verifier

Candidates = Callable[[Sequence[Question]], Mapping[str, tuple[str, ...]]]
"""From questions to passages by their ids, as retrieved; each passage once."""


def candidates_of(
    benchmark: Benchmark, questions: Sequence[Question], config: CandidatesConfig, services: Services, *, keep: bool
) -> Candidates:
    """Return the source of the questions' candidates.

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
            code="no-candidates",
            where="candidates.source",
            try_this="candidates: {source: retriever, retriever: bm25}",
        )
    return lambda some: {item.id: tuple(dict.fromkeys(item.candidates or ()))[: config.depth] for item in some}


def further(search: Candidates, questions: Sequence[Question], seen: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Passages further down that were not tried yet, by question id, the best ranked first."""
    result = search(questions)
    return {item: tuple(p for p in ids if p not in set(seen.get(item, ()))) for item, ids in result.items()}


@dataclass(frozen=True, slots=True)
class Attempt:
    """An answer with its verdict.

    Attributes:
        passage_id: The passage that was read; "" for none.
        answer: The answer; None where none came.
        verdict: Match, Partial, Mismatch; None where there is no answer, or the judge's reply could not be used.
        by: What the verdict was reached by; "" where there is no answer.
    """

    passage_id: str
    answer: str | None
    verdict: str | None
    by: str


@dataclass(frozen=True, slots=True)
class Request:
    """A question with the passages that are to be tried, and what a reader may know of it by heart."""

    question: Question
    passages: tuple[Passage, ...]
    memory: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a question.

    Attributes:
        question_id: The question.
        direct: Its answer without context.
        attempts: Those with one passage, in the passages' order; none where the direct one has no verdict that counts.
    """

    question_id: str
    direct: Attempt
    attempts: tuple[Attempt, ...]

    @property
    def came(self) -> bool:
        """Return whether any of its last calls was answered."""
        return any(item.answer is not None for item in self.attempts or (self.direct,))

    @property
    def lasting(self) -> bool:
        """Return whether every call was answered, and every verdict could be read."""
        return all(item.verdict is not None for item in (self.direct, *self.attempts))


def label_of(direct: str | None, augmented: str | None) -> int | None:
    """The label that two verdicts give, None for none.

    Args:
        direct: Of the answer without context.
        augmented: Of the answer with the passage.
    """
    before, after = _two(direct), _two(augmented)
    if before is None or after is None or before == after:
        return None
    return int(after == MATCH)


def _two(verdict: str | None) -> str | None:
    """Return one of the paper's two verdicts: an answer that is right in part counts as wrong."""
    return MISMATCH if verdict == PARTIAL else verdict


class Labeler:
    """Tries passages, and keeps what came of it.

    Args:
        answerer: Answers.
        verifier: Says whether answers are right.
        config: How many negatives are kept.
        seed: Of the draw of negatives.
        path: File of answers and verdicts; None keeps nothing.

    Attributes:
        counts: What became of questions, answers and labels.
    """

    def __init__(self, answerer: Answerer, verifier: Verifier, config: LabelsConfig, seed: int = 0, path: Path | None = None) -> None:
        self._answer, self._in_flight = one(answerer, "answers"), in_flight([(answerer, "answers")])
        self._verifier, self._identity = verifier, (answerer.fingerprint, verifier.fingerprint)
        self._config, self._seed = config, seed
        self._journal = Journal(path) if path is not None else None
        self.counts: Counter[str] = Counter()

    def tried(
        self, requests: Sequence[Request], progress: Progress | None = None, direct: Mapping[str, Attempt] | None = None
    ) -> list[Tried]:
        """Answer every question without context and with each of its passages, and have the answers verified.

        A question with an answer that did not come, or a verdict that could not be read, is asked again next time.

        Args:
            requests: Questions with passages.
            progress: Reports questions.
            direct: Answers without context that are known already, by question id.

        Raises:
            Broke: No call was answered at all, or no further one could be.
        """
        progress = progress or Silent()
        progress.begin("labels of passages", len(requests))
        known = direct or {}
        items = [(item.question.id, fingerprint(*self._identity, *_request_key(item)), item) for item in requests]

        async def program(item: Request) -> Tried:
            return await self._try(item, known.get(item.question.id))

        return each_once(program, items, Tried, self._journal, progress, self._in_flight, "labels")

    def labels(self, tried: Tried, evidence: Collection[str] = (), *, direct: bool = True) -> dict[str, int]:
        """Labels by passage id; counted.

        Args:
            tried: What became of a question.
            evidence: Passages that never mislead: a model that is assumed to know the answer keeps it after reading one.
            direct: Whether its answer without context is counted, too.
        """
        self._count(tried, direct)
        results: dict[str, int] = {}
        for attempt in tried.attempts:
            label = label_of(tried.direct.verdict, attempt.verdict)
            if label == 0 and attempt.passage_id in evidence:
                self.counts["evidence_that_would_mislead"] += 1
            elif label is not None:
                results[attempt.passage_id] = label
        return results

    def answers_right(self, tried: Tried) -> bool:
        """Return whether a question is answered right without context: then passages may mislead."""
        return _two(tried.direct.verdict) == MATCH

    def few_negatives(self, question: str, labels: dict[str, int]) -> dict[str, int]:
        """All labels of a question, with no more negatives than `most_negatives`; counted.

        Args:
            question: Its id.
            labels: All that it has, wherever their passages come from.
        """
        most = self._config.most_negatives
        negatives = [passage for passage, label in labels.items() if label == 0]
        if most is None or len(negatives) <= most:
            return labels
        kept = set(Draws("negatives", self._seed, question).sample(negatives, most))
        self.counts["negatives_left_out"] += len(negatives) - most
        return {passage: label for passage, label in labels.items() if label or passage in kept}

    def taken_counts(self) -> Counter[str]:
        """The counts since they were last taken."""
        counts, self.counts = self.counts, Counter()
        return counts

    async def _try(self, request: Request, known: Attempt | None) -> Tried:
        verdicts: dict[str, asyncio.Future[Verdict]] = {}

        async def attempt(passage: Passage | None) -> Attempt:
            identifier = "" if passage is None else passage.id
            answer = await self._answer(AnswerRequest(request.question, passage, request.memory))
            if answer is None:
                return Attempt(identifier, None, None, "")
            # The judge sees an answer to a question once.
            if answer not in verdicts:
                verdicts[answer] = asyncio.ensure_future(self._verifier.verdict(request.question, answer))
            verdict = await verdicts[answer]
            return Attempt(identifier, answer, verdict.verdict, verdict.by)

        direct = known or await attempt(None)
        # Where the first answer has no verdict that counts, no passage can have a label: nothing more is asked.
        if _two(direct.verdict) is None:
            return Tried(request.question.id, direct, ())
        return Tried(request.question.id, direct, tuple(await together(*map(attempt, request.passages))))

    def _count(self, tried: Tried, direct: bool) -> None:
        counts = self.counts
        counts["questions_tried"] += 1
        before = _two(tried.direct.verdict)
        if direct:
            counts[f"direct: {tried.direct.verdict or _why(tried.direct)}"] += 1
        for item in tried.attempts:
            after = _two(item.verdict)
            counts[f"{before}, then {after if after else (item.verdict or _why(item))}"] += 1
        for item in (tried.direct, *tried.attempts) if direct else tried.attempts:
            if item.by:
                counts[f"verdicts by {item.by}"] += 1


def _why(attempt: Attempt) -> str:
    return "unscored" if attempt.by == JUDGE else "no answer"


def _request_key(request: Request) -> tuple[Any, ...]:
    """All of a request that decides what comes of it."""
    question = request.question
    return (
        question.id,
        question.text,
        list(question.golds),
        question.answer_set,
        [passage.id for passage in request.passages],
        [passage.id for passage in request.memory],
    )


FURTHER = "further: "
"""Before the names of counts that are about passages from further down."""


class Labeling:
    """Labels the questions of a benchmark, all at once or some at a time.

    Args:
        config: Who answers and verifies.
        benchmark: The formal data.
        services: Judge, cache of replies, device.
        folder: Where answers are kept.
        counts: Counts what became of questions.

    Raises:
        UserError: A judge is wanted and none is provided, or a model cannot be loaded.
    """

    def __init__(self, config: SarkDataConfig, benchmark: Benchmark, services: Services, folder: Path, counts: Counter[str]) -> None:
        self._options, self._benchmark, self._counts = config.labels, benchmark, counts
        options = config.labels
        answerer, verifier = answerer_of(options, services, config.seed), verifier_of(options, services.judge)

        def labeler(name: str) -> Labeler:
            return Labeler(answerer, verifier, options, config.seed, folder / f"{name}.jsonl")

        self._first, self._second = labeler("labels"), labeler("further")
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
            progress: Reports questions.

        Raises:
            Broke: A model that is needed cannot be used.
        """
        first = self._first
        tried = first.tried([self._request(question, candidates[question.id]) for question in questions], progress)
        known = {question.id: question.evidence if self._options.known else () for question in questions}
        labels = {item.question_id: first.labels(item, known[item.question_id]) for item in tried}
        if self._options.extra is not None and self._search is not None:
            right = {item.question_id: item.direct for item in tried if first.answers_right(item)}
            queries = [question for question in questions if question.id in right]
            below = further(self._search, queries, candidates)
            for identifier, result in self._further(queries, below, right, progress).items():
                labels[identifier] |= result
        bounded = {identifier: first.few_negatives(identifier, result) for identifier, result in labels.items()}
        self._counts.update(first.taken_counts())
        self._counts.update({f"{FURTHER}{name}": n for name, n in self._second.taken_counts().items()})
        return bounded

    def _further(
        self, questions: Sequence[Question], below: Mapping[str, Sequence[str]], right: Mapping[str, Attempt], progress: Progress
    ) -> dict[str, dict[str, int]]:
        """The negatives from further down, by question id."""
        requests = [self._request(question, below[question.id]) for question in questions]
        labels = {}
        for item in self._second.tried(requests, progress, right):
            labels[item.question_id] = self._misleading(item)
            self._counts["further_passages"] += len(item.attempts)
            self._counts["further_negatives"] += len(labels[item.question_id])
        return labels

    def _misleading(self, tried: Tried) -> dict[str, int]:
        # The answer without context was counted with the candidates.
        labels = self._second.labels(tried, direct=False)
        return {passage: label for passage, label in labels.items() if label == 0}

    def _request(self, question: Question, passages: Sequence[str]) -> Request:
        corpus = self._benchmark.corpus
        memory: list[Passage] = corpus.get(fromkey for fromkey in dict.fromkeys(question.evidence) if fromkey in corpus)
        return Request(question, tuple(corpus.get(passages)), tuple(memory))
