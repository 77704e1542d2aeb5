"""Query the store for single questions: the question with its gold, and the answers, evidence and model calls of runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.schema import Passage, Turn, sentence_of, turns_of
from methods.api import SPENDING, WAIT, Call, Prediction
from results.store.redaction import redacted, shareable, without_secrets
from results.store.rows import stored_record
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """Ranked evidence item with its passage, and whether it is a gold passage."""

    rank: int
    id: str
    score: float
    title: str
    text: str
    sentences: tuple[str, ...]
    gold: bool


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """Stored question with its gold."""

    question: str
    text: str
    answers: tuple[str, ...]
    golds: tuple[str, ...]
    evidence: tuple[str, ...]
    supporting_facts: tuple[str, ...]
    type: str
    document_id: str | None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """Stored answer of one run to one question.

    `unscored` has the reasons of judges that gave no value. `stages` has the seconds per stage, and `waited_s` the time spent
    waiting for a free slot. `calls_kept` is the number of stored calls. `record` has the contexts, statements, searches and
    confidence that the system returned.
    """

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
    calls_kept: int = 0
    waited_s: float = 0.0
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spending(self) -> Mapping[str, int]:
        """Return the note on tokens that endpoints read from their caches, and on calls of unknown cost."""
        noted = self.notes.get(SPENDING)
        return noted if isinstance(noted, dict) else {}


def questions(store: Store, dataset_fingerprint: str) -> list[QuestionRow]:
    """Read the questions of a dataset with their gold, in the dataset's order."""
    rows = store.database.rows(
        """SELECT question, text, answers, golds, evidence, supporting_facts, type, document_id, turns FROM questions
               WHERE dataset_fingerprint = ? ORDER BY position""",
        [dataset_fingerprint],
    )
    return [
        QuestionRow(q, text, tuple(a), tuple(g), tuple(e), tuple(s), t, d, turns_of(json.loads(turns or "[]")))
        for q, text, a, g, e, s, t, d, turns in rows
    ]


def passages(store: Store, identifiers: Sequence[str]) -> dict[str, Passage]:
    """Read passages by id, in the requested order; ids that the store lacks are omitted."""
    rows = store.database.rows("SELECT id, title, text, sentences FROM passages WHERE id IN (SELECT unnest(?))", [list(identifiers)])
    results = {row[0]: Passage(row[0], row[1], row[2], tuple(row[3])) for row in rows}
    return {identifier: results[identifier] for identifier in identifiers if identifier in results}


def gold_sentences(question: QuestionRow, passage: str) -> set[int]:
    """Return the indices of a passage's sentences that are gold support for a question."""
    return {index for owner, index in map(sentence_of, question.supporting_facts) if owner == passage and index >= 0}


def answers(store: Store, question: QuestionRow, run_ids: Sequence[str], *, depth: int = 20) -> list[AnswerRow]:
    """Read the answers of runs to one question, with at most `depth` evidence items each, in the order of `run_ids`."""
    wanted = list(run_ids)
    with store.database.reading() as connection:
        responses = connection.execute(
            """SELECT p.run, r.method, p.answer, p.failed, p.notes, u.stages, u.prompt_tokens, u.completion_tokens,
               u.memory_tokens, u.model_calls, u.cost_usd,
               (SELECT count(*) FROM calls c WHERE c.run = p.run AND c.question = p.question),
               p.contexts, p.statements, p.searches, p.confidence
               FROM predictions p JOIN runs r USING (run) JOIN usage u USING (run, question)
               WHERE question = ? AND list_contains(?, p.run)""",
            [question.question, wanted],
        ).fetchall()
        ranked = connection.execute(
            """SELECT e.run, e.rank, e.id, e.score, coalesce(p.title, ''), coalesce(p.text, ''),
               coalesce(p.sentences, []) FROM evidence e LEFT JOIN passages p ON p.id = e.id
               WHERE e.question = ? AND list_contains(?, e.run) AND e.rank <= ? ORDER BY e.run, e.rank""",
            [question.question, wanted, depth],
        ).fetchall()
        scored = connection.execute(
            """SELECT run, metric, value, unscored FROM scores WHERE question = ? AND list_contains(?, run)
               ORDER BY rowid""",
            [question.question, wanted],
        ).fetchall()
    gold = set(question.evidence)
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
            timed := json.loads(stages),
            *(*used[:-4], timed.pop(WAIT, 0.0), redacted(Prediction("", "", **stored_record(used[-4:])).record())),
        )
        for run, method, answer, failed, notes, stages, *used in responses
    ]
    return sorted(rows, key=lambda row: wanted.index(row.run))


def fallbacks(store: Store, run: str) -> dict[str, dict[str, int]]:
    """Count failed steps of a run's questions by system and reason, and how its questions ended (`ended`)."""
    rows = store.database.rows("SELECT notes FROM predictions WHERE run = ?", [run])
    counts: dict[str, Counter[str]] = {}
    for system, note in (item for (text,) in rows for item in json.loads(text).items()):
        if isinstance(note, dict):
            own = lost_steps(*map(note.get, LOST)) + Counter([f"ended {note['ended']}"] if note.get("ended") else [])
            counts[system] = counts.get(system, Counter()) + own
    return {system: dict(sorted(own.items())) for system, own in sorted(counts.items()) if own}


LOST = ("fallbacks", "fallback", "failed")
"""Keys of a system's note in a prediction: number of failed steps by reason, the one fallback, and failed calls (reasons or number)."""
FAILED_CALL = "failed call"
"""Reason of a step whose call got no reply."""


def lost_steps(fallbacks: Any, fallback: Any, failed: Any) -> Counter[str]:
    """Count a question's failed steps by reason; the arguments are the values of `LOST`, of any type."""
    known = fallbacks.items() if isinstance(fallbacks, dict) else ()
    counts = Counter({str(why): number for why, number in known if isinstance(number, int)})
    counts[FAILED_CALL] += counts.pop("failed", 0) + (failed if isinstance(failed, int) else 0)
    counts.update([fallback] if isinstance(fallback, str) and fallback else [])
    counts.update(map(str, failed) if isinstance(failed, list) else [])
    return +counts


_TEXTS = ("prompt", "reply", "thought", "raw", "refusal")
"""Fields of a call with texts of a model or its endpoint."""


def calls(store: Store, run: str, question: str) -> list[Call]:
    """Read the stored calls of generating models that a run made for a question, in order."""
    names = ", ".join("epoch(created)" if name == "created" else name for name in Call.__slots__)
    rows = store.database.rows(f"SELECT {names} FROM calls WHERE run = ? AND question = ? ORDER BY position", [run, question])
    made = [Call(*row) for row in rows]
    texts: list[dict[str, Any]] = [{name: without_secrets(getattr(call, name)) for name in _TEXTS} for call in made]
    return [replace(call, **hidden) for call, hidden in zip(made, texts, strict=True)]


def answer_lengths(store: Store, run_ids: Sequence[str]) -> dict[tuple[str, str], int]:
    """Return the length of every answer in characters, by (run, question)."""
    rows = store.database.rows("SELECT run, question, length(answer) FROM predictions WHERE list_contains(?, run)", [list(run_ids)])
    return {(run, question): length for run, question, length in rows}
