"""The non-inferiority gate: did a candidate lose more than a margin, did it not, or can that not be known?

Two one-sided claims about the paired difference d = candidate minus baseline, with a margin m > 0:

- `regressed` says d < -m (with `strict`: d < 0). It is claimed where the upper bound of the interval lies below that.
- `pass` says d > -m. It is claimed where the lower bound lies above -m.
- `inconclusive` is everything else: also where too few clusters, a few that dominate, or clusters so skewed or so rare that
  the test errs more often than it says would have to decide.

`regressed` is decided first. Each claim is false with probability (1 - level) / 2 at most: 2.5 % at a level of 95 %.

Several metrics: the gate regresses as a whole where any metric regressed, so each further metric is a further chance
of a false alarm; the claims "regressed" are therefore Holm-corrected over the metrics. It passes where every metric
passed; a false pass of the whole takes a false pass of the very metric that fell, so "pass" needs no correction
(intersection–union test). A drop that only the correction leaves unclaimed is inconclusive, never a pass. The upper
bound of each interval is at the level of Holm's test, the lower one at that of the single metric, so that the outcome
is read off the interval.

How small a difference could be seen, and how many clusters it takes to see one, stands here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.closed_form import (
    FEWEST_CLUSTERS,
    FEWEST_EFFECTIVE,
    MOST_SKEW,
    POWER,
    Moments,
    holm_array,
    holm_levels,
    paired,
    reach,
)
from results.statistics.core import LEVEL, Clusters, Difference
from results.statistics.intervals import differences_of


def clusters_needed(pilot: Moments, effect: float, *, power: float = POWER, level: float = LEVEL) -> int:
    """Clusters it takes to call a true difference of `effect`, were new ones of the same sizes and variances as a pilot's.

    Args:
        pilot: Of a single pair, as `paired(...)[0]`.
        effect: The true difference to call; its sign does not matter.
        power, level: As in `reach`.

    Raises:
        ValueError: The effect is 0, which no number of clusters can show, or there are fewer than two clusters.
    """
    if not effect or math.isnan(effect):
        raise ValueError(f"no number of clusters shows a difference of {effect}")
    error, clusters, share = float(pilot.error), float(pilot.clusters), float(pilot.effective / np.maximum(pilot.clusters, 1))
    if math.isnan(error):
        raise ValueError("the spread of differences takes at least two independent clusters")
    if not error:
        return 2
    needed = clusters * (reach(power, level) * error / effect) ** 2
    for _ in range(20):  # the degrees of freedom depend on the result
        needed = clusters * (reach(power, level, max(share * needed, 3.0)) * error / effect) ** 2
    return max(2, math.ceil(needed - 1e-9))


Outcome = Literal["pass", "regressed", "inconclusive"]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """What the gate says about one metric.

    Attributes:
        outcome: `pass`, `regressed` or `inconclusive`.
        difference: Candidate minus baseline, in the direction in which more is better.
        margin: The loss that is tolerated, a positive fraction.
        strict: Whether any significant loss counts as a regression.
        p: One-sided p-value of the claim "regressed".
        p_pass: One-sided p-value of the claim "pass".
        p_holm: `p`, Holm-corrected over the metrics decided together; `p` itself for a single one.
        minimum_detectable: Smallest true loss that would be detected with the stated power; NaN if unknown.
        clusters_needed: Clusters that would decide, were the true difference the observed one; None where it is decided,
            where no number would, and where the spread is not known.
        insufficient_data: Why a claim that the interval would allow is not made; empty where none was.
    """

    outcome: Outcome
    difference: Difference
    margin: float
    strict: bool
    p: float
    p_pass: float
    p_holm: float
    minimum_detectable: float
    clusters_needed: int | None
    insufficient_data: str = ""


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gate says about several metrics: `regressed` if any did, `pass` if all did, else `inconclusive`."""

    outcome: Outcome
    decisions: dict[str, GateDecision]


