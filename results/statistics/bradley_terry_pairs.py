"""Which of many strengths surely differ: tests of all pairs from their resamples, and the ranks they leave open."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from results.statistics.closed_form import Band, holm_array
from results.statistics.core import Floats

_EQUAL = 1e-9
"""Strengths, and sums of scores, nearer than this are equal: the fit is no more exact."""
Codes = NDArray[np.int64]


def pair_ps(values: Floats, draws: Floats, component: Codes, net: Floats, fought: NDArray[np.bool_]) -> Floats:
    """Two-sided p-values of equal strength of all pairs, symmetric, shape (methods, methods), ones on the diagonal.

    Each is Student's t of the difference over its bootstrap standard error. A thousand resamples cannot give a share
    below 1 in 1,000, and Holm's correction over 45 pairs asks for about that; their spread has no such limit. It is
    taken from the resamples that lie on zero's side of the difference: on the other side are those in which a method
    won everything, and how far out they lie is the prior's word. Degrees of freedom are those of the method that fought
    on fewer units, and no p-value is less than sign flips of the units that speak could ever give.

    Args:
        values: Shape (methods,).
        draws: Shape (methods, rounds), the resampled strengths.
        component: Shape (methods,); methods of different components cannot be compared: NaN.
        net: Shape (methods, units), score above ½ a battle that each method has in each unit, summed.
        fought: Shape (methods, units), whether it has a battle there.

    Source: bootstrap standard errors, Efron & Tibshirani (1993), chapter 6; of one side alone, as a semi-deviation.
    """
    methods, own = len(values), fought.sum(axis=1)
    p = np.ones((methods, methods))
    for row in range(methods - 1):
        rest = slice(row + 1, None)
        gap = values[row] - values[rest]
        units = np.minimum(own[row], own[rest])
        speak = np.minimum((np.abs(net[row] - net[rest]) > _EQUAL).sum(axis=1), units)
        outward = (draws[row] - draws[rest] - gap[:, None]) * np.where(gap < 0, -1.0, 1.0)[:, None]
        inward = np.minimum(outward, 0.0)
        squares, count = np.einsum("or,or->o", inward, inward), (inward < 0).sum(axis=1)
        error = np.sqrt(squares / np.maximum(count, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            # As intervals are expanded: resamples of few units spread too little.
            t = np.abs(gap) / (error * np.sqrt(units / (units - 1)))
        by_t = np.where(np.abs(gap) > _EQUAL, 2 * stdtr(np.maximum(units - 1, 1), -t), 1.0)
        by_t = np.fmax(by_t, 2.0 ** (1.0 - speak))
        p[row, rest] = np.where(component[row] == component[rest], np.minimum(by_t, 1.0), np.nan)
    return np.where(np.tri(methods, dtype=np.bool_), p.T, p)


def holm_pairs(p: Floats) -> Floats:
    """P-values of all pairs as of `pair_ps`, Holm-corrected over them; NaN stays NaN and counts for nothing."""
    upper = np.triu_indices(len(p), 1)
    corrected = np.ones(p.shape)
    corrected[upper] = holm_array(p[upper])
    return np.minimum(corrected, corrected.T)


def standings(values: Floats, corrected: Floats, component: Codes, level: float) -> list[Band]:
    """Each method's rank among those of its component, and the ranks that the tests leave open, as `bands` has them.

    Args:
        values: Shape (methods,).
        corrected: Shape (methods, methods), p-values corrected over all pairs.
        component: As in `pair_ps`.
        level: One less the probability of one wrong claim or more.

    Source: Mogstad et al. (2024), "Inference for ranks with applications to mobility across neighbourhoods".
    """
    linked = component[:, None] == component
    behind = linked & (values[:, None] - values < -_EQUAL)
    worse = behind & (corrected <= 1 - level)
    return [
        Band(1 + int(behind[row].sum()), 1 + int(worse[row].sum()), int(linked[row].sum() - worse[:, row].sum()), not worse[row].any())
        for row in range(len(values))
    ]
