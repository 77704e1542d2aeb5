"""Agreement of judges and people: raw agreement, Cohen's and Fleiss' kappa, Krippendorff's alpha.

Ratings are numbers (code categories as 0, 1, 2, …); NaN is a missing rating. Chance-corrected agreement is 1 if all agree, 0
if they agree as often as by chance, and below 0 if less often. It is undefined if all ratings are equal.

Two different ratings disagree fully (`nominal`, for categories), or by the square of their difference (`interval`, for grades:
0.7 and 0.8 disagree less than 0 and 1). If there are only two ratings, both give the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.battles import Codes, Verdict, checked_verdicts, order_contradictions, verdict_values
from results.statistics.bootstrap import cluster_table, estimate_of, resampled_sums
from results.statistics.bradley_terry import ROUNDS, bradley_terry
from results.statistics.core import LEVEL, Clusters, Estimate, Floats, Resampling
from results.statistics.intervals import estimate

Difference = Literal["nominal", "interval"]
"""Functions for the disagreement of two ratings."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement between raters.

    Attributes:
        raw: Raw agreement: share of equal pairs among the ratings of an item, averaged over items.
        corrected: Kappa or alpha, with an interval over items; `unscorable` are items with fewer than two ratings.
        ratings: Number of ratings used.
        categories: The distinct ratings, ascending.
        difference: How far two ratings disagree.
    """

    raw: Estimate
    corrected: Estimate
    ratings: int
    categories: tuple[float, ...]
    difference: Difference = "nominal"


def raw_agreement(ratings: ArrayLike, *, clusters: Clusters = None, level: float = LEVEL) -> Estimate:
    """Compute raw agreement: the share of equal pairs among the ratings of an item, averaged over items with at least two ratings.

    Args:
        ratings: Shape (raters, items); NaN is missing.
        clusters, level: As in `estimates`, for items instead of questions.
    """
    table = _table(ratings)
    rated = (~np.isnan(table)).sum(axis=0)
    equal = sum((counts * (counts - 1) for counts in _counts(table, _categories(table)).T), np.zeros(table.shape[1]))
    share = np.where(rated > 1, equal / np.maximum(rated * (rated - 1), 1), math.nan)
    return estimate(share, clusters=clusters, level=level)


def cohen_kappa(
    first: ArrayLike,
    second: ArrayLike,
    *,
    difference: Difference = "nominal",
    clusters: Clusters = None,
    how: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> Agreement:
    """Compute Cohen's kappa of two raters: 1 - observed / expected disagreement, with each rater's own marginals.

    Args:
        first, second: Shape (items,); an item without a rating by both (NaN) is left out.
        difference: `interval` is kappa with quadratic weights.
        clusters: As in `estimates`, for items instead of questions.
        how: Settings of the bootstrap for the interval.

    Raises:
        ValueError: The arrays differ in length.

    Source: Cohen (1960); for weights Cohen (1968).
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"two raters must have rated the same items, got shapes {a.shape} and {b.shape}")
    kept = ~(np.isnan(a) | np.isnan(b))
    pairs = np.stack([a[kept], b[kept]])
    value = _categories(pairs)
    size = len(value)

    def kappa(sums: Floats) -> Floats:
        confusion = sums.reshape(len(sums), size, size)
        rows, columns, n = confusion.sum(axis=2), confusion.sum(axis=1), sums.sum(axis=1)
        observed = n - np.einsum("bii->b", confusion)
        return _corrected(observed * n, n**2 - (rows * columns).sum(axis=1))

    if difference == "interval":
        one, two = pairs
        table = np.column_stack([(one - two) ** 2, np.ones(len(one)), one, two, one**2 + two**2])
        result = _with_interval(_quadratic_kappa, table, kept, clusters, how)
    else:
        rows, columns = np.searchsorted(value, pairs)
        table = np.zeros((pairs.shape[1], size * size))
        table[np.arange(len(table)), rows * size + columns] = 1.0
        result = _with_interval(kappa, table, kept, clusters, how)
    both = np.where(kept, [a, b], math.nan)
    raw = raw_agreement(both, clusters=clusters, level=how.level)
    return Agreement(raw, result, 2 * len(table), tuple(value.tolist()), difference)


