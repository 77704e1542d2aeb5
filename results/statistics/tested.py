"""Tests and intervals of means and paired differences that agree with each other and never fail to exist.

Student's t with Hall's correction for skewness is never trusted alone: a claim must also hold if clusters worse than all
that were seen are as frequent as so few clusters leave possible. With fewer than ten clusters, or if a few hold most
questions, bets on bounded scores decide instead (`betting.py`). Which of the two applies depends on the clusters and on
the metric's bounds, never on the scores, so that no result is selected by what it says. The interval leaves out 0 exactly
if the test rejects.

Several sources of chance (questions, each side's trainings) add up as the squares of their own half intervals. Such an
interval covers at least as often as stated, however the variances compare and however few trainings there are;
Satterthwaite's degrees of freedom do not, since three seeds that lie close together by chance pretend that trainings
hardly vary (rejects up to 7.8 % for 5 %).

Source: Banerjee (1960), "Approximate confidence interval for linear functions of means of k populations when the
population variances are not equal", Sankhya 22.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from results.offered import POWER
from results.statistics.betting import Bets
from results.statistics.core import LEVEL, Floats
from results.statistics.sums import EQUAL, Sums

FEWEST_CLUSTERS = 10
FEWEST_EFFECTIVE = 8.0
"""Minimum effective number of equally large clusters, which applies if a few clusters have most questions."""
MOST_SKEW = 0.3
"""Skewness, relative to the square root of the clusters, above which Student's t is not trusted for unbounded scores."""
MOST_BENT = 1.5
"""Maximum factor by which Hall's correction widens one side; without it, strong skewness would give an infinite interval."""
APART = 1e-9
"""Minimum distance of the interval from 0 if the test rejects; visible at the precision of tables."""
MANY = 20
"""Number of clusters against the claim from which on their share is known well enough."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Seeds:
    """Variance that training seeds add to a difference (`difference.Trainings` of both sides).

    Attributes:
        spread, freedom: Variance and degrees of freedom of the candidate's and of the reference's trainings, shape (2, ...).
        shared: Part of it that the variance over questions already contains, shape (...).
    """

    spread: Floats
    freedom: Floats
    shared: Floats

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Seeds:
        """Return zero variance of this shape, for methods that were not trained."""
        return cls(np.zeros((2, *shape)), np.ones((2, *shape)), np.zeros(shape))

    def __getitem__(self, where: Any) -> Seeds:
        at = where if isinstance(where, tuple) else (where,)
        return Seeds(self.spread[:, *at], self.freedom[:, *at], self.shared[where])

    @cached_property
    def total(self) -> Floats:
        """Return the summed variance of both sides' trainings."""
        return np.asarray(self.spread.sum(axis=0))


