"""Means and differences, paired and of all pairs, each with its interval; by stage, by style, and against cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.bootstrap import (
    Distribution,
    Units,
    alike,
    bootstrap_means,
    distribution,
    distribution_of,
    rows_of,
    sign_flip_ps,
    signed_sums,
    units_of,
)
from results.statistics.core import (
    LEVEL,
    METHOD,
    RESAMPLES,
    Clusters,
    Difference,
    Estimate,
    Floats,
    Method,
    Ways,
    doubt_about_difference,
    doubt_about_mean,
)

# -- Corrections for asking many questions at once --


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values in the order given; NaN stays NaN and counts for nothing.

    Whoever rejects what is below alpha makes a false claim at all with probability at most alpha, whatever the
    dependence between the tests.

    Source: Holm (1979).
    """
    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    order = [i for i in np.argsort(p, kind="stable") if not np.isnan(p[i])]
    highest = 0.0
    for step, i in enumerate(order):
        highest = max(highest, min(1.0, float(p[i]) * (len(order) - step)))
        adjusted[i] = highest
    return adjusted.tolist()


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's correction: adjusted p-values in the order given; NaN stays NaN and counts for nothing.

    Of the claims of whoever rejects what is below alpha, at most the share alpha is expected to be false; for tests
    that are independent or positively dependent, as those of methods on the same questions are.

    Source: Benjamini & Hochberg (1995), by `scipy.stats.false_discovery_control`.
    """
    from scipy.stats import false_discovery_control

    p = np.asarray(p_values, np.float64)
    adjusted = np.full(len(p), np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        adjusted[tested] = false_discovery_control(p[tested], method="bh")
    return adjusted.tolist()


# -- Means, paired differences and differences of all pairs, each with its interval --


_PAIRS = 256
"""Pairs of methods whose bootstrap distributions are held at a time."""


def estimate(values: ArrayLike, **ways: Unpack[Ways]) -> Estimate:
    """Mean and bootstrap interval over questions; `estimates` of a single column."""
    column = np.asarray(values, dtype=np.float64)[None, :]
    return estimates(column, **ways)[0]


def estimates(
    columns: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> list[Estimate]:
    """Means and bootstrap intervals of many columns over the same questions; equal gaps share their resamples.

    Args:
        columns: Shape (columns, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are resampled together. None stands alone.
        seed: Of the resampling.
        level: Coverage of the interval.
        resamples: Number of bootstrap resamples.
        method: How the interval is read off; see `Distribution`.

    Source: Efron & Tibshirani (1993); clusters as in the cluster bootstrap of Field & Welsh (2007).
    """
    scores = rows_of(columns)
    missing = np.isnan(scores)
    results: list[Estimate] = [Estimate(np.nan, np.nan, np.nan, 0, 0)] * len(scores)
    for rows in alike(missing):
        kept = ~missing[rows[0]]
        present = scores[np.ix_(rows, kept)]
        units = units_of(present, clusters, kept)
        low, high = distribution_of(units, seed, resamples, method).interval(level)
        support, means, skew = units.support, units.means, units.skew
        for position, row in enumerate(rows):
            doubt = doubt_about_mean(present[position], support, float(skew[position]))
            results[row] = Estimate(
                float(means[position]), float(low[position]), float(high[position]), support.n, len(kept) - support.n, support.units, doubt
            )
    return results


def difference(candidate: ArrayLike, reference: ArrayLike, **ways: Unpack[Ways]) -> Difference:
    """Paired difference of two methods on the same questions; `differences` of a single pair."""
    a, b = np.asarray(candidate, np.float64)[None, :], np.asarray(reference, np.float64)[None, :]
    return differences(a, b, **ways)[0]


def differences(candidates: ArrayLike, references: ArrayLike, **ways: Unpack[Ways]) -> list[Difference]:
    """Paired differences of many pairs of methods, question by question.

    The interval is a paired bootstrap; the p-value flips the sign of each question's (or cluster's) difference.

    Args:
        candidates, references: Shape (pairs, questions), row by row of the same questions.
        clusters, seed, level, resamples, method: As in `estimates`.

    Raises:
        ValueError: The arrays differ in shape: they are not about the same questions.
    """
    return [item for item, _ in differences_with_distributions(candidates, references, **ways)]


def differences_with_distributions(
    candidates: ArrayLike,
    references: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> list[tuple[Difference, Distribution]]:
    """`differences`, each with the one-row bootstrap distribution that its interval was read off."""
    a, b = rows_of(candidates), rows_of(references)
    if a.shape != b.shape:
        raise ValueError(f"paired scores must be of the same questions, got {a.shape} and {b.shape}")
    delta = a - b
    missing = np.isnan(delta)
    results: dict[int, tuple[Difference, Distribution]] = {}
    for rows in alike(missing):
        kept = ~missing[rows[0]]
        present = delta[np.ix_(rows, kept)]
        units = units_of(present, clusters, kept)
        spread = distribution_of(units, seed, resamples, method)
        p = sign_flip_ps(units.sums, seed, resamples)
        for position, (row, item) in enumerate(zip(rows, _differences(present, units, spread, p, level), strict=True)):
            part = slice(position, position + 1)
            alone = Distribution(spread.means[part], spread.units, method, spread.bias[part], spread.acceleration[part])
            results[row] = item, alone
    return [results[row] for row in range(len(delta))]


def all_pairs(
    columns: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> dict[tuple[int, int], Difference]:
    """Paired differences, i minus j, of every pair i < j of methods: what `differences` gives pair by pair.

    A difference of means is the difference of two resampled means, and a signed sum of differences the difference of
    two signed sums, so resampling costs one matrix product over the methods, not one over the pairs. That holds for
    all pairs with the same gaps; every other pattern of gaps is resampled over its own questions.

    Args:
        columns: Shape (methods, questions) of the same questions; NaN is unscorable.
        clusters, seed, level, resamples, method: As in `estimates`.
    """
    scores = rows_of(columns)
    missing = np.isnan(scores)
    pairs = list(itertools.combinations(range(len(scores)), 2))
    results: dict[tuple[int, int], Difference] = {}
    for same in _pairs_alike(missing, pairs):
        kept = ~(missing[same[0][0]] | missing[same[0][1]])
        rows = sorted({row for pair in same for row in pair})
        present = scores[np.ix_(rows, kept)]
        position = {row: number for number, row in enumerate(rows)}
        units = units_of(present, clusters, kept)
        count = len(units.counts)
        means = bootstrap_means(units, seed, resamples) if count > 1 else np.empty((len(rows), 0))
        positions = np.array([(position[i], position[j]) for i, j in same])
        p = _pair_ps(units.sums, positions, seed, resamples)
        for start in range(0, len(same), _PAIRS):
            left, right = positions[start : start + _PAIRS].T
            delta = present[left] - present[right]
            sums = units.sums[:, left] - units.sums[:, right]
            paired = Units(sums, units.counts, units.clustered)
            spread = distribution(means[left] - means[right], paired.means, paired.skew, count, method, overwrite=True)
            part = slice(start, start + _PAIRS)
            results.update(zip(same[part], _differences(delta, paired, spread, p[part], level), strict=True))
    return {pair: results[pair] for pair in pairs}


def sign_flip_all_pairs(columns: ArrayLike, *, clusters: Clusters = None, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Two-sided sign-flip p-values of every pair of methods without gaps, a symmetric matrix with ones on its diagonal.

    Args:
        columns: Shape (methods, questions), no NaN.
        clusters, seed, resamples: As in `estimates`.

    Raises:
        ValueError: A score is missing: `all_pairs` handles gaps.
    """
    scores = rows_of(columns)
    if np.isnan(scores).any():
        raise ValueError("scores with gaps have no common questions: use all_pairs")
    positions = np.array(list(itertools.combinations(range(len(scores)), 2)), dtype=np.int64).reshape(-1, 2)
    matrix = np.ones((len(scores), len(scores)))
    left, right = positions.T
    matrix[left, right] = matrix[right, left] = _pair_ps(units_of(scores, clusters).sums, positions, seed, resamples)
    return matrix


