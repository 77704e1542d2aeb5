"""Corrections for asking many questions at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values in the order given; NaN stays NaN and counts for nothing.

    Whoever rejects what is below alpha makes a false claim at all with probability at most alpha, whatever the
    dependence between the tests.

    Source: Holm (1979).
    """
    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if not np.isnan(p[i])]
    highest = 0.0
    for step, i in enumerate(order):
        highest = max(highest, min(1.0, float(p[i]) * (len(order) - step)))
        adjusted[i] = highest
    return adjusted.tolist()


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's correction: adjusted p-values in the order given; NaN stays NaN and counts for nothing.

    Of the claims of whoever rejects what is below alpha, at most the share alpha is expected to be false; for tests
    that are independent or positively dependent, as those of methods on the same questions are.

    Source: Benjamini & Hochberg (1995), by `scipy.stats.false_discovery_control`.
    """
    from scipy.stats import false_discovery_control

    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        adjusted[tested] = false_discovery_control(p[tested], method="bh")
    return adjusted.tolist()
