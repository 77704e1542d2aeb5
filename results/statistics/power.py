"""How small a difference could be seen, and how many questions it takes to see one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from results.statistics.bootstrap import Units, units_of
from results.statistics.core import LEVEL, Clusters

POWER = 0.8


def standard_error(values: ArrayLike, *, clusters: Clusters = None) -> float:
    """Standard error of a mean of scores or of paired differences; of a ratio mean where units are clusters.

    Args:
        values: Shape (questions,); NaN is left out.
        clusters: As in `estimates`.

    Returns:
        NaN with fewer than two independent units.

    Source: Cochran (1977), section 9A.1 (cluster sampling), with Bessel's correction over clusters.
    """
    column = np.asarray(values, np.float64)
    kept = ~np.isnan(column)
    return _standard_error(units_of(column[kept][None, :], clusters, kept))


def minimum_detectable(differences: ArrayLike, *, power: float = POWER, level: float = LEVEL, clusters: Clusters = None) -> float:
    """The smallest true difference that a two-sided test at `level` would call with probability `power`.

    Normal approximation: (z of the level + z of the power) standard errors of the paired differences.

    Args:
        differences: Shape (questions,), paired differences; NaN is left out.
        power: Probability of calling it.
        level: Coverage of the interval that must leave out 0.
        clusters: As in `estimates`.

    Source: Cohen (1988), chapter 2; Miller (2024), "Adding error bars to evals", section 5.
    """
    return _reach(power, level) * standard_error(differences, clusters=clusters)


def questions_needed(
    differences: ArrayLike, effect: float, *, power: float = POWER, level: float = LEVEL, clusters: Clusters = None
) -> int:
    """Questions it takes to call a true difference of `effect`, were new ones like these.

    Where questions share documents, new questions are taken to come with new documents of the same sizes.

    Args:
        differences: Shape (questions,), paired differences; NaN is left out.
        effect: The true difference to call; its sign does not matter.
        power, level, clusters: As in `minimum_detectable`.

    Returns:
        At least 2, the fewest that have a spread.

    Raises:
        ValueError: The effect is 0, which no number of questions can show, or there are fewer than two units.
    """
    if not effect or math.isnan(effect):
        raise ValueError(f"no number of questions shows a difference of {effect}")
    column = np.asarray(differences, np.float64)
    error = standard_error(column, clusters=clusters)
    if math.isnan(error):
        raise ValueError("the spread of differences takes at least two independent units")
    n = int((~np.isnan(column)).sum())
    return max(2, math.ceil(n * (_reach(power, level) * error / effect) ** 2))


def _reach(power: float, level: float) -> float:
    """Standard errors between 0 and a difference that is called with that probability."""
    if not 0 < power < 1 or not 0 < level < 1:
        raise ValueError(f"power and level lie between 0 and 1, got {power} and {level}")
    return float(ndtri((1 + level) / 2) + ndtri(power))


def _standard_error(units: Units) -> float:
    count = len(units.counts)
    if count < 2:
        return math.nan
    rest = units.sums[:, 0] - units.means[0] * units.counts
    return math.sqrt(count / (count - 1) * float(rest @ rest)) / float(units.counts.sum())
