"""Bootstrap over independent clusters for statistics other than means (agreement, strengths).

A statistic of sums over questions is computed from resampled sums: the number of times that each cluster was drawn,
shape (resamples, clusters), times one row of sums per cluster, without going back to the rows behind the sums. Means have a
closed form (`sums.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from results.statistics.core import Clusters, Estimate, Floats, Resampling, Support, cluster_positions

_BLOCK = 32
"""Resamples drawn at a time, few enough for the processor's cache."""
_KEPT = 2**23
"""Weights cached at a time, because a page computes many columns over the same questions. At most two bytes each, four sets of them."""
_UNDEFINED = 0.01
"""Share of resamples without a value above which a report is made."""
SAME = 1e-9
"""Maximum spread of resamples that differ only by rounding."""
FEWEST = 30
"""Minimum number of clusters; with fewer, intervals undercover in simulations."""


def bootstrap_weights(clusters: int, seed: int, resamples: int) -> Iterator[Floats]:
    """Yield bootstrap weights: how often each cluster is drawn with replacement, in blocks of shape (≤ 32, clusters)."""
    if clusters * resamples > _KEPT:
        yield from _drawn(clusters, seed, resamples)
        return
    kept = _kept_weights(clusters, seed, resamples)
    for start in range(0, resamples, _BLOCK):
        yield kept[start : start + _BLOCK].astype(np.float64)


@lru_cache(maxsize=4)
def _kept_weights(clusters: int, seed: int, resamples: int) -> NDArray[np.unsignedinteger]:
    kept = np.empty((resamples, clusters), dtype=np.min_scalar_type(clusters))
    for number, block in enumerate(_drawn(clusters, seed, resamples)):
        kept[number * _BLOCK : (number + 1) * _BLOCK] = block
    return kept


def _drawn(clusters: int, seed: int, resamples: int) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    position = np.empty((_BLOCK, clusters), dtype=np.int64)
    for start in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - start)
        drawn = rng.integers(0, clusters, (size, clusters), dtype=np.int32)
        # Each resample counts into its own stretch, so that one count serves the whole block.
        np.add(drawn, np.arange(size, dtype=np.int64)[:, None] * clusters, out=position[:size])
        flat = np.bincount(position[:size].ravel(), minlength=size * clusters)
        yield flat.reshape(size, clusters).astype(np.float64)


def cluster_table(table: Floats, clusters: Clusters, kept: NDArray[np.bool_] | None = None) -> tuple[Floats, Support]:
    """Sum a per-question table over clusters, and count questions and clusters.

    Args:
        table: Shape (kept questions, columns).
        clusters, kept: Cluster labels of all questions, and a mask of the kept ones, as in `cluster_positions`.

    Returns:
        The sums, shape (clusters, columns), and the numbers of questions and clusters.
    """
    positions, sizes = cluster_positions(clusters, len(table), kept)
    sums = np.zeros((len(sizes), table.shape[1]))
    np.add.at(sums, positions, table)
    return sums, Support(len(table), len(sizes))


def resampled_sums(table: Floats, how: Resampling) -> Iterator[Floats]:
    """Yield column sums over bootstrap resamples of clusters, in blocks of shape (≤ 32, columns); nothing with fewer than two clusters."""
    if len(table) < 2:
        return
    for weights in bootstrap_weights(len(table), how.seed, how.resamples):
        yield weights @ table


def estimate_of(value: float, draws: Floats, support: Support, unscorable: int, level: float, doubt: str = "") -> Estimate:
    """Combine a statistic with its bootstrap interval; without an interval if there are too few clusters.

    Percentiles are expanded to the width of Student's t, because those of few clusters are too
    narrow.

    Args:
        value: The statistic of the sample.
        draws: The statistic of each resample, shape (resamples,). NaN (no value) is ignored, and reported if it is frequent. If
            all are equal, as after perfect agreement, there is no interval.
        support: Number of questions and clusters of the sample.
        unscorable: Number of questions left out.
        level: Coverage of the interval.
        doubt: A further reservation about the interval.

    Source: Hesterberg (2015), "What teachers should know about the bootstrap", section 5.3 (expanded percentile); order
        statistics as in Davison & Hinkley (1997), section 5.2.
    """
    few = support.clusters < FEWEST
    reasons = [f"{support.clusters} clusters, fewer than {FEWEST}"] if few else []
    known = np.sort(draws[~np.isnan(draws)])
    if len(draws) and len(known) < (1 - _UNDEFINED) * len(draws):
        reasons.append(f"undefined in {1 - len(known) / len(draws):.1%} of the resamples")
    if doubt:
        reasons.append(doubt)
    low = high = np.nan
    # Thirty items without a disagreement do not prove that disagreement never occurs, as a width of 0 would claim.
    constant = len(known) > 0 and bool(known[-1] - known[0] <= SAME)
    if constant and not few and not np.isnan(value):
        reasons.append("all resamples have the same value, so the variance is unknown")
    if not np.isnan(value) and not few and len(known) and not constant:
        freedom = support.clusters - 1
        tail = float(scipy.special.ndtr(np.sqrt(support.clusters / freedom) * scipy.special.stdtrit(freedom, (1 - level) / 2)))
        rank = int(np.clip(np.floor(tail * (len(known) + 1)), 1, len(known)))
        low, high = float(known[rank - 1]), float(known[len(known) - rank])
    return Estimate(value, low, high, support.n, unscorable, support.clusters, "; ".join(reasons))
