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
    """Differences that are tested together, with Holm-corrected p-values and intervals.

    Attributes:
        differences: Differences with intervals and detectable differences at the corrected level: an interval excludes 0
            exactly if the corrected p-value is at most 5 %.
        p: Corrected p-values; NaN if there is insufficient data.
    """

    differences: list[Difference]
    p: list[float]


def family(tests: Sequence[Differences], differences: Iterable[Difference], level: float = LEVEL) -> Family:
    """Correct a family of differences for multiple comparisons (Holm). Differences with insufficient data count as not significant.

    Args:
        tests: Differences of shape (rows,) each, for example of several metrics.
        differences: The same differences as plain values, from `differences_of`.
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
    """Compute the mean over questions with its confidence interval; arguments as in `estimates`."""
    return estimates(np.asarray(values, dtype=np.float64)[None, :], clusters=clusters, level=level, metric=metric)[0]


def estimates(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None) -> list[Estimate]:
    """Compute the mean over questions and its confidence interval for each of many columns.

    Args:
        columns: Shape (columns, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are one cluster. A question with None is its own cluster.
        level: Confidence level of the interval.
        metric: The metric's range; None: 0 to 1 if all scores are within it, else unbounded.
    """
    scores = rows_of(columns)
    return estimates_of(means(scores, clusters=clusters, metric=metric), scores.shape[1], level)


def estimates_of(tested: Tested, questions: int, level: float = LEVEL) -> list[Estimate]:
    """Convert tested means to a list of `Estimate`, one per row; `questions` is the number of all questions, including unscorable ones."""
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
    """Compute the paired difference of two methods on the same questions, including the variance between their trainings and repeats."""
    one, other = (side if isinstance(side, Side) else Side.of(side) for side in (candidate, reference))
    return described(compared([one], [other], clusters=clusters, metric=metric), [one], [other], level)[0]


def differences(
    candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None
) -> list[Difference]:
    """Compute the paired differences of many pairs of methods, without correction for their number.

    Args:
        candidates, references: Scores on the same questions, shape (pairs, questions).
        clusters, level, metric: As in `estimates`.

    Raises:
        ValueError: The arrays differ in shape.
    """
    return differences_of(paired(candidates, references, clusters=clusters, metric=metric), level)


def differences_together(
    candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None
) -> Family:
    """Compute the paired differences of many pairs of methods, Holm-corrected as one family; arguments as in `differences`."""
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
    """Compute the paired differences of many pairs of sides (which can hold seeds and repeats), Holm-corrected as one family.

    Args:
        candidates, references: The two sides of each pair, on the same questions.
        clusters, metric: As in `compared`.
        level: Confidence level of the intervals.
        judged: Whether a judge scored them.
    """
    tested = compared(candidates, references, clusters=clusters, metric=metric)
    return family([tested], described(tested, candidates, references, level, judged=judged), level)


def described(
    tested: Differences, candidates: Sequence[Side], references: Sequence[Side], level: float = LEVEL, *, judged: bool = False
) -> list[Difference]:
    """Convert tested differences to a list of `Difference`, each with a description of what it generalizes to; arguments as in
    `compared_together`.
    """
    rows = zip(differences_of(tested, level), candidates, references, strict=True)
    return [replace(item, generalizes=generalizes(one, other, judged=judged)) for item, one, other in rows]


def all_pairs(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL, metric: Range | None = None) -> Family:
    """Compute the paired differences of all pairs i < j of methods (i minus j), Holm-corrected, in the order of `itertools.combinations`.

    Args:
        columns: Scores on the same questions, shape (methods, questions); NaN is unscorable.
        clusters, level, metric: As in `estimates`.
    """
    scores = rows_of(columns)
    left, right = np.array(list(itertools.combinations(range(len(scores)), 2)), dtype=np.int64).reshape(-1, 2).T
    tested = paired(scores[left], scores[right], clusters=clusters, metric=range_of(scores) if metric is None else metric)
    return family([tested], differences_of(tested, level), level)


def differences_of(tested: Differences, level: float = LEVEL) -> list[Difference]:
    """Convert tested differences to a list of `Difference`, one per row."""
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
        "undecided": tested.why_undecided(),
        "geometric": tested.geometric,
    }
    rows = zip(*(array.tolist() for array in columns.values()), strict=True)
    return [
        Difference(**dict(zip(columns, row, strict=True)), wins=wins, ties=ties, losses=losses)
        for row, (wins, ties, losses) in zip(rows, counts, strict=True)
    ]
