"""The one engine of means and paired differences: interval and test come from the same sums over clusters.

A cluster is what was sampled: a question, or all questions of one document, world or group that shares evidence. From the
sums of each cluster's scores follow the mean, its cluster-robust standard error and its skewness; Hall's transformation of
Student's t takes the skewness out and can be inverted, so that interval and p-value are one computation and never
contradict each other. Where simulation (`perf/verdicts.py`) shows that too little is there for such a verdict, it says
`insufficient_data`: no interval and no p-value, and the reason in words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from results.offered import POWER
from results.statistics.core import LEVEL, Clusters, Floats, cluster_positions, rows_of

FEWEST_CLUSTERS = 10
FEWEST_EFFECTIVE = 8.0
"""Equally large clusters that would say as much; what counts where a few clusters hold most questions."""
MOST_SKEW = 0.3
"""Skewness of the clusters over the root of their number, beyond which the correction for it is too rough."""
FEWEST_CHANGED = 6
"""Clusters that differ, from which on sign flips could give p ≤ .05 at all."""
MANY = 20
"""Clusters on the losing side from which on their share is known well enough."""
_EQUAL = 1e-12
"""Sums nearer than this are equal: they are in exact arithmetic, whatever the order of adding was."""
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Moments:
    """What several rows of scores or of paired differences are worth; all arrays are of one shape.

    Attributes:
        n: Questions that count.
        clusters: Independent clusters among them.
        counts2, counts3: Σ c² and Σ c³ over clusters, c a cluster's questions.
        total, squares, cubes: Σ s, Σ s², Σ s³ over clusters, s the sum of a cluster's scores.
        cross12, cross21: Σ s c² and Σ s² c.
        cross11: Σ s c.
        sizes, largest: Σ |s|, and the largest |s|.
        better, worse: Clusters whose sum is above, below zero.
        width: How wide the scores of a question lie: the largest that a difference could be.
        paired: Whether rows are differences, whose verdict is about zero.
    """

    n: Floats
    clusters: Floats
    counts2: Floats
    counts3: Floats
    total: Floats
    squares: Floats
    cubes: Floats
    cross11: Floats
    cross12: Floats
    cross21: Floats
    sizes: Floats
    largest: Floats
    better: Floats
    worse: Floats
    width: Floats
    paired: bool = True

    def __getitem__(self, where: Any) -> Moments:
        return replace(self, **{item.name: getattr(self, item.name)[where] for item in fields(self)[:-1]})

    @cached_property
    def value(self) -> Floats:
        """Mean over the questions that count; NaN without any."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total / self.n)

    @cached_property
    def effective(self) -> Floats:
        """Equally large clusters that would say as much, n² / Σ c² (Kish); 0 without any."""
        return np.asarray(self.n**2 / np.maximum(self.counts2, 1))

    @cached_property
    def changed(self) -> Floats:
        """Clusters whose sum is not zero."""
        return self.better + self.worse

    @cached_property
    def _spread(self) -> Floats:
        """Σ (s - mean · c)² without building the residuals; what rounding leaves of zero is zero."""
        v = np.nan_to_num(self.value)
        spread = self.squares - 2 * v * self.cross11 + v**2 * self.counts2
        return np.where(spread > _EQUAL * np.maximum(self.squares, _EQUAL), spread, 0.0)

    @cached_property
    def error(self) -> Floats:
        """Standard error of the mean; NaN with fewer than two clusters.

        The factor makes its square unbiased where the questions of a cluster agree wholly, and a little too large else;
        for clusters of one size it is m / (m - 1).
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            lost = 2 * self.counts3 / (self.n * self.counts2) - self.counts2 / self.n**2
            return np.where(self.clusters > 1, np.sqrt(self._spread / np.maximum(1 - lost, _EQUAL)) / self.n, np.nan)

    @cached_property
    def skew(self) -> Floats:
        """Skewness of the clusters' residuals over the root of their number; 0 where all are equal."""
        v, spread = np.nan_to_num(self.value), self._spread
        third = self.cubes - 3 * v * self.cross21 + 3 * v**2 * self.cross12 - v**3 * self.counts3
        return np.where(spread > 0, third / np.where(spread > 0, spread, 1.0) ** 1.5, 0.0)

    def p_above(self, bar: float) -> Floats:
        """One-sided p-values of the claim that the mean lies above the bar; NaN where there is no spread to judge by."""
        return self._beyond(bar, -1.0)

    def p_below(self, bar: float) -> Floats:
        """One-sided p-values of the claim that the mean lies below the bar."""
        return self._beyond(bar, 1.0)

    def _beyond(self, bar: float, side: float) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            t = side * (self.value - bar) / self.error
            return np.asarray(scipy.special.stdtr(self._freedom, np.maximum(t, side * _straight(side * t, self.skew))))

    @cached_property
    def _freedom(self) -> Floats:
        clusters = np.minimum(self.effective, np.maximum(self.changed, 2)) if self.paired else self.effective
        return np.maximum(clusters - 1, 1e-3)

    def scaled(self, factor: float) -> Moments:
        """As if there were so many times as many clusters, of the same kinds."""
        return replace(self, **{name: getattr(self, name) * factor for name in _NAMES if name != "largest"})

    def detectable(self, power: float = POWER, level: float = LEVEL) -> Floats:
        """The smallest true difference that so many clusters would show with this power; NaN where nothing varies.

        By the degrees of freedom of the interval: where few clusters differ, both are wide.
        """
        clusters = np.where(self.effective >= 2, self._freedom + 1, np.nan)
        steps = [reach(power, level, each) if each == each else math.nan for each in clusters.ravel().tolist()]
        seen = np.reshape(steps, self.n.shape) * self.error
        return np.where(seen > 0, seen, np.nan)

    @cached_property
    def p(self) -> Floats:
        """Two-sided p-values of the hypothesis that the mean is 0, NaN if there is insufficient data; 1 where nothing differs.

        Where all clusters that differ do so by the same amount it is the sign test's, which is exact; and it is never less
        than sign flips of the clusters that differ could ever give.
        """
        return np.where(self._code > 0, np.nan, self._p)

    @cached_property
    def _p(self) -> Floats:
        p = np.fmax(2 * np.minimum(self.p_above(0.0), self.p_below(0.0)), 2.0 ** (1.0 - self.changed))
        p = np.where(self._even, self._tosses, p)
        return np.where(self.changed > 0, np.minimum(p, 1.0), np.where(self.n > 0, 1.0, np.nan))

    @cached_property
    def _tosses(self) -> Floats:
        """The sign test of the clusters that differ."""
        leads = np.rint(np.abs(self.total) / np.where(self.largest > 0, self.largest, 1.0))
        fewer = np.maximum(np.floor((self.changed - leads) / 2), 0.0)
        return np.asarray(np.minimum(2 * scipy.special.bdtr(fewer, self.changed.astype(np.int64), 0.5), 1.0))

    def interval(self, level: float | Floats = LEVEL) -> tuple[Floats, Floats]:
        """All values that a two-sided test at this level does not refuse; NaN if there is insufficient data.

        Shares of questions that each are a cluster have the exact binomial interval. Zero is within exactly where
        `p` > 1 - level.

        Args:
            level: One, or one for each row.

        Source: Hall (1992), "On the removal of skewness by transformation"; Clopper & Pearson (1934).
        """
        low, high = self.bounds(level)
        out = self._code > 0
        return np.where(out, np.nan, low), np.where(out, np.nan, high)

    def bounds(self, level: float | Floats = LEVEL) -> tuple[Floats, Floats]:
        """The interval as it is computed, also if there is insufficient data."""
        alpha = 1 - np.asarray(level, np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            out_to = _quantile(self._freedom, 1 - alpha / 2)
            straight = self.error * out_to
            low = self.value - np.maximum(straight, self.error * _bent(out_to, self.skew))
            high = self.value + np.maximum(straight, -self.error * _bent(-out_to, self.skew))
        if self.paired:
            holds = self._p > alpha
            low, high = np.where(holds, np.minimum(low, 0.0), low), np.where(holds, np.maximum(high, 0.0), high)
            # The sign test refuses zero and all beyond it, however skewed: then its own bound is the nearest.
            refused = self._even & ~holds & (self.changed > 0)
            won, lost = np.maximum(self.better, 1e-9), np.maximum(self.worse, 1e-9)
            scale = self.changed * self.largest / np.maximum(self.n, 1)
            least, most = (
                (2 * scipy.special.betaincinv(won, lost + 1, alpha / 2) - 1) * scale,
                (2 * scipy.special.betaincinv(won + 1, lost, 1 - alpha / 2) - 1) * scale,
            )
            low = np.where(refused & (self.total > 0), np.maximum(low, least), low)
            high = np.where(refused & (self.total < 0), np.minimum(high, most), high)
        else:
            won, lost = self.better, self.clusters - self.better
            with np.errstate(invalid="ignore"):
                low = np.where(self._shares, np.where(won > 0, scipy.special.betaincinv(won, lost + 1, alpha / 2), 0.0), low)
                high = np.where(self._shares, np.where(lost > 0, scipy.special.betaincinv(won + 1, lost, 1 - alpha / 2), 1.0), high)
        return low, high

    @cached_property
    def _shares(self) -> NDArray[np.bool_]:
        """Whether all scores are 0 or 1, of questions that each are a cluster."""
        plain = (self.n == self.clusters) & (self.worse == 0) & (self.largest <= 1)
        return np.asarray(plain & (np.abs(self.squares - self.total) <= _EQUAL * np.maximum(self.n, 1)))

    def hides(self, bar: float, *, above: bool | NDArray[np.bool_], level: float = LEVEL) -> tuple[NDArray[np.bool_], Floats]:
        """Whether clusters of the kind that speaks against a claim could be as frequent as would overturn it, though few were seen.

        As many new clusters as may be such (the exact bound), each as bad as those seen (by the whole width where none
        was), are set against the claim's own clusters.

        Args:
            bar: The claim is that the mean lies above it, or below.
            above: Which of the two.
            level: Of the bound, two-sided.

        Returns:
            Whether, and the share of new clusters that may be such.

        Source: Clopper & Pearson (1934); the rule of three where none was seen.
        """
        count, other = np.where(above, self.worse, self.better), np.where(above, -1.0, 1.0)
        against, for_it = (self.sizes + other * self.total) / 2, (self.sizes - other * self.total) / 2
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(count > 0, against / np.maximum(count, 1), self.width * self.n / self.clusters)
            share = np.where(
                count < self.clusters, scipy.special.betaincinv(count + 1, np.maximum(self.clusters - count, 1e-9), (1 + level) / 2), 1.0
            )
            overturned = for_it / self.n + other * bar <= share * self.clusters * each / self.n
        # A handful of unlike amounts says too little of their spread, wherever most clusters speak neither for nor against.
        sparse = (self.changed < MANY) & (self.changed < self.clusters / 2) & ~self._even & (bar != 0)
        return np.asarray((count < MANY) & overturned | sparse), share

    @cached_property
    def decidable(self) -> NDArray[np.object_]:
        """Why not even a claim about a bar other than 0 can be made, in words; empty where it can."""
        return self._words(np.where(np.isin(self._code, (3, 5, 6)), 0, self._code), "clusters")

    @cached_property
    def _code(self) -> Whole:
        """Why there is insufficient data, as the position of the reason in `_REASONS`; 0 if there is enough."""
        inexact = ~self._even if self.paired else ~self._shares
        nothing = (self.changed == 0) if self.paired else (self._spread == 0) & inexact
        too_few = (self.changed < FEWEST_CHANGED) & self.paired
        rare = one_sided = np.zeros(self.n.shape, dtype=np.bool_)
        if self.paired:
            hidden = self.hides(0.0, above=self.total > 0)[0]
            rare = (self._p <= 1 - LEVEL) & hidden
            # Nobody lost (or gained), and as many as may yet be unseen would not overturn it: skewness is no matter then.
            one_sided = (np.minimum(self.better, self.worse) == 0) & (self._p <= 1 - LEVEL) & ~hidden
        # Shares of single questions have an exact interval however few there are.
        few = (self.clusters < FEWEST_CLUSTERS) & (inexact | (self.clusters < 2) | self.paired)
        dominated = (self.effective < FEWEST_EFFECTIVE) & (inexact | self.paired)
        skewed = (np.abs(self.skew) > MOST_SKEW) & inexact & ~one_sided
        return np.select([few, dominated, nothing, skewed, too_few, rare], [1, 2, 3, 4, 5, 6], 0).astype(np.int64)

    @cached_property
    def _even(self) -> NDArray[np.bool_]:
        """Whether the sign test is exact here: all clusters that differ do so by the same amount."""
        # |s|² ≤ largest · |s|, and equal for 0 and the largest alone.
        return np.asarray(self.paired & (self.n > 0) & (self.squares >= self.largest * self.sizes * (1 - 1e-9)))

    def insufficient_data(self, word: str = "clusters") -> NDArray[np.object_]:
        """Why no verdict is given, in words; empty where one is."""
        return self._words(self._code, word)

    def _words(self, code: Whole, word: str) -> NDArray[np.object_]:
        text = np.full(self.n.shape, "", dtype=object)
        for at in zip(*np.nonzero(code), strict=True):
            text[at] = _REASONS[code[at]].format(
                clusters=int(self.clusters[at]),
                effective=self.effective[at],
                word=word,
                share=min(1.0, 3 / max(self.clusters[at], 1)),
                changed=int(self.changed[at]),
            )
        return text


_REASONS = (
    "",
    f"{{clusters}} {{word}}, fewer than {FEWEST_CLUSTERS}",
    "a few {word} hold most questions: they count as {effective:.0f}",
    "nothing differs, yet up to {share:.1%} of new {word} may",
    "too skewed for so few {word}",
    f"too few {{word}} differ ({{changed}}, fewer than {FEWEST_CHANGED})",
    "losses or gains too rare for so few {word}",
)


def reach(power: float = POWER, level: float = LEVEL, clusters: float = math.inf) -> float:
    """Standard errors between 0 and a difference that a two-sided test at `level` calls with that probability.

    Args:
        power: Probability of calling it.
        level: Coverage of the interval that must leave out 0.
        clusters: Equally large clusters, whose number less one are the degrees of freedom of Student's t.

    Raises:
        ValueError: One of the two is no probability.

    Source: Cohen (1988), chapter 2; Miller (2024), "Adding error bars to evals", section 5.
    """
    if not 0 < power < 1 or not 0 < level < 1:
        raise ValueError(f"power and level lie between 0 and 1, got {power} and {level}")
    quantile = scipy.special.ndtri if math.isinf(clusters) else lambda share: scipy.special.stdtrit(max(clusters - 1, 1e-3), share)
    return float(quantile((1 + level) / 2) + quantile(power))


def _straight(t: Floats, skew: Floats) -> Floats:
    """Hall's transformation of t: Student's distribution where clusters are skewed; increasing in t."""
    bent = np.where(np.abs(skew) > 1e-6, skew, 1.0)
    return np.where(np.abs(skew) > 1e-6, ((1 + bent * t / 3) ** 3 - 1) / bent + bent / 6, t)


def _bent(h: Floats, skew: Floats) -> Floats:
    """The inverse of `_straight`."""
    bent = np.where(np.abs(skew) > 1e-6, skew, 1.0)
    return np.where(np.abs(skew) > 1e-6, 3 / bent * (np.cbrt(1 + bent * (h - bent / 6)) - 1), h)


def means(columns: ArrayLike, *, clusters: Clusters = None) -> Moments:
    """The mean of every row, arrays of shape (rows,).

    Args:
        columns: Shape (rows, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are one cluster. None stands alone.

    Source: linearized ratio estimator over clusters, Cochran (1977), "Sampling Techniques", section 9.
    """
    return _moments(rows_of(columns), clusters, None)


def paired(candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None) -> Moments:
    """Paired differences of rows, candidate minus reference, over the questions that both were scored on.

    Args:
        candidates, references: Shape (rows, questions), row by row of the same questions.
        clusters: As in `means`.

    Raises:
        ValueError: The arrays differ in shape: they are not about the same questions.
    """
    a, b = rows_of(candidates), rows_of(references)
    if a.shape != b.shape:
        raise ValueError(f"paired scores must be of the same questions, got {a.shape} and {b.shape}")
    return _moments(a - b, clusters, _width(_range(a), _range(b)))


def all_differences(columns: ArrayLike, *, clusters: Clusters = None) -> Moments:
    """Paired differences, row minus column, of all pairs of methods, arrays of shape (methods, methods).

    A pair is compared on the questions that both were scored on. On the diagonal stand zeros.

    Args:
        columns, clusters: As in `means`.
    """
    scores, known, starts = _arranged(rows_of(columns), clusters)
    methods, whole = len(scores), bool(known.all())
    upper = np.triu_indices(methods, 1)
    sums = np.zeros((_SUMS, len(upper[0])))
    start = 0
    for row in range(methods - 1):
        delta, common = scores[row] - scores[row + 1 :], None
        if not whole:
            common = known[row] & known[row + 1 :]
            delta *= common
        end = start + len(delta)
        for target, result in zip(sums, _sums(delta, common, starts), strict=True):
            target[start:end] = result
        start = end
    odd = {"total", "cubes", "cross11", "cross12"}
    square: dict[str, Any] = {}
    for name, flat in zip(_NAMES, sums, strict=True):
        full = np.zeros((methods, methods))
        full[upper] = flat
        square[name] = full + (-full.T if name in odd else full.T)
    below = np.tri(methods, dtype=np.bool_)
    better, worse = square["better"], square["worse"]
    square["better"], square["worse"] = np.where(below, worse, better), np.where(below, better, worse)
    own = known if starts is None else np.add.reduceat(known, starts, axis=1) > 0
    np.fill_diagonal(square["n"], known.sum(axis=1))
    np.fill_diagonal(square["clusters"], own.sum(axis=1))
    low, high = _range(np.where(known, scores, np.nan))
    return Moments(**square, width=_width((low[:, None], high[:, None]), (low, high)))


@dataclass(frozen=True, slots=True)
class Band:
    """A method's place, 1 is best.

    Attributes:
        rank: One more than the number of methods that are better on the questions that both were scored on; equals
            share it, and it lies between low and high.
        low, high: One more than the number of methods that are significantly better, and the number of methods less
            those that are significantly worse; holds for all methods at once with the stated level.
        best: Whether tests found nobody significantly better, and some test was possible. That never means "as good as".
    """

    rank: int
    low: int
    high: int
    best: bool


def bands(
    pairs: Moments, *, positions: Whole | None = None, higher_is_better: bool = True, level: float = LEVEL, p: Floats | None = None
) -> list[Band]:
    """Ranks with their uncertainty, from pairwise tests Holm-corrected over all pairs; a test with insufficient data decides nothing.

    Args:
        pairs: Shape (methods, methods), of these methods, or of more.
        positions: Positions of the methods in `pairs`; None: they are those of `pairs`, in its order.
        higher_is_better: False for a metric of which less is better.
        level: One less the probability of one wrong claim or more.
        p: P-values to use instead of those of `pairs`, of the same shape.

    Source: Mogstad et al. (2024), "Inference for ranks with applications to mobility across neighborhoods".
    """
    if positions is not None and not np.array_equal(positions, np.arange(len(pairs.n))):
        pairs = pairs[np.ix_(positions, positions)]
        p = None if p is None else p[np.ix_(positions, positions)]
    p, differences = pairs.p if p is None else p, pairs.value if higher_is_better else -pairs.value
    methods = len(p)
    upper = np.triu_indices(methods, 1)
    corrected = np.ones((methods, methods))
    corrected[upper] = holm_array(np.where(np.isnan(p) & (pairs.n > 0), 1.0, p)[upper])
    corrected = np.fmin(corrected, corrected.T)
    significant = corrected <= 1 - level
    # Not a number where two share no question: then nobody is ahead.
    behind = np.round(differences, 12) < 0
    worse_than = significant & behind
    known = ~np.isnan(np.where(np.eye(methods, dtype=bool), np.nan, p))
    return [
        Band(
            1 + int(behind[row].sum()),
            1 + int(worse_than[row].sum()),
            methods - int(worse_than[:, row].sum()),
            not worse_than[row].any() and (methods == 1 or bool(known[row].any())),
        )
        for row in range(methods)
    ]


def holm_array(p: Floats) -> Floats:
    """Holm's step-down correction of many p-values, shape (tests,); NaN stays NaN and counts for nothing.

    Source: Holm (1979).
    """
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(p[order] * steps, 1.0))
    return adjusted


