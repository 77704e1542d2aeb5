"""Strengths of many methods from battles of two: Bradley–Terry with bootstrap intervals and optional covariates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from results.statistics.bootstrap import bootstrap_weights, estimate_of
from results.statistics.bradley_terry_fit import Cells, Codes, cells_of, fit, mutual
from results.statistics.core import Clusters, Estimate, Floats, Resampling, Support, cluster_positions
from results.statistics.holm import holm_array
from results.statistics.places import Band, standing
from results.statistics.prediction_powered import rectified

if TYPE_CHECKING:
    from scipy.sparse import csr_array


_EQUAL = 1e-9
"""Tolerance of equal strengths and sums of scores, the precision of the fit."""


def pair_ps(values: Floats, draws: Floats, component: Codes, net: Floats, fought: NDArray[np.bool_]) -> Floats:
    """Return two-sided p-values of equal strength for all pairs of methods, shape (methods, methods), ones on the diagonal.

    Each is Student's t of the difference over its bootstrap standard error. The share of resamples would not do: a
    thousand resamples cannot give a share below 1 in 1,000, and Holm's correction over 45 pairs needs about that. The
    standard error is computed from the resamples on the same side of the difference as zero. On the other side are
    those in which a method won everything, and the prior sets their distance. Degrees of freedom are those of the
    method with battles in fewer clusters. No p-value is smaller than the smallest one of a sign-flip test over the
    clusters with a non-zero score.

    Args:
        values: Shape (methods,).
        draws: Shape (methods, rounds), the resampled strengths.
        component: Shape (methods,); methods of different components cannot be compared: NaN.
        net: Shape (methods, clusters), each method's score in each cluster, minus ½ per battle.
        fought: Shape (methods, clusters), whether the method has a battle in the cluster.

    Source: bootstrap standard errors, Efron & Tibshirani (1993), chapter 6; here one-sided, as a semi-deviation.
    """
    methods, own = len(values), fought.sum(axis=1)
    p = np.ones((methods, methods))
    for row in range(methods - 1):
        rest = slice(row + 1, None)
        gap = values[row] - values[rest]
        clusters = np.minimum(own[row], own[rest])
        speak = np.minimum((np.abs(net[row] - net[rest]) > _EQUAL).sum(axis=1), clusters)
        outward = (draws[row] - draws[rest] - gap[:, None]) * np.where(gap < 0, -1.0, 1.0)[:, None]
        inward = np.minimum(outward, 0.0)
        squares, count = np.einsum("or,or->o", inward, inward), (inward < 0).sum(axis=1)
        error = np.sqrt(squares / np.maximum(count, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            # Expanded like intervals, because resamples of few clusters vary too little.
            t = np.abs(gap) / (error * np.sqrt(clusters / (clusters - 1)))
        by_t = np.where(np.abs(gap) > _EQUAL, 2 * scipy.special.stdtr(np.maximum(clusters - 1, 1), -t), 1.0)
        by_t = np.fmax(by_t, 2.0 ** (1.0 - speak))
        p[row, rest] = np.where(component[row] == component[rest], np.minimum(by_t, 1.0), np.nan)
    return np.where(np.tri(methods, dtype=np.bool_), p.T, p)


def holm_pairs(p: Floats) -> Floats:
    """Correct the p-values of `pair_ps` over all pairs by Holm's procedure; NaN stays NaN and is not counted."""
    upper = np.triu_indices(len(p), 1)
    corrected = np.ones(p.shape)
    corrected[upper] = holm_array(p[upper])
    return np.minimum(corrected, corrected.T)


def standings(values: Floats, corrected: Floats, component: Codes, level: float) -> list[Band]:
    """Rank the methods within each component, with the range of ranks that the pairwise tests leave open, as `bands` does.

    Args:
        values: Shape (methods,).
        corrected: Shape (methods, methods), p-values corrected over all pairs.
        component: As in `pair_ps`.
        level: One minus the probability of one or more false claims.

    Source: Mogstad et al. (2024), "Inference for ranks with applications to mobility across neighborhoods".
    """
    linked = component[:, None] == component
    behind = linked & (values[:, None] - values < -_EQUAL)
    worse = behind & (corrected <= 1 - level)
    first = np.asarray(~behind.any(axis=1))
    return [
        Band(
            1 + int(behind[row].sum()),
            1 + int(worse[row].sum()),
            int(linked[row].sum() - worse[:, row].sum()),
            standing(bool(first[row]), bool(worse[row, first].any()), True),
        )
        for row in range(len(values))
    ]


