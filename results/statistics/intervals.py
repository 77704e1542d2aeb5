"""Means, paired differences and differences of all pairs, each with its interval."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.bootstrap import (
    Distribution,
    Units,
    alike,
    bootstrap_means,
    distribution,
    distribution_of,
    rows_of,
    sign_flip_ps,
    signed_sums,
    units_of,
)
from results.statistics.core import (
    LEVEL,
    METHOD,
    RESAMPLES,
    Clusters,
    Difference,
    Estimate,
    Floats,
    Method,
    doubt_about_difference,
    doubt_about_mean,
)

_PAIRS = 256
"""Pairs of methods whose bootstrap distributions are held at a time."""


def estimate(
    values: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> Estimate:
    """Mean and bootstrap interval over questions; `estimates` of a single column."""
    column = np.asarray(values, dtype=np.float64)[None, :]
    return estimates(column, clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)[0]


def estimates(
    columns: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> list[Estimate]:
    """Means and bootstrap intervals of many columns over the same questions; equal gaps share their resamples.

    Args:
        columns: Shape (columns, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are resampled together. None stands alone.
        seed: Of the resampling.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.
        method: How the interval is read off; see `Distribution`.

    Source: Efron & Tibshirani (1993); clusters as in the cluster bootstrap of Field & Welsh (2007).
    """
    scores = rows_of(columns)
    missing = np.isnan(scores)
    found: list[Estimate] = [Estimate(np.nan, np.nan, np.nan, 0, 0)] * len(scores)
    for rows in alike(missing):
        kept = ~missing[rows[0]]
        present = scores[np.ix_(rows, kept)]
        units = units_of(present, clusters, kept)
        low, high = distribution_of(units, seed, resamples, method).interval(level)
        support, means, skew = units.support, units.means, units.skew
        for place, row in enumerate(rows):
            doubt = doubt_about_mean(present[place], support, float(skew[place]))
            found[row] = Estimate(
                float(means[place]), float(low[place]), float(high[place]), support.n, len(kept) - support.n, support.units, doubt
            )
    return found


def difference(
    candidate: ArrayLike,
    reference: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> Difference:
    """Paired difference of two methods on the same questions; `differences` of a single pair."""
    a, b = np.asarray(candidate, np.float64)[None, :], np.asarray(reference, np.float64)[None, :]
    return differences(a, b, clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)[0]


def differences(
    candidates: ArrayLike,
    references: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> list[Difference]:
    """Paired differences of many pairs of methods, question by question.

    The interval is a paired bootstrap; the p-value flips the sign of each question's (or cluster's) difference.

    Args:
        candidates, references: Shape (pairs, questions), row by row of the same questions.
        clusters, seed, level, resamples, method: As in `estimates`.

    Raises:
        ValueError: The arrays differ in shape: they are not about the same questions.
    """
    found = differences_with_distributions(
        candidates, references, clusters=clusters, seed=seed, level=level, resamples=resamples, method=method
    )
    return [one for one, _ in found]


def differences_with_distributions(
    candidates: ArrayLike,
    references: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> list[tuple[Difference, Distribution]]:
    """`differences`, each with the one-row bootstrap distribution that its interval was read off."""
    a, b = rows_of(candidates), rows_of(references)
    if a.shape != b.shape:
        raise ValueError(f"paired scores must be of the same questions, got {a.shape} and {b.shape}")
    delta = a - b
    missing = np.isnan(delta)
    found: dict[int, tuple[Difference, Distribution]] = {}
    for rows in alike(missing):
        kept = ~missing[rows[0]]
        present = delta[np.ix_(rows, kept)]
        units = units_of(present, clusters, kept)
        spread = distribution_of(units, seed, resamples, method)
        p = sign_flip_ps(units.sums, seed, resamples)
        for place, (row, one) in enumerate(zip(rows, _differences(present, units, spread, p, level), strict=True)):
            part = slice(place, place + 1)
            alone = Distribution(spread.means[part], spread.units, method, spread.bias[part], spread.acceleration[part])
            found[row] = one, alone
    return [found[row] for row in range(len(delta))]


def all_pairs(
    columns: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> dict[tuple[int, int], Difference]:
    """Paired differences, i minus j, of every pair i < j of methods: what `differences` gives pair by pair.

    A difference of means is the difference of two resampled means, and a signed sum of differences the difference of
    two signed sums, so resampling costs one matrix product over the methods, not one over the pairs. That holds for
    all pairs with the same gaps; every other pattern of gaps is resampled over its own questions.

    Args:
        columns: Shape (methods, questions) of the same questions; NaN is unscorable.
        clusters, seed, level, resamples, method: As in `estimates`.
    """
    scores = rows_of(columns)
    missing = np.isnan(scores)
    pairs = list(itertools.combinations(range(len(scores)), 2))
    found: dict[tuple[int, int], Difference] = {}
    for same in _pairs_alike(missing, pairs):
        kept = ~(missing[same[0][0]] | missing[same[0][1]])
        rows = sorted({row for pair in same for row in pair})
        present = scores[np.ix_(rows, kept)]
        place = {row: number for number, row in enumerate(rows)}
        units = units_of(present, clusters, kept)
        count = len(units.counts)
        means = bootstrap_means(units, seed, resamples) if count > 1 else np.empty((len(rows), 0))
        places = np.array([(place[i], place[j]) for i, j in same])
        p = _pair_ps(units.sums, places, seed, resamples)
        for start in range(0, len(same), _PAIRS):
            left, right = places[start : start + _PAIRS].T
            delta = present[left] - present[right]
            sums = units.sums[:, left] - units.sums[:, right]
            paired = Units(sums, units.counts, units.clustered)
            spread = distribution(means[left] - means[right], paired.means, paired.skew, count, method, overwrite=True)
            part = slice(start, start + _PAIRS)
            found.update(zip(same[part], _differences(delta, paired, spread, p[part], level), strict=True))
    return {pair: found[pair] for pair in pairs}


def sign_flip_all_pairs(columns: ArrayLike, *, clusters: Clusters = None, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Two-sided sign-flip p-values of every pair of methods without gaps, a symmetric matrix with ones on its diagonal.

    Args:
        columns: Shape (methods, questions), no NaN.
        clusters, seed, resamples: As in `estimates`.

    Raises:
        ValueError: A score is missing: `all_pairs` handles gaps.
    """
    scores = rows_of(columns)
    if np.isnan(scores).any():
        raise ValueError("scores with gaps have no common questions: use all_pairs")
    places = np.array(list(itertools.combinations(range(len(scores)), 2)), dtype=np.int64).reshape(-1, 2)
    matrix = np.ones((len(scores), len(scores)))
    left, right = places.T
    matrix[left, right] = matrix[right, left] = _pair_ps(units_of(scores, clusters).sums, places, seed, resamples)
    return matrix


