"""What every statistic here speaks: an estimate, a paired difference, and when their intervals deserve doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
LEVEL = 0.95

Method = Literal["expanded", "percentile", "bca"]
"""How an interval is read off the bootstrap distribution; see `results.statistics.bootstrap`."""
METHOD: Method = "expanded"

Clusters = Sequence[str | None] | None
"""One label per question; questions with equal labels are resampled together. None stands alone."""

Floats = NDArray[np.float64]


class Drawing(TypedDict, total=False):
    """How questions are resampled: keywords with the defaults of `estimates`."""

    seed: int
    level: float
    resamples: int


class Ways(Drawing, total=False):
    """How intervals are computed: the keywords that `estimates` and `differences` share, with their defaults."""

    clusters: Clusters
    method: Method


ENOUGH_QUESTIONS = 200
ENOUGH_CLUSTERS = 30
ENOUGH_EFFECTIVE = 25.0
"""Equally large clusters that would say as much; what counts where a few clusters hold most questions."""
PLAIN_SHARES = (0.2, 0.8)
ENOUGH_CHANGES = 20
MOST_SKEW = 0.25
"""Skewness of the units over the root of their number, beyond which intervals fall short of their coverage."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        value: Mean over scorable questions, NaN where there are none.
        low, high: Bootstrap interval; NaN with fewer than two independent units.
        n: Scorable questions.
        unscorable: Questions left out.
        units: Independent units behind the interval: clusters where there are any, else questions.
        doubt: Why the interval should not be trusted to cover as stated; empty where it can be.
    """

    value: float
    low: float
    high: float
    n: int
    unscorable: int
    units: int = 0
    doubt: str = ""

    @property
    def reliable(self) -> bool:
        """Whether simulation says that such an interval covers as stated."""
        return not self.doubt


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference, candidate minus reference, over the questions that both were scored on.

    Attributes:
        value, low, high, n: As in `Estimate`.
        p: Two-sided sign-flip permutation p-value with the +1 correction; never 0.
        wins, ties, losses: Questions on which the candidate is better, equal, worse.
        units, doubt: As in `Estimate`.
    """

    value: float
    low: float
    high: float
    n: int
    p: float
    wins: int
    ties: int
    losses: int
    units: int = 0
    doubt: str = ""

    @property
    def reliable(self) -> bool:
        """Whether simulation says that such an interval covers as stated."""
        return not self.doubt


@dataclass(frozen=True, slots=True)
class Support:
    """What stands behind an interval.

    Attributes:
        n: Questions.
        units: Independent units: clusters where there are any, else questions.
        effective: Equally large units that would say as much.
        clustered: Whether units are clusters of questions.
    """

    n: int
    units: int
    effective: float
    clustered: bool

    def doubts(self, skew: float) -> list[str]:
        """Reasons that do not depend on what kind of score it is."""
        reasons = []
        if self.n < ENOUGH_QUESTIONS:
            reasons.append(f"{self.n} questions, fewer than {ENOUGH_QUESTIONS}")
        if self.clustered and self.units < ENOUGH_CLUSTERS:
            reasons.append(f"{self.units} independent documents, fewer than {ENOUGH_CLUSTERS}")
        elif self.clustered and self.effective < ENOUGH_EFFECTIVE:
            reasons.append(f"a few documents hold most questions: they count as {self.effective:.0f} documents")
        if abs(skew) > MOST_SKEW:
            reasons.append("too skewed for so few")
        return reasons


def doubt_about_mean(scores: Floats, support: Support, skew: float) -> str:
    """Why the interval of a mean should not be trusted; empty where simulation found it to cover as stated.

    Args:
        scores: Shape (questions,), without gaps.
        support: What stands behind them.
        skew: Skewness of the units' influence on the mean, over the root of their number.
    """
    reasons = support.doubts(skew)
    if len(scores) and bool(((scores == 0) | (scores == 1)).all()):
        share = float(scores.mean())
        if not PLAIN_SHARES[0] <= share <= PLAIN_SHARES[1]:
            reasons.append(f"{share:.1%} of the scores are 1, outside 20–80 %")
    return "; ".join(reasons)


def doubt_about_difference(changed: int, support: Support, skew: float) -> str:
    """Why the interval of a paired difference should not be trusted; empty where it can be.

    Args:
        changed: Questions on which the two differ.
        support, skew: As in `doubt_about_mean`.
    """
    reasons = support.doubts(skew)
    if support.n and not changed:
        # Rule of three: with no event in n trials the event's share may still be 3 / n.
        reasons.append(f"no question differs, yet up to {min(1.0, 3 / support.units):.1%} of new ones may")
    elif support.n and changed < ENOUGH_CHANGES:
        differ = "1 question differs" if changed == 1 else f"{changed} questions differ"
        reasons.append(f"only {differ}, fewer than {ENOUGH_CHANGES}")
    return "; ".join(reasons)
