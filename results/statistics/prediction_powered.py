"""A judged mean corrected by the items that a person has labelled too: prediction-powered inference.

The judge has seen everything and may be wrong; the person is right and has seen little. On what both have seen, one
learns how wrong the judge is, and takes that off its mean over everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit

from results.statistics.bootstrap import unit_places
from results.statistics.core import LEVEL, Clusters, Estimate, Floats

ENOUGH_LABELS = 30
"""Fewer labelled items (or documents) than this: simulation finds intervals that cover too rarely."""
_NOT_RANDOM = 0.001
"""p-value of "judged alike" below which the labelled items cannot be taken for a random subset."""


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A mean over all judged items, in the eyes of the person who labelled some of them.

    Attributes:
        corrected: The mean with its interval; n is the number of labels, `unscorable` items without a judged value.
        labelled: Mean of the labels alone with its interval (Student's t): what the labels say without the judge.
        judged: Mean of the judged values over all items, uncorrected.
        bias: Judged less labelled, mean over the labelled items: how far the judge is off.
        weight: How far the judge was listened to (lambda): 0 not at all, 1 in full.
        standard_error: Of `corrected`.
        items: Judged items, labelled ones among them.
        worth: As many labels as it would take to do as well without the judge; at weight 0 as many as there are.
    """

    corrected: Estimate
    labelled: Estimate
    judged: float
    bias: float
    weight: float
    standard_error: float
    items: int
    worth: float


def prediction_powered_mean(
    judged: ArrayLike, labels: ArrayLike, *, weight: float | None = None, clusters: Clusters = None, level: float = LEVEL
) -> PredictionPowered:
    """Mean of what a person would have said of all items, from judged values of all and labels of a random few.

    With Y the labels and f the judged values, the mean is mean(Y) + lambda (mean of f without label - mean of f with
    label), of variance var(Y - lambda f) / n + lambda² var(f) / N; n items have a label, N have none. The labelled
    items must be a random subset: labels of the doubtful cases alone correct towards the doubtful cases.

    Args:
        judged: Shape (items,), the judge's values; an item without one (NaN) is left out, label or not.
        labels: Shape (items,), a person's; NaN where there is none.
        weight: Lambda. None tunes it to the smallest variance within 0 and 1 (0 with fewer than three labelled
            units, since two points fit any line); 1 is plain prediction-powered inference, 0 the mean of the labels.
            Where every item has a label there is nothing to learn from the judge, and it is 0.
        clusters: One label per item; items of one cluster count as one witness.
        level: Coverage of the intervals.

    Raises:
        ValueError: Shapes differ, the weight is no number, or fewer than two items (or clusters) have a label.

    Source: Angelopoulos et al. (2023), "Prediction-powered inference", Science 382; Angelopoulos, Duchi & Zrnic
        (2023), "PPI++" (tuned weight). Student's t with the labelled units less one (less two where the
        weight is tuned), for few labels; sums of clusters as in Cochran (1977), section 9A.1.
    """
    f, y = np.asarray(judged, np.float64), np.asarray(labels, np.float64)
    if f.shape != y.shape or f.ndim != 1:
        raise ValueError(f"judged values and labels must be of the same items, got shapes {f.shape} and {y.shape}")
    if weight is not None and not math.isfinite(weight):
        raise ValueError(f"the weight must be a number, got {weight}")
    kept = np.asarray(~np.isnan(f), dtype=np.bool_)
    f, y = f[kept], y[kept]
    known = np.asarray(~np.isnan(y), dtype=np.bool_)
    places, sizes = unit_places(clusters, len(f), kept)
    n, units = int(known.sum()), len(np.unique(places[known]))
    if units < 2:
        raise ValueError(f"the spread of labels takes at least two labelled items (or documents), got {units}")
    pulls = _pulls(f, y, known, places, len(sizes))
    alone = bool(known.all())
    if alone:
        weight = 0.0
    tuned = weight is None
    if weight is None:
        weight = pulls.best_weight if units > 2 else 0.0
    # What was chosen by the labels costs them a degree of freedom; not to listen at all is no choice of theirs.
    fitted = int(tuned and weight > 0)
    value = mean = float(y[known].mean())
    if not alone:
        value += weight * float(f[~known].mean() - f[known].mean())
    error, plain = pulls.standard_error(weight, fitted), pulls.standard_error(0.0, 0)
    few = f"{units} labelled, fewer than {ENOUGH_LABELS}" if units < ENOUGH_LABELS else ""
    if np.ptp(y[known]) == 0:
        few = "; ".join([*filter(None, [few]), "every label is the same: their spread is not known"])
    doubt = "; ".join(reason for reason in (few, "" if alone else pulls.doubt(f, known)) if reason)
    unscorable = int((~kept).sum())

    def interval(middle: float, half: float, freedom: int, why: str) -> Estimate:
        reach = float(stdtrit(freedom, (1 + level) / 2)) * half
        return Estimate(middle, middle - reach, middle + reach, n, unscorable, units, why)

    return PredictionPowered(
        interval(value, error, units - 1 - fitted, doubt),
        interval(mean, plain, units - 1, few),
        float(f.mean()),
        float((f - y)[known].mean()),
        weight,
        error,
        len(f),
        n * (plain / error) ** 2 if error else n if not plain else math.inf,
    )


