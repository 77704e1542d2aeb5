"""The habits of a judge, each with its denominator: does it repeat itself, does place or length sway it?

Intervals resample questions (or the documents they share), never single verdicts: ten verdicts on one question are
not ten witnesses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.battles import Codes, Verdict, checked_verdicts, order_contradictions, verdict_values
from results.statistics.bradley_terry import ROUNDS, bradley_terry
from results.statistics.core import LEVEL, RESAMPLES, Clusters, Estimate, Floats
from results.statistics.intervals import estimate


@dataclass(frozen=True, slots=True)
class RepetitionVariance:
    """What a judge says when asked the same again.

    Attributes:
        differing: Share of the pairs of verdicts on one item that differ, mean over items with at least two.
        variance: Variance of the values within an item (n - 1 in the denominator), mean over items with at least two.
        pairs: Pairs of verdicts compared.
        single: Items with fewer than two verdicts, of which nothing is known.
    """

    differing: Estimate
    variance: Estimate
    pairs: int
    single: int


@dataclass(frozen=True, slots=True)
class LengthPreference:
    """Whether a judge prefers the longer answer.

    Attributes:
        longer_wins: Share of the decided battles between answers of different length that the longer one won. The
            longer answer may well be the better one: only `per_doubling` takes the methods' strengths out of it.
        decided: Decided battles between answers of different length: the denominator.
        equal_length: Decided battles between answers of the same length.
        undecided: Ties and battles without a winner.
        per_doubling: Log-odds that an answer twice as long adds, between methods of given strengths.
        length_spread: Standard deviation of log2(length ratio); times `per_doubling` it is the standardised effect.
    """

    longer_wins: Estimate
    decided: int
    equal_length: int
    undecided: int
    per_doubling: Estimate
    length_spread: float


def repetition_variance(
    item: ArrayLike,
    verdict: ArrayLike,
    *,
    values: ArrayLike | None = None,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> RepetitionVariance:
    """How far a judge's verdicts on the same item (same answers, same order) differ from each other.

    Args:
        item: Shape (verdicts,), codes from 0 of what was judged.
        verdict: Shape (verdicts,), codes of what was said; NaN where the judge failed, which is left out.
        values: What each verdict counts as a number, NaN where nothing; None takes the verdicts themselves.
        clusters: One label per item code; None takes every item for itself.
        seed, level, resamples: As in `estimates`.

    Raises:
        ValueError: Arrays differ in length.
    """
    items, said = np.asarray(item, np.int64), np.asarray(verdict, np.float64)
    value = said if values is None else np.asarray(values, np.float64)
    if not items.shape == said.shape == value.shape or items.ndim != 1:
        raise ValueError(f"rows must be of the same verdicts, got {items.shape}, {said.shape} and {value.shape}")
    size = int(items.max(initial=-1)) + 1
    scored = ~np.isnan(said)
    held = np.bincount(items[scored], minlength=size)
    kinds, equal = np.unique(np.stack([items[scored], said[scored]]), axis=1, return_counts=True)
    pairs = held * (held - 1) / 2
    same = np.bincount(kinds[0].astype(np.int64), weights=equal * (equal - 1) / 2, minlength=size)
    differing = np.where(held > 1, 1 - same / np.maximum(pairs, 1), math.nan)
    labels = None if clusters is None else list(clusters)[:size]
    found = [
        estimate(column, clusters=labels, seed=seed, level=level, resamples=resamples)
        for column in (differing, _variances(items, value, size))
    ]
    seen = np.bincount(items, minlength=size) > 0
    return RepetitionVariance(found[0], found[1], int(pairs.sum()), int((seen & (held < 2)).sum()))


def battle_repetition_variance(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> RepetitionVariance:
    """`repetition_variance` of pairwise verdicts: an item is a pair, a question and an order.

    Args:
        pair, question, order, repetition, verdict: As in `win_rates`.
        clusters: One label per question code, as in `estimates`; always at least the question is resampled whole.
        seed, level, resamples: As in `estimates`.

    Raises:
        ValueError: As in `win_rates`.
    """
    pairs, questions, orders, _, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    cells, item = np.unique(np.stack([pairs, questions, orders]), axis=1, return_inverse=True)
    said = np.where(verdicts == Verdict.UNSCORED, math.nan, verdicts)
    return repetition_variance(
        item.ravel(),
        said,
        values=verdict_values(verdicts),
        clusters=_labels(cells[1], clusters),
        seed=seed,
        level=level,
        resamples=resamples,
    )


def order_flip_rate(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Share of contradictions among the (pair, question, repetition)s whose two orders both name a winner (`n`).

    Args:
        pair, question, order, repetition, verdict: As in `win_rates`.
        clusters, seed, level, resamples: As in `battle_repetition_variance`.

    Raises:
        ValueError: As in `win_rates`.
    """
    pairs, questions, _, rounds, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    cells, flipped = order_contradictions(pairs, questions, rounds, verdicts)
    labels = _labels(cells[1], clusters)
    return estimate(flipped, clusters=labels, seed=seed, level=level, resamples=resamples)


