"""Losses too rare to resample: how many new questions may get worse, given how few old ones did.

Resampling sees only what was drawn. Where no question shows a loss it sees no risk at all, however few were asked, and
where a handful does it sees too little. The number of losing questions, in contrast, has an exact bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from results.statistics import LEVEL

MANY = 20
"""Losing questions from which on resampling can be trusted."""
_MOST = 10_000_000
"""Questions beyond which nobody asks."""


def share_that_may(losses: float, units: float, *, level: float = LEVEL) -> float:
    """The largest share of new questions that may get worse, given the number of old ones that did.

    Source: Clopper & Pearson (1934), the upper bound of the two-sided interval; the rule of three where losses is 0.
    """
    return 1.0 if losses >= units else float(beta.ppf((1 + level) / 2, losses + 1, units - losses))


def too_rare(
    differences: NDArray[np.float64], *, margin: float, width: float, units: int, level: float = LEVEL
) -> tuple[float, int | None] | None:
    """Whether losses beyond the margin could hide behind the few that were seen.

    As many new questions as may get worse, each by the mean loss seen (by the whole width where none was), are set
    against the margin and the mean gain.

    Args:
        differences: Shape (questions,), candidate minus baseline where more is better, without gaps.
        margin: The tolerated loss.
        width: How wide the metric's values lie: the largest loss of a question.
        units: Independent units among the questions.
        level: Of the bound.

    Returns:
        None where they could not; else the share of new questions that may get worse, and the questions that it takes
        to rule it out if the rates stay as seen (None: no number would).
    """
    count, losing = len(differences), differences < 0
    seen = int(losing.sum())
    if seen >= MANY or not count or units < 1 or not width:
        return None
    size = float(-differences[losing].mean()) if seen else width
    bearable = (margin + float(differences[~losing].sum()) / count) / size
    rate = seen / count
    share = share_that_may(rate * units, units, level=level)
    if share < bearable:
        return None
    if rate >= bearable:
        return share, None
    low, high = units, _MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share_that_may(rate * middle, middle, level=level) < bearable else (middle, high)
    return share, None if high == _MOST else math.ceil(high * count / units)
