"""Ranks with their uncertainty, and who cannot be told from the best."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.bootstrap import bootstrap_means, rows_of, units_of
from results.statistics.core import LEVEL, RESAMPLES, Clusters, Floats
from results.statistics.corrections import holm
from results.statistics.intervals import sign_flip_all_pairs


@dataclass(frozen=True, slots=True)
class Rank:
    """A method's place among methods, 1 is best; all over the questions that every one of them was scored on.

    Attributes:
        rank: One more than the number of methods with a better mean; equals share it. 0 where nothing was shared.
        low, high: Bootstrap interval of the rank: where it would have come on other questions like these. Between
            methods that are equal in truth it is too narrow.
        surely_low, surely_high: One more than the number of methods that are significantly better, and the number
            of methods less those that are significantly worse. Holds for all methods at once with the stated level.
        value: Mean over the shared questions.
        n: Shared questions.
        p_best: p-value of the difference to the best method, Holm-corrected over all pairs; 1 for the best itself.
        separable_from_best: Whether some method is significantly better, the best of them or another. False never means
            "as good as".
    """

    rank: int
    low: int
    high: int
    surely_low: int
    surely_high: int
    value: float
    n: int
    p_best: float
    separable_from_best: bool


def ranks(
    columns: ArrayLike,
    *,
    higher_is_better: bool = True,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> list[Rank]:
    """Rank of every method with intervals, in the order given.

    A question that one of the methods was not scored on counts for none: methods are ranked on the same questions.

    Two methods are told apart where a paired two-sided sign-flip test does so at 1 - level. Which
    method is the best is seen on the same questions, and whoever came out on top by luck differs from the others by
    more than chance; so the p-values are Holm-corrected over all pairs of methods, which holds for whichever pair one
    picks afterwards. Correcting over the comparisons with the best alone would not. Sign flips are raised in number
    with the pairs, so that the correction cannot make a finding impossible.

    Args:
        columns: Shape (methods, questions); NaN is unscorable.
        higher_is_better: False for a metric of which less is better.
        clusters, seed, level, resamples: As in `estimates`.

    Source: rank bootstrap as in Goldstein & Spiegelhalter (1996); sure ranks from pairwise tests as in Mogstad et al.
        (2024), "Inference for ranks".
    """
    scores = rows_of(columns) if higher_is_better else -rows_of(columns)
    methods = len(scores)
    kept = np.asarray(~np.isnan(scores).any(axis=0), dtype=np.bool_)
    n = int(kept.sum())
    if not n:
        return [Rank(0, 0, 0, 0, 0, math.nan, 0, math.nan, False)] * methods
    shared = scores[:, kept]
    units = units_of(shared, clusters, kept)
    means = units.means
    places = _places(means[:, None])[:, 0]
    low, high = np.ones(methods, np.int64), np.full(methods, methods)
    if len(units.counts) > 1:
        drawn = np.sort(_places(bootstrap_means(units, seed, resamples)), axis=1)
        outside = int((1 - level) / 2 * (resamples + 1))
        low, high = drawn[:, max(outside - 1, 0)], drawn[:, min(resamples - outside, resamples - 1)]
    labels = None if clusters is None else [label for label, use in zip(clusters, kept, strict=True) if use]
    p = _corrected(shared, labels, seed, level, resamples)
    sure = p <= 1 - level
    better = (sure & (means[None, :] > means[:, None])).sum(axis=1)
    worse = (sure & (means[None, :] < means[:, None])).sum(axis=1)
    best = int(means.argmax())
    sign = 1 if higher_is_better else -1
    return [
        Rank(
            int(places[row]),
            int(low[row]),
            int(high[row]),
            1 + int(better[row]),
            methods - int(worse[row]),
            sign * float(means[row]),
            n,
            float(p[row, best]),
            bool(better[row]),
        )
        for row in range(methods)
    ]


def _places(means: Floats) -> NDArray[np.int64]:
    """Competition ranks within each column of shape (methods, draws); means equal up to rounding are equal."""
    near = np.round(means, 12)
    places = np.ones(near.shape, dtype=np.int64)
    for row in near:
        places += row > near
    return places


def _corrected(scores: Floats, clusters: Clusters, seed: int, level: float, resamples: int) -> Floats:
    """Sign-flip p-values of all pairs, Holm-corrected over them, shape (methods, methods) with ones on the diagonal."""
    methods = len(scores)
    pairs = list(itertools.combinations(range(methods), 2))
    # The smallest p-value, times the number of pairs, must come to a fifth of what rejects.
    flips = max(resamples, math.ceil(5 * len(pairs) / (1 - level)))
    p = sign_flip_all_pairs(scores, clusters=clusters, seed=seed, resamples=flips)
    corrected = np.ones((methods, methods))
    for (i, j), value in zip(pairs, holm([float(p[i, j]) for i, j in pairs]), strict=True):
        corrected[i, j] = corrected[j, i] = value
    return corrected
