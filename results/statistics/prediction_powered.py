"""A judge's mean corrected with human labels of some items: prediction-powered inference.

The judge scored all items and may be wrong; a person labeled few items, and these labels are right. The items with both
give the judge's error, which is subtracted from its mean over all items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from results.statistics.core import LEVEL, Clusters, Estimate, Floats, cluster_positions

ENOUGH_LABELS = 30
"""Minimum number of labeled items (or documents): with fewer, intervals undercover in simulations."""
UNSEEN = 2.0
"""Errors that are added to those seen if a judge rarely errs, so that intervals cover as stated (Agresti & Coull 1998)."""
_SAME = 1e-9
"""Maximum difference of errors that are equal."""
_NOT_RANDOM = 0.001
"""p-value of equal judge scores for labeled and other items below which the labeled ones do not count as a random subset."""


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A mean over all judged items, corrected with the labels of some of them.

    Attributes:
        corrected: The corrected mean with its interval; `n` is the number of labels, `unscorable` the number of items without a
            judged value.
        labeled: Mean of the labels only, with its interval (Student's t).
        judged: Mean of the judged values over all items, uncorrected.
        bias: The judge's mean error: judged minus labeled, over the labeled items.
        weight: Weight of the judge (lambda): 0 ignores it, 1 uses it in full.
        standard_error: Standard error of `corrected`.
        items: Number of judged items, labeled or not.
        worth: Effective number of labels: how many labels would be as accurate without the judge.
        freedom: Degrees of freedom of `standard_error`.
    """

    corrected: Estimate
    labeled: Estimate
    judged: float
    bias: float
    weight: float
    standard_error: float
    items: int
    worth: float
    freedom: int

    def p(self, value: float) -> float:
        """Return the two-sided p-value of the hypothesis that the mean is `value`; NaN if there is no interval."""
        if math.isnan(self.corrected.low):
            return math.nan
        gap = abs(self.corrected.value - value)
        if not self.standard_error:
            return float(gap == 0)
        return 2 * float(scipy.special.stdtr(self.freedom, -gap / self.standard_error))


