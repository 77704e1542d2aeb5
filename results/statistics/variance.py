"""Where the uncertainty of a mean comes from: questions, generation seeds, judge repetitions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.plurals import counted
from results.statistics.bootstrap import bootstrap_weights, distribution
from results.statistics.core import ENOUGH_QUESTIONS, LEVEL, RESAMPLES, Estimate, Floats

FACTORS = ("questions", "seeds", "repetitions")
ENOUGH_LEVELS = 5
"""Fewer seeds or repetitions than this say little about how much those vary."""


@dataclass(frozen=True, slots=True)
class VarianceBudget:
    """The variance of a mean over questions × generation seeds × judge repetitions, split into its sources.

    A source is a factor (`questions`) or factors together (`questions×seeds`: the luck of a seed on a question,
    which more questions and more seeds both dilute). A factor with a single level is not known apart: its share is
    contained in the others', and it is missing from `components`.

    Attributes:
        estimate: The mean, with the interval of a bootstrap that resamples all factors: somewhat too wide where the
            luck of single answers dominates, too narrow with fewer than five seeds that differ (then `doubt` says so).
        components: Variance of single scores by source; negative estimates are 0.
        shares: Share of each source in the variance of the mean; they sum to 1, NaN where nothing varies.
        standard_error: Of the mean, from the components.
        halving: By factor, how many levels of it alone (all else equal) halve the standard error; None where that
            factor alone cannot.
    """

    estimate: Estimate
    components: dict[str, float]
    shares: dict[str, float]
    standard_error: float
    halving: dict[str, int | None]


def variance_budget(scores: ArrayLike, *, seed: int = 0, level: float = LEVEL, resamples: int = RESAMPLES) -> VarianceBudget:
    """Split the variance of a mean score by crossed random effects.

    Questions that lack a score for any seed or repetition are left out and counted as unscorable. Questions that share
    a document are better averaged per document first.

    Args:
        scores: Shape (questions, seeds, repetitions); NaN is unscorable.
        seed, level, resamples: As in `estimates`.

    Raises:
        ValueError: The array has not three axes.

    Source: Brennan (2001), "Generalizability theory", chapters 3–4 (expected mean squares of the crossed design);
        Owen (2007), "The pigeonhole bootstrap".
    """
    cube = np.asarray(scores, np.float64)
    if cube.ndim != 3:
        raise ValueError(f"scores must have axes (questions, seeds, repetitions), got shape {cube.shape}")
    whole = ~np.isnan(cube).any(axis=(1, 2))
    used = cube[whole]
    n, unscorable = len(used), int((~whole).sum())
    if not used.size:
        return VarianceBudget(Estimate(math.nan, math.nan, math.nan, 0, unscorable), {}, {}, math.nan, {})
    mean = float(used.mean())
    names = [name for name, levels in zip(FACTORS, used.shape, strict=True) if levels > 1]
    levels = {name: count for name, count in zip(FACTORS, used.shape, strict=True) if count > 1}
    if "questions" not in names:
        doubt = "a single question says nothing about others"
        return VarianceBudget(Estimate(mean, math.nan, math.nan, n, unscorable, n, doubt), {}, {}, math.nan, {})
    components = _components(used.squeeze(axis=tuple(i for i in range(3) if used.shape[i] == 1)), names)
    parts = {source: value / math.prod(levels[f] for f in source) for source, value in components.items()}
    total = sum(parts.values())
    drawn = crossed_means(used, seed, resamples)
    spread = distribution(drawn[None, :], np.array([mean]), np.zeros(1), n, "expanded")
    low, high = spread.interval(level)
    few = [f"{count} {name}, fewer than {ENOUGH_LEVELS}" for name, count in levels.items() if count < ENOUGH_LEVELS]
    if n < ENOUGH_QUESTIONS:
        few.insert(0, f"{counted(n, 'question')}, fewer than {ENOUGH_QUESTIONS}")
    return VarianceBudget(
        Estimate(mean, float(low[0]), float(high[0]), n, unscorable, n, "; ".join(few)),
        {"×".join(source): value for source, value in components.items()},
        {"×".join(source): value / total if total else math.nan for source, value in parts.items()},
        math.sqrt(total),
        {name: _halving(parts, name, levels[name]) for name in names},
    )


def crossed_means(scores: Floats, seed: int, resamples: int, factors: tuple[str, ...] = FACTORS) -> Floats:
    """Means under the crossed bootstrap: each named factor's levels are resampled, all scores weighted by the product.

    Args:
        scores: Shape (questions, seeds, repetitions), without gaps.
        seed: Of the resampling.
        resamples: Number of resamples.
        factors: Which factors to resample; the others are kept as they are.

    Returns:
        Shape (resamples,).

    Source: Owen (2007).
    """
    weights = []
    for place, (name, count) in enumerate(zip(FACTORS, scores.shape, strict=True)):
        if name in factors:
            # One stream per factor, so that leaving a factor out does not change the others' draws.
            drawn = list(bootstrap_weights(count, seed * len(FACTORS) + place, resamples))
            weights.append(np.concatenate(drawn) / count)
        else:
            weights.append(np.full((resamples, count), 1 / count))
    questions, seeds, repetitions = weights
    flat = (questions @ scores.reshape(len(scores), -1)).reshape(resamples, *scores.shape[1:])
    return np.einsum("bsr,bs,br->b", flat, seeds, repetitions)


def _components(scores: Floats, names: list[str]) -> dict[tuple[str, ...], float]:
    """Variance components of a full crossed design with one score per cell, by sets of factors.

    The expected mean square of a set A is the sum, over the sets B that contain A, of the component of B times the
    number of scores that share a level of B; inclusion–exclusion turns that round.
    """
    axes = range(scores.ndim)
    sets = [c for size in range(1, scores.ndim + 1) for c in itertools.combinations(axes, size)]
    squares = {}
    for inside in sets:
        outside = tuple(axis for axis in axes if axis not in inside)
        effect = np.zeros([scores.shape[axis] if axis in inside else 1 for axis in axes])
        for size in range(len(inside) + 1):
            for part in itertools.combinations(inside, size):
                gone = tuple(axis for axis in axes if axis not in part)
                sign = (-1) ** (len(inside) - size)
                effect = effect + sign * (scores.mean(axis=gone, keepdims=True) if gone else scores)
        freedom = math.prod(scores.shape[axis] - 1 for axis in inside)
        squares[inside] = math.prod(scores.shape[axis] for axis in outside) * float((effect**2).sum()) / freedom
    found = {}
    for inside in sets:
        outside_size = math.prod(scores.shape[axis] for axis in axes if axis not in inside)
        above = [other for other in sets if set(other) >= set(inside)]
        value = sum((-1) ** (len(other) - len(inside)) * squares[other] for other in above) / outside_size
        found[tuple(names[axis] for axis in inside)] = max(0.0, value)
    return found


def _halving(parts: dict[tuple[str, ...], float], name: str, levels: int) -> int | None:
    """Levels of a factor at which the variance of the mean is a quarter; None where the rest alone is more."""
    own = sum(part for source, part in parts.items() if name in source)
    rest = sum(parts.values()) - own
    spare = (own + rest) / 4 - rest
    if spare <= 0:
        return None
    # Rounding must not ask for one level more than the exact quarter.
    return math.ceil(levels * own / spare - 1e-9)