def first_shown_preference(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Share of the decisive verdicts that name the answer shown first, of those whose both orders are decisive.

    Both answers of such a cell are shown first once, so that strength plays no part: without a preference it is ½.

    Args:
        pair, question, order, repetition, verdict: As in `win_rates`; at order 0 the first method is shown first.
        clusters, seed, level, resamples: As in `battle_repetition_variance`.

    Returns:
        `n` counts the verdicts.

    Raises:
        ValueError: As in `win_rates`.
    """
    pairs, questions, orders, rounds, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    keys = np.stack([pairs, questions, rounds])
    decisive = (verdicts == Verdict.WIN) | (verdicts == Verdict.LOSS)
    _, place = np.unique(keys, axis=1, return_inverse=True)
    both = decisive & (np.bincount(place.ravel(), weights=decisive, minlength=1)[place.ravel()] == 2)
    first = (verdicts == Verdict.WIN) == (orders == 0)
    labels = _labels(questions[both], clusters)
    return estimate(first[both], clusters=labels, seed=seed, level=level, resamples=resamples)


def length_preference(
    first: ArrayLike,
    second: ArrayLike,
    question: ArrayLike,
    score: ArrayLike,
    lengths: tuple[ArrayLike, ArrayLike],
    *,
    shown_first: ArrayLike | None = None,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = ROUNDS,
) -> LengthPreference:
    """How often the longer answer wins, and how much length adds between methods of given strengths.

    Args:
        first, second, question, score, lengths, shown_first: As in `bradley_terry`, one row per battle.
        clusters, seed, level, resamples: As in `battle_repetition_variance`.

    Raises:
        ValueError: As in `bradley_terry`.

    Source: Zheng et al. (2023), "Judging LLM-as-a-judge", section 3.3 (verbosity bias); for the coefficient
        `bradley_terry`.
    """
    fitted = bradley_terry(
        first,
        second,
        question,
        score,
        shown_first=shown_first,
        lengths=lengths,
        clusters=clusters,
        seed=seed,
        level=level,
        resamples=resamples,
    )
    won = np.asarray(score, np.float64)
    gap = np.asarray(lengths[0], np.float64) - np.asarray(lengths[1], np.float64)
    decided = ~np.isnan(won) & (won != 0.5)
    unequal = decided & (gap != 0)
    longer = (won > 0.5) == (gap > 0)
    labels = _labels(np.asarray(question, np.int64)[unequal], clusters)
    share = estimate(longer[unequal], clusters=labels, seed=seed, level=level, resamples=resamples)
    if fitted.per_doubling is None or fitted.length_spread is None:
        raise ValueError("a length preference takes at least one scored battle")
    return LengthPreference(
        share, int(unequal.sum()), int((decided & (gap == 0)).sum()), int((~decided).sum()), fitted.per_doubling, fitted.length_spread
    )


def _labels(questions: Codes, clusters: Clusters) -> Sequence[str]:
    """The cluster of each row: its question's label, or the question itself."""
    if clusters is None:
        return [f"question {code}" for code in questions]
    labels = list(clusters)
    if len(questions) and questions.max() >= len(labels):
        raise ValueError(f"{len(labels)} cluster labels for {questions.max() + 1} questions")
    return [f"question {code}" if labels[code] is None else f"document {labels[code]}" for code in questions]


def _variances(item: Codes, value: Floats, size: int) -> Floats:
    """Variance within each item with at least two values, shape (items,); NaN for the others."""
    known = ~np.isnan(value)
    item, value = item[known], value[known]
    count = np.bincount(item, minlength=size)
    mean = np.bincount(item, weights=value, minlength=size) / np.maximum(count, 1)
    squares = np.bincount(item, weights=(value - mean[item]) ** 2, minlength=size)
    return np.where(count > 1, squares / np.maximum(count - 1, 1), math.nan)
