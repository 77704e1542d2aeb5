"""Quality against what it costs: the Pareto front, and compressors at equal delivered tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.bootstrap import rows_of
from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Difference, Estimate, Floats, Method, Ways
from results.statistics.intervals import differences, estimates


def pareto_front(quality: ArrayLike, costs: ArrayLike) -> NDArray[np.bool_]:
    """Which methods are not dominated: none other is at least as good and at least as cheap, and better in one.

    Args:
        quality: Shape (methods,), more is better.
        costs: Shape (methods,) or (methods, columns): tokens, seconds, money; less is better.

    Returns:
        Shape (methods,). Equal methods share the front; whoever has a gap (NaN) is not on it and dominates nobody.

    Raises:
        ValueError: The two are of different numbers of methods.
    """
    good = np.asarray(quality, np.float64)
    paid = np.asarray(costs, np.float64)
    paid = paid[:, None] if paid.ndim == 1 else paid
    if good.ndim != 1 or len(good) != len(paid):
        raise ValueError(f"quality and costs must be of the same methods, got {good.shape} and {paid.shape}")
    less = np.column_stack([-good, paid])
    known = np.asarray(~np.isnan(less).any(axis=1), dtype=np.bool_)
    no_worse = (less[:, None, :] <= less[None, :, :]).all(axis=2)
    better = (less[:, None, :] < less[None, :, :]).any(axis=2)
    dominated = (no_worse & better & known[:, None]).any(axis=0)
    return np.asarray(known & ~dominated, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class AtEqualTokens:
    """Two compressors read at the same number of delivered tokens.

    Attributes:
        tokens: Mean delivered tokens per question at which both were read.
        candidate, reference: Interpolated quality of each.
        difference: Candidate minus reference. Its wins, ties and losses count questions by interpolated scores.
    """

    tokens: float
    candidate: Estimate
    reference: Estimate
    difference: Difference


def at_equal_tokens(
    candidate: tuple[ArrayLike, ArrayLike],
    reference: tuple[ArrayLike, ArrayLike],
    *,
    tokens: Sequence[float] | None = None,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> list[AtEqualTokens]:
    """Compare two compressors where they deliver equally many tokens, not where they were asked for equally many.

    Each was measured at several budgets. Its mean quality is interpolated linearly along its mean delivered tokens;
    there is no extrapolation.

    Args:
        candidate, reference: Scores and delivered tokens, each of shape (budgets, questions), of the same questions;
            NaN is unscorable. A question with a gap anywhere is left out everywhere.
        tokens: Where to compare; None takes every measured mean inside the range that both cover.
        clusters, seed, level, resamples, method: As in `estimates`.

    Returns:
        One comparison per point, ascending; none where the two ranges do not meet.

    Raises:
        ValueError: Shapes differ, two budgets of one compressor deliver equally many tokens on average, or a point lies
            outside the range that both cover.
    """
    sides = [_curve(scores, delivered) for scores, delivered in (candidate, reference)]
    if sides[0][0].shape[1] != sides[1][0].shape[1]:
        raise ValueError("paired curves must be of the same questions")
    gaps = np.isnan(np.concatenate([array for side in sides for array in side])).any(axis=0)
    kept = ~gaps
    if not kept.any():
        return []
    sides = [_by_tokens(scores[:, kept], delivered[:, kept]) for scores, delivered in sides]
    ranges = [delivered.mean(axis=1) for _, delivered in sides]
    least, most = max(means[0] for means in ranges), min(means[-1] for means in ranges)
    if tokens is None:
        points = np.unique(np.concatenate(ranges))
        points = points[(points >= least) & (points <= most)]
    else:
        points = np.unique(np.asarray(tokens, np.float64))
        if len(points) and not (least <= points[0] and points[-1] <= most):
            raise ValueError(f"both compressors were measured from {least:g} to {most:g} tokens, not beyond")
    if not len(points):
        return []
    columns = np.full((2, len(points), len(kept)), np.nan)
    for side, (scores, delivered) in enumerate(sides):
        for place, point in enumerate(points):
            columns[side, place, kept] = interpolated(scores, delivered, float(point))
    ways = Ways(clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)
    values = estimates(columns.reshape(-1, len(kept)), **ways)
    found = differences(columns[0], columns[1], **ways)
    return [AtEqualTokens(float(point), values[place], values[len(points) + place], found[place]) for place, point in enumerate(points)]


def interpolated(scores: Floats, delivered: Floats, point: float) -> Floats:
    """Per-question scores whose mean is the interpolated quality and whose spread is its uncertainty.

    With a(t) the weight of the upper of the two neighbouring budgets, the mean quality at t is linear in the two
    scores, and depends on the tokens through a. To first order a question that delivers more tokens than the mean
    shifts the curve by so much times its slope: the linearised (delta method) score subtracts that.

    Args:
        scores, delivered: Shape (budgets, questions), without gaps, ascending in mean tokens.
        point: Mean tokens at which to read, within the range.

    Returns:
        Shape (questions,).
    """
    means = delivered.mean(axis=1)
    if len(means) == 1:
        return scores[0]
    upper = int(np.searchsorted(means, point).clip(1, len(means) - 1))
    lower = upper - 1
    width = means[upper] - means[lower]
    share = (point - means[lower]) / width
    slope = (scores[upper].mean() - scores[lower].mean()) / width
    quality = (1 - share) * scores[lower] + share * scores[upper]
    tokens = (1 - share) * delivered[lower] + share * delivered[upper]
    return quality - slope * (tokens - point)


def _curve(scores: ArrayLike, delivered: ArrayLike) -> tuple[Floats, Floats]:
    found = rows_of(scores), rows_of(delivered)
    if found[0].shape != found[1].shape:
        raise ValueError(f"scores and tokens must have one shape, got {found[0].shape} and {found[1].shape}")
    return found


def _by_tokens(scores: Floats, delivered: Floats) -> tuple[Floats, Floats]:
    """Budgets ascending in mean delivered tokens."""
    means = delivered.mean(axis=1)
    order = np.argsort(means, kind="stable")
    if (np.diff(means[order]) <= 0).any():
        raise ValueError("two budgets deliver equally many tokens on average: there is nothing between them")
    return scores[order], delivered[order]