ROUNDS = 1_000
PRIOR = 10.0
"""Standard deviation, in log-odds, of the weak prior that keeps every strength finite."""
ELO_CENTER = 1500.0
ELO_PER_LOGIT = 400 / math.log(10)


@dataclass(frozen=True, slots=True)
class Strength:
    """Bradley–Terry strength of a method in log-odds: a difference of 1 means winning 73 % of the battles.

    Attributes:
        logit: Strength with interval; 0 is the mean over comparable methods, NaN means no battle. `n` is the number of judged
            questions.
        battles: Number of its scored battles.
        component: Methods with equal numbers are linked by battles; strengths with different numbers are not
            comparable.
        separated: It has won, or lost, every battle that links it to the larger rest (Ford's condition fails): the prior, not
            the battles, sets its distance.
        separated_rounds: Share of the bootstrap resamples in which it is separated.
        band: Its rank among the methods of its component, 1 is strongest, and the ranks that the tests of all pairs
            leave open.
    """

    logit: Estimate
    battles: int
    component: int
    separated: bool
    separated_rounds: float
    band: Band

    @property
    def elo(self) -> tuple[float, float, float]:
        """Return value, low and high on the Elo scale: 400 points are odds of 10 to 1, and 1500 is the mean."""
        scaled = [ELO_CENTER + ELO_PER_LOGIT * x for x in (self.logit.value, self.logit.low, self.logit.high)]
        return scaled[0], scaled[1], scaled[2]

    @property
    def positions(self) -> str:
        """Format the range of ranks that the tests leave open: `2–4`, `1` if only one rank is possible, or `–` without a battle."""
        if not self.battles:
            return "–"
        low, high = self.band.low, self.band.high
        return f"{low}" if low == high else f"{low}–{high}"


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Result of a Bradley–Terry fit: the strengths of all methods, with tests.

    Attributes:
        strengths: Strengths in the order of the method codes.
        components: Number of sets of methods without a link by battles, directly or through others; methods without any
            battle are not counted.
        shown_first: Log-odds that being shown first adds; None if not requested.
        per_doubling: Log-odds that doubling an answer's length adds; None if not requested.
        length_spread: Standard deviation of log2(length ratio) over battles: `per_doubling` times this is the effect of the
            standardized length ratio; None if not requested.
        battles, unscored: Number of battles with and without a score.
        draws: Shape (methods, rounds), the resampled strengths.
        p: Shape (methods, methods), two-sided p-values of equal strength as in `pair_ps`; NaN if no battles link
            two methods.
        corrected: The same, Holm-corrected over all pairs.
        level: Confidence level of the intervals and rank ranges.
    """

    strengths: list[Strength]
    components: int
    shown_first: Estimate | None
    per_doubling: Estimate | None
    length_spread: float | None
    battles: int
    unscored: int
    support: Support
    draws: Floats
    p: Floats
    corrected: Floats
    level: float

    @property
    def separated(self) -> list[int]:
        """List the methods (codes) whose distance from the others is set by the prior, not by battles."""
        return [code for code, strength in enumerate(self.strengths) if strength.separated]

    def difference(self, item: int, other: int) -> Estimate:
        """Return the difference in strength of two methods with its interval; NaN if no battles link them.

        The interval is not corrected for other pairs; `corrected` has the p-value corrected over all pairs.
        """
        a, b = self.strengths[item], self.strengths[other]
        value = a.logit.value - b.logit.value if a.component == b.component else math.nan
        reasons = [_bounded_by_prior(side.separated, side.separated_rounds, self.level) for side in (a, b)]
        doubt = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
        gaps = self.draws[item] - self.draws[other]
        return estimate_of(value, gaps, self.support, 0, self.level, doubt)


def bradley_terry(
    first: ArrayLike,
    second: ArrayLike,
    question: ArrayLike,
    score: ArrayLike,
    *,
    methods: int | None = None,
    shown_first: ArrayLike | None = None,
    lengths: tuple[ArrayLike, ArrayLike] | None = None,
    labels: ArrayLike | None = None,
    prior: float = PRIOR,
    clusters: Clusters = None,
    how: Resampling = Resampling(resamples=ROUNDS),  # noqa: B008 (frozen)
) -> BradleyTerry:
    """Fit a Bradley–Terry model: logit P(first beats second) = strength of first - strength of second + effects; ties are half wins.

    Intervals resample questions with all their battles, so repeated verdicts on one question are not treated as
    independent. Ranks come from tests of all pairs, Holm-corrected. Without a prior a method that wins everything
    is infinitely strong; the prior makes its strength finite, and the result marks such methods as `separated`.

    Args:
        first, second, question: Shape (battles,), codes from 0.
        score: Shape (battles,), 1 if the first won, 0 if it lost, ½ for a tie or anything between for a mean
            over verdicts; NaN if the judge named neither; such battles are left out and counted.
        methods: Number of methods; None takes the largest code.
        shown_first: Shape (battles,), whether the judge was shown the first method's answer first; estimates the advantage
            of that position and removes it from the strengths.
        lengths: Lengths of the first and the second answers, each of shape (battles,), in any unit; estimates the
            advantage of being longer, as log2((first + 1) / (second + 1)), and removes it from the strengths.
        labels: Shape (battles,), the score that people give the pair of answers, NaN without a label; the labeled pairs
            must be a random subset. The judge's error is corrected (`prediction_powered.rectified`). None: the judge's
            scores only.
        prior: Standard deviation of the normal prior of every coefficient, in log-odds.
        clusters: One label per question code, as in `estimates`.
        how: The resampling.

    Raises:
        ValueError: Arrays differ in length, a code is out of range, a method meets itself, a score is not within 0
            and 1, a length is negative or missing, the prior is not positive, or there is nothing to compare.

    Source: Bradley & Terry (1952); Chiang et al. (2024), "Chatbot Arena" (bootstrap); Li et al. (2024), "Does style
        matter?" (style covariates in the fit; theirs is the standardized (a - b) / (a + b), ours the log ratio, of
        which a doubling has a meaning); Dubois et al. (2024), "Length-controlled AlpacaEval".
    """
    if not (prior > 0 and math.isfinite(prior)):
        raise ValueError(f"the prior is a positive standard deviation, got {prior}")
    item, other, query, won = _checked(first, second, question, score)
    x = _covariates(shown_first, lengths, len(won))
    known = ~np.isnan(won)
    human = None if labels is None else np.asarray(labels, np.float64)
    if human is not None:
        pairs = np.stack([np.minimum(item, other), np.maximum(item, other), query])
        codes = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
        # Every value of a pair is turned to its smaller method, as people's is.
        turn = item > other
        won = rectified(np.where(turn, 1 - won, won), np.where(turn, 1 - human, human), codes)
        won = np.where(turn, 1 - won, won)
    sample = _sample(item[known], other[known], query[known], won[known], x[:, known], methods, clusters)
    result, draws = _fits(sample, prior, how)
    total = sample.cells.methods
    support = Support(int(sample.sizes.sum()), len(sample.sizes))
    effects = [
        estimate_of(float(result.at[row]), draws[row], support, 0, how.level, _one_sided(x[row - total], won))
        for row in range(total, len(draws))
    ]
    values = result.at[:total]
    fought = sample.fought
    if human is not None:
        # A test has no more degrees of freedom than clusters with a label.
        labeled = _labeled_clusters(known & ~np.isnan(human), item, other, query, total, clusters)
        fought = fought & (np.cumsum(fought, axis=1) <= labeled[:, None])
    p = pair_ps(values, draws[:total], sample.component, sample.net, fought)
    corrected = holm_pairs(p)
    bands = standings(values, corrected, sample.component, how.level)
    return BradleyTerry(
        _strengths(sample, result, draws[:total], bands, how.level),
        sample.linked,
        effects[0] if shown_first is not None else None,
        effects[-1] if lengths is not None else None,
        float(x[-1][known].std()) if lengths is not None and known.any() else None,
        int(known.sum()),
        int((~known).sum()),
        support,
        draws[:total],
        p,
        corrected,
        how.level,
    )


def _labeled_clusters(labeled: NDArray[np.bool_], first: Codes, second: Codes, question: Codes, methods: int, clusters: Clusters) -> Codes:
    """Count the clusters in which each method has a labeled battle, shape (methods,)."""
    names = list(clusters) if clusters is not None else []
    cluster = [f"q{code}" if not names or names[code] is None else f"c{names[code]}" for code in question[labeled].tolist()]
    codes = np.tile(np.unique(cluster, return_inverse=True)[1], 2)
    met = np.unique(np.stack([np.concatenate([first[labeled], second[labeled]]), codes]), axis=1)[0]
    return np.bincount(met, minlength=methods)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Gathered scored battles.

    Attributes:
        cells: The compared methods.
        table: Shape (2 × cells, clusters), sparse: battles, then wins, of each cell in each cluster.
        sizes: Shape (clusters,), questions of each cluster.
        battles, questions: Shape (methods,), of each method.
        net, fought: Shape (methods, clusters), each method's score in each cluster, ½ off for every battle, and whether it
            has one there.
        component: Shape (methods,), which methods are linked by battles.
        linked: Number of components with a battle.
    """

    cells: Cells
    table: csr_array
    sizes: Codes
    battles: Codes
    questions: Codes
    net: Floats
    fought: NDArray[np.bool_]
    component: Codes
    linked: int

    def drawn(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return battles and wins of each cell in resamples, from weights of shape (resamples, clusters)."""
        both = self.table @ np.ascontiguousarray(weights.T)
        return both[: self.cells.cells], both[self.cells.cells :]


@dataclass(frozen=True, slots=True)
class _Fit:
    """Coefficients of the sample; which methods are separated there, and in what share of resamples."""

    at: Floats
    separated: NDArray[np.bool_]
    rounds: Floats


def _checked(*columns: ArrayLike) -> tuple[Codes, Codes, Codes, Floats]:
    """Convert rows to arrays.

    Raises:
        ValueError: They are not valid arguments of `bradley_terry`.
    """
    first, second, question, score = (np.asarray(column) for column in columns)
    shapes = [column.shape for column in (first, second, question, score)]
    if len(set(shapes)) > 1 or first.ndim != 1:
        raise ValueError(f"rows must be of the same battles, got shapes {shapes}")
    codes = []
    for name, column in (("first", first), ("second", second), ("question", question)):
        if column.size and (column.dtype.kind not in "iu" or column.min() < 0):
            raise ValueError(f"{name}: codes are whole numbers from 0")
        codes.append(column.astype(np.int64))
    if (codes[0] == codes[1]).any():
        raise ValueError("a method cannot be compared with itself")
    won = score.astype(np.float64)
    if ((won < 0) | (won > 1)).any():
        raise ValueError("scores lie between 0 and 1")
    return codes[0], codes[1], codes[2], won


def _covariates(shown_first: ArrayLike | None, lengths: tuple[ArrayLike, ArrayLike] | None, battles: int) -> Floats:
    """Return covariates from the first method's perspective, shape (covariates, battles)."""
    rows = []
    if shown_first is not None:
        rows.append(np.where(np.asarray(shown_first, bool), 1.0, -1.0))
    if lengths is not None:
        item, other = (np.asarray(side, np.float64) for side in lengths)
        if not ((item >= 0).all() and (other >= 0).all()):
            raise ValueError("every answer has a length of at least 0")
        # An empty answer has a length too.
        rows.append(np.log2((item + 1) / (other + 1)))
    if any(row.shape != (battles,) for row in rows):
        raise ValueError(f"covariates must be of the same {battles} battles, got {[row.shape for row in rows]}")
    return np.stack(rows) if rows else np.empty((0, battles))


def _sample(first: Codes, second: Codes, question: Codes, won: Floats, x: Floats, methods: int | None, clusters: Clusters) -> _Sample:
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import connected_components

    largest = int(max(first.max(initial=-1), second.max(initial=-1)))
    if methods is not None and largest >= methods:
        raise ValueError(f"method {largest} fights, but there are {methods} methods, from 0")
    total = largest + 1 if methods is None else methods
    if not total:
        raise ValueError("strengths need at least one scored battle")
    cells, cell, turned = cells_of(first, second, x, total)
    codes, query = np.unique(question, return_inverse=True)
    labels = list(clusters) if clusters is not None else None
    if labels is not None and len(codes) and codes[-1] >= len(labels):
        raise ValueError(f"{len(labels)} cluster labels for {codes[-1] + 1} questions")
    positions, sizes = cluster_positions(None if labels is None else [labels[code] for code in codes], len(codes))
    where, cluster = np.concatenate([cell, cell + cells.cells]), np.tile(positions[query], 2)
    counts = np.concatenate([np.ones(len(won)), np.where(turned, 1 - won, won)])
    table = csr_array(coo_array((counts, (where, cluster)), shape=(2 * cells.cells, len(sizes))))
    fought = np.concatenate([first, second])
    here = fought * len(sizes) + cluster
    above = np.concatenate([won, 1 - won]) - 0.5
    net = np.bincount(here, above, minlength=total * len(sizes)).astype(np.float64).reshape(total, -1)
    there = np.bincount(here, minlength=total * len(sizes)).reshape(total, -1) > 0
    met = np.unique(np.stack([fought, np.tile(query, 2)]), axis=1)[0]
    links = coo_array((np.ones(len(cells.left)), (cells.left, cells.right)), shape=(total, total))
    component = connected_components(links, directed=False)[1] if total else np.empty(0, np.int64)
    return _Sample(
        cells,
        table,
        sizes,
        np.bincount(fought, minlength=total),
        np.bincount(met, minlength=total),
        net,
        there,
        component.astype(np.int64),
        len(np.unique(component[cells.left])),
    )


def _fits(sample: _Sample, prior: float, how: Resampling) -> tuple[_Fit, Floats]:
    """Return the coefficients of the sample and of its resamples, shape (coefficients, resamples)."""
    cells, clusters = sample.cells, len(sample.sizes)
    whole = sample.drawn(np.ones((1, clusters)))
    at = fit(cells, *whole, prior, np.zeros((cells.methods + len(cells.covariates), 1)))
    draws, apart = [np.empty((len(at), 0))], np.zeros(cells.methods)
    for weights in bootstrap_weights(clusters, how.seed, how.resamples) if clusters > 1 else ():
        drawn = sample.drawn(weights)
        draws.append(fit(cells, *drawn, prior, at))
        apart += _separated(mutual(cells, *drawn), sample.component).sum(axis=0)
    whole_apart = _separated(mutual(cells, *whole), sample.component)[0]
    result = np.concatenate(draws, axis=1)
    return _Fit(at[:, 0], whole_apart, apart / max(1, result.shape[1])), result


def _separated(reached: NDArray[np.bool_], component: Codes) -> NDArray[np.bool_]:
    """Return methods outside the one largest set of methods that reach each other, in their component, shape (fits, methods).

    If several sets are the largest, all methods are outside.
    """
    size = reached.sum(axis=2)
    apart = np.zeros(size.shape, dtype=np.bool_)
    for label in np.unique(component):
        members = component == label
        largest = size[:, members].max(axis=1, keepdims=True)
        among = size[:, members] == largest
        apart[:, members] = ~(among & (among.sum(axis=1, keepdims=True) == largest))
    return apart


def _strengths(sample: _Sample, result: _Fit, draws: Floats, bands: list[Band], level: float) -> list[Strength]:
    """Return each method's strength with its interval, rank and reservations."""
    strengths = []
    support = Support(int(sample.sizes.sum()), len(sample.sizes))
    several = "not linked to some methods by any chain of battles" if sample.linked > 1 else ""
    for code in range(len(draws)):
        fought = int(sample.battles[code])
        apart, share = bool(result.separated[code]), float(result.rounds[code])
        doubt = "; ".join(reason for reason in (several, _bounded_by_prior(apart, share, level)) if reason)
        logit = estimate_of(
            float(result.at[code]) if fought else math.nan, draws[code], support, 0, level, doubt if fought else "no battle"
        )
        logit = replace(logit, n=int(sample.questions[code]))
        strengths.append(Strength(logit, fought, int(sample.component[code]), apart, share, bands[code]))
    return strengths


def _bounded_by_prior(separated: bool, share: float, level: float) -> str:
    """Return why the prior, and not the battles, bounds a strength; empty if the battles do."""
    if separated:
        return "won or lost every battle against the rest: its distance is set by the prior"
    if share > (1 - level) / 2:
        return f"won or lost every battle in {share:.1%} of the resamples: one bound is set by the prior"
    return ""


def _one_sided(x: Floats, won: Floats) -> str:
    """Return why the prior determines the size of an effect; empty if some battle contradicts the effect."""
    pull = x * (won - 0.5)
    some = ~np.isnan(won) & (x != 0)
    if not some.any():
        return "no two answers differ in it"
    agrees = pull[some]
    if (agrees > 0).all() or (agrees < 0).all():
        return "no battle contradicts it: its size is set by the prior"
    return ""
