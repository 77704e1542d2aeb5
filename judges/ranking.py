"""Ranking measures over many queries at once.

Every measure needs to know only where the positives stand. `find_positives` looks that up once, into flat arrays
(query, rank, grade); each measure is then a sum over those few rows. The definitions are trec_eval's, for the
ranking in the order given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Positions:
    """Where the positives of many queries stand; every measure has shape (queries,) and is NaN without positives.

    Attributes:
        query: Query number of each positive found. Shape (found,), ascending.
        rank: Its 1-based rank once repeated ids are dropped. Shape (found,), ascending within a query.
        grade: Its grade. Shape (found,).
        positives: Number of positives of each query, found or not. Shape (queries,).
        ideal: Grades of all positives of each query in turn, best first. Shape (sum of positives,).
    """

    query: Integers
    rank: Integers
    grade: Floats
    positives: Integers
    ideal: Floats

    def _per_query(self, values: Floats, within: NDArray[np.bool_]) -> Floats:
        totals = np.bincount(self.query[within], weights=values[within], minlength=len(self.positives))
        return totals.astype(np.float64, copy=False)  # without any value bincount counts in integers

    @cached_property
    def _total(self) -> Floats:
        """Number of positives as a divisor: NaN where there are none."""
        return np.where(self.positives > 0, self.positives, np.nan)

    def _scored(self, values: Floats) -> Floats:
        return np.where(self.positives > 0, values, np.nan)

    def found(self, k: int) -> Floats:
        """Number of positives within the first k; not a measure, so 0 without positives."""
        return np.bincount(self.query[self.rank <= k], minlength=len(self.positives)).astype(np.float64)

    def recall(self, k: int) -> Floats:
        """Positives within the first k / all positives."""
        return self.found(k) / self._total

    def hit(self, k: int) -> Floats:
        """1 if a positive is within the first k."""
        return self._scored((self.found(k) > 0).astype(np.float64))

    def all(self, k: int) -> Floats:
        """1 if every positive is within the first k."""
        return self._scored((self.found(k) == self.positives).astype(np.float64))

    def precision(self, k: int) -> Floats:
        """Positives within the first k / k, also where fewer than k are ranked."""
        return self._scored(self.found(k) / k)

    @cached_property
    def _order(self) -> Integers:
        """For each positive found: how many of its query's stand at its rank or above (itself included)."""
        counts = np.bincount(self.query, minlength=len(self.positives))
        return _places(counts)

    def reciprocal_rank(self, k: int) -> Floats:
        """1 / rank of the first positive, 0 where none is within the first k."""
        return self._scored(self._per_query(1.0 / self.rank, (self._order == 1) & (self.rank <= k)))

    def average_precision(self, k: int) -> Floats:
        """Sum of the precisions at the ranks of the positives within the first k / all positives (`map_cut`)."""
        return self._per_query(self._order / self.rank, self.rank <= k) / self._total

    @cached_property
    def _ideal_rank(self) -> Integers:
        return _places(self.positives)

    @cached_property
    def _ideal_query(self) -> Integers:
        return np.repeat(np.arange(len(self.positives)), self.positives)

    def ndcg(self, k: int, *, exponential: bool = False) -> Floats:
        """Discounted gain over that of the ideal ranking, both cut at k; the discount is log2(rank + 1).

        Args:
            k: The cut.
            exponential: Gain 2^grade - 1 (Burges) in place of the grade itself (trec_eval's `ndcg_cut`).
        """
        gain = np.exp2(self.grade) - 1 if exponential else self.grade
        best = np.exp2(self.ideal) - 1 if exponential else self.ideal
        reached = self._per_query(gain / np.log2(self.rank + 1), self.rank <= k)
        within = self._ideal_rank <= k
        weights = best[within] / np.log2(self._ideal_rank[within] + 1)
        ideal = np.bincount(self._ideal_query[within], weights=weights, minlength=len(self.positives))
        return reached / np.where(self.positives > 0, ideal, np.nan)


def _places(counts: Integers) -> Integers:
    """1, 2, … within each run of the given lengths."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(starts, counts) + 1


_FEW = 8
"""Up to so many positives are looked up one by one."""


def find_positives(
    rankings: Sequence[Sequence[str]],
    positives: Sequence[Collection[str]],
    grades: Sequence[Mapping[str, float]] | None = None,
    *,
    distinct: bool = False,
) -> Positions:
    """Find every query's positives in its ranking.

    Args:
        rankings: Ids best first, one ranking a query; of a repeated id the first mention counts.
        positives: The relevant ids of each query, in any order.
        grades: By query, the grade (above 0) of each of its positives; None where all are 1.
        distinct: Promises that no ranking and no set of positives repeats an id, which saves looking.

    Raises:
        ValueError: The arguments differ in length, or a grade is not above 0.
    """
    if not distinct:
        rankings = [list(dict.fromkeys(ranking)) for ranking in rankings]
        positives = [tuple(dict.fromkeys(row)) for row in positives]
    place: list[int] = []
    counts: list[int] = []
    found: list[str] = []
    for ranking, wanted in zip(rankings, positives, strict=True):
        before = len(place)
        there = wanted if len(wanted) <= _FEW else frozenset(wanted).intersection(ranking)
        for identifier in there:
            # Asking a list for a string is the fastest look-up there is for so few: no table has to be built.
            try:
                place.append(ranking.index(identifier))
            except ValueError:
                continue
            if grades is not None:
                found.append(identifier)
        counts.append(len(place) - before)
    sizes = np.fromiter(map(len, positives), dtype=np.int64, count=len(positives))
    query = np.repeat(np.arange(len(counts)), counts)
    rank = np.array(place, dtype=np.int64) + 1
    grade, ideal = np.ones(len(rank)), np.ones(int(sizes.sum()))
    if grades is not None:
        grade = np.array([grades[q][identifier] for q, identifier in zip(query.tolist(), found, strict=True)], float)
        by_query = zip(grades, positives, strict=True)
        every = [sorted((given[one] for one in row), reverse=True) for given, row in by_query]
        ideal = np.array([value for row in every for value in row], float)
        if (ideal <= 0).any():
            raise ValueError("a positive has a grade that is not above 0")
    order = np.lexsort((rank, query))
    return Positions(query[order], rank[order], grade[order], sizes, ideal)