def decided(moments: Moments, margin: float, *, strict: bool = False, level: float = LEVEL, upper: float = LEVEL) -> NDArray[np.object_]:
    """The outcome of every row of paired differences, shape (rows,), read off the interval.

    Args:
        moments: Of differences in the direction in which more is better.
        margin, strict: As in `decide_all`.
        level, upper: Of the two-sided interval that the lower, and the upper bound is of.
    """
    bar, able = 0.0 if strict else -margin, moments.decidable == ""
    lost = able & (moments.bounds(upper)[1] < bar) & ~moments.hides(bar, above=False, level=level)[0]
    kept = able & (moments.bounds(level)[0] > -margin) & ~moments.hides(-margin, above=True, level=level)[0]
    return np.where(lost, "regressed", np.where(kept, "pass", "inconclusive")).astype(object)


def non_inferiority(
    candidate: ArrayLike,
    baseline: ArrayLike,
    *,
    margin: float,
    strict: bool = False,
    higher_is_better: bool = True,
    clusters: Clusters = None,
    level: float = LEVEL,
    power: float = POWER,
    width: float | None = None,
) -> GateDecision:
    """Decide whether a candidate regressed against a baseline on the same questions; `decide_all` of one metric.

    Args:
        candidate, baseline: Shape (questions,), scores of the same questions; NaN is unscorable.
        margin: The loss that is tolerated, a positive fraction: 0.01 is one percentage point.
        higher_is_better: False for a metric of which less is better; the difference then changes sign.
        strict, clusters, level, power: As in `decide_all`.
        width: How wide the metric's range is; None takes what was seen.

    Raises:
        ValueError: The margin is not positive, or the arrays are not of the same questions.
    """
    lower = set() if higher_is_better else {""}
    widths = {} if width is None else {"": width}
    return decide_all(
        {"": candidate}, {"": baseline}, margins=margin, strict=strict, lower_is_better=lower, clusters=clusters, level=level,
        power=power, widths=widths,
    ).decisions[""]  # fmt: skip


def decide_all(
    candidates: Mapping[str, ArrayLike],
    baselines: Mapping[str, ArrayLike],
    *,
    margins: Mapping[str, float] | float,
    strict: bool = False,
    lower_is_better: frozenset[str] | set[str] = frozenset(),
    clusters: Clusters = None,
    level: float = LEVEL,
    power: float = POWER,
    widths: Mapping[str, float] | None = None,
) -> GateReport:
    """Decide several metrics at once; the module's docstring says what is corrected and why.

    Args:
        candidates, baselines: Scores by metric, each of shape (questions,), of the same questions.
        margins: The tolerated loss, a positive fraction, one for all or by metric.
        strict: Count any significant loss as a regression, even one within the margin.
        lower_is_better: Metrics of which less is better; their differences change sign.
        clusters: As in `estimates`.
        level: Of the two-sided interval.
        power: For the minimum detectable loss and the clusters needed.
        widths: How wide the range of a metric is; of one that is not named, what was seen counts.

    Raises:
        ValueError: There is no metric, the two sides have different ones or other questions, or a margin is missing
            or not positive.
    """
    if not candidates or candidates.keys() != baselines.keys():
        raise ValueError(f"both sides need the same metrics, got {sorted(candidates)} and {sorted(baselines)}")
    by_metric = margins if isinstance(margins, Mapping) else dict.fromkeys(candidates, margins)
    if missing := candidates.keys() - by_metric.keys():
        raise ValueError(f"no margin for {', '.join(sorted(missing))}")
    for metric in candidates:
        if not by_metric[metric] > 0 or not math.isfinite(by_metric[metric]):
            raise ValueError(f"the margin must be a positive fraction, got {by_metric[metric]}")
    sides = [np.stack([np.asarray(side[metric], np.float64) for metric in candidates]) for side in (candidates, baselines)]
    turned = np.array([-1.0 if metric in lower_is_better else 1.0 for metric in candidates])[:, None]
    ours, theirs = (side * turned for side in sides)
    moments = paired(ours, theirs, clusters=clusters)
    known = [(widths or {}).get(metric, width) for metric, width in zip(candidates, moments.width.tolist(), strict=True)]
    moments = replace(moments, width=np.array(known))
    differences = differences_of(moments, ours - theirs, level)
    bars = [0.0 if strict else -by_metric[metric] for metric in candidates]
    p = np.array([float(moments.p_below(bar)[row]) for row, bar in enumerate(bars)])
    # A claim with insufficient data counts as tested and not made; levels are of two-sided intervals.
    levels = 2 * holm_levels(np.where(np.isnan(p), 1.0, p), 1 - (1 - level) / 2) - 1
    highs = moments.interval(levels)[1]
    corrected = holm_array(np.where(np.isnan(p), 1.0, p))
    decisions = {}
    for row, metric in enumerate(candidates):
        alone, margin = moments[row : row + 1], by_metric[metric]
        upper = float(levels[row])
        # A drop that only the correction leaves unclaimed is no pass either.
        alone_lost = decided(alone, margin, strict=strict, level=level, upper=level)[0] == "regressed"
        outcome: Outcome = decided(alone, margin, strict=strict, level=level, upper=upper)[0]
        outcome = "inconclusive" if alone_lost and outcome == "pass" else outcome
        above = float(moments.p_above(-margin)[row])
        decision = GateDecision(
            outcome,
            replace(differences[row], high=float(highs[row])),
            margin,
            strict,
            float(p[row]),
            above,
            float(corrected[row]),
            float(alone.detectable(power, upper)[0]),
            None,
            _insufficient_data(alone, p[row], above, margin, bars[row], level) if outcome == "inconclusive" else "",
        )
        decisions[metric] = replace(decision, clusters_needed=_needed(decision, alone, bars[row], 1 - upper, power))
    outcomes = {decision.outcome for decision in decisions.values()}
    whole: Outcome = "regressed" if "regressed" in outcomes else "pass" if outcomes == {"pass"} else "inconclusive"
    return GateReport(whole, decisions)


