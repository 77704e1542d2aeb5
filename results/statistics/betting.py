"""Tests and intervals of bounded means by betting, without assumptions about the distribution.

A gambler bets a constant part of the capital on "the mean is above m" as each cluster is read. If the mean is m or
less, the capital is not expected to grow, so it reaches 2 / alpha with probability alpha / 2 at most, however skewed
the scores are (Markov's inequality). The interval contains all m that are refuted neither by this gambler nor by the
one who bets on "below". Several gamblers with bets of different sizes share the capital: large bets are best if the
scores hardly vary, small ones if they do. The order of the clusters does not matter.

Source: Waudby-Smith & Ramdas (2024), "Estimating means of bounded random variables by betting", hedged capital with a
grid of bets (grid Kelly).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from results.statistics.core import Floats

_BETS = (0.98, 0.55, 0.3)
"""Each gambler's maximum loss per cluster, as a fraction of the capital.

Any bets are valid; large ones suit few clusters. With ten equal clusters, where no interval can be narrower than ±31 points of 100,
these leave ±37.
"""
_STAKES = (0.4, 0.3, 0.3)
"""Initial share of the capital of each gambler."""


@dataclass(frozen=True, slots=True)
class Bets:
    """Clusters' scores, scaled for betting confidence intervals, which are valid for any bounded scores.

    Attributes:
        share, weight: Shape (rows, clusters): a cluster's sum and its questions, as fractions of the largest cluster's,
            the sum measured from the lower bound in units of the bounds' width.
        low, width: Shape (rows,), the bounds.
    """

    share: Floats
    weight: Floats
    low: Floats
    width: Floats

    @classmethod
    def of(cls, sums: Floats, counts: Floats, low: Floats, high: Floats) -> Bets:
        """Scale the clusters' sums of scores.

        Args:
            sums: Each cluster's sum of scores, shape (rows, clusters).
            counts: Each cluster's number of questions, same shape; a cluster without questions has 0 in both.
            low, high: Shape (rows,), the smallest and the largest possible score.
        """
        width = np.where(high > low, high - low, 1.0)
        largest = np.maximum(counts.max(axis=1, initial=0.0), 1.0)[:, None]
        share = (sums - low[:, None] * counts) / (width[:, None] * largest)
        return cls(share, np.broadcast_to(counts / largest, share.shape), low, width)

    def p(self, bar: Floats, *, above: bool) -> Floats:
        """Return one-sided p-values for the claim that the mean is above (or below) `bar`, shape (rows,)."""
        at = np.clip((bar - self.low) / self.width, 0.0, 1.0)[:, None]
        room = np.maximum(at if above else 1 - at, 1e-9)
        gain = (self.share - at * self.weight) / (room if above else -room)
        grown = np.stack([np.log1p(np.maximum(bet * gain, -bet)).sum(axis=1) for bet in _BETS])
        most = grown.max(axis=0)
        capital = most + np.log(np.array(_STAKES) @ np.exp(grown - most))
        return np.asarray(np.exp(-np.maximum(capital, 0.0)))

    def bounds(self, level: Floats) -> tuple[Floats, Floats]:
        """Return the confidence interval at each row's level, two arrays of shape (rows,)."""
        alpha = (1 - level) / 2
        high = self.low + self.width
        value = self.low + self.width * self.share.sum(axis=1) / np.maximum(self.weight.sum(axis=1), 1e-12)
        ends = []
        for above, outer in ((True, self.low), (False, high)):
            refuted, kept = outer.copy(), value.copy()
            for _ in range(32):
                middle = (refuted + kept) / 2
                no = self.p(middle, above=above) <= alpha
                refuted, kept = np.where(no, middle, refuted), np.where(no, kept, middle)
            ends.append(refuted)
        return ends[0], ends[1]
