"""Means and paired differences with their intervals and tests, as plain values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.core import LEVEL, Clusters, Difference, Estimate, rows_of
from results.statistics.difference import Differences, Range, Side, compared, generalizes, means, paired, range_of
from results.statistics.holm import holm_array, holm_levels
from results.statistics.tested import Tested


@dataclass(frozen=True, slots=True)
class Family:
    """Differences that are tested together.

    Attributes:
        differences: Each with the interval, and the detectable difference, of the level at which Holm's procedure tests
            it: the interval excludes 0 exactly if the corrected p-value is at most 5 %.
        p: Corrected p-values; NaN if there is insufficient data.
    """

    differences: list[Difference]
    p: list[float]


def family(tests: Sequence[Differences], differences: Iterable[Difference], level: float = LEVEL) -> Family:
    """Correct a family of differences for multiple comparisons (Holm). Differences with insufficient data count as not significant.

    Args:
        tests: Differences of shape (rows,) each, for example of several metrics.
        differences: The same one after another, as `differences_of` gives them.
        level: Confidence level of the intervals.
    """
    if not tests:
        return Family([], [])
    p, n = (np.concatenate([getattr(tested, name) for tested in tests]) for name in ("p", "n"))
    counted = np.where(np.isnan(p) & (n > 0), 1.0, p)
    levels = np.split(holm_levels(counted, level), np.cumsum([len(tested.p) for tested in tests])[:-1])
    ends = [tested.interval(each) for tested, each in zip(tests, levels, strict=True)]
    low, high = (np.concatenate([pair[side] for pair in ends]) for side in (0, 1))
    least = np.concatenate([tested.detectable(level=each) for tested, each in zip(tests, levels, strict=True)])
    corrected = np.where(np.isnan(p), np.nan, holm_array(counted))
    rows = zip(differences, low.tolist(), high.tolist(), least.tolist(), strict=True)
    together = [replace(item, low=bottom, high=top, detectable=seen, alone=(item.low, item.high)) for item, bottom, top, seen in rows]
    return Family(together, corrected.tolist())


def estimate(values: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None) -> Estimate:
    """Return mean and interval over questions; `estimates` of a single column."""
    return estimates(np.asarray(values, dtype=np.float64)[None, :], clusters=clusters, level=level, metric=metric)[0]


def estimates(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None) -> list[Estimate]:
    """Return means and intervals of many columns over the same questions.

    Args:
        columns: Shape (columns, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are one cluster. A question with None is its own cluster.
        level: Coverage of the interval.
        metric: The metric's range; None: fractions of 1 if all scores are, else without bounds.
    """
    scores = rows_of(columns)
    return estimates_of(means(scores, clusters=clusters, metric=metric), scores.shape[1], level)


def estimates_of(tested: Tested, questions: int, level: float = LEVEL) -> list[Estimate]:
    """Return means as plain values, row by row, of this many questions."""
    low, high = tested.interval(level)
    n = tested.n.astype(int)
    lists = (tested.value, low, high, n, questions - n, tested.clusters.astype(int), tested.insufficient_data())
    return [Estimate(*row) for row in zip(*(array.tolist() for array in lists), strict=True)]


def difference(
    candidate: ArrayLike | Side,
    reference: ArrayLike | Side,
    *,
    clusters: Clusters = None,
    level: float = LEVEL,
    metric: Range | None = None,
) -> Difference:
    """Return the paired difference of two methods on the same questions, with every source of randomness that the sides contain."""
    one, other = (side if isinstance(side, Side) else Side.of(side) for side in (candidate, reference))
    return described(compared([one], [other], clusters=clusters, metric=metric), [one], [other], level)[0]


def differences(
    candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None
) -> list[Difference]:
    """Return paired differences of many pairs of methods, question by question.

    Args:
        candidates, references: Shape (pairs, questions), row by row of the same questions.
        clusters, level, metric: As in `estimates`.

    Raises:
        ValueError: The arrays differ in shape: they do not have the same questions.
    """
    return differences_of(paired(candidates, references, clusters=clusters, metric=metric), level)


def differences_together(
    candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None
) -> Family:
    """Return `differences` of one family, with intervals and p-values corrected by Holm's procedure."""
    tested = paired(candidates, references, clusters=clusters, metric=metric)
    return family([tested], differences_of(tested, level), level)


def compared_together(
    candidates: Sequence[Side],
    references: Sequence[Side],
    *,
    clusters: Clusters = None,
    level: float = LEVEL,
    metric: Range | None = None,
    judged: bool = False,
) -> Family:
    """Return the differences of one family of sides, with intervals and p-values corrected by Holm's procedure.

    Args:
        candidates, references: Row by row of the same questions.
        clusters, metric: As in `compared`.
        level: Confidence level of the intervals.
        judged: Whether a judge scored them.
    """
    tested = compared(candidates, references, clusters=clusters, metric=metric)
    return family([tested], described(tested, candidates, references, level, judged=judged), level)


def described(
    tested: Differences, candidates: Sequence[Side], references: Sequence[Side], level: float = LEVEL, *, judged: bool = False
) -> list[Difference]:
    """Return `differences_of` with what each would generalize to if significant; arguments as in `compared_together`."""
    rows = zip(differences_of(tested, level), candidates, references, strict=True)
    return [replace(item, generalizes=generalizes(one, other, judged=judged)) for item, one, other in rows]


def all_pairs(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None) -> Family:
    """Return paired differences, i minus j, of every pair i < j of methods as one family, in the order of `itertools.combinations`.

    Args:
        columns: Shape (methods, questions) of the same questions; NaN is unscorable.
        clusters, level, metric: As in `estimates`.
    """
    scores = rows_of(columns)
    left, right = np.array(list(itertools.combinations(range(len(scores)), 2)), dtype=np.int64).reshape(-1, 2).T
    tested = paired(scores[left], scores[right], clusters=clusters, metric=range_of(scores) if metric is None else metric)
    return family([tested], differences_of(tested, level), level)


def differences_of(tested: Differences, level: float = LEVEL) -> list[Difference]:
    """Return differences as plain values, row by row."""
    assert tested.delta is not None
    low, high = tested.interval(level)
    counts = [(int((row > 0).sum()), int((row == 0).sum()), int((row < 0).sum())) for row in tested.delta]
    columns = {
        "value": tested.value,
        "low": low,
        "high": high,
        "n": tested.n.astype(int),
        "p": tested.p,
        "clusters": tested.clusters.astype(int),
        "insufficient_data": tested.insufficient_data(),
        "detectable": tested.detectable(level=level),
    }
    rows = zip(*(array.tolist() for array in columns.values()), strict=True)
    return [
        Difference(**dict(zip(columns, row, strict=True)), wins=wins, ties=ties, losses=losses)
        for row, (wins, ties, losses) in zip(rows, counts, strict=True)
    ]
