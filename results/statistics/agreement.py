"""Do two judges, or a judge and a person, say the same? Raw agreement, Cohen's kappa, Krippendorff's alpha.

Ratings are numbers (code categories as 0, 1, 2, …); NaN is a missing rating. Chance-corrected agreement is 1 where
all agree, 0 where they agree as often as raters who know nothing of the item would, below 0 where less often. It has
no value where everybody always says the same one thing: nothing could have been disagreed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Estimate, Floats, Method
from results.statistics.intervals import estimate
from results.statistics.resampled import estimate_of, resampled_sums, unit_table

Weights = Literal["linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]
"""What a difference between two ratings means: any is one; by how many ratings lie between; by its square."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement between raters.

    Attributes:
        raw: Share of the pairs of ratings of one item that are equal, mean over items.
        corrected: Kappa or alpha, with an interval over items; `unscorable` are items with fewer than two ratings.
        ratings: Ratings that stand behind both.
        categories: The different ratings given, ascending.
    """

    raw: Estimate
    corrected: Estimate
    ratings: int
    categories: tuple[float, ...]


def raw_agreement(
    ratings: ArrayLike,
    *,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> Estimate:
    """Share of equal pairs among the ratings of an item, mean over the items with at least two.

    Args:
        ratings: Shape (raters, items); NaN is missing.
        clusters, seed, level, resamples, method: As in `estimates`, over items.
    """
    table = _table(ratings)
    held = (~np.isnan(table)).sum(axis=0)
    equal = sum((counts * (counts - 1) for counts in _counts(table, _categories(table)).T), np.zeros(table.shape[1]))
    share = np.where(held > 1, equal / np.maximum(held * (held - 1), 1), math.nan)
    return estimate(share, clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)


def cohen_kappa(
    first: ArrayLike,
    second: ArrayLike,
    *,
    weights: Weights | None = None,
    categories: Sequence[float] | None = None,
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> Agreement:
    """Cohen's kappa of two raters: 1 - observed / expected disagreement, each rater with its own habits.

    Args:
        first, second: Shape (items,); an item that either has not rated (NaN) is left out.
        weights: How bad a disagreement is: None all the same, or by the distance between the places of the two
            ratings among the categories, or by its square.
        categories: All ratings that could be given, ascending. None takes those that were given; with weights a
            category between them that nobody used then does not count as a step.
        clusters, seed, level, resamples, method: As in `estimates`, over items; no `bca`.

    Raises:
        ValueError: The two have rated different items, a rating is none of the categories, or no such weights.

    Source: Cohen (1960), (1968).
    """
    if weights not in (None, "linear", "quadratic"):
        raise ValueError(f"no weights {weights!r}: choose None, linear or quadratic")
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"two raters must have rated the same items, got shapes {a.shape} and {b.shape}")
    kept = ~(np.isnan(a) | np.isnan(b))
    pairs = np.stack([a[kept], b[kept]])
    given = _categories(pairs)
    offered = given if categories is None else np.asarray(categories, np.float64)
    if (np.diff(offered) <= 0).any() or not np.isin(given, offered).all():
        raise ValueError(f"categories must ascend and hold every rating, got {offered.tolist()} for {given.tolist()}")
    size = len(offered)
    steps = np.abs(np.subtract.outer(np.arange(size), np.arange(size))).astype(np.float64)
    cost = {None: (steps > 0).astype(np.float64), "linear": steps, "quadratic": steps**2}[weights]

    def kappa(sums: Floats) -> Floats:
        confusion = sums.reshape(len(sums), size, size)
        rows, columns, n = confusion.sum(axis=2), confusion.sum(axis=1), sums.sum(axis=1)
        observed = np.einsum("bij,ij->b", confusion, cost)
        return _corrected(observed * n, np.einsum("bi,bj,ij->b", rows, columns, cost))

    rows, columns = np.searchsorted(offered, pairs)
    table = np.zeros((pairs.shape[1], size * size))
    table[np.arange(len(table)), rows * size + columns] = 1.0
    found = _with_interval(kappa, table, kept, clusters, seed, level, resamples, method)
    both = np.where(kept, [a, b], math.nan)
    raw = raw_agreement(both, clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)
    return Agreement(raw, found, 2 * len(table), tuple(given.tolist()))


def krippendorff_alpha(
    ratings: ArrayLike,
    *,
    metric: Level = "nominal",
    clusters: Clusters = None,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    method: Method = METHOD,
) -> Agreement:
    """Krippendorff's alpha of any number of raters, who need not have rated every item.

    Items with a single rating say nothing about agreement and are left out. The interval resamples items;
    Krippendorff's own resamples pairs of ratings, as if those of one item were independent, and is narrower.

    Args:
        ratings: Shape (raters, items); NaN is missing.
        metric: What a difference between two ratings means.
        clusters, seed, level, resamples, method: As in `estimates`, over items; no `bca`.

    Raises:
        ValueError: No such metric.

    Source: Krippendorff (2011), "Computing Krippendorff's alpha-reliability".
    """
    if metric not in ("nominal", "ordinal", "interval"):
        raise ValueError(f"no metric {metric!r}: choose nominal, ordinal or interval")
    table = _table(ratings)
    kept = (~np.isnan(table)).sum(axis=0) > 1
    paired = table[:, kept]
    given = _categories(paired)
    if metric == "interval":
        sums, alpha = _moments(paired), _alpha_interval
    else:
        sums, alpha = _coincidences(_counts(paired, given)), _alpha_ordinal if metric == "ordinal" else _alpha_nominal
    found = _with_interval(alpha, sums, kept, clusters, seed, level, resamples, method)
    raw = raw_agreement(table, clusters=clusters, seed=seed, level=level, resamples=resamples, method=method)
    return Agreement(raw, found, int((~np.isnan(paired)).sum()), tuple(given.tolist()))


def _with_interval(
    statistic: Callable[[Floats], Floats],
    table: Floats,
    kept: NDArray[np.bool_],
    clusters: Clusters,
    seed: int,
    level: float,
    resamples: int,
    method: Method,
) -> Estimate:
    """A statistic of the column sums, shape (draws, columns) to (draws,), of a table of the kept items."""
    sums, support = unit_table(table, clusters, kept)
    value = float(statistic(sums.sum(axis=0)[None, :])[0])
    draws = [statistic(block) for block in resampled_sums(sums, seed, resamples)]
    doubt = "every rating is the same: nothing could be disagreed on" if support.n and math.isnan(value) else ""
    return estimate_of(value, np.concatenate(draws) if draws else np.empty(0), support, int((~kept).sum()), level, method, doubt)


def _table(ratings: ArrayLike) -> Floats:
    table = np.asarray(ratings, np.float64)
    if table.ndim != 2:
        raise ValueError(f"ratings must have axes (raters, items), got shape {table.shape}")
    return table


def _categories(table: Floats) -> Floats:
    return np.unique(table[~np.isnan(table)])


def _counts(table: Floats, categories: Floats) -> Floats:
    """How many raters gave each item each category, shape (items, categories)."""
    items, size = table.shape[1], len(categories)
    rated = ~np.isnan(table)
    cell = np.nonzero(rated)[1] * size + np.searchsorted(categories, table[rated])
    return np.bincount(cell, minlength=items * size).astype(np.float64).reshape(items, size)


def _corrected(observed: Floats, expected: Floats) -> Floats:
    """1 - observed / expected disagreement; NaN where none could be expected."""
    some = expected > 0
    return np.where(some, 1 - observed / np.where(some, expected, 1.0), math.nan)


def _coincidences(counts: Floats) -> Floats:
    """Each item's part in the coincidence matrix, shape (items, categories²): its pairs, over its ratings less one."""
    items, size = counts.shape
    pairs = counts[:, :, None] * counts[:, None, :]
    pairs[:, np.arange(size), np.arange(size)] -= counts
    return (pairs / (counts.sum(axis=1) - 1)[:, None, None]).reshape(items, size * size)


