"""Resampling: independent units, bootstrap weights, sign flips, and the intervals and p-values read off them.

A bootstrap of means is a matrix product: how often each unit was drawn, shape (resamples, units), times the units'
sums, shape (units, columns). The weights are drawn once for all columns that have the same gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from results.statistics.core import Clusters, Estimate, Floats, Method, Support

_BLOCK = 32
"""Resamples drawn at a time: few enough to stay in the processor's cache."""
_KEPT = 2**23
"""Weights that are kept for whoever asks next: a page computes column after column over the same questions. At most two
bytes each, four sets of them."""
_EQUAL = 1e-12
"""Means nearer than this are equal: they are in exact arithmetic, whatever the order of adding was."""


@dataclass(frozen=True, slots=True)
class Units:
    """Independent units of questions.

    Attributes:
        sums: Shape (units, columns), the sum of each unit's scores.
        counts: Shape (units,), the number of its questions.
        clustered: Whether units are clusters of questions.
    """

    sums: Floats
    counts: Floats
    clustered: bool

    @property
    def means(self) -> Floats:
        """Mean of each column over all questions, shape (columns,); NaN without any."""
        total = self.counts.sum()
        return self.sums.sum(axis=0) / total if total else np.full(self.sums.shape[1], np.nan)

    @property
    def support(self) -> Support:
        """What stands behind means of these units."""
        n, squares = float(self.counts.sum()), float((self.counts**2).sum())
        return Support(round(n), len(self.counts), n**2 / squares if squares else 0.0, self.clustered)

    @property
    def influence(self) -> Floats:
        """How far each unit pulls the mean from where it would be without it, shape (units, columns)."""
        without = (self.sums.sum(axis=0) - self.sums) / (self.counts.sum() - self.counts)[:, None]
        return without.mean(axis=0) - without

    @property
    def skew(self) -> Floats:
        """Skewness of the influences over the root of the units' number, shape (columns,); 0 where all are equal."""
        if len(self.counts) < 2:
            return np.zeros(self.sums.shape[1])
        pull = self.influence
        square = np.einsum("uc,uc->c", pull, pull)
        cube = np.einsum("uc,uc,uc->c", pull, pull, pull)
        flat = square <= _EQUAL**2 * len(pull)
        return np.where(flat, 0.0, cube / np.where(flat, 1.0, square) ** 1.5)


def units_of(scores: Floats, clusters: Clusters, kept: NDArray[np.bool_] | None = None) -> Units:
    """Group questions into independent units.

    Args:
        scores: Shape (columns, kept questions), without gaps.
        clusters: One label per question, None for questions that stand alone.
        kept: Which of the labeled questions the scores are of; None for all.
    """
    if clusters is None:
        return Units(np.ascontiguousarray(scores.T), np.ones(scores.shape[1]), False)
    positions, sizes = unit_positions(clusters, scores.shape[1], kept)
    sums = np.zeros((len(sizes), len(scores)))
    for column, row in enumerate(scores):
        sums[:, column] = np.bincount(positions, weights=row, minlength=len(sizes))
    return Units(sums, sizes.astype(np.float64), bool((sizes > 1).any()))


