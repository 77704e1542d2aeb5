"""Ranks with their uncertainty, and each method's relation to the best one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from results.statistics.core import LEVEL, Floats
from results.statistics.holm import holm_array
from results.statistics.sums import Whole
from results.statistics.tested import Tested


class Standing(StrEnum):
    """A method's relation to the best one (the method with the highest value)."""

    BEST = "best"
    NO_DIFFERENCE = "no significant difference from the best"
    BEHIND = "behind the best"
    UNTESTED = "insufficient data against the best"

    @property
    def sign(self) -> str:
        """Return the table symbol: ● best, ○ no significant difference from the best, ? insufficient data."""
        return {Standing.BEST: "●", Standing.NO_DIFFERENCE: "○", Standing.UNTESTED: "?"}.get(self, "")


SIGNS = "● best, ○ no significant difference from the best, ? insufficient data"


@dataclass(frozen=True, slots=True)
class Band:
    """Rank of a method with the range of ranks that the tests leave open; 1 is best.

    Attributes:
        rank: One more than the number of methods with a better mean on the common questions; equal methods share a rank.
        low, high: One more than the number of methods that are significantly better, and the number of methods minus
            those that are significantly worse; simultaneous for all methods at the stated level.
        standing: Relation to the best method.
    """

    rank: int
    low: int
    high: int
    standing: Standing


def bands(
    pairs: Tested, *, positions: Whole | None = None, higher_is_better: bool = True, level: float = LEVEL, p: Floats | None = None
) -> list[Band]:
    """Rank methods by pairwise tests that are Holm-corrected over all pairs.

    A method that is worse than all others does not change their rank or standing: Holm's procedure rejects its
    differences first, and tests the others as if it were not there.

    Args:
        pairs: Tested differences of all pairs, shape (methods, methods).
        positions: Positions in `pairs` of the methods to rank; None ranks all.
        higher_is_better: False for a metric where lower is better.
        level: One minus the family-wise error rate.
        p: P-values to use instead of those of `pairs`, of the same shape.

    Source: Mogstad et al. (2024), "Inference for ranks with applications to mobility across neighborhoods".
    """
    at = np.arange(len(pairs.n)) if positions is None else positions
    square = np.ix_(at, at)
    p, value, n = (pairs.p if p is None else p)[square], pairs.value[square], pairs.n[square]
    if not higher_is_better:
        value = -value
    methods = len(at)
    upper = np.triu_indices(methods, 1)
    corrected = np.ones((methods, methods))
    corrected[upper] = holm_array(np.where(np.isnan(p) & (n > 0), 1.0, p)[upper])
    corrected = np.fmin(corrected, corrected.T)
    # NaN if two methods share no question: then neither is ahead.
    behind = np.round(value, 12) < 0
    worse_than = (corrected <= 1 - level) & behind
    # Worse in every cluster, though there are too few to prove it: that is not a tie.
    able = ~np.isnan(p) & ~pairs.undecided[square]
    first = np.asarray(~behind.any(axis=1))
    return [
        Band(
            1 + int(behind[row].sum()),
            1 + int(worse_than[row].sum()),
            methods - int(worse_than[:, row].sum()),
            standing(bool(first[row]), bool(worse_than[row, first].any()), bool(able[row, first].any())),
        )
        for row in range(methods)
    ]


def standing(best: bool, behind: bool, able: bool) -> Standing:
    """Return a method's relation to the best: one of the best, significantly worse, not significantly worse, or not tested."""
    if best:
        return Standing.BEST
    if behind:
        return Standing.BEHIND
    return Standing.NO_DIFFERENCE if able else Standing.UNTESTED