def _alpha_nominal(sums: Floats) -> Floats:
    """With o the coincidences of categories and n their marginals: 1 - (n.. - 1) (n.. - Σ o_cc) / (n..² - Σ n_c²)."""
    matrix, marginal, n = _marginals(sums)
    observed = n - np.einsum("bii->b", matrix)
    return _corrected((n - 1) * observed, n**2 - (marginal**2).sum(axis=1))


def _alpha_ordinal(sums: Floats) -> Floats:
    """As for the nominal, each pair weighted by the square of the distance between the mid-ranks of its ratings.

    Krippendorff's sum of the marginals from c to k, less half of both ends, is the difference of their mid-ranks.
    """
    matrix, marginal, n = _marginals(sums)
    rank = marginal.cumsum(axis=1) - marginal / 2
    cost = (rank[:, :, None] - rank[:, None, :]) ** 2
    observed = (matrix * cost).sum(axis=(1, 2))
    return _corrected((n - 1) * observed, np.einsum("bi,bj,bij->b", marginal, marginal, cost))


def _marginals(sums: Floats) -> tuple[Floats, Floats, Floats]:
    size = math.isqrt(sums.shape[1])
    matrix = sums.reshape(len(sums), size, size)
    marginal = matrix.sum(axis=2)
    return matrix, marginal, marginal.sum(axis=1)


def _moments(table: Floats) -> Floats:
    """Ratings, their sum and sum of squares, and the squared differences within each item, shape (items, 4)."""
    known = ~np.isnan(table)
    # Squares of ratings far from 0 would lose the differences between them.
    centred = np.where(known, table - (table[known].mean() if known.any() else 0.0), 0.0)
    m, total, square = known.sum(axis=0), centred.sum(axis=0), (centred**2).sum(axis=0)
    within = ((centred - total / np.maximum(m, 1)) ** 2 * known).sum(axis=0)
    return np.stack([m, total, square, 2 * m * within / np.maximum(m - 1, 1)], axis=1)


def _alpha_interval(sums: Floats) -> Floats:
    """Squared differences within items against those between any two ratings, without listing the pairs."""
    n, total, square, within = sums.T
    between = 2 * n * square - 2 * total**2
    return _corrected((n - 1) * within, np.where(between > 1e-12 * n * square, between, 0.0))