def _insufficient_data(moments: Moments, p: float, p_pass: float, margin: float, bar: float, level: float) -> str:
    """Why a claim that the interval allows is not made."""
    if why := str(moments.decidable[0]):
        return why
    hidden, share = moments.hides(-margin, above=True, level=level)
    if p_pass <= (1 - level) / 2 and hidden[0]:
        return _rare(int(moments.worse[0]), int(moments.clusters[0]), "worse", float(share[0]))
    hidden, share = moments.hides(bar, above=False, level=level)
    if p <= (1 - level) / 2 and hidden[0]:
        return _rare(int(moments.better[0]), int(moments.clusters[0]), "better", float(share[0]))
    return ""


def _rare(seen: int, clusters: int, how: str, share: float) -> str:
    return f"{seen or 'none'} of {clusters} clusters got {how}, which leaves it possible that up to {100 * share:.1f} % of new ones do"


_MOST = 10_000_000
"""Clusters beyond which nobody asks."""


def _needed(decision: GateDecision, moments: Moments, bar: float, alpha: float, power: float) -> int | None:
    """Clusters that decide if the true difference is the observed one: the nearest bar that it can come clear of."""
    value, clusters = decision.difference.value, int(moments.clusters[0])
    if decision.outcome != "inconclusive" or math.isnan(value) or clusters < 2:
        return None
    # Clear above the margin; or below the bar of a regression.
    distance = max(value + decision.margin, bar - value)
    if distance <= 0:
        return None
    above = value + decision.margin >= bar - value
    needed = clusters_needed(moments[0], distance, power=power, level=1 - alpha) if moments.error[0] > 0 else clusters

    fewest = clusters * max(
        FEWEST_CLUSTERS / clusters, FEWEST_EFFECTIVE / float(moments.effective[0]), (float(moments.skew[0]) / MOST_SKEW) ** 2
    )
    needed = max(clusters + 1, needed, math.ceil(fewest - 1e-9) if moments.decidable[0] else 0)

    def hidden(count: int) -> bool:
        """Whether rare clusters could still overturn the claim with so many of them."""
        return bool(moments.scaled(count / clusters).hides(-decision.margin if above else bar, above=above)[0][0])

    if not hidden(needed):
        return needed
    low, high = needed, _MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if hidden(middle) else (low, middle)
    return None if high == _MOST else high
