"""Select questions of a board: failures, differences, and by type, hops and length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leaderboard.elements.formats import metric_name
from results.store.answer_queries import QuestionRow
from results.store.queries import RunRow

ANY = "any"
LENGTHS = {"short": (0, 10), "medium": (11, 20), "long": (21, 10**9)}
LENGTH_NAMES = {ANY: "any length", "short": "up to 10 words", "medium": "11 to 20 words", "long": "over 20 words"}
"""Kinds of questions, by their labels."""
_AT = re.compile(r"@(\d+)$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filter on questions; the default values do not filter.

    Attributes:
        hops: Number of gold passages, as text.
        length: One of `LENGTHS`.
        failures: Only questions on which a method has the worst score.
        differ: Only questions on which the methods' scores differ.
    """

    words: str = ""
    kind: str = ANY
    hops: str = ANY
    length: str = ANY
    failures: bool = False
    differ: bool = False


def hops_of(rows: Sequence[QuestionRow]) -> list[str]:
    """List the numbers of gold passages that occur, in ascending order."""
    return [str(count) for count in sorted({len(row.evidence) for row in rows})]


def passing(rows: Sequence[QuestionRow], wanted: Wanted, scores: NDArray[np.float64], worst: float | None) -> list[int]:
    """Return the positions of the questions that pass a filter.

    Args:
        scores: Shape (methods, questions), NaN without a score.
        worst: Worst value of the metric; None if it is unbounded, so that no score is a failure.
    """
    able = np.ones(len(rows), dtype=bool)
    if wanted.failures:
        able &= (scores == worst).any(axis=0) if worst is not None and len(scores) else False
    if wanted.differ:
        scored = ~np.isnan(scores)
        highest = np.where(scored, scores, -np.inf).max(axis=0, initial=-np.inf)
        able &= highest > np.where(scored, scores, np.inf).min(axis=0, initial=np.inf)
    words = wanted.words.casefold().split()
    return [number for number, row in enumerate(rows) if able[number] and _meets(row, wanted, words)]


def _meets(row: QuestionRow, wanted: Wanted, words: Sequence[str]) -> bool:
    if wanted.kind not in (ANY, row.type) or wanted.hops not in (ANY, str(len(row.evidence))):
        return False
    if wanted.length != ANY:
        low, high = LENGTHS[wanted.length]
        if not low <= len(row.text.split()) <= high:
            return False
    return all(word in f"{row.text}\n{' '.join(row.golds)}".casefold() for word in words)


def worst_of(definition: Mapping[str, Any]) -> float | None:
    """Return the metric's worst value; None if it is unbounded on that side."""
    value = definition.get("low" if definition.get("higher_is_better", True) else "high")
    return None if value is None else float(value)


def cutoffs(run: RunRow, metric: str) -> dict[int, str]:
    """Return the cutoffs in a ranking, by rank: the metric's k, and the number of passages that the reader receives."""
    results: dict[int, str] = {}
    if at := _AT.search(metric_name(metric)[0]):
        results[int(at[1])] = f"{metric_name(metric)[0]} counts down to this rank"
    handed_on = run.description.get("k")
    if isinstance(handed_on, int) and run.description.get("reader"):
        read = f"the reader gets {handed_on}"
        results[handed_on] = f"{results[handed_on]}; {read}" if handed_on in results else read
    return results
