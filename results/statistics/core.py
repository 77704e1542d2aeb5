"""Define the common terms of the statistics: estimate, paired difference, and independent clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
LEVEL = 0.95

Clusters = Sequence[str | None] | None
"""One label per question; questions with equal labels are one cluster. A question with None is its own cluster."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings of a cluster bootstrap, for statistics that are not means.

    Attributes:
        seed: Random seed.
        resamples: Number of resamples.
        level: Coverage of the interval.
    """

    seed: int = 0
    resamples: int = RESAMPLES
    level: float = LEVEL


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean, or another statistic, with its confidence interval.

    Attributes:
        value: The statistic over scorable questions; NaN if there are none.
        low, high: The 95 % interval; NaN if there is insufficient data.
        n: Number of scorable questions.
        unscorable: Number of questions left out.
        clusters: Number of independent clusters.
        insufficient_data: Why there is no interval, or a reservation about it; empty if its coverage is as stated.
    """

    value: float
    low: float
    high: float
    n: int
    unscorable: int
    clusters: int = 0
    insufficient_data: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Paired difference, candidate minus reference, over the questions that both were scored on, with its test.

    Attributes:
        value, low, high, n: As in `Estimate`; the interval excludes 0 exactly if `p` is at most one minus its confidence level.
        p: Two-sided p-value of the hypothesis that the mean difference is 0; NaN if there is insufficient data, never 0.
        wins, ties, losses: Number of questions on which the candidate is better, equal, worse.
        clusters: As in `Estimate`.
        insufficient_data: Why there is no test; empty if there is one.
        detectable: Minimum detectable difference: 80 % power at the interval's level, never less than half the interval. NaN if
            the variance is unknown, infinite if no difference can be detected.
        generalizes: What a significant difference generalizes to: new questions, new trainings or this checkpoint only,
            this judge only.
        alone: The interval without correction; `low` and `high` are corrected for the family of tests.
        undecided: Why a difference that is not significant counts as insufficient data, not as "no significant difference";
            empty if it does not.
        geometric: Whether geometric means are compared, because the metric has a lower bound only. The value is then not the
            difference of the two means.
    """

    value: float
    low: float
    high: float
    n: int
    p: float
    wins: int
    ties: int
    losses: int
    clusters: int = 0
    insufficient_data: str = ""
    detectable: float = math.nan
    generalizes: str = "new questions"
    alone: tuple[float, float] = (math.nan, math.nan)
    undecided: str = ""
    geometric: bool = False

    def doubt(self, corrected: float | None) -> str:
        """Return why this difference counts as insufficient data; empty if it does not, or if its corrected p-value is significant."""
        return "" if corrected is not None and corrected <= 1 - LEVEL else self.undecided


@dataclass(frozen=True, slots=True)
class Support:
    """Numbers of questions and of independent clusters behind a resampled interval."""

    n: int
    clusters: int


def rows_of(values: ArrayLike) -> Floats:
    """Convert scores to an array of shape (columns, questions); one-dimensional input becomes one column."""
    return np.atleast_2d(np.asarray(values, dtype=np.float64))


def cluster_positions(
    clusters: Clusters, questions: int, kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign each question to its cluster.

    Args:
        clusters: One label per question, None for a question that is its own cluster; or None if all are.
        questions: Number of (kept) questions.
        kept: Mask of the labeled questions to use; None uses all.

    Raises:
        ValueError: The number of labels differs from the number of questions.
    """
    if clusters is None:
        return np.arange(questions), np.ones(questions, dtype=np.int64)
    labels = np.asarray([f"#{row}" if label is None else f"={label}" for row, label in enumerate(clusters)])
    labeled = questions if kept is None else len(kept)
    if len(labels) != labeled:
        raise ValueError(f"{len(labels)} cluster labels for {labeled} questions")
    if kept is not None:
        labels = labels[kept]
    _, positions, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return positions, sizes
