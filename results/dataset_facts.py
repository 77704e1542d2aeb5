"""What the store knows of each dataset: its card, counts, samples of its questions, and who has trained on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from results import queries, question_queries
from results.question_queries import Passage, QuestionRow
from results.store import Store


@dataclass(frozen=True, slots=True)
class Contaminated:
    """A submission whose declared training data cover what is asked.

    Attributes:
        run: Its fingerprint.
        method: Its name.
        reasons: One sentence per item of training data.
    """

    run: str
    method: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """A stored dataset.

    Attributes:
        fingerprint: Of its content.
        name: As runs name it, mixes of styles with their shares.
        card: As registered.
        notes: What was said when it was read.
        questions, passages: Counts.
        types: Questions by type, most frequent first; "" where a question has none.
        without_gold: Questions that have no gold answer.
        with_evidence: Questions that name positive passages.
        documents: Documents that questions share; 0 where each has its own.
        words: Mean words of a question, split at spaces.
        runs, methods: How many runs ask about it, and of how many methods.
        contaminated: Submissions that were trained on it, by their own words.
    """

    fingerprint: str
    name: str
    card: Mapping[str, Any]
    notes: tuple[str, ...]
    questions: int
    passages: int
    types: dict[str, int]
    without_gold: int
    with_evidence: int
    documents: int
    words: float
    runs: int
    methods: int
    contaminated: tuple[Contaminated, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """A question with those of its positive passages that the store holds, by id."""

    question: QuestionRow
    passages: Mapping[str, Passage]


def dataset_facts(store: Store) -> list[DatasetFacts]:
    """Every stored dataset, by name."""
    cards = queries.datasets(store)
    with store.database.reading() as connection:
        counted = connection.execute(
            """SELECT dataset_fingerprint, count_if(array_to_string(answers, '') = ''),
               count_if(len(evidence) > 0), count(DISTINCT document_id),
               avg(len(string_split(trim(text), ' '))) FROM questions GROUP BY 1"""
        ).fetchall()
        typed = connection.execute("SELECT dataset_fingerprint, type, count(*) FROM questions GROUP BY 1, 2 ORDER BY 3 DESC, 2").fetchall()
        asked = connection.execute(
            "SELECT dataset_fingerprint, min(dataset), count(*), count(DISTINCT method) FROM runs GROUP BY 1"
        ).fetchall()
        sent = connection.execute(
            "SELECT dataset_fingerprint, run, method, card FROM runs WHERE card IS NOT NULL ORDER BY method, run"
        ).fetchall()
    counts = {row[0]: row[1:] for row in counted}
    use = {row[0]: row[1:] for row in asked}
    found = []
    for fingerprint, stored in cards.items():
        without_gold, with_evidence, documents, words = counts.get(fingerprint, (0, 0, 0, float("nan")))
        name, runs, methods = use.get(fingerprint, (stored["reference"], 0, 0))
        found.append(
            DatasetFacts(
                fingerprint,
                name,
                stored["card"],
                _notes(stored["notes"]),
                stored["questions"],
                stored["passages"],
                {kind: number for owner, kind, number in typed if owner == fingerprint},
                without_gold,
                with_evidence,
                documents,
                words,
                runs,
                methods,
                _contaminated(fingerprint, sent),
            )
        )
    return sorted(found, key=lambda facts: (facts.name, facts.fingerprint))


def _notes(stored: Any) -> tuple[str, ...]:
    """Notes as sentences, whether they were kept as a list or by name."""
    if isinstance(stored, Mapping):
        return tuple(f"{name}: {value}" for name, value in stored.items())
    return tuple(str(note) for note in stored or ())


def _contaminated(fingerprint: str, sent: Sequence[tuple[Any, ...]]) -> tuple[Contaminated, ...]:
    found = []
    for owner, run, method, card in sent:
        reasons = (json.loads(card).get("submission") or {}).get("contamination") if owner == fingerprint else None
        if reasons:
            listed = [reasons] if isinstance(reasons, str) else reasons
            found.append(Contaminated(run, method, tuple(str(reason) for reason in listed)))
    return tuple(found)


def samples(store: Store, fingerprint: str, number: int = 5, start: int = 0) -> list[Sample]:
    """Questions spread evenly over a dataset, with their gold.

    Args:
        store: Where to read.
        fingerprint: Of the dataset.
        number: How many.
        start: How many places further along each is than the first time; the same for the same value.
    """
    asked = question_queries.questions(store, fingerprint)
    if not asked:
        return []
    places = np.linspace(0, len(asked), min(number, len(asked)), endpoint=False).astype(int)
    chosen = [asked[(place + start) % len(asked)] for place in places]
    owned = question_queries.passages(store, list(dict.fromkeys(one for row in chosen for one in row.evidence)))
    return [Sample(row, {one: owned[one] for one in row.evidence if one in owned}) for row in chosen]
