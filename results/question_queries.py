"""What tables and pages ask of the store about single questions: gold, passages, answers with evidence and scores. Each
function opens the store for a moment and returns plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.schema import SENTENCE_MARK, Passage
from results.redaction import shareable, without_secrets
from results.store import Store


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A ranked item of evidence with its passage, and whether the gold names it."""

    rank: int
    id: str
    score: float
    title: str
    text: str
    sentences: tuple[str, ...]
    gold: bool


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question with its gold, as stored."""

    question: str
    text: str
    answers: tuple[str, ...]
    golds: tuple[str, ...]
    evidence: tuple[str, ...]
    supporting_facts: tuple[str, ...]
    type: str
    document_id: str | None


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What one run said about one question; `unscored` has the reasons of judges that gave no value."""

    run: str
    method: str
    answer: str
    failed: str | None
    notes: dict[str, Any]
    evidence: tuple[EvidenceRow, ...]
    scores: dict[str, float | None]
    unscored: dict[str, str]
    stages: dict[str, float]
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int
    model_calls: int
    cost_usd: float


def questions(store: Store, dataset_fingerprint: str) -> list[QuestionRow]:
    """The questions of a dataset with their gold, in its order."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT question, text, answers, golds, evidence, supporting_facts, type, document_id FROM questions
               WHERE dataset_fingerprint = ? ORDER BY position""",
            [dataset_fingerprint],
        ).fetchall()
    return [QuestionRow(q, text, tuple(a), tuple(g), tuple(e), tuple(s), t, d) for q, text, a, g, e, s, t, d in rows]


def passages(store: Store, identifiers: Sequence[str]) -> dict[str, Passage]:
    """Stored passages by id, in the order asked for; those that the store does not hold are left out."""
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT id, title, text, sentences FROM passages WHERE list_contains(?, id)", [list(identifiers)]
        ).fetchall()
    found = {row[0]: Passage(row[0], row[1], row[2], tuple(row[3])) for row in rows}
    return {identifier: found[identifier] for identifier in identifiers if identifier in found}


def gold_sentences(question: QuestionRow, passage: str) -> set[int]:
    """Indices of the supporting sentences of a question in a passage."""
    named = (fact.rpartition(SENTENCE_MARK) for fact in question.supporting_facts)
    return {int(index) for owner, _, index in named if owner == passage and index.isdecimal()}


def answers(store: Store, question: QuestionRow, run_ids: Sequence[str], *, depth: int = 20) -> list[AnswerRow]:
    """What runs said about a question, with at most `depth` items of evidence each, in the order of `run_ids`."""
    wanted = list(run_ids)
    with store.database.reading() as connection:
        said = connection.execute(
            """SELECT p.run, r.method, p.answer, p.failed, p.notes, u.stages, u.prompt_tokens, u.completion_tokens,
               u.memory_tokens, u.model_calls, u.cost_usd
               FROM predictions p JOIN runs r USING (run) JOIN usage u USING (run, question)
               WHERE question = ? AND list_contains(?, p.run)""",
            [question.question, wanted],
        ).fetchall()
        ranked = connection.execute(
            """SELECT e.run, e.rank, e.id, e.score, coalesce(p.title, ''), coalesce(p.text, ''),
               coalesce(p.sentences, []) FROM evidence e LEFT JOIN passages p ON p.id = split_part(e.id, '#', 1)
               WHERE e.question = ? AND list_contains(?, e.run) AND e.rank <= ? ORDER BY e.run, e.rank""",
            [question.question, wanted, depth],
        ).fetchall()
        scored = connection.execute(
            """SELECT run, metric, value, unscored FROM scores WHERE question = ? AND list_contains(?, run)
               ORDER BY rowid""",
            [question.question, wanted],
        ).fetchall()
    gold = {*question.evidence, *question.supporting_facts}
    evidence: dict[str, list[EvidenceRow]] = {}
    for run, rank, identifier, score, title, text, sentences in ranked:
        row = EvidenceRow(rank, identifier, score, title, text, tuple(sentences), identifier in gold)
        evidence.setdefault(run, []).append(row)
    scores: dict[str, dict[str, float | None]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for run, metric, value, reason in scored:
        scores.setdefault(run, {})[metric] = value
        if reason is not None:
            reasons.setdefault(run, {})[metric] = without_secrets(reason)
    rows = [
        AnswerRow(
            run,
            method,
            answer,
            failed and without_secrets(failed),
            shareable(notes),
            tuple(evidence.get(run, ())),
            scores.get(run, {}),
            reasons.get(run, {}),
            json.loads(stages),
            *used,
        )
        for run, method, answer, failed, notes, stages, *used in said
    ]
    return sorted(rows, key=lambda row: wanted.index(row.run))


def answer_lengths(store: Store, run_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """Characters of every answer, by run and question."""
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT run, question, length(answer) FROM predictions WHERE list_contains(?, run)", [list(run_ids)]
        ).fetchall()
    return {(run, question): length for run, question, length in rows}