def _differences(delta: Floats, units: Units, spread: Distribution, p: Floats, level: float) -> Iterator[Difference]:
    """Differences from their parts; `delta` has shape (pairs, questions), all without gaps."""
    low, high = spread.interval(level)
    wins, losses = (delta > 0).sum(axis=1), (delta < 0).sum(axis=1)
    support, means, skew = units.support, units.means, units.skew
    for row, (won, lost) in enumerate(zip(wins.tolist(), losses.tolist(), strict=True)):
        yield Difference(
            float(means[row]),
            float(low[row]),
            float(high[row]),
            support.n,
            float(p[row]),
            won,
            support.n - won - lost,
            lost,
            support.units,
            doubt_about_difference(won + lost, support, float(skew[row])),
        )


def _pair_ps(sums: Floats, positions: np.ndarray, seed: int, resamples: int) -> Floats:
    """Sign-flip p-values of pairs of columns, shape (pairs,), from the signed sums of the columns themselves."""
    left, right = positions.T
    size = np.array([np.abs(sums[:, i] - sums[:, j]).sum() for i, j in positions])
    total, scale = sums.sum(axis=0), np.abs(sums).sum(axis=0)
    # As in `sign_flip_ps`; subtracting signed sums rounds on the scale of the columns, not of their difference.
    bar = np.abs(total[left] - total[right]) - 1e-9 * size - 1e-14 * (scale[left] + scale[right])
    extreme = np.zeros(len(positions))
    for block in signed_sums(sums, seed, resamples):
        extreme += (np.abs(block[:, left] - block[:, right]) >= bar).sum(axis=0)
    return np.where(size > 0, (extreme + 1) / (resamples + 1), 1.0)