def prediction_powered_mean(
    judged: ArrayLike,
    labels: ArrayLike,
    *,
    weight: float | None = None,
    clusters: Clusters = None,
    level: float = LEVEL,
    largest: float | None = None,
) -> PredictionPowered:
    """Estimate the mean label of all items, from judged values of all items and labels of a random subset.

    With Y the labels and f the judged values, the mean is mean(Y) + lambda (mean of f without label - mean of f with
    label), of variance var(Y - lambda f) / n + lambda² var(f) / N; n items have a label, N have none. The labeled
    items must be a random subset: labels of only the doubtful cases bias the correction towards them.

    If labels are categories and the judge agrees with most of them, few errors, or none, determine the variance of its error.
    Then the variance of two further errors (`UNSEEN`) is added.

    Args:
        judged: Shape (items,), the judge's values; an item without one (NaN) is left out, label or not.
        labels: Shape (items,), a person's; NaN if there is none.
        weight: Lambda. None tunes it to the smallest variance within 0 and 1 (0 with fewer than three labeled
            clusters, since two points fit any line); 1 is plain prediction-powered inference, 0 the mean of the labels.
            If every item has a label, the judge adds nothing, and it is 0.
        clusters: One label per item; items of one cluster are not independent.
        level: Coverage of the intervals.
        largest: Largest error of a judged value; None: the range of labels and judged values.

    Raises:
        ValueError: Shapes differ, the weight is not a number, or fewer than two items (or clusters) have a label.

    Source: Angelopoulos et al. (2023), "Prediction-powered inference", Science 382; Angelopoulos, Duchi & Zrnic
        (2023), "PPI++" (tuned weight). Student's t with the labeled clusters less one (less two where the
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
    positions, sizes = cluster_positions(clusters, len(f), kept)
    n, labeled = int(known.sum()), len(np.unique(positions[known]))
    if labeled < 2:
        raise ValueError(f"the standard deviation of labels needs at least two labeled items (or documents), got {labeled}")
    pulls = _pulls(f, y, known, positions, len(sizes))
    if _rarely_differs(f[known], y[known], positions[known], labeled):
        reach = float(np.ptp(np.concatenate([f, y[known]]))) if largest is None else largest
        pulls = replace(pulls, unseen=UNSEEN * (reach / labeled) ** 2)
    alone = bool(known.all())
    if alone:
        weight = 0.0
    tuned = weight is None
    if weight is None:
        weight = pulls.best_weight if labeled > 2 else 0.0
    # A weight that the labels determine costs a degree of freedom; a weight of 0 does not.
    fitted = int(tuned and weight > 0)
    value = mean = float(y[known].mean())
    if not alone:
        value += weight * float(f[~known].mean() - f[known].mean())
    error, plain = pulls.standard_error(weight, fitted), pulls.standard_error(0.0, 0)
    few = f"{labeled} labeled, fewer than {ENOUGH_LABELS}" if labeled < ENOUGH_LABELS else ""
    if np.ptp(y[known]) == 0:
        few = "; ".join([*filter(None, [few]), "all labels are equal, so their variance is unknown"])
    doubt = "; ".join(reason for reason in (few, "" if alone else pulls.doubt(f, known)) if reason)
    unscorable = int((~kept).sum())

    def interval(middle: float, half: float, freedom: int, why: str) -> Estimate:
        reach = math.nan if why else float(scipy.special.stdtrit(freedom, (1 + level) / 2)) * half
        return Estimate(middle, middle - reach, middle + reach, n, unscorable, labeled, why)

    return PredictionPowered(
        interval(value, error, labeled - 1 - fitted, doubt),
        interval(mean, plain, labeled - 1, few),
        float(f.mean()),
        float((f - y)[known].mean()),
        weight,
        error,
        len(f),
        n * (plain / error) ** 2 if error else n if not plain else math.inf,
        labeled - 1 - fitted,
    )


def rectified(judged: ArrayLike, labels: ArrayLike, items: ArrayLike) -> Floats:
    """Correct judged values by prediction-powered inference, so that their sums under any label-independent weights are unbiased.

    With N items of which n have a label, each value of a labeled item is moved by N / n times its label minus the mean
    of its judged values. A value can leave the range of the judge. For an estimate whose score equation is linear in
    the values, as that of logistic regression, this is prediction-powered inference with lambda = 1.

    Args:
        judged: Shape (values,), several for one item if it was judged several times; NaN is left as it is.
        labels: Shape (values,), the item's label at each of its values; NaN if there is none.
        items: Shape (values,), codes from 0.

    Raises:
        ValueError: Shapes differ.

    Source: Angelopoulos et al. (2023), "Prediction-powered inference", Science 382, on convex estimation.
    """
    f, y, codes = np.asarray(judged, np.float64), np.asarray(labels, np.float64), np.asarray(items)
    if not f.shape == y.shape == codes.shape or f.ndim != 1:
        raise ValueError(f"values, labels and items must be of the same rows, got shapes {f.shape}, {y.shape} and {codes.shape}")
    known = ~np.isnan(f)
    labeled = known & ~np.isnan(y)
    total, some = len(np.unique(codes[known])), len(np.unique(codes[labeled]))
    if not some:
        return f
    sums = np.bincount(codes[known], weights=f[known], minlength=int(codes.max()) + 1)
    counts = np.bincount(codes[known], minlength=len(sums))
    means = sums / np.maximum(counts, 1)
    return np.where(labeled, f + total / some * (y - means[codes]), f)


@dataclass(frozen=True, slots=True)
class _Pulls:
    """Influence of each independent cluster on the two parts of the estimate, each of shape (clusters,).

    Attributes:
        label: On the mean of the labels.
        judge: On the judge's mean over labeled items minus that over the others; lambda times it is subtracted.
        labeled: Whether the cluster holds a label.
        unseen: Variance that errors of the judge add which no label shows, at a weight of 1.
    """

    label: Floats
    judge: Floats
    labeled: NDArray[np.bool_]
    unseen: float = 0.0

    @property
    def best_weight(self) -> float:
        """Return the lambda of the smallest variance, within 0 and 1; 0 if the judge's values are all equal."""
        square = float(self.judge @ self.judge)
        square += self.unseen if square else 0.0
        return min(1.0, max(0.0, float(self.label @ self.judge) / square)) if square else 0.0

    def standard_error(self, weight: float, fitted: int) -> float:
        """Return the standard error of the estimate with that weight; `fitted` is 1 if the same labels determined the weight.

        Without clusters its square is var(Y - lambda f) / n + lambda² var(f) / N, both with Bessel's correction.
        """
        square = (self.label - weight * self.judge) ** 2
        some, rest = int(self.labeled.sum()), int((~self.labeled).sum())
        variance = float(square[self.labeled].sum()) * some / (some - 1 - fitted) + weight**2 * self.unseen
        if rest > 1:
            variance += float(square[~self.labeled].sum()) * rest / (rest - 1)
        return math.sqrt(variance)

    def doubt(self, judged: Floats, known: NDArray[np.bool_]) -> str:
        """Return why the labeled items do not look like a random subset; empty if they do."""
        gap = float(judged[known].mean() - judged[~known].mean())
        error = math.sqrt(float(self.judge @ self.judge))
        p = 2 * float(scipy.special.ndtr(-abs(gap) / error)) if error else float(not gap)
        if p >= _NOT_RANDOM:
            return ""
        shown = f"{'−' if gap < 0 else '+'}{abs(gap):.2g}"
        return f"the judge's mean on labeled items differs by {shown} from that on the others (p = {p:.1g}): not a random subset"


def _rarely_differs(judged: Floats, labels: Floats, positions: NDArray[np.int64], clusters: int) -> bool:
    """Return whether labels are categories, and the judge's error is the same in most labeled clusters."""
    if 2 * len(np.unique(labels)) > len(labels):
        return False
    error = judged - labels
    differs = np.abs(error - np.median(error)) > _SAME
    return 2 * len(np.unique(positions[differs])) < clusters


def _pulls(f: Floats, y: Floats, known: NDArray[np.bool_], positions: NDArray[np.int64], clusters: int) -> _Pulls:
    """Linearize the estimate cluster by cluster; `places` has the cluster of each item."""
    label, judge = np.zeros((2, len(f)))
    label[known] = (y[known] - y[known].mean()) / known.sum()
    judge[known] = (f[known] - f[known].mean()) / known.sum()
    if not known.all():
        judge[~known] = -(f[~known] - f[~known].mean()) / (~known).sum()
    sums = np.zeros((2, clusters))
    np.add.at(sums[0], positions, label)
    np.add.at(sums[1], positions, judge)
    return _Pulls(sums[0], sums[1], np.bincount(positions, weights=known, minlength=clusters) > 0)
