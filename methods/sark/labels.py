"""Passage-level labels (eq. 1-2): the effect of one passage on the correctness of the answer.

| without context | with the passage | label |
| --- | --- | --- |
| Mismatch | Match | 1: it brings what the answer lacked |
| Match | Mismatch | 0: it misleads |
| Match | Match | none |
| Mismatch | Mismatch | none |

All labels of one question are therefore equal: if the model knows the answer, passages can only mislead; otherwise they can
only help. Answers and verdicts are saved in a file by question.
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
"""Function from questions to their candidate passage ids, in retrieval order."""


def candidates_of(
    benchmark: Benchmark, questions: Sequence[Question], config: CandidatesConfig, services: Services, *, keep: bool
) -> Candidates:
    """Return the source of the questions' candidates: their own, or a retriever's.

    Args:
        benchmark: Benchmark with the corpus.
        questions: All questions that may be requested.
        config: Options of the source.
        services: Services: device, index folder.
        keep: Whether to keep the index in memory, for requests in small batches.

    Raises:
        UserError: The dataset has no candidates, and no retriever is configured.
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
    """Return lower-ranked passages that were not tried yet, best first, by question id."""
    result = search(questions)
    return {item: tuple(p for p in ids if p not in set(seen.get(item, ()))) for item, ids in result.items()}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A generated answer with its verdict.

    Attributes:
        passage_id: Passage that was used; "" for none.
        answer: The answer; None if the call failed.
        verdict: Match, Partial or Mismatch; None without an answer, or if the judge's reply could not be parsed.
        by: Source of the verdict; "" without an answer.
    """

    passage_id: str
    answer: str | None
    verdict: str | None
    by: str


@dataclass(frozen=True, slots=True)
class Request:
    """A question with passages to try, and evidence that a simulated reader may know."""

    question: Question
    passages: tuple[Passage, ...]
    memory: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """Answers and verdicts of a question.

    Attributes:
        question_id: Id of the question.
        direct: Attempt without context.
        attempts: Attempts with one passage each, in order; empty if the direct attempt has no usable verdict.
    """

    question_id: str
    direct: Attempt
    attempts: tuple[Attempt, ...]

    @property
    def came(self) -> bool:
        """Return whether any of the last calls got a reply."""
        return any(item.answer is not None for item in self.attempts or (self.direct,))

    @property
    def lasting(self) -> bool:
        """Return whether all calls succeeded and all verdicts are known, so that the result is final."""
        return all(item.verdict is not None for item in (self.direct, *self.attempts))


def label_of(direct: str | None, augmented: str | None) -> int | None:
    """Return the label (1, 0 or None) from two verdicts.

    Args:
        direct: Verdict on the answer without context.
        augmented: Verdict on the answer with the passage.
    """
    before, after = _two(direct), _two(augmented)
    if before is None or after is None or before == after:
        return None
    return int(after == MATCH)


def _two(verdict: str | None) -> str | None:
    """Reduce a verdict to the paper's two: a partially correct answer counts as wrong."""
    return MISMATCH if verdict == PARTIAL else verdict


class Labeler:
    """Computes labels by trying passages, and saves answers and verdicts.

    Args:
        answerer: Model that answers.
        verifier: Checks answers.
        config: Options, including the maximum number of negatives.
        seed: Random seed for choosing negatives.
        path: File of answers and verdicts; None saves nothing.

    Attributes:
        counts: Number of questions, answers and labels by outcome.
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
        """Generate and verify answers without context and with each passage.

        Questions with failed calls or unparsed verdicts are retried next time.

        Args:
            requests: Questions with passages.
            progress: Progress display.
            direct: Known answers without context, by question id.

        Raises:
            Broke: All calls failed, or no further call could succeed.
        """
        progress = progress or Silent()
        progress.begin("labels of passages", len(requests))
        known = direct or {}
        items = [(item.question.id, fingerprint(*self._identity, *_request_key(item)), item) for item in requests]

        async def program(item: Request) -> Tried:
            return await self._try(item, known.get(item.question.id))

        return each_once(program, items, Tried, self._journal, progress, self._in_flight, "labels")

    def labels(self, tried: Tried, evidence: Collection[str] = (), *, direct: bool = True) -> dict[str, int]:
        """Return a question's labels by passage id, and count them.

        Args:
            tried: Answers and verdicts of the question.
            evidence: Evidence passages, which never get label 0.
            direct: Whether to count the answer without context, too.
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
        """Return whether the answer without context is correct, so that passages can mislead."""
        return _two(tried.direct.verdict) == MATCH

    def few_negatives(self, question: str, labels: dict[str, int]) -> dict[str, int]:
        """Limit a question's labels to at most `most_negatives` negatives, and count them.

        Args:
            question: Id of the question.
            labels: All labels of the question.
        """
        return few_negatives(question, labels, self._config.most_negatives, self._seed, self.counts)

    def taken_counts(self) -> Counter[str]:
        """Return the counts since the last call of this function, and reset them."""
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
    """Return everything in a request that determines its result."""
    question = request.question
    return (
        question.id,
        question.text,
        list(question.golds),
        question.answer_set,
        [passage.id for passage in request.passages],
        [passage.id for passage in request.memory],
    )


def few_negatives(question: str, labels: dict[str, int], most: int | None, seed: int, counts: Counter[str]) -> dict[str, int]:
    """Limit a question's labels to at most `most` negatives (None: all), sampled with the seed; count the others."""
    negatives = [passage for passage, label in labels.items() if label == 0]
    if most is None or len(negatives) <= most:
        return labels
    kept = set(Draws("negatives", seed, question).sample(negatives, most))
    counts["negatives_left_out"] += len(negatives) - most
    return {passage: label for passage, label in labels.items() if label or passage in kept}


class EvidenceLabeling:
    """Labels the questions' passages from gold evidence, without a model: 1 for evidence, 0 for other passages.

    Args:
        config: Options of the labels.
        counts: Counter of questions by outcome.
    """

    def __init__(self, config: SarkDataConfig, counts: Counter[str]) -> None:
        self._most, self._seed, self._counts = config.labels.most_negatives, config.seed, counts

    def labels(
        self, questions: Sequence[Question], candidates: Mapping[str, Sequence[str]], progress: Progress
    ) -> dict[str, dict[str, int]]:
        """Return labels by question id and passage id; questions without evidence among the candidates have none."""
        results = {}
        for question in questions:
            evidence = set(question.evidence)
            labels = {passage: int(passage in evidence) for passage in candidates[question.id]}
            if not any(labels.values()):
                self._counts["questions_without_evidence_to_label"] += 1
                labels = {}
            results[question.id] = few_negatives(question.id, labels, self._most, self._seed, self._counts)
        return results


FURTHER = "further: "
"""Prefix of counts about lower-ranked passages."""


class Labeling:
    """Labels the questions of a benchmark, all at once or in batches.

    Args:
        config: Options of answering and verification.
        benchmark: Benchmark with formal passages.
        services: Services: judge, reply cache, device.
        folder: Folder for answers.
        counts: Counter of questions by outcome.

    Raises:
        UserError: A judge is required but not provided, or a model cannot be loaded.
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
        """Return labels by question id and passage id.

        Args:
            questions: Questions to label.
            candidates: Candidate passages by question.
            progress: Progress display.

        Raises:
            Broke: A required model cannot be called.
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
        """Return additional negatives from lower ranks, by question id."""
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
