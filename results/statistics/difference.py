"""The difference of two methods, with every known source of randomness.

A method's scores are rows of draws over the same questions: repeated answers, or trainings with other seeds. The
difference of two methods is the mean over trainings, then over questions. Its variance adds up

- the questions: cluster-robust, over the differences of each cluster's questions; it contains repeated answers,
- the trainings: the variance between the means of a trained side's seeds, since the trainings are a sample too,
- the judge: if people labeled some of the answers, the difference is corrected by them (prediction-powered).

Boards, matrix, comparisons, gains, gate and planning all call `compared` (or `all_pairs`, for every pair of many
methods); `tested.py` says how the result is tested.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.core import LEVEL, Clusters, Floats, rows_of
from results.statistics.prediction_powered import ENOUGH_LABELS, prediction_powered_mean
from results.statistics.sums import by_cluster, pair_sums, sums_of
from results.statistics.tested import Mask, Seeds, Tested

FEWEST_TRAININGS = 3
"""Minimum number of trainings for a claim about the training rather than one checkpoint."""
ONE_CHECKPOINT = "this checkpoint only"
NEW_TRAININGS = "new trainings"
CLAIM_CLUSTERS = 30
"""Minimum number of clusters for the claim "beats"."""
NO_ENDS = "values are missing, and the metric has no smallest and largest value"


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest and largest value that a metric can have; None if it is unbounded on that side."""

    low: float | None = 0.0
    high: float | None = 1.0

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class Side:
    """Per-question scores of one method, as one side of a paired comparison.

    Attributes:
        scores: Shape (runs, questions), or (questions,) for a single run; NaN is unscorable or unread. A question counts if
            every run has a score.
        trainings: The training that each run uses, for example its seed; runs of one training are repeats. None: the method was
            not trained here.
        open: Mask of unknown values (an unread verdict or a failed answer), same shape as `scores`. A claim must hold with them
            at the metric's worst and at its best.
        labels: Human labels of judged answers, same shape as `scores`; NaN without a label. None: no labels.
    """

    scores: Floats
    trainings: tuple[Hashable, ...] | None = None
    open: Mask | None = None
    labels: Floats | None = None

    @classmethod
    def of(
        cls,
        scores: ArrayLike,
        *,
        trainings: Sequence[Hashable] | None = None,
        open: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Side:
        """Check the shapes; scores of a single run may be one-dimensional.

        Raises:
            ValueError: The arrays differ in shape, or the number of trainings is not the number of runs.
        """
        rows = rows_of(scores)
        unknown = None if open is None else np.atleast_2d(np.asarray(open, np.bool_))
        human = None if labels is None else rows_of(labels)
        if any(other is not None and other.shape != rows.shape for other in (unknown, human)):
            raise ValueError(f"open values and labels must be of the same questions as the scores, {rows.shape}")
        named = None if trainings is None else tuple(trainings)
        if named is not None and len(named) != len(rows):
            raise ValueError(f"{len(named)} trainings for {len(rows)} draws")
        return cls(rows, named, unknown, human)

    @property
    def seeds(self) -> int:
        """Return the number of different trainings; 0 if the method was not trained."""
        return 0 if self.trainings is None else len(set(self.trainings))

    def by_training(self, values: Floats | None = None) -> Floats:
        """Average over the repeats of each training; shape (trainings, questions)."""
        values = self.scores if values is None else values
        if self.trainings is None or self.seeds == len(values):
            return values if self.trainings is not None else values.mean(axis=0, keepdims=True)
        names = list(dict.fromkeys(self.trainings))
        of = np.array([names.index(name) for name in self.trainings])
        return np.stack([values[of == number].mean(axis=0) for number in range(len(names))])

    @cached_property
    def mean(self) -> Floats:
        """Return each question's score, averaged over trainings; shape (questions,)."""
        return np.asarray(self.by_training().mean(axis=0))

    def filled(self, value: float) -> Side:
        """Return a copy with every unknown value replaced by `value`."""
        return self if self.open is None else replace(self, scores=np.where(self.open, value, self.scores), open=None)


def generalizes(candidate: Side, reference: Side, *, judged: bool = False) -> str:
    """Describe what a significant difference between two sides generalizes to: new questions, new trainings or this checkpoint only.

    Args:
        candidate, reference: The two sides.
        judged: Whether a judge scored them.
    """
    seeds = [side.seeds for side in (candidate, reference) if side.seeds]
    where = "new questions"
    if seeds:
        where += f" and {NEW_TRAININGS}" if min(seeds) >= FEWEST_TRAININGS else f", {ONE_CHECKPOINT}"
    unlabeled = judged and (candidate.labels is None or reference.labels is None)
    return where + (", for this judge only" if unlabeled else "")


@dataclass(frozen=True)
class AtBothEnds:
    """Range of paired differences over all possible unknown values; arrays of shape (rows,).

    Attributes:
        plain: Differences over known values; unread verdicts are left out, and failed answers keep their score.
        least: Differences with unknown values at the metric's worst for the candidate and at its best for the reference.
        most: Differences with unknown values at the best for the candidate and at the worst for the reference.
        endless: Whether the range is infinite, because the metric is unbounded and a value unknown.
    """

    plain: Tested
    least: Tested
    most: Tested
    endless: Mask

    def __getitem__(self, where: Any) -> AtBothEnds:
        return AtBothEnds(self.plain[where], self.least[where], self.most[where], self.endless[where])

    @property
    def value(self) -> Floats:
        """Return the mean differences over known values."""
        return self.plain.value

    @property
    def n(self) -> Floats:
        """Return the number of questions with known values on both sides."""
        return self.plain.n

    @property
    def clusters(self) -> Floats:
        """Return the number of clusters of these questions."""
        return self.plain.clusters

    @property
    def delta(self) -> Floats | None:
        """Return the differences question by question; None if they were not kept."""
        return self.plain.delta

    @property
    def geometric(self) -> Mask:
        """Return, per row, whether the difference is one of geometric means."""
        return self.plain.geometric

    def p_above(self, bar: float | Floats) -> Floats:
        """Return one-sided p-values for the claim that the mean difference is above `bar`, whatever the unknown values are."""
        return np.fmax(self.least.p_above(bar), self.most.p_above(bar))

    def p_below(self, bar: float | Floats) -> Floats:
        """Return one-sided p-values for the claim that the mean difference is below `bar`, whatever the unknown values are."""
        return np.fmax(self.least.p_below(bar), self.most.p_below(bar))

    @cached_property
    def p(self) -> Floats:
        """Return two-sided p-values of zero difference that hold for all unknown values; 1 if the two extremes differ in sign."""
        both = np.minimum(2 * np.minimum(self.p_above(0.0), self.p_below(0.0)), 1.0)
        return np.where((self.insufficient_data() != "") | (self.n == 0), np.nan, both)

    def interval(self, level: float | Floats = LEVEL) -> tuple[Floats, Floats]:
        """Return an interval that covers all possible unknown values: lower bound of `least` to upper bound of `most`."""
        ends = [side.interval(level) for side in (self.least, self.most, self.plain)]
        low = np.fmin(ends[0][0], ends[1][0])
        high = np.fmax(ends[0][1], ends[1][1])
        return np.where(self.endless, ends[2][0], low), np.where(self.endless, ends[2][1], high)

    def detectable(self, *how: Any, **named: Any) -> Floats:
        """Return the minimum detectable difference of the known values (`Tested.detectable`)."""
        return self.plain.detectable(*how, **named)

    def insufficient_data(self, word: str = "clusters") -> NDArray[np.object_]:
        """Explain, per row, why a claim that the test would allow is not made; empty if there is no such reason."""
        reasons = zip(self.least.insufficient_data(word), self.most.insufficient_data(word), self.endless.tolist(), strict=True)
        return np.array([NO_ENDS if endless else str(one or other) for one, other, endless in reasons], dtype=object)

    def why_undecided(self) -> NDArray[np.object_]:
        """Explain, per row, why a difference that is not significant counts as insufficient data, as `Tested.why_undecided`."""
        own = self.insufficient_data()
        return np.where(own == "", self.plain.why_undecided(), own)


Differences = Tested | AtBothEnds
"""Result of `compared`; if a value is unknown, tests must hold at both ends of its range."""


def range_of(*values: Floats) -> Range:
    """Guess the range of scores if none is declared: 0 to 1 if all scores are within it, else unbounded."""
    inside = all(((each >= 0) & (each <= 1) | np.isnan(each)).all() for each in values)
    return Range() if inside else Range(None, None)


def compared(
    candidates: Sequence[Side | ArrayLike],
    references: Sequence[Side | ArrayLike],
    *,
    clusters: Clusters = None,
    metric: Range | None = None,
) -> Differences:
    """Compare pairs of methods on the same questions: candidate minus reference, row by row.

    Args:
        candidates, references: The scores of each, as `Side` or as an array of shape (questions,).
        clusters: One label per question; questions with equal labels are one cluster. None stands alone.
        metric: The metric's range; None: 0 to 1 if all scores are within it, else unbounded. Scores with a lower bound only are
            compared by geometric means, tested on logs.

    Returns:
        p-values, intervals at any level, and minimum detectable differences, of shape (rows,).

    Raises:
        ValueError: The two sequences differ in length, or the sides in their number of questions.
    """
    ours = [side if isinstance(side, Side) else Side.of(side) for side in candidates]
    theirs = [side if isinstance(side, Side) else Side.of(side) for side in references]
    if {side.scores.shape[1] for side in (*ours, *theirs)} - {ours[0].scores.shape[1] if ours else 0}:
        raise ValueError(f"paired scores must be of the same questions, got {sorted({s.scores.shape[1] for s in (*ours, *theirs)})}")
    if metric is None:
        metric = range_of(*(side.scores for side in (*ours, *theirs)))
    plain = _tested(ours, theirs, clusters, metric)
    if all(side.open is None or not side.open.any() for side in (*ours, *theirs)):
        return plain
    if not metric.bounded:
        endless = [any(s.open is not None and s.open.any() for s in pair) for pair in zip(ours, theirs, strict=True)]
        return AtBothEnds(plain, plain, plain, np.array(endless))
    low, high = metric.low or 0.0, metric.high or 0.0
    least = _tested([side.filled(low) for side in ours], [side.filled(high) for side in theirs], clusters, metric)
    most = _tested([side.filled(high) for side in ours], [side.filled(low) for side in theirs], clusters, metric)
    return AtBothEnds(plain, least, most, np.zeros(len(ours), dtype=np.bool_))


def paired(candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, metric: Range | None = None) -> Tested:
    """Compare rows of single runs, shape (rows, questions) each; like `compared` without trainings, unknown values and labels.

    Raises:
        ValueError: The arrays differ in shape.
    """
    a, b = rows_of(candidates), rows_of(references)
    if a.shape != b.shape:
        raise ValueError(f"paired scores must be of the same questions, got {a.shape} and {b.shape}")
    return _of_rows(a, b, clusters, range_of(a, b) if metric is None else metric)


def all_pairs(sides: Sequence[Side | ArrayLike], *, clusters: Clusters = None, metric: Range | None = None) -> Tested:
    """Compare every pair of methods, row minus column; arrays of shape (methods, methods), zeros on the diagonal.

    Unknown values and labels are ignored; `p_at_both_ends` takes unknown values into account.

    Args:
        sides, clusters, metric: As in `compared`.
    """
    every = [side if isinstance(side, Side) else Side.of(side) for side in sides]
    metric = range_of(*(side.scores for side in every)) if metric is None else metric
    scores = np.stack([side.mean for side in every])
    center = np.full((len(every), len(every)), np.nan)
    if metric.low is not None and not metric.bounded:
        every = [_logs(side, metric.low) for side in every]
        scores = np.stack([side.mean for side in every])
        center = np.broadcast_to(np.exp(np.nan_to_num([_mean(row) for row in scores])), center.shape).copy()
    width = _width(metric)
    each = _columns([Trainings.of(side, ~np.isnan(side.mean), clusters) for side in every])
    together = _together(*(tuple(column[at] for column in each) for at in ((slice(None), None), (None, slice(None)))))

    def rows(mask: Mask) -> tuple[Floats, Floats]:
        left, right = np.nonzero(mask)
        return by_cluster(scores[left] - scores[right], clusters)

    known = (~np.isnan(scores)).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = (known @ np.nan_to_num(scores).T) / (known @ known.T) - (metric.low or 0.0)
    sums = pair_sums(scores, clusters)
    return Tested.of(sums, -width, width, rows, paired=True, seeds=together, center=center, level=level)


def p_at_both_ends(sides: Sequence[Side], pairs: Tested, *, clusters: Clusters = None, metric: Range | None = None) -> Floats:
    """Return p-values for each pair that hold for all possible unknown values; those of `pairs` if no value is unknown."""
    # The p-value of a pair does not depend on the order: only half of the matrix, and its diagonal, is computed.
    upper = np.triu(np.ones(pairs.middle.shape, dtype=np.bool_))
    p = np.zeros(upper.shape)
    p[upper] = pairs[upper].p
    p = np.where(upper, p, p.T)
    lacking = [side.open is not None and bool(side.open.any()) for side in sides]
    for row in range(len(p)):
        others = [other for other in range(row + 1, len(p)) if lacking[row] or lacking[other]]
        if others:
            result = compared([sides[row]] * len(others), [sides[other] for other in others], clusters=clusters, metric=metric)
            p[row, others] = p[others, row] = result.p
    return p


def means(columns: ArrayLike, *, clusters: Clusters = None, metric: Range | None = None) -> Tested:
    """Compute the mean of every row with tests and intervals; arrays of shape (rows,).

    Args:
        columns: Shape (rows, questions); NaN is unscorable.
        clusters, metric: As in `compared`.

    Source: linearized ratio estimator over clusters, Cochran (1977), "Sampling Techniques", section 9.
    """
    scores = rows_of(columns)
    metric = range_of(scores) if metric is None else metric
    low, high = (metric.low, metric.high) if metric.bounded else (-np.inf, np.inf)
    assert low is not None
    assert high is not None
    return Tested.of(
        sums_of(scores, clusters), np.array(low), np.array(high), lambda mask: by_cluster(scores[mask], clusters), paired=False
    )


def _columns(trainings: Sequence[Trainings]) -> tuple[Floats, ...]:
    return tuple(np.array([getattr(item, name) for item in trainings]) for name in ("spread", "freedom", "shared"))


def _together(ours: tuple[Floats, ...], theirs: tuple[Floats, ...]) -> Seeds:
    """Combine the trainings of both sides, which are independent."""
    spread, freedom = (np.stack(np.broadcast_arrays(ours[at], theirs[at])) for at in (0, 1))
    return Seeds(spread, freedom, ours[2] + theirs[2])


def _of_rows(a: Floats, b: Floats, clusters: Clusters, metric: Range, seeds: Seeds | None = None) -> Tested:
    center = np.full(len(a), np.nan)
    if metric.low is not None and not metric.bounded:
        delta = np.log1p(a - metric.low) - np.log1p(b - metric.low)
        kept = np.where(np.isnan(delta), np.nan, np.log1p(b - metric.low))
        center = np.exp(np.array([_mean(row) for row in kept]))
    else:
        delta = a - b
    width = _width(metric)
    result = Tested.of(
        sums_of(delta, clusters), -width, width, lambda mask: by_cluster(delta[mask], clusters), paired=True, seeds=seeds,
        center=np.nan_to_num(center, nan=1.0) if not metric.bounded and metric.low is not None else None,
        level=np.array([_mean(row) for row in np.where(np.isnan(delta), np.nan, b)]) - (metric.low or 0.0),
    )  # fmt: skip
    return replace(result, delta=a - b)


def _tested(candidates: Sequence[Side], references: Sequence[Side], clusters: Clusters, metric: Range) -> Tested:
    """Return the tests of pairs without open values."""
    a, b = (np.stack([side.mean for side in sides]) for sides in (candidates, references))
    both = ~np.isnan(a) & ~np.isnan(b)
    parts = []
    for one, other, kept in zip(candidates, references, both, strict=True):
        if metric.low is not None and not metric.bounded:
            one, other = _logs(one, metric.low), _logs(other, metric.low)
        parts.append([Trainings.of(side, kept, clusters) for side in (one, other)])
    ours, theirs = (_columns([pair[side] for pair in parts]) for side in (0, 1))
    result = _of_rows(a, b, clusters, metric, _together(ours, theirs))
    for row, (one, other) in enumerate(zip(candidates, references, strict=True)):
        if one.labels is not None and other.labels is not None:
            result = _corrected(result, row, one, other, clusters)
    return result


def _corrected(result: Tested, row: int, candidate: Side, reference: Side, clusters: Clusters) -> Tested:
    """Return the tests with one row corrected by people's labels, if enough questions have both.

    The judge's error on a question is the labels minus the scores of the draws that have labels.

    Source: Angelopoulos et al. (2023), "Prediction-powered inference", Science 382, on the paired difference.
    """
    judged = candidate.mean - reference.mean
    wrong = _judge_error(candidate) - _judge_error(reference)
    human = judged + wrong
    known = ~np.isnan(human)
    named = np.arange(len(human)) if clusters is None else np.array([f"#{i}" if c is None else c for i, c in enumerate(clusters)])
    labeled = len(set(named[known].tolist()))
    if labeled < ENOUGH_LABELS:
        return result
    every = np.concatenate([part.ravel() for side in (candidate, reference) for part in (side.scores, side.labels) if part is not None])
    # One verdict errs by at most the range of scores; that both of a question err is rarer.
    powered = prediction_powered_mean(judged, human, clusters=clusters, largest=float(np.nanmax(every) - np.nanmin(every)))
    fitted = powered.weight > 0 and not known[~np.isnan(judged)].all()
    own, share = float(max(labeled - 1 - int(fitted), 1)), powered.weight**2
    seeds = replace(result.seeds, spread=result.seeds.spread.copy())
    seeds.spread[:, row] *= share
    changed: dict[str, Any] = {name: np.array(getattr(result, name)) for name in ("middle", "variance", "freedom", "labeled", "doubts")}
    for name, value in (
        ("middle", powered.corrected.value),
        ("variance", max(powered.standard_error**2 - float(seeds.shared[row]) * share, 0.0)),
        ("freedom", own),
        ("labeled", True),
        ("doubts", powered.corrected.insufficient_data),
    ):
        changed[name][row] = value
    return replace(result, seeds=seeds, **changed)


def _judge_error(side: Side) -> Floats:
    """Return each question's labels minus its scores, over the repeats with labels; NaN if none has any."""
    assert side.labels is not None
    error = side.labels - side.scores
    known = ~np.isnan(error)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(known, error, 0.0).sum(axis=0) / known.sum(axis=0))


