"""Find the positions of the positives in many rankings, and compute the measures that follow from them.

Every measure needs to know only where the positives stand. `find_positives` looks that up once, into flat arrays (query, rank,
grade); each measure is then a sum over those few rows. The definitions are trec_eval's, for the ranking in the order given.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Positions:
    """Ranks of the positives of many queries, from which ranking measures are computed; each measure has shape (queries,), NaN
    without positives.

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
        """Return the number of positives as a divisor: NaN if there are none."""
        return np.where(self.positives > 0, self.positives, np.nan)

    def _scored(self, values: Floats) -> Floats:
        return np.where(self.positives > 0, values, np.nan)

    @cached_property
    def _found(self) -> dict[int, Floats]:
        return {}

    def result(self, k: int) -> Floats:
        """Count the positives within the first k; 0 for a query without positives."""
        if k not in self._found:
            counts = np.bincount(self.query[self.rank <= k], minlength=len(self.positives))
            self._found[k] = counts.astype(np.float64)
        return self._found[k]

    def recall(self, k: int) -> Floats:
        """Compute recall@k: positives within the first k / all positives."""
        return self.result(k) / self._total

    def hit(self, k: int) -> Floats:
        """Compute hit@k: 1 if a positive is within the first k, else 0."""
        return self._scored((self.result(k) > 0).astype(np.float64))

    def all(self, k: int) -> Floats:
        """Return 1 if every positive is within the first k, else 0."""
        return self._scored((self.result(k) == self.positives).astype(np.float64))

    def precision(self, k: int) -> Floats:
        """Compute precision@k: positives within the first k / k, also if fewer than k documents are ranked."""
        return self._scored(self.result(k) / k)

    @cached_property
    def _order(self) -> Integers:
        """Return, per retrieved positive, the number of its query's positives at its rank or above (including itself)."""
        counts = np.bincount(self.query, minlength=len(self.positives))
        return _count_up(counts)

    def reciprocal_rank(self, k: int) -> Floats:
        """Compute the reciprocal rank: 1 / rank of the first positive, 0 if none is within the first k."""
        return self._scored(self._per_query(1.0 / self.rank, (self._order == 1) & (self.rank <= k)))

    def average_precision(self, k: int) -> Floats:
        """Compute average precision at k: the sum of precisions at the ranks of the positives within the first k / all
        positives (trec_eval's `map_cut`).
        """
        return self._per_query(self._order / self.rank, self.rank <= k) / self._total

    def r_precision(self) -> Floats:
        """Compute R-precision: positives within the first R / R, where R is the number of positives (trec_eval's `Rprec`)."""
        return self._per_query(np.ones(len(self.rank)), self.rank <= self.positives[self.query]) / self._total

    def bpref(self, negatives: Positions) -> Floats:
        """Compute bpref: how seldom a judged negative ranks above a positive (Buckley & Voorhees 2004, as in trec_eval 9).

        Mean over all R positives of 1 - n / min(N, R), where n (at most R) of the N judged negatives rank above the positive; a
        positive that is not retrieved counts as 0.

        Args:
            negatives: Positions of the judged negatives of the same queries in the same rankings.
        """
        depth = max(self.rank.max(initial=0), negatives.rank.max(initial=0)) + 1
        order = negatives.query * depth + negatives.rank
        first = np.searchsorted(order, self.query * depth)
        above = np.searchsorted(order, self.query * depth + self.rank) - first
        bound = self.positives[self.query]
        most = np.maximum(np.minimum(negatives.positives[self.query], bound), 1)
        return self._per_query(1.0 - np.minimum(above, bound) / most, np.ones(len(self.rank), dtype=bool)) / self._total

    @cached_property
    def _discount(self) -> Floats:
        return _discounts(self.rank)

    @cached_property
    def _ideal_ranking(self) -> tuple[Integers, Integers, Floats]:
        """Return query, rank and discount of every positive in an ideal ranking, best first."""
        rank = _count_up(self.positives)
        return np.repeat(np.arange(len(self.positives)), self.positives), rank, _discounts(rank)

    def expected_reciprocal_rank(self, k: int, largest: float) -> Floats:
        """Compute expected reciprocal rank: the expected 1 / rank at which a reader stops, who is satisfied by grade g with
        probability (2^g - 1) / 2^largest.

        Source: Chapelle et al. 2009; TREC Web track's `gdeval`.
        """
        stops = (np.exp2(self.grade) - 1) / np.exp2(largest)
        goes_on = np.log1p(-stops)
        before = np.cumsum(goes_on) - goes_on
        starts = np.searchsorted(self.query, np.arange(len(self.positives)))
        at_start = np.concatenate([before, [0.0]])[starts]
        reached = np.exp(before - at_start[self.query])
        return self._scored(self._per_query(reached * stops / self.rank, self.rank <= k))

    def rank_biased_precision(self, persistence: float, least: float) -> Floats:
        """Compute rank-biased precision: (1 - p) × the sum of p^(rank - 1) over the positives with at least this grade (Moffat
        & Zobel 2008).
        """
        return self._scored(
            (1 - persistence) * self._per_query(np.power(persistence, self.rank - 1.0, dtype=np.float64), self.grade >= least)
        )

    def ndcg(self, k: int, *, exponential: bool = False) -> Floats:
        """Compute nDCG@k: discounted gain / that of the ideal ranking, both cut at k; the discount is log2(rank + 1).

        Args:
            k: Number of ranks to consider.
            exponential: Use the gain 2^grade - 1 (Burges) instead of the grade (trec_eval's `ndcg_cut`).
        """
        gain = np.exp2(self.grade) - 1 if exponential else self.grade
        best = np.exp2(self.ideal) - 1 if exponential else self.ideal
        reached = self._per_query(gain / self._discount, self.rank <= k)
        query, rank, discount = self._ideal_ranking
        within = rank <= k
        weights = best[within] / discount[within]
        ideal = np.bincount(query[within], weights=weights, minlength=len(self.positives))
        return reached / np.where(self.positives > 0, ideal, np.nan)