def _differences(delta: Floats, units: Units, spread: Distribution, p: Floats, level: float) -> Iterator[Difference]:
    """Differences from their parts; `delta` has shape (pairs, questions), all without gaps."""
    low, high = spread.interval(level)
    wins, losses = (delta > 0).sum(axis=1), (delta < 0).sum(axis=1)
    support, means, skew = units.support, units.means, units.skew
    for row, (won, lost) in enumerate(zip(wins.tolist(), losses.tolist(), strict=True)):
        yield Difference(
            float(means[row]),
            float(low[row]),
            float(high[row]),
            support.n,
            float(p[row]),
            won,
            support.n - won - lost,
            lost,
            support.units,
            doubt_about_difference(won + lost, support, float(skew[row])),
        )


def _pair_ps(sums: Floats, places: np.ndarray, seed: int, resamples: int) -> Floats:
    """Sign-flip p-values of pairs of columns, shape (pairs,), from the signed sums of the columns themselves."""
    left, right = places.T
    size = np.array([np.abs(sums[:, i] - sums[:, j]).sum() for i, j in places])
    total, scale = sums.sum(axis=0), np.abs(sums).sum(axis=0)
    # As in `sign_flip_ps`; subtracting signed sums rounds on the scale of the columns, not of their difference.
    bar = np.abs(total[left] - total[right]) - 1e-9 * size - 1e-14 * (scale[left] + scale[right])
    extreme = np.zeros(len(places))
    for block in signed_sums(sums, seed, resamples):
        extreme += (np.abs(block[:, left] - block[:, right]) >= bar).sum(axis=0)
    return np.where(size > 0, (extreme + 1) / (resamples + 1), 1.0)


def _pairs_alike(missing: np.ndarray, pairs: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Pairs grouped by the questions on which one of the two has a gap."""
    packed = np.packbits(missing, axis=1)
    groups: dict[bytes, list[tuple[int, int]]] = {}
    for i, j in pairs:
        groups.setdefault((packed[i] | packed[j]).tobytes(), []).append((i, j))
    yield from groups.values()
