"""Means and paired differences of all pairs of methods in closed form, for tables of thousands of cells.

What resampling (`intervals.py`) answers one board at a time, this answers for twenty boards of a hundred
methods within a second: Student's t on independent units, where questions that share a document are one unit. Where
resampling is a count of coin tosses (every difference is of the same size) the p-value is that count's, exactly; and no
p-value is less than sign flips of the units that differ could ever give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from results.statistics.bootstrap import rows_of, unit_positions
from results.statistics.core import LEVEL, Clusters, Floats

_EQUAL = 1e-12
"""Sums nearer than this are equal: they are in exact arithmetic, whatever the order of adding was."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Means of several rows of scores or of differences; all arrays are of one shape.

    Attributes:
        value: Mean over the questions that count; NaN without any.
        half: Half the 95 % interval; NaN with fewer than two units.
        n: Questions that count.
        units: Independent units among them.
        changed: Units whose sum is not zero.
        p: Two-sided p-value of the hypothesis that the mean is 0; NaN without questions.
    """

    value: Floats
    half: Floats
    n: NDArray[np.int64]
    units: NDArray[np.int64]
    changed: NDArray[np.int64]
    p: Floats


def means(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Moments:
    """The mean of every method, arrays of shape (methods,).

    Args:
        columns: Shape (methods, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are one unit. None stands alone.
        level: Coverage of the interval.

    Source: linearized ratio estimator over clusters, Cochran (1977), "Sampling Techniques", section 9.
    """
    scores, known, starts = _arranged(rows_of(columns), clusters)
    return _moments(np.stack(_sums(scores, None if known.all() else known, starts)), level)


def all_differences(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Moments:
    """Paired differences, row minus column, of all pairs of methods, arrays of shape (methods, methods).

    A pair is compared on the questions that both were scored on. On the diagonal stand zeros with p = 1.

    Args:
        columns, clusters, level: As in `means`.

    Source: paired t-test; sign flips of equal sizes are the sign test, Fisher (1935).
    """
    scores, known, starts = _arranged(rows_of(columns), clusters)
    methods, whole = len(scores), bool(known.all())
    upper = np.triu_indices(methods, 1)
    sums = np.zeros((_SUMS, len(upper[0])))
    start = 0
    for row in range(methods - 1):
        delta, common = scores[row] - scores[row + 1 :], None
        if not whole:
            common = known[row] & known[row + 1 :]
            delta *= common
        end = start + len(delta)
        for target, result in zip(sums, _sums(delta, common, starts), strict=True):
            target[start:end] = result
        start = end
    return _square(_moments(sums, level), upper, known.sum(axis=1))


@dataclass(frozen=True, slots=True)
class Band:
    """A method's place, 1 is best.

    Attributes:
        rank: One more than the number of methods that are better on the questions that both were scored on; equals
            share it, and it lies between low and high.
        low, high: One more than the number of methods that are significantly better, and the number of methods less
            those that are significantly worse; holds for all methods at once with the stated level.
        best: Whether nobody is significantly better. That never means "as good as".
    """

    rank: int
    low: int
    high: int
    best: bool


def bands(pairs: Moments, *, positions: NDArray[np.int64] | None = None, higher_is_better: bool = True, level: float = LEVEL) -> list[Band]:
    """Ranks with their uncertainty, from pairwise tests Holm-corrected over all pairs.

    Args:
        pairs: Shape (methods, methods), of these methods, or of more.
        positions: Positions of the methods in `pairs`; None: they are those of `pairs`, in its order.
        higher_is_better: False for a metric of which less is better.
        level: One less the probability of one wrong claim or more.

    Source: Mogstad et al. (2024), "Inference for ranks with applications to mobility across neighborhoods".
    """
    p, differences = pairs.p, pairs.value if higher_is_better else -pairs.value
    if positions is not None and not np.array_equal(positions, np.arange(len(p))):
        p, differences = p[np.ix_(positions, positions)], differences[np.ix_(positions, positions)]
    methods = len(p)
    upper = np.triu_indices(methods, 1)
    corrected = np.ones((methods, methods))
    corrected[upper] = holm_array(p[upper])
    corrected = np.minimum(corrected, corrected.T)
    sure = corrected <= 1 - level
    # Not a number where two share no question: then nobody is ahead.
    behind = np.round(differences, 12) < 0
    worse_than = sure & behind
    return [
        Band(1 + int(behind[row].sum()), 1 + int(worse_than[row].sum()), methods - int(worse_than[:, row].sum()), not worse_than[row].any())
        for row in range(methods)
    ]


def holm_array(p: Floats) -> Floats:
    """`corrections.holm` of many p-values at once, shape (tests,)."""
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(p[order] * steps, 1.0))
    return adjusted


_SUMS = 9
"""Figures that `_sums` gives of a row."""


def _arranged(scores: Floats, clusters: Clusters) -> tuple[Floats, NDArray[np.bool_], NDArray[np.int64] | None]:
    """Scores with 0 where none is known, which are known, and where each unit begins; None: each question is one.

    Questions are ordered so that those of a unit stand together.
    """
    known = ~np.isnan(scores)
    filled = np.where(known, scores, 0.0)
    if clusters is None or not scores.shape[1]:
        return filled, known, None
    positions, sizes = unit_positions(clusters, scores.shape[1])
    order = np.argsort(positions, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return filled[:, order], known[:, order], starts


def _sums(scores: Floats, known: NDArray[np.bool_] | None, starts: NDArray[np.int64] | None) -> tuple[Floats, ...]:
    """What means and tests are made of, `_SUMS` arrays of shape (rows,).

    Args:
        scores: Shape (rows, questions), 0 where not known.
        known: Of the same shape; None: all are.
        starts: Of units.
    """
    sums, counts = scores, np.ones((1, scores.shape[1])) if known is None else known.astype(np.float64)
    if starts is not None:
        sums, counts = np.add.reduceat(scores, starts, axis=1), np.add.reduceat(counts, starts, axis=1)
    ones = np.ones(sums.shape[1])
    total = sums @ ones
    squares = np.einsum("ru,ru->r", sums, sums)
    across = total if known is None and starts is None else np.einsum("ru,ru->r", sums, np.broadcast_to(counts, sums.shape))
    size = np.abs(sums)
    each = np.ones(len(sums))
    return (
        counts.sum(axis=1) * each,
        (counts > 0).sum(axis=1) * each,
        (counts**2).sum(axis=1) * each,
        total,
        squares,
        across,
        np.add.reduce(size > _EQUAL, axis=1, dtype=np.int32) * each,
        size.max(axis=1, initial=0.0),
        size @ ones,
    )


def _moments(sums: Floats, level: float) -> Moments:
    """From sums, shape (`_SUMS`, rows)."""
    n, units, count_squares, total, squares, across, changed, largest, sizes = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        value = total / n
        # Of the residuals sum - mean · count, without building them; what rounding leaves of zero is zero.
        spread = squares - 2 * value * across + value**2 * count_squares
        spread = np.where(spread > _EQUAL * squares, spread, 0.0)
        error = np.sqrt(spread * units / (units - 1)) / n
        half = np.where(units > 1, _quantile(units - 1, (1 + level) / 2) * error, np.nan)
        by_t = 2 * scipy.special.stdtr(np.maximum(units - 1, 1), -np.abs(value / error))
    # |s|² ≤ largest · |s|, and equal for 0 and the largest alone: then all that differ are of one size.
    alike = squares > largest * sizes * (1 - 1e-9)
    leads = np.rint(np.abs(total) / np.where(largest > 0, largest, 1.0))
    fewer = np.maximum(np.floor((changed - leads) / 2), 0.0)
    tosses = np.minimum(2 * scipy.special.bdtr(fewer, changed.astype(np.int64), 0.5), 1.0)
    p = np.where(alike, tosses, np.fmax(by_t, 2.0 ** (1.0 - changed)))
    p = np.where(changed > 0, np.minimum(p, 1.0), 1.0)
    n, units, changed = (array.astype(np.int64) for array in (n, units, changed))
    return Moments(value, half, n, units, changed, np.where(n > 0, p, np.nan))


def _quantile(freedom: Floats, level: float) -> Floats:
    """Student's quantile; costly, so once for each number of degrees of freedom."""
    distinct, positions = np.unique(np.maximum(freedom, 1), return_inverse=True)
    return scipy.special.stdtrit(distinct, level)[positions]


def _square(of_pairs: Moments, upper: tuple[NDArray[np.int64], NDArray[np.int64]], known: NDArray[np.int64]) -> Moments:
    """Pairs above a diagonal as whole matrices."""
    methods = len(known)
    square = {}
    for name in Moments.__slots__:
        flat = getattr(of_pairs, name)
        whole = np.zeros((methods, methods), flat.dtype)
        whole[upper] = flat
        whole += -whole.T if name == "value" else whole.T
        np.fill_diagonal(whole, {"n": known, "units": known, "p": 1.0}.get(name, 0))
        square[name] = whole
    return Moments(**square)
