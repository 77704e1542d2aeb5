"""`validate`: a card, a stream of rows and a benchmark in; a report out. Nothing is written anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from benchmarks.clusters import Sampled
from benchmarks.core.fingerprint import LENGTH, content_hash, fingerprint
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import PAGES, Question, triple_id
from benchmarks.settings import Setting
from judges.metric import Metric, QuestionGraphs, Scores
from judges.metric import parse as parse_metric
from judges.score import check_invariants, score
from methods.api import ANSWERABLE, FAILED, SUPPORT, TRIPLES, Prediction, outside_of, support_claims
from results.contexts import Matcher, outside, reading
from results.offered import LIMITS, Limits
from results.submission import NO_ANSWER, NOT_IN_FILE, Findings, Report, shown
from results.submission.card import Card
from results.submission.leakage import WORLDS, LoadTraining, Prompted, check_prompts, contamination
from results.submission.plausible import Answered, LoadRuns, check_plausible
from results.submission.reply_checks import check_replies
from results.submission.rows import PROMPT, PredictionRow, RowReader, jsonl_rows

_CONTENT_ID = re.compile(rf"[pt][0-9a-f]{{{LENGTH}}}")
"""Pattern of passage and triple ids."""
LADDER = ("mrr@1", "precision@1", "hit@1", "recall@1", "recall@5", "recall@20", "mrr@10", "ndcg@10")
"""Ranking metrics with known order relations, which are always computed for the check."""
RANKED = frozenset(("ranking", "texts", "graph"))
"""Fields of ranked evidence that metrics use."""
RANKING_NEEDS = RANKED | {"pages"}
"""Fields that metrics need for scoring rankings without answers."""
_HAS: Mapping[str, Callable[[Prediction], object]] = {
    **dict.fromkeys(RANKED, lambda row: row.evidence),
    "pages": lambda row: row.evidence or row.notes.get(PAGES),
    **{name: lambda row, name=name: name in row.notes for name in (SUPPORT, TRIPLES, ANSWERABLE)},  # type: ignore[misc]
    "contexts": lambda row: row.contexts is not None,
    "statements": lambda row: row.statements,
    "searches": lambda row: row.searches,
    "confidence": lambda row: row.confidence is not None,
}
"""Fields that a whole submission may omit, by the word in `needs`."""


@dataclass(frozen=True)
class Target:
    """Benchmark that a submission is checked against.

    Attributes:
        loaded: The benchmark as loaded, limited to the requested number of questions.
        in_setting: The benchmark in the card's retrieval setting, with the candidates of each question.
        stored: Fingerprint of the stored data that it was rebuilt from (`from_store`); None if it was loaded.
        clusters: Clusters of the questions, as on the board; None uses the benchmark's.
    """

    loaded: Benchmark
    in_setting: Benchmark
    stored: str | None = None
    clusters: Sampled | None = None

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the benchmark's data."""
        return self.stored or self.loaded.fingerprint

    @property
    def sampled(self) -> Sampled:
        """Return the clusters of the questions and their kind."""
        return self.clusters or self.loaded.sampled()


def validate(
    card: Card,
    source: BinaryIO,
    target: Target,
    *,
    file: str,
    metrics: Sequence[Metric] = (),
    read: RowReader = jsonl_rows,
    training: LoadTraining | None = None,
    runs: LoadRuns | None = None,
    limits: Limits = LIMITS,
    strict: bool = False,
    partial: bool = False,
    ranked_by_contexts: bool = False,
) -> Report:
    """Validate a submission and, if it has no errors, score it.

    Args:
        card: The validated card.
        source: The predictions file, read once in chunks.
        target: The card's benchmark in the card's setting.
        file: Name of the predictions file for messages.
        metrics: Metrics to compute; those that read more than the ranking are left out if the card states
            `retrieval_only`.
        read: Reads rows from the file: JSON Lines, or another format.
        training: Loads the questions of declared training data; None compares only references.
        runs: Loads the stored runs that answers are compared with; None skips this check.
        limits: Size limits.
        strict: Whether problems that an official script tolerates are errors.
        partial: Whether a question without a row counts as failed instead of being an error.
        ranked_by_contexts: Whether metrics of rankings are left out if no row has contexts.
    """
    findings = Findings(limits.shown, strict=strict)
    _check_data(card, target, findings)
    checker = _Checker(card.setting, target, findings)
    rows, others = 0, findings.errors
    most = len(target.in_setting.questions) + limits.spare_rows
    for row in read(source, findings, replace(limits, rows=min(limits.rows, most))):
        rows += 1
        if rows > most:
            findings.add(
                "too_many_rows",
                f"there are more rows than questions, {len(target.in_setting.questions):,}; reading stopped",
                line=row.line,
                try_this="write one row per question, of the split and limit that the card names",
            )
            break
        before = findings.errors
        checker.add(row)
        others += findings.errors - before
    ranked = any(RANKED.intersection(metric.entry.needs) for metric in metrics)
    if not card.retrieval_only or (ranked_by_contexts and not checker.shows_contexts):
        metrics = checker.scorable(metrics)
    refused = findings.errors - others - (findings.tolerated if strict else 0)
    checker.finish(card, ranked and not ranked_by_contexts, runs, partial, refused=refused if rows or not refused else most)
    if ranked and ranked_by_contexts:
        checker.note_unshown()
    result = contamination(card, target.loaded, training, findings)
    predictions: tuple[Prediction, ...] = ()
    scores: dict[str, Scores] = {}
    if not findings.errors:
        predictions = checker.predictions()
        scores = _scores(card, target, predictions, metrics, findings)
    kept = not findings.errors
    return Report(
        card,
        file,
        target.loaded.name,
        target.fingerprint,
        rows,
        len(target.in_setting.questions),
        findings.all(),
        predictions if kept else (),
        result,
        scores if kept else {},
        digest(predictions) if kept else "",
    )