@dataclass(frozen=True, slots=True)
class _Pulls:
    """How far each independent unit pulls the two parts of the estimate, each of shape (units,).

    Attributes:
        label: On the mean of the labels.
        judge: On the judge's mean over labelled items, less that over the others; lambda times it is taken off.
        labelled: Whether the unit holds a label.
    """

    label: Floats
    judge: Floats
    labelled: NDArray[np.bool_]

    @property
    def best_weight(self) -> float:
        """The lambda of the smallest variance, within 0 and 1; 0 where the judge always says the same."""
        square = float(self.judge @ self.judge)
        return min(1.0, max(0.0, float(self.label @ self.judge) / square)) if square else 0.0

    def standard_error(self, weight: float, fitted: int) -> float:
        """Of the estimate with that weight, `fitted` 1 where the same labels have chosen it.

        Without clusters its square is var(Y - lambda f) / n + lambda² var(f) / N, both with Bessel's correction.
        """
        square = (self.label - weight * self.judge) ** 2
        some, rest = int(self.labelled.sum()), int((~self.labelled).sum())
        variance = float(square[self.labelled].sum()) * some / (some - 1 - fitted)
        if rest > 1:
            variance += float(square[~self.labelled].sum()) * rest / (rest - 1)
        return math.sqrt(variance)

    def doubt(self, judged: Floats, known: NDArray[np.bool_]) -> str:
        """Why the labelled items do not look like a random subset; empty where they do."""
        gap = float(judged[known].mean() - judged[~known].mean())
        error = math.sqrt(float(self.judge @ self.judge))
        p = 2 * float(ndtr(-abs(gap) / error)) if error else float(not gap)
        if p >= _NOT_RANDOM:
            return ""
        return f"labelled items are judged {gap:+.2g} from the others (p = {p:.1g}): not a random subset"


def _pulls(f: Floats, y: Floats, known: NDArray[np.bool_], places: NDArray[np.int64], units: int) -> _Pulls:
    """The linearised estimate, unit by unit; places say which unit an item belongs to."""
    label, judge = np.zeros((2, len(f)))
    label[known] = (y[known] - y[known].mean()) / known.sum()
    judge[known] = (f[known] - f[known].mean()) / known.sum()
    if not known.all():
        judge[~known] = -(f[~known] - f[~known].mean()) / (~known).sum()
    sums = np.zeros((2, units))
    np.add.at(sums[0], places, label)
    np.add.at(sums[1], places, judge)
    return _Pulls(sums[0], sums[1], np.bincount(places, weights=known, minlength=units) > 0)
