"""Means and paired differences with their intervals and verdicts; by stage, by style, and against cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.closed_form import Moments, all_differences, holm_array, holm_levels, means, paired
from results.statistics.core import LEVEL, Clusters, Difference, Estimate, Floats, rows_of

# -- Corrections for asking many questions at once --


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values in the order given; NaN stays NaN and counts for nothing.

    Whoever rejects what is below alpha makes a false claim at all with probability at most alpha, whatever the
    dependence between the tests.

    Source: Holm (1979).
    """
    return holm_array(np.asarray(p_values, np.float64)).tolist()


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


@dataclass(frozen=True, slots=True)
class Family:
    """Differences that are tested together.

    Attributes:
        differences: Each with the interval of the level at which Holm's procedure tests it: it leaves out 0 exactly
            where the corrected p-value is at most 5 %.
        p: Corrected p-values; NaN if there is insufficient data.
    """

    differences: list[Difference]
    p: list[float]


def family(moments: Moments, differences: Iterable[Difference], level: float = LEVEL) -> Family:
    """Correct the differences of one family for their number. One with insufficient data counts as tested and not significant.

    Args:
        moments: Of the differences, shape (rows,).
        differences: The same, as `differences_of` gives them.
        level: Of the claims.
    """
    p = moments.p
    tested = np.where(np.isnan(p) & (moments.n > 0), 1.0, p)
    low, high = moments.interval(holm_levels(tested, level))
    corrected = np.where(np.isnan(p), np.nan, holm_array(tested))
    rows = zip(differences, low.tolist(), high.tolist(), strict=True)
    return Family([replace(item, low=bottom, high=top) for item, bottom, top in rows], corrected.tolist())


# -- Means, paired differences and differences of all pairs, each with its interval --


def estimate(values: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Estimate:
    """Mean and interval over questions; `estimates` of a single column."""
    return estimates(np.asarray(values, dtype=np.float64)[None, :], clusters=clusters, level=level)[0]


def estimates(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> list[Estimate]:
    """Means and intervals of many columns over the same questions.

    Args:
        columns: Shape (columns, questions); NaN is unscorable.
        clusters: One label per question; questions with equal labels are one cluster. None stands alone.
        level: Coverage of the interval.
    """
    scores = rows_of(columns)
    moments = means(scores, clusters=clusters)
    low, high = moments.interval(level)
    n = moments.n.astype(int)
    lists = (moments.value, low, high, n, scores.shape[1] - n, moments.clusters.astype(int), moments.insufficient_data())
    return [Estimate(*row) for row in zip(*(array.tolist() for array in lists), strict=True)]


def difference(candidate: ArrayLike, reference: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Difference:
    """Paired difference of two methods on the same questions; `differences` of a single pair."""
    a, b = np.asarray(candidate, np.float64)[None, :], np.asarray(reference, np.float64)[None, :]
    return differences(a, b, clusters=clusters, level=level)[0]


def differences(candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> list[Difference]:
    """Paired differences of many pairs of methods, question by question.

    Args:
        candidates, references: Shape (pairs, questions), row by row of the same questions.
        clusters, level: As in `estimates`.

    Raises:
        ValueError: The arrays differ in shape: they are not about the same questions.
    """
    a, b = rows_of(candidates), rows_of(references)
    return differences_of(paired(a, b, clusters=clusters), a - b, level)


def differences_together(candidates: ArrayLike, references: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Family:
    """`differences` of one family, with intervals and p-values corrected by Holm's procedure."""
    a, b = rows_of(candidates), rows_of(references)
    moments = paired(a, b, clusters=clusters)
    return family(moments, differences_of(moments, a - b, level), level)


def all_pairs(columns: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Family:
    """Paired differences, i minus j, of every pair i < j of methods as one family, in the order of `itertools.combinations`.

    Args:
        columns: Shape (methods, questions) of the same questions; NaN is unscorable.
        clusters, level: As in `estimates`.
    """
    scores = rows_of(columns)
    left, right = np.array(list(itertools.combinations(range(len(scores)), 2)), dtype=np.int64).reshape(-1, 2).T
    moments = all_differences(scores, clusters=clusters)[left, right]
    rows = (scores[i] - scores[j] for i, j in zip(left, right, strict=True))
    return family(moments, differences_of(moments, rows, level), level)


def differences_of(moments: Moments, delta: Iterable[Floats], level: float = LEVEL) -> list[Difference]:
    """Differences from their moments and from the differences of the single questions, row by row."""
    low, high = moments.interval(level)
    counts = [(int((row > 0).sum()), int((row == 0).sum()), int((row < 0).sum())) for row in delta]
    columns = {
        "value": moments.value,
        "low": low,
        "high": high,
        "n": moments.n.astype(int),
        "p": moments.p,
        "clusters": moments.clusters.astype(int),
        "insufficient_data": moments.insufficient_data(),
        "detectable": moments.detectable(level=level),
    }
    rows = zip(*(array.tolist() for array in columns.values()), strict=True)
    return [
        Difference(**dict(zip(columns, row, strict=True)), wins=wins, ties=ties, losses=losses)
        for row, (wins, ties, losses) in zip(rows, counts, strict=True)
    ]


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
    clusters: Clusters = None,
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
        clusters: As in `estimates`.

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
    result = differences(np.stack([noisy, clean, full, usual]), np.stack([usual, noisy, clean, without]), clusters=clusters)
    retrieval, reranking, compression, gain = result
    score, blind = estimates(np.stack([usual, without]), clusters=clusters)
    reading = estimate(ceiling - full, clusters=clusters)
    return StageLosses(score, retrieval, reranking, compression if gold_uncompressed is not None else None, reading, blind, gain)


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
    formal: ArrayLike, styles: Mapping[str, ArrayLike], survived: Mapping[str, ArrayLike], *, clusters: Clusters = None
) -> StyleRobustness:
    """Paired gaps from the formal text to each style, question by question.

    Args:
        formal: Shape (questions,), scores on the formal text; NaN is unscorable.
        styles: Scores on each style, of the same questions.
        survived: By style, shape (questions,), bool: whether a gold string is still found in the rewritten evidence.
        clusters: As in `estimates`.

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
    together = differences_together(base, shifted, clusters=clusters)
    gaps, corrected = together.differences, together.p
    living = differences(np.where(alive, base, np.nan), shifted, clusters=clusters)
    delta = base - shifted
    gap = np.isnan(delta)
    lost = np.where(gap, np.nan, ~alive)
    in_content = np.where(gap, np.nan, np.where(alive, 0.0, delta))
    in_style = np.where(gap, np.nan, np.where(alive, delta, 0.0))
    parts = estimates(np.concatenate([lost, in_content, in_style]), clusters=clusters)
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