def unit_positions(
    clusters: Clusters, questions: int, kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which independent unit each question belongs to, shape (questions,), and how many questions each unit holds.

    Args:
        clusters, kept: As in `units_of`.
        questions: Number of (kept) questions.

    Raises:
        ValueError: There are more or fewer labels than questions.
    """
    if clusters is None:
        return np.arange(questions), np.ones(questions, dtype=np.int64)
    labels = np.asarray([f"#{row}" if label is None else f"={label}" for row, label in enumerate(clusters)])
    labeled = questions if kept is None else len(kept)
    if len(labels) != labeled:
        raise ValueError(f"{len(labels)} cluster labels for {labeled} questions")
    if kept is not None:
        labels = labels[kept]
    _, positions, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return positions, sizes


def bootstrap_weights(units: int, seed: int, resamples: int) -> Iterator[Floats]:
    """How often each unit is drawn, with replacement, in blocks of shape (≤ 32, units)."""
    if units * resamples > _KEPT:
        yield from _drawn(units, seed, resamples)
        return
    kept = _kept_weights(units, seed, resamples)
    for start in range(0, resamples, _BLOCK):
        yield kept[start : start + _BLOCK].astype(np.float64)


@lru_cache(maxsize=4)
def _kept_weights(units: int, seed: int, resamples: int) -> NDArray[np.unsignedinteger]:
    kept = np.empty((resamples, units), dtype=np.min_scalar_type(units))
    for number, block in enumerate(_drawn(units, seed, resamples)):
        kept[number * _BLOCK : (number + 1) * _BLOCK] = block
    return kept


def _drawn(units: int, seed: int, resamples: int) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    position = np.empty((_BLOCK, units), dtype=np.int64)
    for start in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - start)
        drawn = rng.integers(0, units, (size, units), dtype=np.int32)
        # Each resample counts into its own stretch, so that one count serves the whole block.
        np.add(drawn, np.arange(size, dtype=np.int64)[:, None] * units, out=position[:size])
        flat = np.bincount(position[:size].ravel(), minlength=size * units)
        yield flat.reshape(size, units).astype(np.float64)


def bootstrap_means(units: Units, seed: int, resamples: int) -> Floats:
    """Means of resamples of units with replacement, shape (columns, resamples); needs two units."""
    means = np.empty((resamples, units.sums.shape[1]))
    start = 0
    for weights in bootstrap_weights(len(units.counts), seed, resamples):
        questions = weights @ units.counts
        np.divide(weights @ units.sums, questions[:, None], out=means[start : start + len(weights)])
        start += len(weights)
    return np.ascontiguousarray(means.T)


def signed_sums(sums: Floats, seed: int, resamples: int) -> Iterator[Floats]:
    """Sums under random signs of the units, blocks of shape (≤ 32, columns); the same signs for every column."""
    rng = np.random.default_rng(seed)
    units, total = len(sums), sums.sum(axis=0)
    for start in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - start)
        packed = rng.integers(0, 256, (size, (units + 7) // 8), dtype=np.uint8)
        plus = np.unpackbits(packed, axis=1, count=units)
        yield 2.0 * (plus.astype(np.float64) @ sums) - total


def sign_flip_ps(sums: Floats, seed: int, resamples: int) -> Floats:
    """Two-sided sign-flip p-values of columns of units, shape (columns,); 1 for a column without any difference."""
    size = np.abs(sums).sum(axis=0)
    # Sums that are equal in exact arithmetic must count as equal whatever the order of adding was.
    bar = np.abs(sums.sum(axis=0)) - 1e-9 * size
    extreme = np.zeros(sums.shape[1])
    for block in signed_sums(sums, seed, resamples):
        extreme += (np.abs(block) >= bar).sum(axis=0)
    return np.where(size > 0, (extreme + 1) / (resamples + 1), 1.0)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Bootstrap distributions of means, and the intervals and one-sided p-values read off them.

    A bound at one-sided level alpha is an order statistic, and the p-value of "the mean is below x" is the smallest
    alpha whose upper bound lies below x, so bounds and p-values never contradict each other. The methods differ in
    which order statistic belongs to alpha:

    - `percentile`: the alpha quantile itself.
    - `expanded`: the quantile at which a normal curve has the width of Student's t; the percentile interval of few
      units is too narrow by exactly that. For many units the two are the same.
    - `bca`: corrected for bias and for skewness (acceleration from the jackknife over units).

    Attributes:
        means: Shape (columns, resamples), each row sorted.
        units: Number of independent units resampled.
        method: As above.
        bias, acceleration: Shape (columns,), used by `bca` alone.

    Source: Efron & Tibshirani (1993), chapters 13–14; Hesterberg (2015), "What teachers should know about the
    bootstrap", section 5.3 (expanded percentile); order statistics as in Davison & Hinkley (1997), section 5.2.
    """

    means: Floats
    units: int
    method: Method
    bias: Floats
    acceleration: Floats

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Two-sided bounds of every column, each of shape (columns,); NaN with fewer than two units."""
        alpha = (1 - level) / 2
        return self.bound(alpha, upper=False), self.bound(alpha, upper=True)

    def bound(self, alpha: float, *, upper: bool) -> Floats:
        """One-sided bounds of every column at level alpha, shape (columns,)."""
        columns, resamples = self.means.shape
        if self.units < 2 or not resamples:
            return np.full(columns, np.nan)
        rank = np.floor(self._tail(alpha, upper=upper) * (resamples + 1)).astype(np.int64).clip(1, resamples)
        return self.means[np.arange(columns), resamples - rank if upper else rank - 1]

    def p_below(self, bar: float) -> Floats:
        """One-sided p-values of the claim that the mean lies below the bar, shape (columns,); 1 without an interval."""
        return self._p((self.means >= bar - _EQUAL).sum(axis=1), upper=True)

    def p_above(self, bar: float) -> Floats:
        """One-sided p-values of the claim that the mean lies above the bar, shape (columns,); 1 without an interval."""
        return self._p((self.means <= bar + _EQUAL).sum(axis=1), upper=False)

    def _tail(self, alpha: float, *, upper: bool) -> Floats:
        """Share of the resamples that lie beyond the one-sided bound at level alpha."""
        if self.method == "bca":
            z = self.bias + scipy.special.ndtri(1 - alpha if upper else alpha)
            z = self.bias + z / (1 - self.acceleration * z)
            return scipy.special.ndtr(-z if upper else z)
        if self.method == "expanded":
            freedom = self.units - 1
            alpha = float(scipy.special.ndtr(np.sqrt(self.units / freedom) * scipy.special.stdtrit(freedom, alpha)))
        return np.full(len(self.means), alpha)

    def _p(self, against: NDArray[np.int64], *, upper: bool) -> Floats:
        """The inverse of `_tail`: the level whose bound leaves so many resamples beyond it."""
        columns, resamples = self.means.shape
        if self.units < 2 or not resamples:
            return np.ones(columns)
        # A share of 1 would be infinitely far out on the normal scale.
        tail = np.minimum((against + 1) / (resamples + 1), 1 - 0.5 / (resamples + 1))
        if self.method == "bca":
            w = (-scipy.special.ndtri(tail) if upper else scipy.special.ndtri(tail)) - self.bias
            z = w / (1 + self.acceleration * w) - self.bias
            return scipy.special.ndtr(-z if upper else z)
        if self.method == "expanded":
            return scipy.special.stdtr(self.units - 1, scipy.special.ndtri(tail) / np.sqrt(self.units / (self.units - 1)))
        return tail


def distribution(means: Floats, observed: Floats, skew: Floats, units: int, method: Method, *, overwrite: bool = False) -> Distribution:
    """Bootstrap distributions of means.

    Args:
        means: Shape (columns, resamples).
        observed: Shape (columns,), the means of the sample itself.
        skew: Shape (columns,), as in `Units.skew`.
        units: Independent units resampled.
        method: How bounds are read off.
        overwrite: Whether `means` may be sorted in place.

    Raises:
        ValueError: No such method.
    """
    if method not in ("expanded", "percentile", "bca"):
        raise ValueError(f"no interval method {method!r}: choose expanded, percentile or bca")
    columns, resamples = means.shape
    bias = acceleration = np.zeros(columns)
    if method == "bca" and resamples:
        at = observed[:, None]
        below = (means < at - _EQUAL).sum(axis=1) + 0.5 * (np.abs(means - at) <= _EQUAL).sum(axis=1)
        edge = 0.5 / (resamples + 1)
        bias = scipy.special.ndtri((below / resamples).clip(edge, 1 - edge))
        acceleration = skew / 6
    if overwrite:
        means.sort(axis=1)
    else:
        means = np.sort(means, axis=1)
    return Distribution(means, units, method, bias, acceleration)


def distribution_of(units: Units, seed: int, resamples: int, method: Method) -> Distribution:
    """Bootstrap distributions of the means of every column of the units."""
    if len(units.counts) < 2:
        means = np.empty((units.sums.shape[1], 0))
    else:
        means = bootstrap_means(units, seed, resamples)
    return distribution(means, units.means, units.skew, len(units.counts), method, overwrite=True)


def rows_of(values: ArrayLike) -> Floats:
    """Scores as an array of shape (columns, questions); a single column may come flat."""
    return np.atleast_2d(np.asarray(values, dtype=np.float64))


def alike(missing: NDArray[np.bool_]) -> Iterator[list[int]]:
    """Rows of a mask, shape (rows, questions), grouped by equal gaps."""
    groups: dict[bytes, list[int]] = {}
    for row, gaps in enumerate(missing):
        groups.setdefault(np.packbits(gaps).tobytes(), []).append(row)
    yield from groups.values()


# -- Intervals of statistics that are no means (agreement, strengths): sums per unit, resampled, then recomputed --
# Whatever can be computed from sums over questions can be computed from resampled sums: the weights of the bootstrap
# times one row of the table per unit, as in `bootstrap.py`, without going back to the rows behind the sums.


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
    positions, sizes = unit_positions(clusters, len(table), kept)
    sums = np.zeros((len(sizes), table.shape[1]))
    np.add.at(sums, positions, table)
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