def _discounts(ranks: Integers) -> Floats:
    """Compute log2(rank + 1) with the C library: NumPy's result differs from trec_eval's in the last digit at some ranks."""
    table = np.fromiter(map(math.log2, range(1, int(ranks.max(initial=0)) + 2)), dtype=np.float64)
    return table[ranks]


def _count_up(counts: Integers) -> Integers:
    """Return 1, 2, … within each run of the given lengths."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(starts, counts) + 1


def find_positives(
    rankings: Sequence[Sequence[str]],
    positives: Sequence[Collection[str]],
    grades: Sequence[Mapping[str, float]] | None = None,
    *,
    distinct: bool = False,
) -> Positions:
    """Find the ranks of every query's positives in its ranking.

    Args:
        rankings: For each query, document ids, best first; a repeated id counts at its first position.
        positives: The relevant ids of each query, in any order.
        grades: For each query, the grade (above 0) of each positive; None if all are 1.
        distinct: Set it if no ranking and no set of positives repeats an id, to skip the check.

    Raises:
        ValueError: The arguments differ in length, or a grade is not above 0.
    """
    if not distinct:
        rankings = [list(dict.fromkeys(ranking)) for ranking in rankings]
        positives = [tuple(dict.fromkeys(row)) for row in positives]
    sizes = np.fromiter(map(len, positives), dtype=np.int64, count=len(positives))
    depths = np.fromiter(map(len, rankings), dtype=np.int64, count=len(rankings))
    every_query = np.repeat(np.arange(len(sizes)), sizes)
    every_rank = np.array(_places_in(rankings, positives), dtype=np.int64) + 1
    every_grade = np.ones(len(every_rank))
    if grades is not None:
        rows = zip(grades, positives, strict=True)
        every_grade = np.array([value[identifier] for value, wanted in rows for identifier in wanted], dtype=np.float64)
        if (every_grade <= 0).any():
            raise ValueError("a positive has a grade that is not above 0")
    ideal = every_grade[np.lexsort((-every_grade, every_query))] if grades is not None else every_grade
    there = every_rank <= depths[every_query]
    query, rank, grade = every_query[there], every_rank[there], every_grade[there]
    order = np.argsort(query * (int(depths.max(initial=0)) + 1) + rank)
    return Positions(query[order], rank[order], grade[order], sizes, ideal)


_FEW = 8
"""Maximum number of positives for individual lookups."""


def _places_in(rankings: Sequence[Sequence[str]], positives: Sequence[Collection[str]]) -> list[int]:
    """Return the 0-based position of each positive in its ranking; at least the ranking's length if it is missing."""
    indices: list[int] = []
    for ranking, wanted in zip(rankings, positives, strict=True):
        if len(wanted) <= _FEW:
            # For so few, asking a list is faster than building a table. What is sought is appended, so that it is
            # found in any case, which spares an exception each.
            indices += map([*ranking, *wanted].index, wanted)
        else:
            at = dict(zip(ranking, range(len(ranking)), strict=True))
            indices += [at.get(identifier, len(ranking)) for identifier in wanted]
    return indices
