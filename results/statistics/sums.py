"""Sums over clusters: what means, paired differences and their tests are computed from.

A cluster is what was sampled: a question, or all questions of one document, world or group that shares evidence. From
the sums of each cluster's scores follow the mean, its cluster-robust standard error and its skewness.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.statistics.core import Clusters, Floats, cluster_positions

EQUAL = 1e-12
"""Maximum difference of sums that are equal in exact arithmetic; rounding depends on the order of addition."""
Whole = NDArray[np.int64]
_BLOCK = 128
"""Rows of differences at a time, so that they fit into the processor's cache."""


@dataclass(frozen=True)
class Sums:
    """Sums over clusters, from which means, variances and skewness of many rows of scores or differences are computed; all
    arrays have one shape.

    Attributes:
        n: Number of scored questions.
        clusters: Number of clusters with scored questions.
        counts2, counts3: Σ c² and Σ c³ over clusters, where c is a cluster's number of questions.
        total, squares, cubes: Σ s, Σ s², Σ s³ over clusters, where s is the sum of a cluster's scores.
        cross12, cross21: Σ s c² and Σ s² c.
        cross11: Σ s c.
        within: Σ d² over questions, where d is a question's score.
        sizes, largest: Σ |s|, and the largest |s|.
        better, worse: Number of clusters whose sum is above, below zero.
    """

    n: Floats
    clusters: Floats
    counts2: Floats
    counts3: Floats
    total: Floats
    squares: Floats
    cubes: Floats
    cross11: Floats
    cross12: Floats
    cross21: Floats
    within: Floats
    sizes: Floats
    largest: Floats
    better: Floats
    worse: Floats

    def __getitem__(self, where: Any) -> Sums:
        return Sums(**{name: getattr(self, name)[where] for name in NAMES})

    @cached_property
    def value(self) -> Floats:
        """Return the mean over scored questions; NaN without any."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.n)

    @cached_property
    def effective(self) -> Floats:
        """Return the effective number of clusters, n² / Σ c² (Kish); 0 without questions."""
        return np.asarray(self.n**2 / np.maximum(self.counts2, 1))

    @cached_property
    def changed(self) -> Floats:
        """Return the number of clusters whose sum is not zero."""
        return self.better + self.worse

    @cached_property
    def spread(self) -> Floats:
        """Return the sum of squared cluster residuals, Σ (s - mean · c)², computed from the sums; rounding errors around zero
        are set to zero.
        """
        v = np.nan_to_num(self.value)
        spread = self.squares - 2 * v * self.cross11 + v**2 * self.counts2
        return np.where(spread > EQUAL * np.maximum(self.squares, EQUAL), spread, 0.0)

    @cached_property
    def variance(self) -> Floats:
        """Return the cluster-robust variance of the mean; NaN with fewer than two clusters.

        The small-sample factor makes it unbiased if the questions of a cluster agree completely, and slightly conservative
        otherwise; for m clusters of equal size it is m / (m - 1).
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            lost = 2 * self.counts3 / (self.n * self.counts2) - self.counts2 / self.n**2
            return np.where(self.clusters > 1, self.spread / np.maximum(1 - lost, EQUAL) / self.n**2, np.nan)

    @cached_property
    def skew(self) -> Floats:
        """Return the skewness of the mean: skewness of the clusters' residuals over the square root of their number; 0 if all are equal."""
        v, spread = np.nan_to_num(self.value), self.spread
        third = self.cubes - 3 * v * self.cross21 + 3 * v**2 * self.cross12 - v**3 * self.counts3
        return np.where(spread > 0, third / np.where(spread > 0, spread, 1.0) ** 1.5, 0.0)

    @cached_property
    def independent(self) -> Floats:
        """Return the effective number of independent questions, from Kish's design effect; between the numbers of clusters and
        of questions.

        This many independent questions would have the same variance of the mean.
        """
        alone = np.maximum(self.within - self.n * np.nan_to_num(self.value) ** 2, 0.0) / np.maximum(self.n, 1) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            many = np.where(self.variance > 0, self.n * alone / np.where(self.variance > 0, self.variance, 1.0), self.clusters)
        return np.clip(np.nan_to_num(many, nan=0.0), self.clusters, np.maximum(self.n, self.clusters))

    def scaled(self, factor: float) -> Sums:
        """Return the sums for a sample with `factor` times as many clusters of the same kind."""
        return replace(self, **{name: getattr(self, name) * factor for name in NAMES if name != "largest"})


NAMES = [item.name for item in fields(Sums)]


def sums_of(rows: Floats, clusters: Clusters) -> Sums:
    """Compute the sums of rows of scores; NaN is unscorable. The result's arrays have shape (rows,)."""
    scores, known, starts = arranged(rows, clusters)
    return Sums(*row_sums(scores, None if known.all() else known, starts))