@dataclass(frozen=True, slots=True)
class Trainings:
    """Variance that differences between training seeds add to a mean over questions.

    Attributes:
        spread: Variance of the mean over trainings, estimated from their differences; 0 with fewer than two trainings.
        freedom: Degrees of freedom of `spread`.
        shared: Part of `spread` that the variance over questions already contains.
    """

    spread: float = 0.0
    freedom: float = 1.0
    shared: float = 0.0

    @classmethod
    def of(cls, side: Side, kept: Mask, clusters: Clusters) -> Trainings:
        """Estimate the variance between the trainings of a side.

        The trainings' means differ for two reasons: trainings differ overall, and they answer single questions differently. The
        variance over questions already contains the second part, so it is subtracted.

        Source: Cameron, Gelbach & Miller (2011), "Robust inference with multiway clustering", equation 2.3.
        """
        if side.seeds < 2 or not kept.any():
            return cls()
        rows = side.by_training()[:, kept]
        seeds, questions = rows.shape
        means = rows.mean(axis=1)
        rest = rows - rows.mean(axis=0) - means[:, None] + means.mean()
        sums, _ = by_cluster(rest, None if clusters is None else [label for label, used in zip(clusters, kept, strict=True) if used])
        both = float((sums**2).sum()) / (seeds * (seeds - 1) * questions**2)
        spread = float(means.var(ddof=1) / seeds)
        return cls(spread, float(seeds - 1), both)


def _logs(side: Side, low: float) -> Side:
    return replace(side, scores=np.log1p(side.scores - low), open=None, labels=None)


def _mean(row: Floats) -> float:
    kept = row[~np.isnan(row)]
    return float(kept.mean()) if len(kept) else np.nan


def _width(metric: Range) -> Floats:
    return np.array((metric.high or 0.0) - (metric.low or 0.0) if metric.bounded else np.inf)
