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
    """Mean and bootstrap interval over questions; `estimates` of a single column."""
    column = np.asarray(values, dtype=np.float64)[None, :]
    return estimates(column, clusters=clusters, seed=seed, level=level, resamples=resamples)[0]


def estimates(
    columns: ArrayLike,
    *,
    clusters: Sequence[str | None] | None = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> list[Estimate]:
    """Means and bootstrap intervals of many columns over the same questions; the resamples are drawn once for all.

    Args:
        columns: Shape (columns, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are resampled together. None stands alone.
        seed: Of the resampling.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.

    Source: Efron & Tibshirani (1993), percentile method; clusters as in the cluster bootstrap of Field & Welsh (2007).
    """
    return [found for found, _ in _resampled(columns, clusters, seed, level, resamples, flips=False)]


def difference(
    candidate: ArrayLike,
    reference: ArrayLike,
    *,
    clusters: Sequence[str | None] | None = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Difference:
    """Paired difference of two methods on the same questions; `differences` of a single pair."""
    a, b = np.asarray(candidate, np.float64)[None, :], np.asarray(reference, np.float64)[None, :]
    return differences(a, b, clusters=clusters, seed=seed, level=level, resamples=resamples)[0]


def differences(
    candidates: ArrayLike,
    references: ArrayLike,
    *,
    clusters: Sequence[str | None] | None = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> list[Difference]:
    """Paired differences of many pairs of methods, question by question.

    The interval is a paired bootstrap; the p-value flips the sign of each question's (or cluster's) difference.

    Args:
        candidates, references: Shape (pairs, questions), row by row of the same questions.
        clusters, seed, level, resamples: As in `estimates`.

    Raises:
        ValueError: The arrays differ in shape: they are not about the same questions.
    """
    a, b = np.asarray(candidates, np.float64), np.asarray(references, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"paired scores must be of the same questions, got {a.shape} and {b.shape}")
    delta = a - b
    found = _resampled(delta, clusters, seed, level, resamples, flips=True)
    return [
        Difference(
            one.value, one.low, one.high, one.n, p, int((row > 0).sum()), int((row == 0).sum()), int((row < 0).sum())
        )
        for row, (one, p) in zip(delta, found, strict=True)
    ]


def sign_flip_p(differences: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value of the hypothesis that differences are symmetric about 0.

    Args:
        differences: Shape (units,), one per independent unit.
        seed: Of the flips.
        resamples: Number of random sign vectors; p is at least 1 / (resamples + 1).

    Source: Fisher's randomisation test; +1 correction of Phipson & Smyth (2010).
    """
    units = np.asarray(differences, np.float64)
    return float(_sign_flips(units[~np.isnan(units)][:, None], seed, resamples)[0])


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


def _resampled(
    columns: ArrayLike,
    clusters: Sequence[str | None] | None,
    seed: int,
    level: float,
    resamples: int,
    *,
    flips: bool,
) -> list[tuple[Estimate, float]]:
    """Estimate and (where `flips`) sign-flip p of each row; rows with equal gaps share their resamples."""
    scores = np.atleast_2d(np.asarray(columns, dtype=np.float64))
    found: list[tuple[Estimate, float]] = [(_EMPTY, 1.0)] * len(scores)
    alike: dict[bytes, list[int]] = {}
    for row, missing in enumerate(np.isnan(scores)):
        alike.setdefault(missing.tobytes(), []).append(row)
    for rows in alike.values():
        kept = ~np.isnan(scores[rows[0]])
        n = int(kept.sum())
        sums, counts = _per_unit(scores[np.ix_(rows, kept)], kept, clusters)
        value = sums.sum(axis=0) / n if n else np.full(len(rows), np.nan)
        low, high = _interval(sums, counts, seed, level, resamples)
        p = _sign_flips(sums, seed, resamples) if flips else np.ones(len(rows))
        for place, row in enumerate(rows):
            numbers = (float(value[place]), float(low[place]), float(high[place]))
            found[row] = (Estimate(*numbers, n, int(len(kept) - n)), float(p[place]))
    return found


_EMPTY = Estimate(float("nan"), float("nan"), float("nan"), 0, 0)


def _per_unit(
    scores: NDArray[np.float64], kept: NDArray[np.bool_], clusters: Sequence[str | None] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sums, shape (units, columns), and numbers of scorable questions, shape (units,), of independent units."""
    if clusters is None:
        return scores.T, np.ones(scores.shape[1])
    labels = [f"#{row}" if label is None else f"={label}" for row, label in enumerate(clusters)]
    _, units = np.unique(np.asarray(labels)[kept], return_inverse=True)
    sums = [np.bincount(units, weights=column) for column in scores]
    return np.stack(sums, axis=1), np.bincount(units).astype(np.float64)


def _interval(
    sums: NDArray[np.float64], counts: NDArray[np.float64], seed: int, level: float, resamples: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentiles of the means of resamples of units with replacement; NaN with fewer than two units."""
    units, columns = sums.shape
    if units < 2:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    rng = np.random.default_rng(seed)
    means = []
    for size in _blocks(resamples):
        drawn = rng.integers(0, units, (size, units))
        # How often each unit was drawn, for all resamples of the block in one count.
        flat = np.bincount((drawn + np.arange(size)[:, None] * units).ravel(), minlength=size * units)
        weights = flat.reshape(size, units).astype(np.float64)
        means.append((weights @ sums) / (weights @ counts)[:, None])
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _sign_flips(sums: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    """Sign-flip p-values of columns of units, shape (columns,); 1 for a column without any difference."""
    units, columns = sums.shape
    # Sums that are equal in exact arithmetic must count as equal whatever the order of adding was.
    bar = np.abs(sums.sum(axis=0)) - 1e-9 * np.abs(sums).sum(axis=0)
    rng = np.random.default_rng(seed)
    extreme = np.zeros(columns)
    for size in _blocks(resamples):
        signs = rng.integers(0, 2, (size, units), dtype=np.int8).astype(np.float64) * 2 - 1
        extreme += (np.abs(signs @ sums) >= bar).sum(axis=0)
    return np.where(np.abs(sums).sum(axis=0) > 0, (extreme + 1) / (resamples + 1), 1.0)


def _blocks(resamples: int) -> list[int]:
    return [min(_BLOCK, resamples - start) for start in range(0, resamples, _BLOCK)]