def digest(predictions: Sequence[Prediction]) -> str:
    """Hash the predictions, including prompts and usage."""
    return content_hash(fingerprint(prediction.to_json()) for prediction in predictions)


def _check_data(card: Card, target: Target, findings: Findings) -> None:
    wanted, result = card.dataset_fingerprint, target.fingerprint
    if wanted is not None and wanted != result:
        findings.listed("other_data", f"the card says {wanted}, {target.loaded.reference} here is {result}")


class _Checker:
    """Checker of rows against the questions, one by one; keeps the valid rows."""

    def __init__(self, setting: Setting, target: Target, findings: Findings) -> None:
        self._findings = findings
        self._corpus: Corpus = target.loaded.corpus
        self._matcher = Matcher(self._corpus)
        self._questions: Sequence[Question] = target.in_setting.questions
        self._setting = setting
        self._graphs = target.in_setting.extra.get("graphs", {}) if setting.scope == "question" else {}
        # Restyled worlds have names of their own, and the questions of worlds.
        self._synthetic = target.loaded.reference.name == WORLDS or all("world" in q.metadata for q in self._questions)
        self._known = {name: q for q in self._questions for name in (q.id, q.query_id)}
        self._lines: dict[str, int] = {}
        self._kept: dict[str, Prediction] = {}
        self._whole = target.stored is None
        self.unchecked = 0

    @property
    def shows_contexts(self) -> bool:
        """Return whether a row has the texts of the model's context."""
        return any(prediction.contexts is not None for prediction in self._kept.values())

    def add(self, row: PredictionRow) -> None:
        prediction, line = row.prediction, row.line
        question = self._known.get(prediction.question_id)
        if question is None:
            self._findings.listed("extra", shown(prediction.question_id), line=line)
            return
        if question.id in self._lines:
            detail = f"{shown(prediction.question_id)}, first on line {self._lines[question.id]}"
            self._findings.listed("duplicate", detail, line=line)
            return
        self._lines[question.id] = line
        self._check_evidence(question, prediction, line, row.official)
        self._kept[question.id] = self._matcher.place(question, replace(prediction, question_id=question.id))

    def _check_evidence(self, question: Question, prediction: Prediction, line: int, official: bool) -> None:
        seen: set[str] = set()
        allowed = self._allowed(question)
        shown_texts = {item.id for item in (*map(outside, prediction.contexts or ()), *outside_of(prediction.notes))}
        claims = () if official else support_claims(prediction.notes.get(SUPPORT, ())) or ()
        for passage, index in [*((item.id, None) for item in prediction.evidence), *claims]:
            if passage in shown_texts:
                continue
            identifier = passage if index is None else f"sentence {index} of {passage}"
            if not self._whole and passage not in self._corpus and _CONTENT_ID.fullmatch(passage):
                self.unchecked += 1
            elif passage not in self._corpus or (index is not None and not self._has_sentence(passage, index)):
                self._findings.listed("unknown_evidence", shown(identifier), line=line)
            elif allowed is not None and passage not in allowed:
                self._findings.listed("not_a_candidate", shown(identifier), line=line, setting=self._setting)
        for item in prediction.evidence:
            if item.id in seen:
                self._findings.listed("evidence_twice", shown(item.id), line=line)
            seen.add(item.id)
        scores = [item.score for item in prediction.evidence]
        if any(later > earlier for earlier, later in pairwise(scores)):
            self._findings.listed("not_sorted", f"question {shown(question.id)}", line=line)

    def _allowed(self, question: Question) -> frozenset[str] | None:
        if question.id in self._graphs:
            return frozenset(triple_id(triple) for triple in self._graphs[question.id])
        return None if question.candidates is None else frozenset(question.candidates)

    def _has_sentence(self, passage: str, index: int) -> bool:
        # Where the dataset splits no sentences, a method counts those of its own splitting.
        sentences = len(self._corpus.get([passage])[0].sentences) or 10**6
        return 0 <= index < sentences

    def _missing(self, partial: bool, refused: int) -> None:
        """Report questions without a row, unless unreadable rows may be theirs, so that one cause is reported once."""
        missing = [question for question in self._questions if question.id not in self._lines]
        if refused >= len(missing):
            return
        if partial and not self._kept and not self._findings.errors:
            self._findings.listed("nothing_matches")
        for question in missing:
            detail = f"question {shown(question.id)} ({question.query_id})"
            if partial:
                self._findings.lenient("missing", "a question has no row and counts as failed", detail)
            else:
                remedy = 'a question without answer is a row too: {"question_id": …, "answer": "", "notes": {"failed": "why"}}'
                self._findings.add("missing", "a question has no row", detail, try_this=remedy)

    def scorable(self, metrics: Sequence[Metric]) -> list[Metric]:
        """Return the metrics whose inputs some row has: recall of a closed-book system is missing instead of 0."""
        kept = self._kept.values()
        lacking = {need for need, has in _HAS.items() if not any(map(has, kept))}
        if not self._whole:
            lacking |= {"graph"} | ({"texts"} if self.unchecked else set())
        return [metric for metric in metrics if not lacking.intersection(metric.entry.needs)]

    def finish(self, card: Card, ranked: bool, runs: LoadRuns | None, partial: bool, refused: int) -> None:
        """Add the findings that depend on all rows."""
        self._missing(partial, refused)
        kept = list(self._kept.values())
        failed = [item for item in kept if item.notes.get(FAILED) not in (None, "", NO_ANSWER)]
        for item in failed:
            self._findings.listed("failed", f"question {shown(item.question_id)}", line=self._lines[item.question_id])
        if kept and len(failed) == len(kept):
            self._findings.listed("all_failed")
        elif kept and not card.retrieval_only and not any(item.answer for item in kept):
            self._findings.listed("no_answers")
        if kept and card.retrieval_only and any(item.answer for item in kept):
            self._findings.listed("answers_ignored")
        if not self._whole:
            self._findings.listed("not_checked", count=self.unchecked)
        if ranked and kept and not any(item.evidence for item in kept) and self._setting.name != "closed_book":
            self._findings.listed("no_evidence")
        answered = [
            Answered(self._lines[question.id], question, self._kept[question.id], self._corpus)
            for question in self._questions
            if question.id in self._kept
        ]
        if not card.retrieval_only and not self._findings.count("no_answers"):
            empty = (row for row in answered if not row.prediction.answer.strip() and not row.prediction.notes.get(FAILED))
            for row in empty:
                if row.question.answerable and row.question.answers:  # else an empty answer may be an abstention
                    self._findings.listed("empty_answers", row.place, line=row.line)
        check_replies(answered, self._findings)
        check_plausible(
            answered,
            self._findings,
            synthetic=self._synthetic,
            closed_book=self._setting.name == "closed_book",
            retrieval_only=card.retrieval_only,
            runs=runs,
        )
        check_prompts(
            [
                Prompted(self._lines[question.id], question, self._kept[question.id], self._corpus)
                for question in self._questions
                if question.id in self._kept and PROMPT in self._kept[question.id].notes
            ],
            self._findings,
        )

    def note_unshown(self) -> None:
        """Warn about rows without contexts among rows with contexts, whose rankings are empty; note if no row has contexts."""
        if self._kept and not self.shows_contexts and self._setting.name != "closed_book":
            self._findings.listed("no_contexts_read")
        for question, row in self._kept.items():
            if self.shows_contexts and row.contexts is None and not row.evidence and FAILED not in row.notes:
                self._findings.listed("no_contexts", f"question {shown(question)}", line=self._lines[question])

    def predictions(self) -> tuple[Prediction, ...]:
        lost = {FAILED: NOT_IN_FILE}
        return tuple(self._kept.get(question.id) or Prediction(question.id, "", notes=lost) for question in self._questions)


def _scores(
    card: Card, target: Target, predictions: Sequence[Prediction], metrics: Sequence[Metric], findings: Findings
) -> dict[str, Scores]:
    wanted = [metric for metric in metrics if not card.retrieval_only or RANKING_NEEDS.issuperset(metric.entry.needs)]
    ladder = [parse_metric(name) for name in LADDER] if any(q.evidence for q in target.loaded.questions) else []
    every = {str(item): item for item in (*wanted, *ladder)}
    result = score(
        target.loaded.questions,
        predictions,
        every.values(),
        passage=reading(target.loaded.corpus, predictions),
        graphs=QuestionGraphs.of(target.loaded),
    )
    for sentence in check_invariants({every[name]: values for name, values in result.items()}):
        findings.listed("invariant", sentence)
    if card.retrieval_only and metrics and all(np.isnan(result[str(item)]).all() for item in wanted):
        findings.listed("nothing_scored", target.loaded.name)
    return {str(item): result[str(item)] for item in wanted}
