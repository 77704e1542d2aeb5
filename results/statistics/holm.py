"""Corrections of many p-values: Holm's procedure, the levels at which it tests, and false discovery rates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from results.statistics.core import LEVEL, Floats


def holm(p_values: Sequence[float]) -> list[float]:
    """Apply Holm's step-down correction: adjusted p-values in the order given; NaN stays NaN and is not counted.

    If everything below alpha is rejected, the probability of one or more false claims is at most alpha, whatever the dependence
    between the tests.

    Source: Holm (1979).
    """
    return holm_array(np.asarray(p_values, np.float64)).tolist()


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Apply Benjamini and Hochberg's correction: adjusted p-values in the order given; NaN stays NaN and is not counted.

    If everything below alpha is rejected, at most the share alpha of these claims is expected to be false, for tests that
    are independent or positively dependent, as the tests of methods on the same questions are.

    Source: Benjamini & Hochberg (1995), by `scipy.stats.false_discovery_control`.
    """
    from scipy.stats import false_discovery_control

    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        adjusted[tested] = false_discovery_control(p[tested], method="bh")
    return adjusted.tolist()


def holm_array(p: Floats) -> Floats:
    """Apply Holm's step-down correction to many p-values, shape (tests,); NaN stays NaN and is not counted."""
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(p[order] * steps, 1.0))
    return adjusted


def holm_levels(p: Floats, level: float = LEVEL) -> Floats:
    """Return the confidence level at which Holm's procedure tests each hypothesis, shape (tests,).

    An interval at this level excludes 0 exactly if the corrected p-value is at most 1 - level. A rejected hypothesis is tested
    at (1 - level) / (number of hypotheses remaining at its turn), all others at the level of the first one that is not
    rejected. Equal p-values are tested at the strictest level among them, so equal data has equal intervals in any order.
    """
    alpha, levels = 1 - level, np.full(len(p), level)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1)
    rejected = int(np.cumprod(p[order] <= alpha / steps).sum())
    standing = np.maximum(steps, len(order) - rejected)
    # The first of several equal p-values has the strictest level.
    first = np.searchsorted(p[order], p[order], side="left")
    levels[order] = 1 - alpha / standing[first]
    return levels