def holm_levels(p: Floats, level: float = LEVEL) -> Floats:
    """The level at which Holm's procedure tests each hypothesis, shape (tests,).

    An interval at this level leaves out 0 exactly where the corrected p-value is at most 1 - level: a rejected
    hypothesis is tested at (1 - level) / (those that still stand at its turn), all others at that of the first which
    is not rejected.
    """
    alpha, tested = 1 - level, ~np.isnan(p)
    levels = np.full(len(p), level)
    order = np.flatnonzero(tested)[np.argsort(p[tested], kind="stable")]
    standing = len(order)
    for number, at in enumerate(order):
        if standing == len(order) - number and p[at] <= alpha / standing:
            levels[at] = 1 - alpha / standing
            standing -= 1
        else:
            levels[at] = 1 - alpha / standing
    return levels


_NAMES = [item.name for item in fields(Moments)][:-2]
_SUMS = len(_NAMES)
"""Figures that `_sums` gives of a row."""


def _range(rows: Floats) -> tuple[Floats, Floats]:
    """The smallest and the largest score of each row; 0 where there is none."""
    known = ~np.isnan(rows)
    some = known.any(axis=1)
    low = np.where(known, rows, np.inf).min(axis=1, initial=np.inf)
    high = np.where(known, rows, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(some, low, 0.0), np.where(some, high, 0.0)


def _width(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> Floats:
    """How wide scores of these smallest and largest values lie; where all are between 0 and 1 they are taken for fractions of 1."""
    low, high = np.minimum(one[0], other[0]), np.maximum(one[1], other[1])
    return np.where((low >= 0) & (high <= 1), 1.0, high - low)


def _moments(rows: Floats, clusters: Clusters, width: Floats | None) -> Moments:
    scores, known, starts = _arranged(rows, clusters)
    sums = _sums(scores, None if known.all() else known, starts)
    named: dict[str, Any] = dict(zip(_NAMES, sums, strict=True))
    return Moments(**named, width=_width(_range(rows), _range(rows)) if width is None else width, paired=width is not None)


def _arranged(scores: Floats, clusters: Clusters) -> tuple[Floats, NDArray[np.bool_], Whole | None]:
    """Scores with 0 where none is known, which are known, and where each cluster begins; None: each question is one.

    Questions are ordered so that those of a cluster stand together.
    """
    known = ~np.isnan(scores)
    filled = np.where(known, scores, 0.0)
    if clusters is None or not scores.shape[1]:
        return filled, known, None
    positions, sizes = cluster_positions(clusters, scores.shape[1])
    order = np.argsort(positions, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return filled[:, order], known[:, order], starts


def _sums(scores: Floats, known: NDArray[np.bool_] | None, starts: Whole | None) -> tuple[Floats, ...]:
    """What means and tests are made of, `_SUMS` arrays of shape (rows,).

    Args:
        scores: Shape (rows, questions), 0 where not known.
        known: Of the same shape; None: all are.
        starts: Of clusters.
    """
    sums, counts = scores, np.ones((1, scores.shape[1])) if known is None else known.astype(np.float64)
    if starts is not None:
        sums, counts = np.add.reduceat(scores, starts, axis=1), np.add.reduceat(counts, starts, axis=1)
    each = np.ones(len(sums))
    square = sums * sums
    total = sums.sum(axis=1)
    squares = square.sum(axis=1)
    if known is None and starts is None:
        across, across2, squares_across = total, total, squares
    else:
        across, across2, squares_across = ((a * b).sum(axis=1) for a, b in ((sums, counts), (sums, counts**2), (square, counts)))
    size = np.abs(sums)
    return (
        counts.sum(axis=1) * each,
        (counts > 0).sum(axis=1) * each,
        (counts**2).sum(axis=1) * each,
        (counts**3).sum(axis=1) * each,
        total,
        squares,
        np.einsum("ru,ru->r", square, sums),
        across,
        across2,
        squares_across,
        size.sum(axis=1),
        size.max(axis=1, initial=0.0),
        (sums > _EQUAL).sum(axis=1) * each,
        (sums < -_EQUAL).sum(axis=1) * each,
    )


def _quantile(freedom: Floats, level: Floats) -> Floats:
    """Student's quantile; costly, so once for each pair of degrees of freedom and level."""
    pairs = np.stack(np.broadcast_arrays(freedom, level)).reshape(2, -1)
    distinct, positions = np.unique(pairs, axis=1, return_inverse=True)
    return np.asarray(scipy.special.stdtrit(*distinct)[positions.ravel()].reshape(np.shape(freedom)))
