"""Declared training data as far as a store has their questions: nothing is loaded because a stranger's card says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.errors import UserError
from benchmarks.registry import DataReference
from results import queries, question_queries
from results.question_queries import QuestionRow
from results.store import Store
from results.submission.contamination import LoadTraining


@dataclass(frozen=True, slots=True)
class _Question:
    """A stored question, by the dataset's own id."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a store has of training data."""

    reference: DataReference
    questions: tuple[_Question, ...]


def stored_training(store: Store) -> LoadTraining:
    """A loader that answers from a store alone, and loads no dataset.

    Args:
        store: Its questions are those of the benchmarks that were run; each is read once.
    """

    @cache
    def held() -> dict[str, DataReference]:
        return {data: DataReference.parse(one["reference"]) for data, one in queries.datasets(store).items()}

    @cache
    def asked(data: str) -> list[QuestionRow]:
        return question_queries.questions(store, data)

    def load(reference: str) -> _Stored:
        wanted = DataReference.parse(reference)
        found = {row.question: row.text for data in _within(wanted, held()) for row in asked(data)}
        if not found:
            raise UserError("the store has no question of them")
        return _Stored(wanted, tuple(_Question(identifier, text) for identifier, text in found.items()))

    return load


def _within(wanted: DataReference, held: dict[str, DataReference]) -> Iterator[str]:
    """Fingerprints of the stored data that lie within a reference: those that hold more would say too much of it."""
    splits = set((wanted.split or "").split("+"))
    for data, stored in held.items():
        if (
            stored.name == wanted.name
            and wanted.subset in (None, stored.subset)
            and (wanted.split is None or set((stored.split or "").split("+")) <= splits)
        ):
            yield data