def arranged(scores: Floats, clusters: Clusters) -> tuple[Floats, NDArray[np.bool_], Whole | None]:
    """Reorder questions so that clusters are contiguous; return scores with 0 for NaN, a mask of known scores, and each cluster's start.

    The starts are None if each question is its own cluster.
    """
    known = ~np.isnan(scores)
    filled = np.where(known, scores, 0.0)
    if clusters is None or not scores.shape[1]:
        return filled, known, None
    positions, sizes = cluster_positions(clusters, scores.shape[1])
    order = np.argsort(positions, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return filled[:, order], known[:, order], starts


def by_cluster(scores: Floats, clusters: Clusters) -> tuple[Floats, Floats]:
    """Return each cluster's sum of scores and number of scored questions, two arrays of shape (rows, clusters)."""
    filled, known, starts = arranged(scores, clusters)
    if starts is None:
        return filled, known.astype(np.float64)
    return np.add.reduceat(filled, starts, axis=1), np.add.reduceat(known.astype(np.float64), starts, axis=1)


def row_sums(scores: Floats, known: NDArray[Any] | None, starts: Whole | None) -> tuple[Floats, ...]:
    """Compute the fields of `Sums`, in their order; arrays of shape (rows,).

    Args:
        scores: Shape (rows, questions), 0 if not known.
        known: Mask of known scores, or the number of questions that each score represents, same shape; None: all are known.
        starts: Start of each cluster; None if each question is its own cluster.
    """
    sums, counts = scores, np.ones((1, scores.shape[1])) if known is None else known.astype(np.float64)
    within = np.einsum("rq,rq->r", scores, scores)
    if starts is not None:
        sums, counts = np.add.reduceat(scores, starts, axis=1), np.add.reduceat(counts, starts, axis=1)
    each = np.ones(len(sums))
    square = sums * sums
    total = sums.sum(axis=1)
    squares = within if starts is None else square.sum(axis=1)
    if known is None and starts is None:
        across, across2, squares_across = total, total, squares
    else:
        across, across2, squares_across = ((a * b).sum(axis=1) for a, b in ((sums, counts), (sums, counts**2), (square, counts)))
    size = np.abs(sums)
    return (
        counts.sum(axis=1) * each,
        (counts > 0).sum(axis=1) * each,
        (counts**2).sum(axis=1) * each,
        (counts**3).sum(axis=1) * each,
        total,
        squares,
        np.einsum("ru,ru->r", square, sums),
        across,
        across2,
        squares_across,
        within,
        size.sum(axis=1),
        size.max(axis=1, initial=0.0),
        np.count_nonzero(sums > EQUAL, axis=1) * each,
        np.count_nonzero(sums < -EQUAL, axis=1) * each,
    )


def _equal_row_sums(sums: Floats, counts: Floats, scores: Floats | None) -> tuple[Floats | float, ...]:
    """Compute what `row_sums` computes, faster, for rows that were scored on the same questions.

    Args:
        sums: Sum of each cluster's scores, shape (rows, clusters). The array is overwritten.
        counts: Number of questions of each cluster, shape (clusters,).
        scores: Shape (rows, questions), 0 if not known; None: each question is its own cluster.
    """
    square, each = sums * sums, np.ones_like(counts)
    total, squares = sums @ each, square @ each
    across, across2, squares_across = total, total, squares
    if (counts != 1).any():
        across, across2, squares_across = sums @ counts, sums @ counts**2, square @ counts
    cubes = np.einsum("ru,ru->r", square, sums)
    better, worse = (mask.view(np.uint8).sum(axis=1, dtype=np.int32) for mask in (sums > EQUAL, sums < -EQUAL))
    size = np.abs(sums, out=sums)
    return (
        counts.sum(),
        float(np.count_nonzero(counts)),
        (counts**2).sum(),
        (counts**3).sum(),
        total,
        squares,
        cubes,
        across,
        across2,
        squares_across,
        squares if scores is None else np.einsum("rq,rq->r", scores, scores),
        size @ each,
        size.max(axis=1, initial=0.0),
        better,
        worse,
    )


def pair_sums(scores: Floats, clusters: Clusters) -> Sums:
    """Compute the sums of the paired differences of all pairs, row minus column; arrays of shape (rows, rows), zeros on the diagonal.

    Each pair uses the questions that both were scored on.
    """
    filled, known, starts = arranged(scores, clusters)
    methods = len(filled)
    # Usually all methods were scored on the same questions: the clusters of all pairs then have equal numbers of questions.
    same = bool((known == known[:1]).all())
    own = known.astype(np.float64) if starts is None else np.add.reduceat(known, starts, axis=1, dtype=np.float64)
    sums = filled if starts is None else np.add.reduceat(filled, starts, axis=1)
    each = np.zeros((len(NAMES), methods, methods))
    for row in range(methods - 1):
        for first in range(row + 1, methods, _BLOCK):
            others = slice(first, min(first + _BLOCK, methods))
            if same:
                within = None if starts is None else filled[row] - filled[others]
                results = _equal_row_sums(sums[row] - sums[others], own[0], within)
            else:
                common = known[row] & known[others]
                results = row_sums((filled[row] - filled[others]) * common, common, starts)
            for target, result in zip(each, results, strict=True):
                target[row, others] = result
    # Below the diagonal: the same numbers, with the other sign where the power of the difference is odd.
    signs = np.array([-1.0 if name in ("total", "cubes", "cross11", "cross12") else 1.0 for name in NAMES])
    square = dict(zip(NAMES, each + signs[:, None, None] * each.transpose(0, 2, 1), strict=True))
    below = np.tri(methods, dtype=np.bool_)
    better, worse = square["better"], square["worse"]
    square["better"], square["worse"] = np.where(below, worse, better), np.where(below, better, worse)
    np.fill_diagonal(square["n"], known.sum(axis=1))
    np.fill_diagonal(square["clusters"], (own > 0).sum(axis=1))
    return Sums(**square)
