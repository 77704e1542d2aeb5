"""The non-inferiority gate: whether a candidate lost more than a margin.

Two one-sided claims about the paired difference d = candidate minus baseline, with a margin m > 0:

- `regressed` says d < -m (with `strict`: d < 0). It is claimed if the upper bound of the interval lies below the bar.
- `pass` says d > -m. It is claimed if the lower bound lies above -m.
- `inconclusive` is everything else. Fewer than ten clusters, and unbounded scores that are too skewed, never decide.

`regressed` is decided first. Each claim is false with probability (1 - level) / 2 at most: 2.5 % at a level of 95 %.

Several metrics: the gate regresses as a whole if any metric regressed, so each further metric is a further chance of a
false alarm; the claims "regressed" are therefore Holm-corrected over the metrics. It passes if every metric passed; a
false pass of the whole takes a false pass of the very metric that fell, so "pass" needs no correction
(intersection–union test). A drop that is significant only without the correction is inconclusive, never a pass. The upper
bound of each interval is at the level of Holm's test, the lower one at that of the single metric, so that the interval
determines the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.core import LEVEL, Clusters, Difference
from results.statistics.difference import AtBothEnds, Differences, Range, Side, compared
from results.statistics.holm import holm_array, holm_levels
from results.statistics.intervals import differences_of
from results.statistics.pooled import Added
from results.statistics.tested import FEWEST_CLUSTERS, POWER, Tested

_MOST = 10_000_000
"""Largest number of clusters to search."""


def clusters_needed(
    pilot: Tested | Added, effect: float, *, power: float = POWER, level: float = LEVEL, ratio: float = 1.0, least: int = 2
) -> int | None:
    """Return the number of clusters needed to detect a true difference of `effect`, given the variance of a pilot.

    Args:
        pilot: The paired difference of two pilot runs, shape (1,); of several benchmarks, all grow by one factor.
        effect: The true difference to detect; its sign does not matter.
        power: Probability of detecting it.
        level: Coverage of the interval that must exclude 0.
        ratio: Variance per cluster relative to the pilot's, for example below 1 if each question is answered several times.
        least: Smallest number to consider.

    Returns:
        The number of clusters; None if no number suffices, because results vary too much between trainings.

    Raises:
        ValueError: The effect is 0, which no number of clusters can detect, or there are fewer than two clusters.
    """
    if not effect or math.isnan(effect):
        raise ValueError(f"no number of clusters detects a difference of {effect}")
    clusters = int(pilot.clusters[0])
    if clusters < 2:
        raise ValueError("the standard deviation of differences needs at least two independent clusters")
    if not 0 < power < 1 or not 0 < level < 1:
        raise ValueError(f"power and level lie between 0 and 1, got {power} and {level}")

    def excess(count: int) -> float:
        # NaN: there are too few clusters to know it.
        return float(pilot.scaled(count / clusters / ratio).detectable(power, level)[0]) / abs(effect)

    if math.isnan(float(pilot.detectable(power, level)[0])):
        return math.ceil(2 * max(ratio, 1.0))
    return _smallest(excess, math.ceil(least * max(ratio, 1.0)))


def _smallest(excess: Callable[[int], float], least: int) -> int | None:
    """Return the smallest number from `least` on for which `excess` is at most 1; None above `_MOST`.

    The excess falls about with the root of the number, which leads to the next one to try; every third one halves the range.
    """
    most = least << max((_MOST // least).bit_length() - 1, 0)
    low, high, number, tried = least - 1, most + 1, least, 0
    while high - low > 1:
        distance = excess(number)
        low, high = (low, number) if distance <= 1 else (number, high)
        tried += 1
        likely = number * distance**2
        halved = tried % 3 == 0 or not math.isfinite(likely)
        number = min(max(math.isqrt(max(low, 1) * high) if halved else math.ceil(likely), low + 1), high - 1)
    return None if high > most else high


Outcome = Literal["pass", "regressed", "inconclusive"]


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Decision of the gate on one metric.

    Attributes:
        outcome: "pass", "regressed" or "inconclusive".
        difference: Candidate minus baseline, in the direction in which higher is better.
        margin: The tolerated loss, a positive fraction.
        strict: Whether any significant loss counts as a regression.
        p: One-sided p-value of the claim "regressed".
        p_pass: One-sided p-value of the claim "pass".
        p_holm: `p`, Holm-corrected over the metrics decided together; `p` itself for a single one.
        minimum_detectable: Smallest true loss that would be detected with the stated power; NaN if unknown.
        clusters_needed: Number of clusters that would decide if the true difference were the observed one; None if it
            is decided, or if no number would.
        insufficient_data: Why a claim that the interval would allow is not made; empty if there is no such claim.
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
    """Decision of the gate on several metrics: `regressed` if any regressed, `pass` if all passed, else `inconclusive`."""

    outcome: Outcome
    decisions: dict[str, GateDecision]


def decided(tested: Differences, margin: float, *, strict: bool = False, level: float = LEVEL, upper: float = LEVEL) -> NDArray[np.object_]:
    """Decide the outcome (pass, regressed, inconclusive) of each row of paired differences from its interval; shape (rows,).

    Args:
        tested: Differences in the direction in which higher is better.
        margin, strict: As in `decide_all`.
        level, upper: Confidence levels of the two-sided intervals from which the lower and the upper bound are taken.
    """
    able = (tested.insufficient_data() == "") & (tested.clusters >= FEWEST_CLUSTERS)
    lost = able & (tested.interval(upper)[1] < (0.0 if strict else -margin))
    kept = able & (tested.interval(level)[0] > -margin)
    return np.where(lost, "regressed", np.where(kept, "pass", "inconclusive")).astype(object)


def decide_all(
    candidates: Mapping[str, ArrayLike | Side],
    baselines: Mapping[str, ArrayLike | Side],
    *,
    margins: Mapping[str, float] | float,
    strict: bool = False,
    lower_is_better: frozenset[str] | set[str] = frozenset(),
    clusters: Clusters = None,
    level: float = LEVEL,
    power: float = POWER,
    ranges: Mapping[str, Range] | None = None,
    lower: Mapping[str, float] | None = None,
) -> GateReport:
    """Decide whether a candidate regressed on several metrics, with correction for their number (see the module).

    Args:
        candidates, baselines: By metric, scores of shape (questions,), or sides, on the same questions.
        margins: Tolerated loss, a positive fraction; one for all metrics, or by metric.
        strict: Count any significant loss as a regression, even one within the margin.
        lower_is_better: Metrics where lower is better; their differences change sign.
        clusters: As in `estimates`.
        level: Confidence level of the two-sided interval.
        power: Power for the minimum detectable loss and the number of clusters needed.
        ranges: Range of each metric; a metric that is not listed is treated as in `compared`.
        lower: By metric, the confidence level of the two-sided interval whose lower bound decides "pass"; None uses `level`.

    Raises:
        ValueError: There is no metric, the two sides have different metrics or questions, or a margin is missing or not
            positive.
    """
    if not candidates or candidates.keys() != baselines.keys():
        raise ValueError(f"both sides need the same metrics, got {sorted(candidates)} and {sorted(baselines)}")
    by_metric = margins if isinstance(margins, Mapping) else dict.fromkeys(candidates, margins)
    if missing := candidates.keys() - by_metric.keys():
        raise ValueError(f"no margin for {', '.join(sorted(missing))}")
    for metric in candidates:
        if not by_metric[metric] > 0 or not math.isfinite(by_metric[metric]):
            raise ValueError(f"the margin must be a positive fraction, got {by_metric[metric]}")
    tests: dict[str, Differences] = {}
    for metric in candidates:
        ours, theirs = candidates[metric], baselines[metric]
        if metric in lower_is_better:
            ours, theirs = theirs, ours
        tests[metric] = compared([ours], [theirs], clusters=clusters, metric=(ranges or {}).get(metric))
    bars = {metric: 0.0 if strict else -by_metric[metric] for metric in tests}
    p = np.array([float(one.p_below(bars[metric])[0]) for metric, one in tests.items()])
    # A claim with insufficient data counts as tested and not significant; levels are those of two-sided intervals.
    able = np.array([not one.insufficient_data()[0] for one in tests.values()])
    counted = np.where(np.isnan(p) | ~able, 1.0, p)
    levels = 2 * holm_levels(counted, 1 - (1 - level) / 2) - 1
    corrected = holm_array(counted)
    decisions = {}
    for row, (metric, one) in enumerate(tests.items()):
        margin, upper, below = by_metric[metric], float(levels[row]), (lower or {}).get(metric, level)
        # A drop that is significant only without the correction is not a pass either.
        alone_lost = decided(one, margin, strict=strict, level=below, upper=level)[0] == "regressed"
        outcome: Outcome = decided(one, margin, strict=strict, level=below, upper=upper)[0]
        outcome = "inconclusive" if alone_lost and outcome == "pass" else outcome
        decision = GateDecision(
            outcome,
            replace(differences_of(one, below)[0], high=float(one.interval(upper)[1][0])),
            margin,
            strict,
            float(p[row]),
            float(one.p_above(-margin)[0]),
            float(corrected[row]),
            float(one.detectable(power, upper)[0]),
            None,
            _why(one) if outcome == "inconclusive" else "",
        )
        decisions[metric] = replace(decision, clusters_needed=_needed(decision, one, bars[metric], below, upper, power))
    outcomes = {decision.outcome for decision in decisions.values()}
    whole: Outcome = "regressed" if "regressed" in outcomes else "pass" if outcomes == {"pass"} else "inconclusive"
    return GateReport(whole, decisions)


def _why(tested: Differences) -> str:
    """Return why nothing could be decided: too few clusters or unbounded scores."""
    clusters = int(tested.clusters[0])
    few = f"{clusters} {'cluster' if clusters == 1 else 'clusters'}, fewer than {FEWEST_CLUSTERS}" if clusters < FEWEST_CLUSTERS else ""
    return str(tested.insufficient_data()[0]) or few


def _needed(decision: GateDecision, tested: Differences, bar: float, level: float, upper: float, power: float) -> int | None:
    """Return the number of clusters that would decide if the true difference is the observed one, for the nearest bar away from it."""
    one = tested.plain if isinstance(tested, AtBothEnds) else tested
    value, clusters = decision.difference.value, int(one.clusters[0])
    if decision.outcome != "inconclusive" or math.isnan(value) or clusters < 2:
        return None
    # Clear above the margin; or below the bar of a regression.
    distance = max(value + decision.margin, bar - value)
    if distance <= 0:
        return None
    needed = clusters_needed(one, distance, power=power, level=upper) or None

    def excess(count: int) -> float:
        outcome = decided(one.scaled(count / clusters), decision.margin, strict=decision.strict, level=level, upper=upper)[0]
        return math.inf if outcome == "inconclusive" else 0.0

    return None if needed is None else _smallest(excess, max(clusters + 1, needed))