def _pairs_alike(missing: np.ndarray, pairs: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Pairs grouped by the questions on which one of the two has a gap."""
    packed = np.packbits(missing, axis=1)
    groups: dict[bytes, list[tuple[int, int]]] = {}
    for i, j in pairs:
        groups.setdefault((packed[i] | packed[j]).tobytes(), []).append((i, j))
    yield from groups.values()


# -- Which stage of a pipeline loses what the pipeline does not get, by swapping stages for an oracle --


@dataclass(frozen=True, slots=True)
class StageLosses:
    """Where a pipeline loses what it does not get, by swapping its stages for an oracle one after another.

    The stages telescope: retrieval + reranking + compression + reading = ceiling - normal. A stage can be negative
    where the swap does harm.

    Attributes:
        normal: Score of the pipeline as it is.
        retrieval: Gained when the evidence that retrieval missed is put among the passages.
        reranking: Gained further when everything but the evidence is taken away.
        compression: Gained further when the evidence is read in full; None where that was not measured, and then
            part of `reading`.
        reading: What is missing even then.
        closed_book: Score without any passage: what the reader knows by heart.
        evidence_gain: Normal minus closed book: what retrieval is good for as it is.
    """

    normal: Estimate
    retrieval: Difference
    reranking: Difference
    compression: Difference | None
    reading: Estimate
    closed_book: Estimate
    evidence_gain: Difference

    @property
    def shares(self) -> dict[str, float]:
        """Share of each stage in the whole loss; NaN where nothing is lost."""
        losses = {"retrieval": self.retrieval.value, "reranking": self.reranking.value}
        if self.compression is not None:
            losses["compression"] = self.compression.value
        losses["reading"] = self.reading.value
        total = sum(losses.values())
        return {stage: loss / total if total else math.nan for stage, loss in losses.items()}


def stage_losses(
    normal: ArrayLike,
    *,
    gold_in_noise: ArrayLike,
    gold_only: ArrayLike,
    closed_book: ArrayLike,
    gold_uncompressed: ArrayLike | None = None,
    ceiling: float = 1.0,
    **ways: Unpack[Ways],
) -> StageLosses:
    """Split a pipeline's loss into retrieval, reranking, compression and reading.

    All runs are of the same reader on the same questions; a question that any run was not scored on is left out of
    all, so that the parts sum to the whole.

    Args:
        normal: Shape (questions,), scores of the pipeline as it is; NaN is unscorable.
        gold_in_noise: Missing evidence put among the retrieved passages, then reranked and compressed as usual.
        gold_only: The evidence alone, compressed as usual.
        closed_book: No passage.
        gold_uncompressed: The evidence alone, in full; None for a pipeline without a compressor.
        ceiling: The attainable maximum of the metric.
        clusters, seed, level, resamples, method: As in `estimates`.

    Raises:
        ValueError: Arrays differ in shape.
    """
    options = [normal, gold_in_noise, gold_only, closed_book]
    if gold_uncompressed is not None:
        options.append(gold_uncompressed)
    arrays = [np.asarray(scores, np.float64) for scores in options]
    if len({scores.shape for scores in arrays}) > 1 or arrays[0].ndim != 1:
        raise ValueError(f"all runs must be of the same questions, got {[scores.shape for scores in arrays]}")
    runs = np.stack(arrays)
    runs[:, np.isnan(runs).any(axis=0)] = np.nan
    usual, noisy, clean, without = runs[:4]
    full = runs[-1] if gold_uncompressed is not None else clean
    result = differences(np.stack([noisy, clean, full, usual]), np.stack([usual, noisy, clean, without]), **ways)
    retrieval, reranking, compression, gain = result
    score, blind = estimates(np.stack([usual, without]), **ways)
    return StageLosses(
        score, retrieval, reranking, compression if gold_uncompressed is not None else None, estimate(ceiling - full, **ways), blind, gain
    )


# -- How much a system loses when documents are rewritten in another style --


@dataclass(frozen=True, slots=True)
class StyleGap:
    """The effect of one style. Gaps are formal minus style: positive is a loss.

    Attributes:
        gap: Paired gap over the questions scored in both.
        p_holm: Its p-value, Holm-corrected over the styles.
        content_lost: Share of those questions whose gold string did not survive the rewriting.
        from_content: Part of the gap that falls on questions whose gold string did not survive.
        from_style: The rest, on questions that can still be answered; the two parts sum to the gap.
        gap_where_survived: Paired gap over the questions whose gold string survived, by themselves.
    """

    gap: Difference
    p_holm: float
    content_lost: Estimate
    from_content: Estimate
    from_style: Estimate
    gap_where_survived: Difference


@dataclass(frozen=True, slots=True)
class StyleRobustness:
    """Style gaps by style.

    Attributes:
        gaps: By style, in the order given.
        worst: The style with the largest gap, None where no style could be paired.
    """

    gaps: dict[str, StyleGap]
    worst: str | None


def style_robustness(
    formal: ArrayLike, styles: Mapping[str, ArrayLike], survived: Mapping[str, ArrayLike], **ways: Unpack[Ways]
) -> StyleRobustness:
    """Paired gaps from the formal text to each style, question by question.

    Args:
        formal: Shape (questions,), scores on the formal text; NaN is unscorable.
        styles: Scores on each style, of the same questions.
        survived: By style, shape (questions,), bool: whether a gold string is still found in the rewritten evidence.
        clusters, seed, level, resamples, method: As in `estimates`.

    Raises:
        ValueError: A style has no `survived`, or arrays differ in shape.
    """
    plain = np.asarray(formal, np.float64)
    names = list(styles)
    for name in names:
        if name not in survived:
            raise ValueError(f"style {name}: no word on which gold strings survived")
        if np.shape(styles[name]) != plain.shape or np.shape(survived[name]) != plain.shape:
            raise ValueError(f"style {name}: scores and survivals must be of the same questions as the formal ones")
    if not names:
        return StyleRobustness({}, None)
    shifted = np.stack([np.asarray(styles[name], np.float64) for name in names])
    alive = np.stack([np.asarray(survived[name], bool) for name in names])
    base = np.broadcast_to(plain, shifted.shape)
    gaps = differences(base, shifted, **ways)
    living = differences(np.where(alive, base, np.nan), shifted, **ways)
    delta = base - shifted
    gap = np.isnan(delta)
    lost = np.where(gap, np.nan, ~alive)
    in_content = np.where(gap, np.nan, np.where(alive, 0.0, delta))
    in_style = np.where(gap, np.nan, np.where(alive, delta, 0.0))
    parts = estimates(np.concatenate([lost, in_content, in_style]), **ways)
    corrected = holm([gap.p if gap.n else math.nan for gap in gaps])
    count = len(names)
    results = {
        name: StyleGap(gaps[row], corrected[row], parts[row], parts[count + row], parts[2 * count + row], living[row])
        for row, name in enumerate(names)
    }
    paired = [name for name in names if results[name].gap.n]
    return StyleRobustness(results, max(paired, key=lambda name: results[name].gap.value, default=None))


# -- Quality against what it costs: the Pareto front --


def pareto_front(quality: ArrayLike, costs: ArrayLike) -> NDArray[np.bool_]:
    """Which methods are not dominated: none other is at least as good and at least as cheap, and better in one.

    Args:
        quality: Shape (methods,), more is better.
        costs: Shape (methods,) or (methods, columns): tokens, seconds, money; less is better.

    Returns:
        Shape (methods,). Equal methods share the front; whoever has a gap (NaN) is not on it and dominates nobody.

    Raises:
        ValueError: The two are of different numbers of methods.
    """
    good = np.asarray(quality, np.float64)
    paid = np.asarray(costs, np.float64)
    paid = paid[:, None] if paid.ndim == 1 else paid
    if good.ndim != 1 or len(good) != len(paid):
        raise ValueError(f"quality and costs must be of the same methods, got {good.shape} and {paid.shape}")
    less = np.column_stack([-good, paid])
    known = np.asarray(~np.isnan(less).any(axis=1), dtype=np.bool_)
    no_worse = (less[:, None, :] <= less[None, :, :]).all(axis=2)
    better = (less[:, None, :] < less[None, :, :]).any(axis=2)
    dominated = (no_worse & better & known[:, None]).any(axis=0)
    return np.asarray(known & ~dominated, dtype=np.bool_)
