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
"""One label per question; questions with equal labels are one cluster. None stands alone."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings for resampling statistics that are not means, by cluster.

    Attributes:
        seed: Of the draws.
        resamples: Their number.
        level: Coverage of the interval.
    """

    seed: int = 0
    resamples: int = RESAMPLES
    level: float = LEVEL


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, or another statistic, with its interval.

    Attributes:
        value: Over scorable questions, NaN where there are none.
        low, high: The 95 % interval; NaN if there is insufficient data.
        n: Scorable questions.
        unscorable: Questions left out.
        clusters: Independent clusters behind the interval.
        insufficient_data: Why there is no interval, or what must be known of it; empty where it covers as stated.
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
    """A paired difference, candidate minus reference, over the questions that both were scored on.

    Attributes:
        value, low, high, n: As in `Estimate`; the interval leaves out 0 exactly where `p` is at most one less its level.
        p: Two-sided p-value of the hypothesis that the mean difference is 0; NaN if there is insufficient data, never 0.
        wins, ties, losses: Questions on which the candidate is better, equal, worse.
        clusters: As in `Estimate`.
        insufficient_data: Why there is no verdict; empty where there is one.
        detectable: The smallest true difference that such questions would show with a power of 80 % at the interval's
            level, never less than half the interval; NaN if the spread is not known, infinite if none would be shown.
        generalizes: What a mark would hold for: new questions, new trainings or this checkpoint only, a judge's eyes.
        alone: The interval of this difference as a single test; `low` and `high` are corrected for the family that it is in.
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


@dataclass(frozen=True, slots=True)
class Support:
    """Sample behind a resampled interval: questions and their independent clusters."""

    n: int
    clusters: int


def rows_of(values: ArrayLike) -> Floats:
    """Return scores as an array of shape (columns, questions); a single column may come flat."""
    return np.atleast_2d(np.asarray(values, dtype=np.float64))


def cluster_positions(
    clusters: Clusters, questions: int, kept: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the independent cluster of each question, shape (questions,), and the number of questions per cluster.

    Args:
        clusters: One label per question, None for questions that stand alone.
        questions: Number of (kept) questions.
        kept: Which of the labeled questions are meant; None for all.

    Raises:
        ValueError: There are more or fewer labels than questions.
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
