"""The non-inferiority gate: did a candidate lose more than a margin, did it not, or are there too few questions?

Two one-sided claims about the paired difference d = candidate minus baseline, with a margin m > 0:

- `regressed` says d < -m (with `strict`: d < 0). It is claimed where the upper bound of the interval lies below that.
- `pass` says d > -m. It is claimed where the lower bound lies above -m.
- `inconclusive` is everything else.

`regressed` is decided first. Each claim is false with probability (1 - level) / 2 at most: 2.5 % at a level of 95 %.

Several metrics: the gate regresses as a whole where any metric regressed, so each further metric is a further chance
of a false alarm; the claims "regressed" are therefore Holm-corrected over the metrics. It passes where every metric
passed; a false pass of the whole takes a false pass of the very metric that fell, so "pass" needs no correction
(intersection–union test). A drop that only the correction leaves unclaimed is inconclusive, never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from results.statistics.bootstrap import Units, units_of
from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Difference, Method
from results.statistics.intervals import differences_with_distributions, holm

# -- How small a difference could be seen, and how many questions it takes to see one --


POWER = 0.8


def standard_error(values: ArrayLike, *, clusters: Clusters = None) -> float:
    """Standard error of a mean of scores or of paired differences; of a ratio mean where units are clusters.

    Args:
        values: Shape (questions,); NaN is left out.
        clusters: As in `estimates`.

    Returns:
        NaN with fewer than two independent units.

    Source: Cochran (1977), section 9A.1 (cluster sampling), with Bessel's correction over clusters.
    """
    column = np.asarray(values, np.float64)
    kept = ~np.isnan(column)
    return _standard_error(units_of(column[kept][None, :], clusters, kept))


def minimum_detectable(differences: ArrayLike, *, power: float = POWER, level: float = LEVEL, clusters: Clusters = None) -> float:
    """The smallest true difference that a two-sided test at `level` would call with probability `power`.

    Normal approximation: (z of the level + z of the power) standard errors of the paired differences.

    Args:
        differences: Shape (questions,), paired differences; NaN is left out.
        power: Probability of calling it.
        level: Coverage of the interval that must leave out 0.
        clusters: As in `estimates`.

    Source: Cohen (1988), chapter 2; Miller (2024), "Adding error bars to evals", section 5.
    """
    return _reach(power, level) * standard_error(differences, clusters=clusters)


def questions_needed(
    differences: ArrayLike, effect: float, *, power: float = POWER, level: float = LEVEL, clusters: Clusters = None
) -> int:
    """Questions it takes to call a true difference of `effect`, were new ones like these.

    Where questions share documents, new questions are taken to come with new documents of the same sizes.

    Args:
        differences: Shape (questions,), paired differences; NaN is left out.
        effect: The true difference to call; its sign does not matter.
        power, level, clusters: As in `minimum_detectable`.

    Returns:
        At least 2, the fewest that have a spread.

    Raises:
        ValueError: The effect is 0, which no number of questions can show, or there are fewer than two units.
    """
    if not effect or math.isnan(effect):
        raise ValueError(f"no number of questions shows a difference of {effect}")
    column = np.asarray(differences, np.float64)
    error = standard_error(column, clusters=clusters)
    if math.isnan(error):
        raise ValueError("the spread of differences takes at least two independent units")
    n = int((~np.isnan(column)).sum())
    return max(2, math.ceil(n * (_reach(power, level) * error / effect) ** 2))


def _reach(power: float, level: float) -> float:
    """Standard errors between 0 and a difference that is called with that probability."""
    if not 0 < power < 1 or not 0 < level < 1:
        raise ValueError(f"power and level lie between 0 and 1, got {power} and {level}")
    return float(scipy.special.ndtri((1 + level) / 2) + scipy.special.ndtri(power))


def _standard_error(units: Units) -> float:
    count = len(units.counts)
    if count < 2:
        return math.nan
    rest = units.sums[:, 0] - units.means[0] * units.counts
    return math.sqrt(count / (count - 1) * float(rest @ rest)) / float(units.counts.sum())


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
        questions_needed: Questions that would decide, were the true difference the observed one; None where it is
            decided, where no number would, and where fewer than two independent units say nothing about it.
    """

    outcome: Outcome
    difference: Difference
    margin: float
    strict: bool
    p: float
    p_pass: float
    p_holm: float
    minimum_detectable: float
    questions_needed: int | None


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gate says about several metrics: `regressed` if any did, `pass` if all did, else `inconclusive`."""

    outcome: Outcome
    decisions: dict[str, GateDecision]


def non_inferiority(
    candidate: ArrayLike,
    baseline: ArrayLike,
    *,
    margin: float,
    strict: bool = False,
    higher_is_better: bool = True,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
    power: float = POWER,
) -> GateDecision:
    """Decide whether a candidate regressed against a baseline on the same questions.

    Args:
        candidate, baseline: Shape (questions,), scores of the same questions; NaN is unscorable.
        margin: The loss that is tolerated, a positive fraction: 0.01 is one percentage point.
        strict: Count any significant loss as a regression, even one within the margin.
        higher_is_better: False for a metric of which less is better; the difference then changes sign.
        clusters, seed, level, resamples, method: As in `estimates`.
        power: For the minimum detectable loss and the questions needed.

    Raises:
        ValueError: The margin is not positive, or the arrays are not of the same questions.
    """
    if not margin > 0 or not math.isfinite(margin):
        raise ValueError(f"the margin must be a positive fraction, got {margin}")
    a, b = np.asarray(candidate, np.float64), np.asarray(baseline, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"paired scores must be of the same questions, got shapes {a.shape} and {b.shape}")
    if not higher_is_better:
        a, b = b, a
    ((result, spread),) = differences_with_distributions(
        a[None, :], b[None, :], clusters=clusters, seed=seed, level=level, resamples=resamples, method=method
    )
    alpha = (1 - level) / 2
    p = float(spread.p_below(0.0 if strict else -margin)[0])
    p_pass = float(spread.p_above(-margin)[0])
    outcome: Outcome = "regressed" if p <= alpha else "pass" if p_pass <= alpha else "inconclusive"
    error = standard_error(a - b, clusters=clusters)
    reach = float(scipy.special.ndtri(1 - alpha) + scipy.special.ndtri(power))
    decision = GateDecision(outcome, result, margin, strict, p, p_pass, p, reach * error, None)
    return replace(decision, questions_needed=_needed(decision, reach, error))


def decide_all(
    candidates: Mapping[str, ArrayLike],
    baselines: Mapping[str, ArrayLike],
    *,
    margins: Mapping[str, float] | float,
    strict: bool = False,
    lower_is_better: frozenset[str] | set[str] = frozenset(),
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
    power: float = POWER,
) -> GateReport:
    """Decide several metrics at once; the module's docstring says what is corrected and why.

    Args:
        candidates, baselines: Scores by metric, each of shape (questions,), of the same questions.
        margins: The tolerated loss, one for all or by metric.
        lower_is_better: Metrics of which less is better.
        strict, clusters, seed, level, resamples, method, power: As in `non_inferiority`.

    Raises:
        ValueError: There is no metric, the two sides have different ones, or a margin is missing.
    """
    if not candidates or candidates.keys() != baselines.keys():
        raise ValueError(f"both sides need the same metrics, got {sorted(candidates)} and {sorted(baselines)}")
    by_metric = margins if isinstance(margins, Mapping) else dict.fromkeys(candidates, margins)
    if missing := candidates.keys() - by_metric.keys():
        raise ValueError(f"no margin for {', '.join(sorted(missing))}")
    alone = {
        metric: non_inferiority(
            scores,
            baselines[metric],
            margin=by_metric[metric],
            strict=strict,
            higher_is_better=metric not in lower_is_better,
            clusters=clusters,
            seed=seed,
            level=level,
            resamples=resamples,
            method=method,
            power=power,
        )
        for metric, scores in candidates.items()
    }
    alpha = (1 - level) / 2
    corrected = holm([decision.p for decision in alone.values()])
    decisions = {}
    for (metric, decision), p in zip(alone.items(), corrected, strict=True):
        changed = replace(decision, p_holm=p)
        if decision.outcome == "regressed" and p > alpha:
            # What it takes to claim the drop beside as many other metrics, each at its share of the level.
            reach = float(scipy.special.ndtri(1 - alpha / len(alone)) + scipy.special.ndtri(power))
            error = decision.minimum_detectable / float(scipy.special.ndtri(1 - alpha) + scipy.special.ndtri(power))
            changed = replace(changed, outcome="inconclusive")
            changed = replace(changed, questions_needed=_needed(changed, reach, error))
        decisions[metric] = changed
    outcomes = {decision.outcome for decision in decisions.values()}
    whole: Outcome = "regressed" if "regressed" in outcomes else "pass" if outcomes == {"pass"} else "inconclusive"
    return GateReport(whole, decisions)


def _needed(decision: GateDecision, reach: float, error: float) -> int | None:
    """Questions that decide if the true difference is the observed one: the nearest bar that it can come clear of."""
    value, n = decision.difference.value, decision.difference.n
    if decision.outcome != "inconclusive" or math.isnan(error) or not error:
        return None
    # Clear above the margin; or below the bar of a regression.
    bar = 0.0 if decision.strict else -decision.margin
    distance = max(value + decision.margin, bar - value)
    if distance <= 0:
        return None
    return max(n + 1, math.ceil(n * (reach * error / distance) ** 2))
