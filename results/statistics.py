"""Statistics that decide, on plain arrays: intervals, paired differences, corrections. Seeded and vectorised.

NaN marks an unscorable question; it is left out of a mean and of its denominator, and every result says how many
questions stood behind it. Where questions share a document they are resampled together (`clusters`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
LEVEL = 0.95
_BLOCK = 512
"""Resamples drawn at a time, to bound memory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: Mean over scorable questions, NaN where there are none.
        low, high: Percentile-bootstrap interval; NaN with fewer than two independent units.
        n: Scorable questions.
        unscorable: Questions left out.
    """

    value: float
    low: float
    high: float
    n: int
    unscorable: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, candidate minus reference, over the questions that both were scored on.

    Attributes:
        value, low, high, n: As in `Estimate`.
        p: Two-sided sign-flip permutation p-value with the +1 correction; never 0.
        wins, ties, losses: Questions on which the candidate is better, equal, worse.
    """

    value: float
    low: float
    high: float
    n: int
    p: float
    wins: int
    ties: int
    losses: int


def estimate(
    values: ArrayLike,
    *,
    clusters: Sequence[str | None] | None = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Mean and bootstrap interval over questions.

    Args:
        values: Shape (questions,); NaN is unscorable.
        clusters: One label per question; questions with equal labels are resampled together. None stands alone.
        seed: Of the resampling.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.

    Source: Efron & Tibshirani (1993), percentile method; clusters as in the cluster bootstrap of Field & Welsh (2007).
    """
    scores = np.asarray(values, dtype=np.float64)
    kept = ~np.isnan(scores)
    sums, counts = _per_cluster(scores, kept, clusters)
    n = int(kept.sum())
    value = float(sums.sum() / n) if n else float("nan")
    low, high = _percentiles(_bootstrap_means(sums, counts, seed, resamples), level, len(sums))
    return Estimate(value, low, high, n, int(len(scores) - n))


def difference(
    candidate: ArrayLike,
    reference: ArrayLike,
    *,
    clusters: Sequence[str | None] | None = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Difference:
    """Paired difference of two methods on the same questions, row by row.

    The interval is a paired bootstrap; the p-value flips the sign of each question's (or cluster's) difference.

    Raises:
        ValueError: The arrays differ in length: they are not about the same questions.
    """
    a, b = np.asarray(candidate, np.float64), np.asarray(reference, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"paired scores must be of the same questions, got {a.shape} and {b.shape}")
    delta = a - b
    result = estimate(delta, clusters=clusters, seed=seed, level=level, resamples=resamples)
    sums, _ = _per_cluster(delta, ~np.isnan(delta), clusters)
    return Difference(
        result.value, result.low, result.high, result.n, sign_flip_p(sums, seed=seed, resamples=resamples),
        int((delta > 0).sum()), int((delta == 0).sum()), int((delta < 0).sum()),
    )  # fmt: skip


def sign_flip_p(differences: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value of the hypothesis that differences are symmetric about 0.

    Args:
        differences: Shape (units,), one per independent unit.
        seed: Of the flips.
        resamples: Number of random sign vectors; p is at least 1 / (resamples + 1).

    Source: Fisher's randomisation test; +1 correction of Phipson & Smyth (2010).
    """
    units = np.asarray(differences, np.float64)
    units = units[~np.isnan(units) & (units != 0)]
    if not len(units):
        return 1.0
    observed = abs(units.sum())
    rng = np.random.default_rng(seed)
    # Sums that are equal in exact arithmetic must count as equal whatever the order of adding was.
    bar = observed - 1e-9 * np.abs(units).sum()
    extreme = 0
    for start in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - start)
        signs = rng.integers(0, 2, (size, len(units)), dtype=np.int8).astype(np.float64) * 2 - 1
        extreme += int((np.abs(signs @ units) >= bar).sum())
    return (extreme + 1) / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values in the order given; NaN stays NaN and counts for nothing.

    Source: Holm (1979).
    """
    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if not np.isnan(p[i])]
    highest = 0.0
    for step, i in enumerate(order):
        highest = max(highest, min(1.0, float(p[i]) * (len(order) - step)))
        adjusted[i] = highest
    return adjusted.tolist()


def _per_cluster(
    scores: NDArray[np.float64], kept: NDArray[np.bool_], clusters: Sequence[str | None] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and number of scorable questions per independent unit."""
    if clusters is None:
        return scores[kept], np.ones(int(kept.sum()))
    labels = [f"#{row}" if label is None else f"={label}" for row, label in enumerate(clusters)]
    _, units = np.unique(np.asarray(labels)[kept], return_inverse=True)
    return np.bincount(units, weights=scores[kept]).astype(np.float64), np.bincount(units).astype(np.float64)


def _bootstrap_means(
    sums: NDArray[np.float64], counts: NDArray[np.float64], seed: int, resamples: int
) -> NDArray[np.float64]:
    """Means of `resamples` resamples of units with replacement; shape (resamples,)."""
    units = len(sums)
    if units < 2:
        return np.empty(0)
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - start)
        drawn = rng.integers(0, units, (size, units))
        # How often each unit was drawn, for all resamples of the block in one count.
        flat = np.bincount((drawn + np.arange(size)[:, None] * units).ravel(), minlength=size * units)
        weights = flat.reshape(size, units).astype(np.float64)
        means.append((weights @ sums) / (weights @ counts))
    return np.concatenate(means)


def _percentiles(means: NDArray[np.float64], level: float, units: int) -> tuple[float, float]:
    if units < 2:
        return float("nan"), float("nan")
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
