"""Tests and intervals of bounded means without any assumption about their distribution: bets.

A gambler bets on "the mean is above m" before each cluster is read. If the mean is m or less, the capital is expected to
shrink, so it reaches 2 / alpha with probability alpha / 2 at most, however skewed the scores are. All m that neither this
gambler nor the one who bets on "below" refutes are the interval. The capital is the average over several orders of the
clusters, so it hardly depends on an order: the average of such capitals is one itself (Markov).

Source: Waudby-Smith & Ramdas (2024), "Estimating means of bounded random variables by betting", section 4 (hedged
capital with predictable plug-in bets).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from results.statistics.core import Floats

_ALPHA = 0.05
"""Bets are largest-growing for intervals at this level; they stay valid at any other."""
_MOST = 0.95
"""Largest share of the capital that one cluster can lose. With the whole, 10 equal clusters leave ±31 points, with this ±33."""
_NUMBERS = 320
"""Clusters that are read, in all orders together: one order is enough if there are many."""


@dataclass(frozen=True, slots=True)
class Bets:
    """Bounded rows, their clusters in several orders, with the bets that do not depend on the mean in question.

    Attributes:
        share, weight: Shape (rows, orders, clusters): a cluster's sum and its questions, as fractions of the largest
            cluster's, the sum measured from the lower bound in units of the bounds' width.
        bet: Of the same shape, each bet, chosen from the clusters before it.
        low, width: Shape (rows,), the bounds.
    """

    share: Floats
    weight: Floats
    bet: Floats
    low: Floats
    width: Floats

    @classmethod
    def of(cls, sums: Floats, counts: Floats, low: Floats, high: Floats) -> Bets:
        """Take the sums of scores and the questions of each cluster.

        Args:
            sums: Shape (rows, clusters).
            counts: The same shape; a cluster without questions has 0 in both.
            low, high: Shape (rows,), the smallest and the largest possible score.
        """
        clusters = sums.shape[1]
        orders = int(np.clip(_NUMBERS // max(clusters, 1), 1, 16))
        order = np.random.default_rng(clusters).permuted(np.tile(np.arange(clusters), (orders, 1)), axis=1)
        width = np.where(high > low, high - low, 1.0)
        counts = np.broadcast_to(counts, sums.shape)
        largest = np.maximum(counts.max(axis=1, initial=0.0), 1.0)[:, None]
        share = ((sums - low[:, None] * counts) / (width[:, None] * largest))[:, order]
        weight = (counts / largest)[:, order]
        seen = (weight > 0).cumsum(axis=2)
        mean = (0.5 + share.cumsum(axis=2)) / (1.0 + weight.cumsum(axis=2))
        spread = (0.25 + ((share - mean * weight) ** 2).cumsum(axis=2)) / (1.0 + seen)
        before = np.concatenate([np.full((*spread.shape[:2], 1), 0.25), spread[:, :, :-1]], axis=2)
        bet = np.sqrt(2 * math.log(2 / _ALPHA) / (before * np.maximum(seen[:, :, -1:], 1)))
        return cls(share, weight, bet, low, width)

    def p(self, bar: Floats, *, above: bool) -> Floats:
        """One-sided p-values of the claim that the mean lies above (or below) the bar, shape (rows,)."""
        at = np.clip((bar - self.low) / self.width, 0.0, 1.0)[:, None, None]
        gain = self.share - at * self.weight
        room = at if above else 1 - at
        bet = np.minimum(self.bet, _MOST / np.maximum(room, 1e-12))
        grown = np.log(np.maximum(1 + (bet if above else -bet) * gain, 1e-300)).sum(axis=2)
        return np.asarray(np.minimum(len(grown[0]) * np.exp(-scipy.special.logsumexp(grown, axis=1)), 1.0))

    def bounds(self, level: Floats) -> tuple[Floats, Floats]:
        """The interval at each row's level, shape (rows,)."""
        alpha = (1 - level) / 2
        high = self.low + self.width
        value = self.low + self.width * self.share[:, 0].sum(axis=1) / np.maximum(self.weight[:, 0].sum(axis=1), 1e-12)
        ends = []
        for above, outer in ((True, self.low), (False, high)):
            refuted, kept = outer.copy(), value.copy()
            for _ in range(30):
                middle = (refuted + kept) / 2
                no = self.p(middle, above=above) <= alpha
                refuted, kept = np.where(no, middle, refuted), np.where(no, kept, middle)
            ends.append(np.where(self.p(outer, above=above) <= alpha, refuted, outer))
        return ends[0], ends[1]