def krippendorff_alpha(
    ratings: ArrayLike,
    *,
    difference: Difference = "nominal",
    clusters: Clusters = None,
    how: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> Agreement:
    """Compute Krippendorff's alpha of any number of raters, who need not have rated every item.

    Items with a single rating are left out. The interval resamples items; Krippendorff's own resamples pairs of
    ratings, as if those of one item were independent, and is narrower.

    Args:
        ratings: Shape (raters, items); NaN is missing.
        difference: Krippendorff's difference function: 1 for different ratings, or the square of their difference.
        clusters: As in `estimates`, for items instead of questions.
        how: Settings of the bootstrap for the interval.

    Source: Krippendorff (2011), "Computing Krippendorff's alpha-reliability".
    """
    table = _table(ratings)
    kept = (~np.isnan(table)).sum(axis=0) > 1
    paired = table[:, kept]
    value = _categories(paired)
    if difference == "interval":
        result = _with_interval(_interval_alpha, _squares(paired), kept, clusters, how)
    else:
        result = _with_interval(_alpha, _coincidences(_counts(paired, value)), kept, clusters, how)
    raw = raw_agreement(table, clusters=clusters, level=how.level)
    return Agreement(raw, result, int((~np.isnan(paired)).sum()), tuple(value.tolist()), difference)


def fleiss_kappa(
    ratings: ArrayLike,
    *,
    clusters: Clusters = None,
    how: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> Agreement:
    """Compute Fleiss' kappa of any number of raters over the items that all of them rated.

    Args:
        ratings: Shape (raters, items); NaN is missing.
        clusters: As in `estimates`, for items instead of questions.
        how: Settings of the bootstrap for the interval.

    Source: Fleiss (1971), "Measuring nominal scale agreement among many raters".
    """
    table = _table(ratings)
    raters, kept = len(table), np.asarray(np.isfinite(table).all(axis=0))
    value = _categories(table[:, kept])
    counts = _counts(table[:, kept], value)
    equal = (counts * (counts - 1)).sum(axis=1) / max(1, raters * (raters - 1))

    def kappa(sums: Floats) -> Floats:
        items = sums[:, 1:].sum(axis=1) / raters
        with np.errstate(invalid="ignore", divide="ignore"):
            observed, chance = sums[:, 0] / items, ((sums[:, 1:] / (items * raters)[:, None]) ** 2).sum(axis=1)
            return np.where(chance < 1, (observed - chance) / (1 - chance), np.nan)

    result = _with_interval(kappa, np.column_stack([equal, counts]), kept, clusters, how)
    raw = raw_agreement(table, clusters=clusters, level=how.level)
    return Agreement(raw, result, int(counts.sum()), tuple(value.tolist()))


def _with_interval(
    statistic: Callable[[Floats], Floats], table: Floats, kept: NDArray[np.bool_], clusters: Clusters, how: Resampling
) -> Estimate:
    """Compute a statistic, (draws, columns) to (draws,), of the column sums of a table of items, with its interval."""
    sums, support = cluster_table(table, clusters, kept)
    value = float(statistic(sums.sum(axis=0)[None, :])[0])
    draws = [statistic(block) for block in resampled_sums(sums, how)]
    doubt = "all ratings are equal, so agreement is undefined" if support.n and math.isnan(value) else ""
    return estimate_of(value, np.concatenate(draws) if draws else np.empty(0), support, int((~kept).sum()), how.level, doubt)


def _table(ratings: ArrayLike) -> Floats:
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2:
        raise ValueError(f"ratings must have axes (raters, items), got shape {table.shape}")
    return table


def _categories(table: Floats) -> Floats:
    return np.unique(table[~np.isnan(table)])


def _counts(table: Floats, categories: Floats) -> Floats:
    """Count the raters that gave each item each category. Shape (items, categories)."""
    items, size = table.shape[1], len(categories)
    rated = ~np.isnan(table)
    cell = np.nonzero(rated)[1] * size + np.searchsorted(categories, table[rated])
    return np.bincount(cell, minlength=items * size).astype(np.float64).reshape(items, size)


def _corrected(observed: Floats, expected: Floats) -> Floats:
    """Return 1 - observed / expected disagreement; NaN if the expected disagreement is 0."""
    some = expected > 0
    return np.where(some, 1 - observed / np.where(some, expected, 1.0), math.nan)


def _coincidences(counts: Floats) -> Floats:
    """Return each item's contribution to the coincidence matrix, shape (items, categories²): pairs / (ratings - 1)."""
    items, size = counts.shape
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs[:, np.arange(size), np.arange(size)] -= counts
    return (pairs / (counts.sum(axis=1) - 1)[:, None, None]).reshape(items, size * size)


def _alpha(sums: Floats) -> Floats:
    """Return alpha = 1 - (n.. - 1) (n.. - Σ o_cc) / (n..² - Σ n_c²), with o the coincidences of categories and n their
    marginals.
    """
    size = math.isqrt(sums.shape[1])
    matrix = sums.reshape(len(sums), size, size)
    marginal = matrix.sum(axis=2)
    n = marginal.sum(axis=1)
    observed = n - np.einsum("bii->b", matrix)
    return _corrected((n - 1) * observed, n**2 - (marginal**2).sum(axis=1))


def _squares(table: Floats) -> Floats:
    """Return per item: the squared differences of its pairs of ratings / (ratings - 1), ratings, their sum and sum of squares."""
    n, total, squares = (~np.isnan(table)).sum(axis=0), np.nansum(table, axis=0), np.nansum(table**2, axis=0)
    within = np.nansum((table[:, None] - table[None, :]) ** 2, axis=(0, 1))
    return np.column_stack([within / np.maximum(n - 1, 1), n, total, squares])


def _interval_alpha(sums: Floats) -> Floats:
    """Return alpha = 1 - (n - 1) D / 2 (n Σ x² - (Σ x)²), with D the squared differences within items."""
    within, n, total, squares = sums.T
    return _corrected((n - 1) * within, _exact(2 * (n * squares - total**2), n * squares))


def _quadratic_kappa(sums: Floats) -> Floats:
    """Return kappa = 1 - n Σ (a - b)² / (n Σ (a² + b²) - 2 Σ a Σ b)."""
    within, n, one, two, squares = sums.T
    return _corrected(n * within, _exact(n * squares - 2 * one * two, n * squares))


def _exact(values: Floats, scale: Floats) -> Floats:
    """Return 0 for values that are only the rounding error of a difference of numbers of this scale."""
    return np.where(values > 1e-12 * scale, values, 0.0)


# Consistency and biases of a judge, each with its denominator: consistency over repetitions, position bias, length bias.
# Intervals resample questions (or the documents they share), not single verdicts: ten verdicts on one question are
# not ten independent observations.


@dataclass(frozen=True, slots=True)
class RepetitionVariance:
    """Variance of a judge's verdicts on the same item over repetitions.

    Attributes:
        differing: Share of the pairs of verdicts on one item that differ, mean over items with at least two.
        variance: Variance of the values within an item (n - 1 in the denominator), mean over items with at least two.
        pairs: Number of compared pairs of verdicts.
        single: Number of items with fewer than two verdicts, which are not compared.
    """

    differing: Estimate
    variance: Estimate
    pairs: int
    single: int


@dataclass(frozen=True, slots=True)
class LengthPreference:
    """Preference of a judge for longer answers (length bias).

    Attributes:
        longer_wins: Share of the decided battles between answers of different length that the longer one won. The longer
            answer may be the better one: only `per_doubling` is adjusted for the methods' strengths.
        decided: Number of decided battles between answers of different length: the denominator.
        equal_length: Number of decided battles between answers of the same length.
        undecided: Number of ties and of battles without a winner.
        per_doubling: Log-odds of winning that doubling an answer's length adds, adjusted for the methods' strengths.
        length_spread: Standard deviation of log2(length ratio); times `per_doubling` it is the standardized effect.
    """

    longer_wins: Estimate
    decided: int
    equal_length: int
    undecided: int
    per_doubling: Estimate
    length_spread: float


def repetition_variance(
    item: ArrayLike, verdict: ArrayLike, *, values: ArrayLike | None = None, clusters: Clusters = None, level: float = LEVEL
) -> RepetitionVariance:
    """Measure how much a judge's verdicts on the same item (same answers, same order) differ.

    Args:
        item: Shape (verdicts,), codes of the judged items, from 0.
        verdict: Shape (verdicts,), codes of the verdicts; NaN if the judge failed, which is left out.
        values: Numeric value of each verdict, NaN without one; None uses the verdicts themselves.
        clusters: One label per item code; None treats each item as its own cluster.
        level: As in `estimates`.

    Raises:
        ValueError: Arrays differ in length.
    """
    items, codes = np.asarray(item, np.int64), np.asarray(verdict, np.float64)
    value = codes if values is None else np.asarray(values, np.float64)
    if not items.shape == codes.shape == value.shape or items.ndim != 1:
        raise ValueError(f"rows must be of the same verdicts, got {items.shape}, {codes.shape} and {value.shape}")
    size = int(items.max(initial=-1)) + 1
    scored = ~np.isnan(codes)
    counts = np.bincount(items[scored], minlength=size)
    kinds, equal = np.unique(np.stack([items[scored], codes[scored]]), axis=1, return_counts=True)
    pairs = counts * (counts - 1) / 2
    same = np.bincount(kinds[0].astype(np.int64), weights=equal * (equal - 1) / 2, minlength=size)
    differing = np.where(counts > 1, 1 - same / np.maximum(pairs, 1), math.nan)
    labels = None if clusters is None else list(clusters)[:size]
    results = [estimate(column, clusters=labels, level=level) for column in (differing, _variances(items, value, size))]
    seen = np.bincount(items, minlength=size) > 0
    return RepetitionVariance(results[0], results[1], int(pairs.sum()), int((seen & (counts < 2)).sum()))


def battle_repetition_variance(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    clusters: Clusters = None,
    level: float = LEVEL,
) -> RepetitionVariance:
    """Measure how much a pair judge's verdicts differ between repetitions; an item is a pair, a question and an order
    (`repetition_variance`).

    Args:
        pair, question, order, repetition, verdict: As in `win_rates`.
        clusters: One label per question code, as in `estimates`; always at least the question is resampled whole.
        level: As in `estimates`.

    Raises:
        ValueError: As in `win_rates`.
    """
    pairs, questions, orders, _, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    cells, item = np.unique(np.stack([pairs, questions, orders]), axis=1, return_inverse=True)
    codes = np.where(verdicts == Verdict.UNSCORED, math.nan, verdicts)
    labels = _labels(cells[1], clusters)
    return repetition_variance(item.ravel(), codes, values=verdict_values(verdicts), clusters=labels, level=level)


def order_flip_rate(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    clusters: Clusters = None,
    level: float = LEVEL,
) -> Estimate:
    """Compute the share of contradictions among (pair, question, repetition) cells whose two orders both name a winner.

    Args:
        pair, question, order, repetition, verdict: As in `win_rates`.
        clusters, level: As in `battle_repetition_variance`. The result's `n` is the number of such cells.

    Raises:
        ValueError: As in `win_rates`.
    """
    pairs, questions, _, rounds, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    cells, flipped = order_contradictions(pairs, questions, rounds, verdicts)
    return estimate(flipped, clusters=_labels(cells[1], clusters), level=level)


def first_shown_preference(
    pair: ArrayLike,
    question: ArrayLike,
    order: ArrayLike,
    repetition: ArrayLike,
    verdict: ArrayLike,
    *,
    clusters: Clusters = None,
    level: float = LEVEL,
) -> Estimate:
    """Compute the position bias of a judge: the share of decisive verdicts that name the answer shown first; ½ means no bias.

    Only cells whose two orders are both decisive count. Each answer is then shown first once, so the methods' strengths cancel
    out.

    Args:
        pair, question, order, repetition, verdict: As in `win_rates`; at order 0 the first method is shown first.
        clusters, level: As in `battle_repetition_variance`.

    Returns:
        `n` counts the verdicts.

    Raises:
        ValueError: As in `win_rates`.
    """
    pairs, questions, orders, rounds, verdicts = checked_verdicts(pair, question, order, repetition, verdict)
    keys = np.stack([pairs, questions, rounds])
    decisive = (verdicts == Verdict.WIN) | (verdicts == Verdict.LOSS)
    _, position = np.unique(keys, axis=1, return_inverse=True)
    both = decisive & (np.bincount(position.ravel(), weights=decisive, minlength=1)[position.ravel()] == 2)
    first = (verdicts == Verdict.WIN) == (orders == 0)
    return estimate(first[both], clusters=_labels(questions[both], clusters), level=level)


def length_preference(
    first: ArrayLike,
    second: ArrayLike,
    question: ArrayLike,
    score: ArrayLike,
    lengths: tuple[ArrayLike, ArrayLike],
    *,
    shown_first: ArrayLike | None = None,
    clusters: Clusters = None,
    how: Resampling = Resampling(resamples=ROUNDS),  # noqa: B008 (frozen)
) -> LengthPreference:
    """Measure how often the longer answer wins, and the effect of length adjusted for the methods' strengths.

    Args:
        first, second, question, score, lengths, shown_first: As in `bradley_terry`, one row per battle.
        clusters: As in `battle_repetition_variance`.
        how: Settings of the bootstrap.

    Raises:
        ValueError: As in `bradley_terry`.

    Source: Zheng et al. (2023), "Judging LLM-as-a-judge", section 3.3 (verbosity bias); for the coefficient
        `bradley_terry`.
    """
    fitted = bradley_terry(first, second, question, score, shown_first=shown_first, lengths=lengths, clusters=clusters, how=how)
    won = np.asarray(score, np.float64)
    gap = np.asarray(lengths[0], np.float64) - np.asarray(lengths[1], np.float64)
    decided = ~np.isnan(won) & (won != 0.5)
    unequal = decided & (gap != 0)
    longer = (won > 0.5) == (gap > 0)
    labels = _labels(np.asarray(question, np.int64)[unequal], clusters)
    share = estimate(longer[unequal], clusters=labels, level=how.level)
    if fitted.per_doubling is None or fitted.length_spread is None:
        raise ValueError("a length preference needs at least one scored battle")
    return LengthPreference(
        share, int(unequal.sum()), int((decided & (gap == 0)).sum()), int((~decided).sum()), fitted.per_doubling, fitted.length_spread
    )


def _labels(questions: Codes, clusters: Clusters) -> Sequence[str]:
    """Return the cluster of each row: its question's label, or the question itself."""
    if clusters is None:
        return [f"question {code}" for code in questions]
    labels = list(clusters)
    if len(questions) and questions.max() >= len(labels):
        raise ValueError(f"{len(labels)} cluster labels for {questions.max() + 1} questions")
    return [f"question {code}" if labels[code] is None else f"document {labels[code]}" for code in questions]


def _variances(item: Codes, value: Floats, size: int) -> Floats:
    """Return the variance within each item with at least two values, shape (items,); NaN for the others."""
    known = ~np.isnan(value)
    item, value = item[known], value[known]
    count = np.bincount(item, minlength=size)
    mean = np.bincount(item, weights=value, minlength=size) / np.maximum(count, 1)
    squares = np.bincount(item, weights=(value - mean[item]) ** 2, minlength=size)
    return np.where(count > 1, squares / np.maximum(count - 1, 1), math.nan)
