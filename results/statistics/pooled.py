"""The difference of two methods over several benchmarks: each benchmark is a stratum with equal weight.

The clusters of all strata are tested together, weighted by its questions' share in the mean over benchmarks. Strata
that share questions (settings or styles of one dataset) share their clusters, so a question that is asked twice is one
observation. The evidence of all benchmarks therefore adds up, even if each has few clusters:
bets on clusters of all strata multiply, since their expected growth is at most the sum of the strata's means minus the bar.
A training's deviation is that of its mean over all benchmarks: seeds that are good on one may be good on all.

If a few clusters weigh much more than others (a small benchmark next to a large one), the metric is unbounded or people labeled
scores, each stratum keeps its own interval: half intervals add up as squares if the strata are of different questions, and as
they are if not (Zou & Donner, 2008).

Source: Cochran (1977), "Sampling Techniques", section 5; Waudby-Smith & Ramdas (2024) for the bets; Zou & Donner (2008),
"Construction of confidence limits about effect measures", Statistics in Medicine 27.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from results.statistics.core import LEVEL, Clusters, Floats
from results.statistics.difference import AtBothEnds, Differences, Range, Side, Trainings, compared
from results.statistics.holm import holm_array, holm_levels
from results.statistics.sums import NAMES, Sums, row_sums
from results.statistics.tested import POWER, Mask, Seeds, Tested

_STEPS = 30
_SMALLEST = -18.0
"""Natural logarithm of the smallest p-value for adding half intervals; smaller ones are replaced by it."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """Scores of pairs of methods on one benchmark, for the pooled test over benchmarks.

    Attributes:
        candidates, references: The two sides of each pair of methods.
        questions: Question ids, in the order of the scores.
        clusters: As in `compared`.
        kin: Group number; benchmarks with equal numbers share questions.
        metric: The metric's range; None: as in `compared`.
    """

    candidates: Sequence[Side]
    references: Sequence[Side]
    questions: Sequence[str]
    clusters: Clusters = None
    kin: int = 0
    metric: Range | None = None

    @property
    def labels(self) -> list[str]:
        """Return a cluster label for each question, as `labels_over`."""
        return labels_over(self.kin, self.questions, self.clusters)


def labels_over(kin: int, questions: Sequence[str], clusters: Clusters) -> list[str]:
    """Return a cluster label for each question that is unique over benchmarks; questions without a cluster get their own label."""
    named = clusters or [None] * len(questions)
    return [f"{kin}#{q}" if cluster is None else f"{kin}={cluster}" for q, cluster in zip(questions, named, strict=True)]


@dataclass(frozen=True, slots=True)
class Pooled:
    """Mean difference of a method from the reference over several benchmarks, with equal weights.

    Attributes:
        value: Mean difference over benchmarks.
        low, high: Interval at the Holm-corrected level: it excludes 0 exactly if `p_holm` <= .05.
        p, p_holm: Two-sided p-value, and Holm-corrected over the compared methods; NaN if a benchmark has insufficient data.
        strata: Number of benchmarks.
    """

    value: float
    low: float
    high: float
    p: float
    p_holm: float
    strata: int


@dataclass(frozen=True)
class Added:
    """Mean differences over strata that each keep their own interval; arrays of shape (rows,).

    Attributes:
        each: The tests of every stratum.
        kin: Shape (groups, strata), 1 where a stratum is of a group that shares questions: their half intervals add up as they are.
    """

    each: tuple[Differences, ...]
    kin: Floats

    @property
    def value(self) -> Floats:
        """Return the mean over strata."""
        return np.asarray(np.mean([tested.value for tested in self.each], axis=0))

    @property
    def clusters(self) -> Floats:
        """Return the independent clusters; those of strata that share questions count once."""
        clusters = np.stack([tested.clusters for tested in self.each])
        return np.asarray((self.kin[:, :, None] * clusters).max(axis=1).sum(axis=0))

    def interval(self, levels: Floats) -> tuple[Floats, Floats]:
        """Return the interval of each row at its level."""
        values, (low, high) = np.stack([tested.value for tested in self.each]), self._intervals(levels)
        return self.value - self._sum(values - low), self.value + self._sum(high - values)

    def p(self) -> Floats:
        """Return two-sided p-values: one minus the level whose interval ends at 0."""
        least, most = np.full(len(self.value), _SMALLEST), np.zeros(len(self.value))
        for _ in range(_STEPS):
            middle = (least + most) / 2
            low, high = self.interval(1 - np.exp(middle))
            holds = (low <= 0) & (high >= 0)
            least, most = np.where(holds, middle, least), np.where(holds, most, middle)
        return np.exp(most)

    def detectable(self, power: float = POWER, level: float | Floats = LEVEL) -> Floats:
        """Return the smallest true difference that so many clusters would show; see `Tested.detectable`."""
        known = replace(self, each=self.known)
        low, high = known.interval(np.broadcast_to(np.asarray(level, np.float64), self.value.shape))
        error = self._sum(np.stack([tested.shown(tested.error) for tested in self.known]))
        seen = np.maximum(self.value - low, high - self.value) + scipy.special.ndtri(power) * error
        return np.where((self.clusters >= 2) & (error > 0), seen, np.nan)

    def scaled(self, factor: float) -> Added:
        """Return the same with this many times as many clusters in every stratum."""
        return replace(self, each=tuple(tested.scaled(factor) for tested in self.known))

    @property
    def known(self) -> tuple[Tested, ...]:
        """Return the tests without open values."""
        return tuple(tested.plain if isinstance(tested, AtBothEnds) else tested for tested in self.each)

    def _intervals(self, levels: Floats) -> tuple[Floats, Floats]:
        low, high = zip(*(tested.interval(levels) for tested in self.each), strict=True)
        return np.stack(low), np.stack(high)

    def _sum(self, halves: Floats) -> Floats:
        return np.asarray(np.sqrt(((self.kin @ halves) ** 2).sum(axis=0)) / len(self.each))


def pooled(strata: Sequence[Stratum], level: float = LEVEL) -> list[Pooled]:
    """Compute the mean difference over benchmarks for every pair of methods, tested as one family.

    Args:
        strata: The benchmarks, each with the same pairs of methods.
        level: Confidence level.

    Raises:
        ValueError: `strata` is empty.
    """
    if not strata:
        raise ValueError("pooling needs at least one stratum")
    added = _apart(strata)
    able = np.all([(tested.insufficient_data() == "") & (tested.n > 0) for tested in added.each], axis=0)
    value, tested = added.value, _whole(strata) if able.any() else None
    uneven = np.ones(len(value), np.bool_) if tested is None else _uneven(tested)
    p = added.p() if uneven.any() else np.ones(len(value))
    p = p if tested is None else np.where(uneven, p, tested.p)
    p = np.where(able & ~np.isnan(value), p, np.nan)
    counted = np.where(np.isnan(p), 1.0, p)
    low, high = (np.where(np.isnan(value), np.nan, end) for end in _ends(tested, added, uneven, holm_levels(counted, level)))
    corrected = np.where(np.isnan(p), np.nan, holm_array(counted))
    rows = np.stack([value, low, high, p, corrected], axis=1).tolist()
    return [Pooled(mean, bottom, top, alone, both, len(strata)) for mean, bottom, top, alone, both in rows]


def _uneven(tested: Differences) -> Mask:
    """Return the rows in which some clusters weigh much more than others, so that separate strata are more informative.

    It depends on the number of questions per cluster, never on scores.
    """
    whole = tested.plain if isinstance(tested, AtBothEnds) else tested
    return np.asarray((whole.sums.effective < whole.clusters / 2) & (whole.seeds.total == 0))


def pilot(strata: Sequence[Stratum]) -> Tested | Added:
    """Return the difference of a single pair over several benchmarks, to plan larger samples with: as `pooled` tests it.

    Open values are left out. All benchmarks grow by the same factor.
    """
    tested = _whole(strata)
    if tested is None or _uneven(tested)[0]:
        return _apart(strata)
    return tested.plain if isinstance(tested, AtBothEnds) else tested


def _whole(strata: Sequence[Stratum]) -> Differences | None:
    """Return the tests of the clusters of all strata; None if each stratum keeps its own interval."""
    metric, *others = {part.metric for part in strata}
    labeled = any(side.labels is not None for part in strata for side in (*part.candidates, *part.references))
    return None if others or metric is None or not metric.bounded or labeled else _together(strata, metric)


def _apart(strata: Sequence[Stratum]) -> Added:
    each = tuple(compared(part.candidates, part.references, clusters=part.clusters, metric=part.metric) for part in strata)
    kin = np.array([part.kin for part in strata])
    return Added(each, np.array([kin == number for number in np.unique(kin)], dtype=np.float64))


def _ends(tested: Differences | None, added: Added, uneven: Mask, levels: Floats) -> tuple[Floats, Floats]:
    """Return the interval of each row at its level: over all clusters, or combined from the strata."""
    if tested is None or not uneven.any():
        return (added if tested is None else tested).interval(levels)
    (low, high), (bottom, top) = tested.interval(levels), added.interval(levels)
    return np.where(uneven, bottom, low), np.where(uneven, top, high)


def _together(strata: Sequence[Stratum], metric: Range) -> Differences:
    """Test the clusters of all strata together; if values are missing, at both ends."""
    plain = _joint(strata, metric)
    if not any(side.open is not None and side.open.any() for part in strata for side in (*part.candidates, *part.references)):
        return plain
    low, high = metric.low or 0.0, metric.high or 0.0
    least, most = (_joint([_filled(part, *ends) for part in strata], metric) for ends in ((low, high), (high, low)))
    return AtBothEnds(plain, least, most, np.zeros(plain.n.shape, np.bool_))


def _filled(part: Stratum, ours: float, theirs: float) -> Stratum:
    return replace(
        part, candidates=[side.filled(ours) for side in part.candidates], references=[side.filled(theirs) for side in part.references]
    )


def _joint(strata: Sequence[Stratum], metric: Range) -> Tested:
    """Test all rows without missing values."""
    labels = [label for part in strata for label in part.labels]
    names, codes = np.unique(labels, return_inverse=True)
    kin = np.array([int(str(name).replace("=", "#").partition("#")[0]) for name in names])
    of = np.repeat(np.arange(len(strata)), [len(part.questions) for part in strata])
    shape = len(strata[0].candidates), len(names)
    sums, counts, residuals = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    level, within, spread, freedom, shared = (
        np.zeros(shape[0]),
        np.zeros(shape[0]),
        np.zeros((2, shape[0])),
        np.ones((2, shape[0])),
        np.zeros(shape[0]),
    )
    for row in range(shape[0]):
        pairs = [(part.candidates[row], part.references[row]) for part in strata]
        delta = np.concatenate([one.mean - other.mean for one, other in pairs])
        kept = ~np.isnan(delta)
        sizes = np.bincount(of[kept], minlength=len(strata)).astype(np.float64)
        weight = np.where(kept, (kept.sum() / len(strata) / np.maximum(sizes, 1))[of], 0.0)
        delta = np.where(kept, delta, 0.0)
        means = np.bincount(of, delta, len(strata)) / np.maximum(sizes, 1)
        sums[row], counts[row], residuals[row] = (
            np.bincount(codes, values, shape[1]) for values in (weight * delta, weight, weight * (delta - means[of]))
        )
        within[row] = float((weight * delta**2).sum())
        theirs = np.nan_to_num(np.concatenate([other.mean for _, other in pairs]))
        level[row] = float((weight * theirs).sum() / max(weight.sum(), 1)) - (metric.low or 0.0)
        for side in (0, 1):
            part = _trainings([pair[side] for pair in pairs], weight, kept, labels)
            spread[side, row], freedom[side, row] = part.spread, part.freedom
            shared[row] += part.shared
    whole = Sums(**dict(zip(NAMES, row_sums(sums, counts, None), strict=True)) | {"within": within})
    variance = np.zeros(shape[0])
    for group in np.unique(kin):
        inside = counts[:, kin == group] > 0
        clusters = inside.sum(axis=1)
        squares = (residuals[:, kin == group] ** 2).sum(axis=1) * clusters / np.maximum(clusters - 1, 1)
        variance = variance + np.where(clusters > 1, squares, np.inf)
    variance = np.where(np.isfinite(variance), variance / np.maximum(whole.n, 1) ** 2, whole.variance)
    width = np.array((metric.high or 0.0) - (metric.low or 0.0))
    tested = Tested.of(
        whole, -width, width, lambda mask: (sums[mask], counts[mask]), paired=True, seeds=Seeds(spread, freedom, shared), level=level
    )
    lost = len(np.unique(kin)) - 1
    return replace(tested, variance=np.maximum(variance - shared, 0.0), freedom=np.maximum(tested.freedom - lost, 1.0))


def _trainings(sides: Sequence[Side], weight: Floats, kept: Mask, labels: Sequence[str]) -> Trainings:
    """Return the variance of the mean over all strata due to the trainings of one side.

    With equal numbers in all strata, trainings are matched by their order; else their errors are treated as fully correlated.
    """
    if all(side.seeds < 2 for side in sides):
        return Trainings()
    rows = [side.by_training() for side in sides]
    if len({side.seeds for side in sides}) == 1:
        values = np.concatenate(rows, axis=1) * np.where(kept, weight, np.nan)
        return Trainings.of(Side(values, tuple(range(len(values))) if sides[0].seeds else None), kept, labels)
    starts = np.cumsum([0, *(row.shape[1] for row in rows)])
    parts = [
        Trainings.of(side, kept[start:end], labels[start:end]) for side, start, end in zip(sides, starts[:-1], starts[1:], strict=True)
    ]
    spread = float(np.mean([np.sqrt(part.spread) for part in parts])) ** 2
    return Trainings(spread, min((part.freedom for part in parts if part.spread), default=1.0))


def borda(values: Floats, *, higher_is_better: Sequence[bool]) -> Floats:
    """Return each method's Borda count: the number of methods that it beats, summed over benchmarks; ties count half.

    Args:
        values: Mean scores, shape (benchmarks, methods), without NaN.
        higher_is_better: One per benchmark.

    Source: Borda (1781); Colombo et al. (2022), "What are the best systems?".
    """
    signed = np.where(np.array(higher_is_better, dtype=np.bool_)[:, None], values, -values).round(12)
    better = (signed[:, :, None] > signed[:, None, :]).sum(axis=(0, 2))
    ties = (signed[:, :, None] == signed[:, None, :]).sum(axis=(0, 2)) - len(values)
    return np.asarray(better + ties / 2)
