"""Intervals of statistics that are no means (agreement, strengths): sums per unit, resampled, then recomputed.

Whatever can be computed from sums over questions can be computed from resampled sums: the weights of the bootstrap
times one row of the table per unit, as in `bootstrap.py`, without going back to the rows behind the sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from results.statistics.bootstrap import bootstrap_weights, distribution, unit_places
from results.statistics.core import Clusters, Estimate, Floats, Method, Support

_UNDEFINED = 0.01
"""Share of resamples without a value beyond which the interval is flagged."""


def unit_table(table: Floats, clusters: Clusters, kept: NDArray[np.bool_] | None = None) -> tuple[Floats, Support]:
    """Sums of a per-question table over independent units, and what stands behind them.

    Args:
        table: Shape (kept questions, columns).
        clusters, kept: As in `units_of`.

    Returns:
        Shape (units, columns).
    """
    places, sizes = unit_places(clusters, len(table), kept)
    sums = np.zeros((len(sizes), table.shape[1]))
    np.add.at(sums, places, table)
    return sums, support_of(sizes)


def support_of(sizes: NDArray[np.int64]) -> Support:
    """What stands behind an interval over units of these sizes."""
    n, squares = int(sizes.sum()), float((sizes.astype(np.float64) ** 2).sum())
    return Support(n, len(sizes), n**2 / squares if n else 0.0, bool((sizes > 1).any()))


def resampled_sums(table: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """Column sums of resamples of units with replacement, blocks of shape (≤ 32, columns); none with fewer than two."""
    if len(table) < 2:
        return
    for weights in bootstrap_weights(len(table), seed, resamples):
        yield weights @ table


def estimate_of(value: float, draws: Floats, support: Support, unscorable: int, level: float, method: Method, doubt: str = "") -> Estimate:
    """A statistic with the interval of its resampled values.

    Args:
        value: Of the sample.
        draws: Shape (resamples,); NaN where a resample has no value, which counts for nothing and is said where
            it is not rare.
        support: What stands behind it.
        unscorable: Questions left out.
        level: Coverage of the interval.
        method: `expanded` or `percentile`.
        doubt: Further reasons to doubt the interval.

    Raises:
        ValueError: `bca` was asked for.
    """
    refuse_bca(method)
    reasons = support.doubts(0.0)
    known = draws[~np.isnan(draws)]
    if len(draws) and len(known) < (1 - _UNDEFINED) * len(draws):
        reasons.append(f"undefined in {1 - len(known) / len(draws):.1%} of the resamples")
    if doubt:
        reasons.append(doubt)
    low = high = np.full(1, np.nan)
    if not np.isnan(value):
        spread = distribution(known[None, :], np.array([value]), np.zeros(1), support.units, method)
        low, high = spread.interval(level)
    return Estimate(value, float(low[0]), float(high[0]), support.n, unscorable, support.units, "; ".join(reasons))


def refuse_bca(method: Method) -> None:
    """Raise for the interval method that takes a jackknife, which is known for means alone."""
    if method == "bca":
        raise ValueError("bca is for means: choose expanded or percentile")