@dataclass(frozen=True)
class Tested:
    """Means or paired differences with their tests and intervals; all arrays have one shape.

    Attributes:
        sums: Sums over clusters.
        low, high: The smallest and largest value that the mean can have; infinite if the metric has no bounds.
        middle: The mean (of logs, if differences are of logs); NaN without questions.
        variance, freedom: Variance of the mean over questions (and labels), and its degrees of freedom.
        seeds: Variance that trainings add.
        paired: Whether rows are differences, to be tested against 0.
        center: The reference's geometric mean if the difference is one of logs, else NaN; `shown` turns such values
            into the metric's own.
        level: The reference's mean score above the metric's minimum; 0 for means.
        rows: Function from a mask of rows to their clusters' sums and numbers of questions, for betting intervals.
        doubts: Why a claim is not made although the test would allow it; empty if there is no reason.
        labeled: Whether people's labels correct a judge's scores.
        delta: Differences per question, shape (rows, questions); None if they are not kept.
    """

    sums: Sums
    low: Floats
    high: Floats
    middle: Floats
    variance: Floats
    freedom: Floats
    seeds: Seeds
    paired: bool
    center: Floats
    level: Floats
    rows: Callable[[Mask], tuple[Floats, Floats]]
    doubts: NDArray[np.object_]
    labeled: Mask
    delta: Floats | None = None

    @classmethod
    def of(
        cls,
        sums: Sums,
        low: Floats,
        high: Floats,
        rows: Callable[[Mask], tuple[Floats, Floats]],
        *,
        paired: bool,
        seeds: Seeds | None = None,
        center: Floats | None = None,
        level: Floats | None = None,
    ) -> Tested:
        """Build the tests from sums over clusters; `seeds` adds the variance between trainings."""
        shape, nothing = sums.n.shape, np.zeros(sums.n.shape)
        seeds = Seeds.none(shape) if seeds is None else seeds
        # If few clusters differ, their spread is known as well as so many clusters would tell.
        varied = np.maximum(sums.changed, FEWEST_CLUSTERS) if paired else np.inf
        return cls(
            sums,
            low + nothing,
            high + nothing,
            sums.value,
            np.maximum(sums.variance - seeds.shared, 0.0),
            np.maximum(np.minimum(sums.effective, varied) - 1, 1e-3),
            seeds,
            paired,
            np.full(shape, np.nan) if center is None else center,
            np.zeros(shape) if level is None else np.nan_to_num(level),
            rows,
            np.full(shape, "", dtype=object),
            np.zeros(shape, dtype=np.bool_),
        )

    def __getitem__(self, where: Any) -> Tested:
        def chosen(mask: Mask) -> tuple[Floats, Floats]:
            whole = np.zeros(self.middle.shape, dtype=np.bool_)
            cells = np.arange(whole.size).reshape(whole.shape)[where]
            chosen_cells = np.atleast_1d(cells)[np.atleast_1d(mask)]
            if (np.diff(chosen_cells) > 0).all():
                whole.flat[chosen_cells] = True
                return self.rows(whole)
            sums, counts = [], []
            for place in chosen_cells:
                whole[...] = False
                whole.flat[place] = True
                one, many = self.rows(whole)
                sums.append(one[0])
                counts.append(many[0])
            return np.stack(sums), np.stack(counts)

        fields = ("low", "high", "middle", "variance", "freedom", "seeds", "center", "level", "doubts", "labeled")
        delta = None if self.delta is None else self.delta[where]
        return replace(self, sums=self.sums[where], rows=chosen, delta=delta, **{name: getattr(self, name)[where] for name in fields})

    @property
    def value(self) -> Floats:
        """Return the mean on the metric's own scale."""
        return self.shown(self.middle)

    @property
    def n(self) -> Floats:
        """Return the number of scored questions."""
        return self.sums.n

    @property
    def clusters(self) -> Floats:
        """Return the number of independent clusters."""
        return self.sums.clusters

    @property
    def error(self) -> Floats:
        """Return the standard error (of the logs, if differences are of logs)."""
        return np.sqrt(self.variance + self.seeds.total)

    @cached_property
    def skew(self) -> Floats:
        """Return the skewness of the mean."""
        return np.where(self.labeled, 0.0, self.sums.skew)

    @cached_property
    def bounded(self) -> Mask:
        """Return a mask of rows whose metric has a lower and an upper bound."""
        return np.isfinite(self.low) & np.isfinite(self.high)

    @cached_property
    def _bets_decide(self) -> Mask:
        return np.asarray(self._few & self.bounded & (self.n > 0) & (self.seeds.total == 0) & ~self.labeled & ~self._shares)

    @property
    def _few(self) -> Mask:
        return np.asarray((self.clusters < FEWEST_CLUSTERS) | (self.sums.effective < FEWEST_EFFECTIVE))

    @cached_property
    def _bets(self) -> Bets:
        sums, counts = self.rows(self._bets_decide)
        return Bets.of(sums, counts, self.low[self._bets_decide], self.high[self._bets_decide])

    @cached_property
    def _signs_decide(self) -> Mask:
        """Return whether the sign test is exact: every question is a cluster, and all differences span the whole range."""
        sums = self.sums
        whole = (sums.squares >= sums.largest * sums.sizes * (1 - 1e-9)) & (sums.largest >= self.high * (1 - 1e-9))
        plain = (sums.n == sums.clusters) & (sums.changed > 0) & (self.seeds.total == 0) & ~self.labeled & ~self._few
        return np.asarray(self.paired & plain & whole)

    @cached_property
    def _shares(self) -> Mask:
        """Return whether all scores are 0 or 1 and every question is its own cluster, so that the mean has an exact interval."""
        sums = self.sums
        plain = (sums.n == sums.clusters) & (sums.worse == 0) & (sums.largest <= 1) & (self.seeds.total == 0) & (sums.n > 0)
        return np.asarray(~np.bool_(self.paired) & plain & (np.abs(sums.squares - sums.total) <= EQUAL * np.maximum(sums.n, 1)))

    def p_above(self, bar: float | Floats) -> Floats:
        """Return one-sided p-values for the claim that the mean is above `bar`, on the metric's own scale."""
        return self._one_sided(bar, above=True)

    def p_below(self, bar: float | Floats) -> Floats:
        """Return one-sided p-values for the claim that the mean is below `bar`, on the metric's own scale."""
        return self._one_sided(bar, above=False)

    @cached_property
    def p(self) -> Floats:
        """Return two-sided p-values of the hypothesis that the mean is 0; NaN without questions and with insufficient data."""
        return np.where((self.insufficient_data() != "") | (self.n == 0), np.nan, self._p)

    @cached_property
    def _p(self) -> Floats:
        return np.minimum(2 * np.minimum(self.p_above(0.0), self.p_below(0.0)), 1.0)

    def _one_sided(self, bar: float | Floats, *, above: bool) -> Floats:
        at = np.broadcast_to(np.asarray(bar, np.float64), self.middle.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log1p(np.maximum(at / self.center, -1.0))
            at = np.where(np.isnan(self.center), at, logs)
        p = self._student_p(at, above=above)
        p = np.where(np.isnan(p), 1.0, p)
        p = np.maximum(p, self._hidden_p(at, above=above))
        at_zero = np.asarray(self.paired & (at == 0))
        # Sign flips of the clusters that differ could not give less.
        p = np.where(at_zero & ~self.labeled, np.maximum(p, 2.0**-self.sums.changed), p)
        if self._bets_decide.any():
            p[self._bets_decide] = self._bets.p(at[self._bets_decide], above=above)
        exact = at_zero & self._signs_decide
        if exact.any():
            won, lost = (self.sums.better, self.sums.worse) if above else (self.sums.worse, self.sums.better)
            p = np.where(exact, scipy.special.bdtr(lost, (won + lost).astype(np.int64), 0.5), p)
        return np.where(self.n > 0, p, np.nan)

    def _student_p(self, bar: Floats, *, above: bool) -> Floats:
        """Return the one-sided p-values of Student's t; with trainings, the level at which `_half` is the distance from the bar."""
        side = 1.0 if above else -1.0
        away = side * (self.middle - bar)
        with np.errstate(invalid="ignore", divide="ignore"):
            t = away / np.sqrt(self.variance)
            straight = np.maximum(np.minimum(t, side * _straight(side * t, self.skew)), t / self._most_bent)
            p = scipy.special.stdtr(self.freedom, -np.minimum(t, straight))
        trained = np.broadcast_to(self.seeds.total > 0, away.shape)
        if not trained.any():
            return np.asarray(p)
        one = self[trained]
        low, high = np.full(one.middle.shape, -40.0), np.full(one.middle.shape, np.log(0.5))
        for _ in range(40):
            middle = (low + high) / 2
            beyond = one._half(np.exp(middle), above=above) > np.abs(away[trained])
            low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
        p[trained] = np.where(away[trained] > 0, np.exp(high), 1 - np.exp(high))
        return np.asarray(p)

    @property
    def _most_bent(self) -> Floats:
        """Return the limit of Hall's correction for bounded metrics, which are also tested against unseen clusters."""
        return np.where(self.bounded, MOST_BENT, np.inf)

    def _half(self, tail: Floats, *, above: bool) -> Floats:
        """Return the distance of the lower (or upper) end from the mean, each exceeding the truth with the probability `tail`."""
        out = _quantile(self.freedom, 1 - tail)
        side = 1.0 if above else -1.0
        with np.errstate(invalid="ignore", over="ignore"):
            bent = np.minimum(side * _bent(side * out, self.skew), self._most_bent * out)
            squares = self.variance * np.maximum(out, bent) ** 2
            for spread, freedom in zip(self.seeds.spread, self.seeds.freedom, strict=True):
                if spread.any():
                    squares = squares + spread * _quantile(freedom, 1 - tail) ** 2
        return np.sqrt(squares)

    def _hidden_p(self, bar: Floats, *, above: bool) -> Floats:
        """Return one-sided p-values of what must hold next to Student's t: that clusters which were not seen do not overturn it.

        Questions at the metric's worst may be as frequent as leaves no chance to have met one; and the clusters that
        speak against the claim, if few were seen, as frequent as the exact bound allows.

        Source: Clopper & Pearson (1934); the rule of three.
        """
        worst = self.low if above else self.high
        with np.errstate(invalid="ignore", divide="ignore"):
            left = np.clip((bar - worst) / (self.middle - worst), 0.0, 1.0)
            p = np.where(self._guarded, np.nan_to_num(left, nan=1.0) ** self.sums.independent, 0.0)
            if self.paired:
                count, for_it, each = self._against(above=above)
                side = 1.0 if above else -1.0
                share = np.clip((for_it - side * bar * self.n) / (self.clusters * np.maximum(each, EQUAL)), 0.0, 1.0)
                rare = 1 - scipy.special.betainc(count + 1, np.maximum(self.clusters - count, 1e-9), share)
                p = np.where(self._guarded & (count < MANY), np.maximum(p, rare), p)
        return np.asarray(p)

    @cached_property
    def _guarded(self) -> Mask:
        return np.asarray(self.bounded & ~self.labeled & (self.n > 0))

    def _against(self, *, above: bool) -> tuple[Floats, Floats, Floats]:
        """Return the number of clusters against a claim, the sum of those in favor, and the mean size of one against it.

        If none is, its size is assumed: one method has the metric's minimum or maximum there, and the other one its own mean.
        With the whole range instead, a method that gains everywhere would need far more evidence than one that loses somewhere.
        """
        sums = self.sums
        side = 1.0 if above else -1.0
        count = sums.worse if above else sums.better
        against, for_it = (sums.sizes - side * sums.total) / 2, (sums.sizes + side * sums.total) / 2
        lower, higher = (self.level, self.level + self.middle) if above else (self.level + self.middle, self.level)
        failure = np.where(self.bounded, np.maximum(lower, self.high - higher), 0.0)
        each = np.where(count > 0, against / np.maximum(count, 1), failure * sums.n / np.maximum(sums.clusters, 1))
        return count, for_it, each

    def interval(self, level: float | Floats = LEVEL) -> tuple[Floats, Floats]:
        """Return the confidence interval: all values that a two-sided test at this level does not reject, on the metric's own scale.

        It contains 0 exactly if `p` > 1 - level. Proportions of unclustered questions have the exact binomial interval.

        Args:
            level: Confidence level, one for all rows or one per row.

        Source: Hall (1992), "On the removal of skewness by transformation"; Clopper & Pearson (1934).
        """
        low, high = self._ends(np.broadcast_to(1 - np.asarray(level, np.float64), self.middle.shape))
        low, high = np.maximum(low, self.low), np.minimum(high, self.high)
        return self.shown(low), self.shown(high)

    def _ends(self, alpha: Floats) -> tuple[Floats, Floats]:
        """Return the interval before clipping at the metric's bounds, in logs if the difference is one of logs."""
        low, high = self.middle - self._half(alpha / 2, above=True), self.middle + self._half(alpha / 2, above=False)
        low, high = np.minimum(low, self._hidden_end(alpha, above=True)), np.maximum(high, self._hidden_end(alpha, above=False))
        if self._shares.any():
            won, lost = self.sums.better, self.clusters - self.sums.better
            with np.errstate(invalid="ignore"):
                low = np.where(self._shares, np.where(won > 0, scipy.special.betaincinv(won, lost + 1, alpha / 2), 0.0), low)
                high = np.where(self._shares, np.where(lost > 0, scipy.special.betaincinv(won + 1, lost, 1 - alpha / 2), 1.0), high)
        if self._bets_decide.any():
            low, high = np.array(low), np.array(high)
            low[self._bets_decide], high[self._bets_decide] = self._bets.bounds(1 - alpha[self._bets_decide])
        return self._agreeing(low, high, alpha) if self.paired else (low, high)

    @property
    def geometric(self) -> Mask:
        """Return, per row, whether the difference is one of geometric means."""
        return ~np.isnan(self.center)

    def shown(self, value: Floats) -> Floats:
        """Convert differences of logs to differences of geometric means; return others unchanged."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(np.isnan(self.center), value, self.center * np.expm1(value))

    def _hidden_end(self, alpha: Floats, *, above: bool) -> Floats:
        """Return the bar at which `_hidden_p` is alpha / 2."""
        worst = self.low if above else self.high
        side = 1.0 if above else -1.0
        with np.errstate(invalid="ignore", divide="ignore"):
            end = worst + (self.middle - worst) * (alpha / 2) ** (1 / np.maximum(self.sums.independent, 1))
            if self.paired:
                count, for_it, each = self._against(above=above)
                left = np.maximum(self.clusters - count, 1e-9)
                share = np.where(count < self.clusters, scipy.special.betaincinv(count + 1, left, 1 - alpha / 2), 1.0)
                rare = side * (for_it - share * self.clusters * each) / self.n
                end = np.where(count < MANY, np.minimum(side * end, side * rare) * side, end)
        return np.where(self._guarded, end, side * np.inf)

    def _agreeing(self, low: Floats, high: Floats, alpha: Floats) -> tuple[Floats, Floats]:
        """Include 0 in the interval exactly if the test at 0, which signs may decide, does not reject."""
        holds = ~(self._p <= alpha)
        low, high = np.where(holds, np.minimum(low, 0.0), low), np.where(holds, np.maximum(high, 0.0), high)
        with np.errstate(invalid="ignore", divide="ignore"):
            won, lost = np.maximum(self.sums.better, 1e-9), np.maximum(self.sums.worse, 1e-9)
            scale = self.sums.changed * self.sums.largest / np.maximum(self.n, 1)
            least = (2 * scipy.special.betaincinv(won, lost + 1, alpha / 2) - 1) * scale
            most = (2 * scipy.special.betaincinv(won + 1, lost, 1 - alpha / 2) - 1) * scale
        up, down = ~holds & (self.middle > 0), ~holds & (self.middle < 0)
        least, most = np.where(self._signs_decide, least, APART), np.where(self._signs_decide, most, -APART)
        return np.where(up & (low <= 0), np.maximum(least, APART), low), np.where(down & (high >= 0), np.minimum(most, -APART), high)

    def detectable(self, power: float = POWER, level: float | Floats = LEVEL) -> Floats:
        """Return the minimum detectable difference at this power and confidence level.

        It is at least half the interval's width. NaN if the variance is unknown or zero; infinite if no possible difference
        could be detected.
        """
        alpha = np.broadcast_to(1 - np.asarray(level, np.float64), self.middle.shape)
        low, high = self._ends(alpha)
        with np.errstate(invalid="ignore", divide="ignore"):
            left = (alpha / 2) ** (1 / np.maximum(self.sums.independent, 1))
            hidden = np.where(self._guarded, self.high * (1 - left) / left, 0.0)
            half = np.fmax(np.fmax(self.middle - low, high - self.middle), hidden)
            seen = np.where((self.clusters >= 2) & (self.error > 0), half + scipy.special.ndtri(power) * self.error, np.nan)
        return self.shown(np.where(seen > self.high, np.inf, seen))

    def scaled(self, factor: float) -> Tested:
        """Return the tests for a sample with `factor` times as many clusters of the same kind, and as many trainings."""

        def rows(mask: Mask) -> tuple[Floats, Floats]:
            sums, counts = self.rows(mask)
            clusters = max(round(sums.shape[1] * factor), 1)
            return tuple(np.stack([np.resize(row, clusters) for row in np.broadcast_to(each, sums.shape)]) for each in (sums, counts))  # type: ignore[return-value]

        sums, seeds = self.sums.scaled(factor), self.seeds
        whole = Tested.of(sums, self.low, self.high, rows, paired=self.paired, seeds=seeds, center=self.center, level=self.level)
        # Of people's labels and of several benchmarks, the variance is not that of the sums.
        other = self.variance != np.maximum(self.sums.variance - seeds.shared, 0.0)
        variance = np.maximum((self.variance + seeds.shared) / factor - seeds.shared, 0.0)
        variance, freedom = np.where(other, variance, whole.variance), np.minimum(self.freedom * factor, whole.freedom)
        freedom = np.where(other, freedom, whole.freedom)
        return replace(whole, middle=self.middle, variance=variance, freedom=freedom, labeled=self.labeled)

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Return where a difference that is not significant is not a tie: few clusters, or all on one side of 0."""
        better, worse = self.sums.better, self.sums.worse
        one_sided = (np.maximum(better, worse) >= self.clusters) & (np.minimum(better, worse) == 0)
        return np.asarray((self.clusters < FEWEST_CLUSTERS) | one_sided)

    def why_undecided(self) -> NDArray[np.object_]:
        """Explain, per row, why a difference that is not significant counts as insufficient data; empty if it is a tie."""
        text = self.insufficient_data()
        for at in zip(*np.nonzero(self.undecided & (text == "")), strict=True):
            number = int(self.clusters[at])
            few = f"{number} clusters, fewer than {FEWEST_CLUSTERS}"
            text[at] = few if number < FEWEST_CLUSTERS else f"all {number} clusters have the same sign, and are too few for the test"
        return text

    def insufficient_data(self, word: str = "clusters") -> NDArray[np.object_]:
        """Explain, per row, why a claim is not made although the test would allow it; empty if it may be made.

        Bounded scores need no such reason: their test holds however few or skewed they are.
        """
        text = np.array(self.doubts, dtype=object)
        open_ended = ~self.bounded & ~self.labeled
        few = (self.clusters < FEWEST_CLUSTERS) & (open_ended | (self.n == 0))
        dominated = (self.sums.effective < FEWEST_EFFECTIVE) & open_ended
        skewed = (np.abs(self.skew) > MOST_SKEW) & open_ended
        same = (self.variance == 0) & open_ended
        for at in zip(*np.nonzero(few | dominated | skewed | same), strict=True):
            number = int(self.clusters[at])
            if few[at]:
                text[at] = f"{number} {word}, fewer than {FEWEST_CLUSTERS}"
            elif dominated[at]:
                text[at] = f"a few {word} have most questions: the effective number is {self.sums.effective[at]:.0f}"
            elif same[at]:
                text[at] = "all differences are equal, so their variance is unknown"
            else:
                text[at] = f"too skewed for so few {word}"
        return text


def reach(power: float = POWER, level: float = LEVEL, clusters: float = np.inf) -> float:
    """Return the number of standard errors by which a true difference must exceed 0 to be detected with this power.

    Args:
        power: Probability of rejecting.
        level: Confidence level of the interval that must exclude 0.
        clusters: Number of equally large clusters; Student's t then has one degree of freedom less.

    Raises:
        ValueError: `power` or `level` is not a probability.

    Source: Cohen (1988), chapter 2; Miller (2024), "Adding error bars to evals", section 5.
    """
    if not 0 < power < 1 or not 0 < level < 1:
        raise ValueError(f"power and level lie between 0 and 1, got {power} and {level}")
    quantile = scipy.special.ndtri if np.isinf(clusters) else lambda share: scipy.special.stdtrit(max(clusters - 1, 1e-3), share)
    return float(quantile((1 + level) / 2) + quantile(power))


def _straight(t: Floats, skew: Floats) -> Floats:
    """Apply Hall's transformation to t: Student's distribution if clusters are skewed; increasing in t."""
    bent = np.where(np.abs(skew) > 1e-6, skew, 1.0)
    return np.where(np.abs(skew) > 1e-6, ((1 + bent * t / 3) ** 3 - 1) / bent + bent / 6, t)


def _bent(h: Floats, skew: Floats) -> Floats:
    """Invert `_straight`."""
    bent = np.where(np.abs(skew) > 1e-6, skew, 1.0)
    return np.where(np.abs(skew) > 1e-6, 3 / bent * (np.cbrt(1 + bent * (h - bent / 6)) - 1), h)


def _quantile(freedom: Floats, level: Floats) -> Floats:
    """Return Student's quantile, cached because it is expensive."""
    pairs = np.stack(np.broadcast_arrays(freedom, level)).reshape(2, -1)
    distinct, positions = np.unique(pairs, axis=1, return_inverse=True)
    return np.asarray(scipy.special.stdtrit(*distinct)[positions.ravel()].reshape(np.shape(freedom)))
