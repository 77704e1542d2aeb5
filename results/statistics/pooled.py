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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.statistics.core import LEVEL, Clusters, Floats
from results.statistics.difference import AtBothEnds, Differences, Range, Side, Trainings, compared
from results.statistics.holm import holm_array, holm_levels
from results.statistics.sums import NAMES, Sums, row_sums
from results.statistics.tested import Mask, Seeds, Tested

Interval = Callable[[Floats], tuple[Floats, Floats]]
"""Function from the level of each row to its lower and upper bounds."""
_STEPS = 30
_SMALLEST = -18.0
"""Natural logarithm of the smallest p-value that is computed where half intervals add up; smaller ones are replaced by it."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """Pairs of methods on one benchmark.

    Attributes:
        candidates, references: Sides, one of each per row.
        questions: Ids, in the order of the scores.
        clusters: As in `compared`.
        kin: Strata with equal numbers share questions.
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
        """Return each question's cluster, distinct from those of other questions."""
        named = self.clusters or [None] * len(self.questions)
        return [
            f"{self.kin}#{question}" if cluster is None else f"{self.kin}={cluster}"
            for question, cluster in zip(self.questions, named, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Pooled:
    """A method's mean difference over several benchmarks.

    Attributes:
        value: Mean over benchmarks.
        low, high: Its interval at the level at which Holm's procedure tests it: it excludes 0 exactly if `p_holm` <= .05.
        p, p_holm: Two-sided p-value, and corrected over the methods compared; NaN if a stratum has insufficient data.
        strata: Benchmarks.
    """

    value: float
    low: float
    high: float
    p: float
    p_holm: float
    strata: int


def pooled(strata: Sequence[Stratum], level: float = LEVEL) -> list[Pooled]:
    """Return the pooled difference of every row, tested as one family.

    Args:
        strata: The benchmarks, each with the same pairs of methods.
        level: Of the claims.

    Raises:
        ValueError: There is no stratum.
    """
    if not strata:
        raise ValueError("pooling needs at least one stratum")
    each = [compared(part.candidates, part.references, clusters=part.clusters, metric=part.metric) for part in strata]
    able = np.all([(tested.insufficient_data() == "") & (tested.n > 0) for tested in each], axis=0)
    value = np.mean([tested.value for tested in each], axis=0)
    every = [side for part in strata for side in (*part.candidates, *part.references)]
    ranges = {part.metric for part in strata}
    (metric,) = ranges if len(ranges) == 1 else (None,)
    joint = metric is not None and metric.bounded and all(side.labels is None for side in every) and able.any()
    tested = _together(strata, metric) if joint and metric is not None else None
    uneven = np.ones(len(value), np.bool_) if tested is None else _uneven(tested)
    p, added = _added(each, [part.kin for part in strata]) if uneven.any() else (np.ones(len(value)), None)
    p = p if tested is None else np.where(uneven, p, tested.p)
    p = np.where(able & ~np.isnan(value), p, np.nan)
    counted = np.where(np.isnan(p), 1.0, p)
    low, high = (np.where(np.isnan(value), np.nan, end) for end in _ends(tested, added, uneven, holm_levels(counted, level)))
    corrected = np.where(np.isnan(p), np.nan, holm_array(counted))
    rows = np.stack([value, low, high, p, corrected], axis=1).tolist()
    return [Pooled(mean, bottom, top, alone, both, len(strata)) for mean, bottom, top, alone, both in rows]


def _uneven(tested: Differences) -> Mask:
    """Return in which rows some clusters weigh much more than others, so that separate strata are more informative.

    It depends on how many questions the clusters have, never on the scores.
    """
    whole = tested.plain if isinstance(tested, AtBothEnds) else tested
    return np.asarray((whole.sums.effective < whole.clusters / 2) & (whole.seeds.total == 0))


def _ends(tested: Differences | None, added: Interval | None, uneven: Mask, levels: Floats) -> tuple[Floats, Floats]:
    """Return the interval of each row at its level: of all clusters together, or combined from the strata."""
    if tested is None or added is None:
        whole = added if tested is None else tested.interval
        assert whole is not None
        return whole(levels)
    (low, high), (bottom, top) = tested.interval(levels), added(levels)
    return np.where(uneven, bottom, low), np.where(uneven, top, high)


def _together(strata: Sequence[Stratum], metric: Range) -> Differences:
    """Return the tests of the clusters of all strata; if values are open, at both ends."""
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
    """Return the tests of all rows without open values."""
    labels = [label for part in strata for label in part.labels]
    names, codes = np.unique(labels, return_inverse=True)
    kin = np.array([int(str(name).replace("=", "#").partition("#")[0]) for name in names])
    of = np.repeat(np.arange(len(strata)), [len(part.questions) for part in strata])
    shape = len(strata[0].candidates), len(names)
    sums, counts, residuals = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    within, spread, freedom, shared = (np.zeros(shape[0]), np.zeros((2, shape[0])), np.ones((2, shape[0])), np.zeros(shape[0]))
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
    tested = Tested.of(whole, -width, width, lambda mask: (sums[mask], counts[mask]), paired=True, seeds=Seeds(spread, freedom, shared))
    lost = len(np.unique(kin)) - 1
    return replace(tested, variance=np.maximum(variance - shared, 0.0), freedom=np.maximum(tested.freedom - lost, 1.0))


def _trainings(sides: Sequence[Side], weight: Floats, kept: Mask, labels: Sequence[str]) -> Trainings:
    """Return the variance that the trainings of one side add to the mean over all strata.

    If all strata have equally many, they are the same ones in the same order; else their errors are treated as fully
    correlated.
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


def _added(strata: Sequence[Differences], kin: Sequence[int]) -> tuple[Floats, Interval]:
    """Return p-values and the interval at given levels from the half intervals of the strata."""
    values = np.stack([tested.value for tested in strata])
    value = values.mean(axis=0)
    groups = np.array([[number == other for number in kin] for other in sorted(set(kin))], dtype=np.float64)

    def interval(levels: Floats) -> tuple[Floats, Floats]:
        low, high = (np.stack(ends) for ends in zip(*(tested.interval(levels) for tested in strata), strict=True))
        below, above = (np.sqrt(((groups @ half) ** 2).sum(axis=0)) / len(strata) for half in (values - low, high - values))
        return value - below, value + above

    least, most = np.full(len(value), _SMALLEST), np.zeros(len(value))
    for _ in range(_STEPS):
        middle = (least + most) / 2
        low, high = interval(1 - np.exp(middle))
        holds = (low <= 0) & (high >= 0)
        least, most = np.where(holds, middle, least), np.where(holds, most, middle)
    return np.exp(most), interval


def borda(values: Floats, *, higher_is_better: Sequence[bool]) -> Floats:
    """Return each method's Borda count: over benchmarks, how many methods it beats; ties count half.

    Args:
        values: Shape (benchmarks, methods), without gaps.
        higher_is_better: One per benchmark.

    Source: Borda (1781); Colombo et al. (2022), "What are the best systems?".
    """
    signed = np.where(np.array(higher_is_better, dtype=np.bool_)[:, None], values, -values).round(12)
    better = (signed[:, :, None] > signed[:, None, :]).sum(axis=(0, 2))
    ties = (signed[:, :, None] == signed[:, None, :]).sum(axis=(0, 2)) - len(values)
    return np.asarray(better + ties / 2)
