"""The difference of two methods over several benchmarks: each benchmark is a stratum, and all weigh the same.

Strata of different questions err independently, so the squares of their half intervals add up; strata that share questions
(settings or styles of one dataset) are taken to err alike, so their half intervals add up as they are. The pooled interval
covers as its parts do, each with its own clusters, trainings and judges (see `tested.py`), and the test is its inversion.

Source: Zou & Donner (2008), "Construction of confidence limits about effect measures", Statistics in Medicine 27; Banerjee
(1960) for intervals by Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results.statistics.core import LEVEL, Floats
from results.statistics.difference import Differences
from results.statistics.holm import holm_array, holm_levels

_STEPS = 30
_SMALLEST = -18.0
"""Natural logarithm of the smallest p-value that is computed; smaller ones are this one."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """A method's mean difference over several benchmarks.

    Attributes:
        value: Mean over benchmarks.
        low, high: Its interval at the level at which Holm's procedure tests it: it leaves out 0 exactly if `p_holm` <= .05.
        p, p_holm: Two-sided p-value, and corrected over the methods compared; NaN if a stratum has insufficient data.
        strata: Benchmarks.
    """

    value: float
    low: float
    high: float
    p: float
    p_holm: float
    strata: int


def pooled(strata: Sequence[Differences], kin: Sequence[int], level: float = LEVEL) -> list[Pooled]:
    """Return the pooled difference of every row, tested as one family.

    Args:
        strata: The differences on each benchmark, of shape (rows,), all of the same pairs of methods.
        kin: One number per stratum; strata with equal numbers share questions.
        level: Of the claims.

    Raises:
        ValueError: There is no stratum, or there are more or fewer numbers than strata.
    """
    if not strata or len(strata) != len(kin):
        raise ValueError(f"{len(kin)} numbers of kin for {len(strata)} strata")
    values = np.stack([tested.value for tested in strata])
    value = values.mean(axis=0)
    able = np.all([(tested.insufficient_data() == "") & (tested.n > 0) for tested in strata], axis=0)
    groups = np.array([[number == other for number in kin] for other in sorted(set(kin))], dtype=np.float64)

    def interval(levels: Floats) -> tuple[Floats, Floats]:
        low, high = (np.stack(ends) for ends in zip(*(tested.interval(levels) for tested in strata), strict=True))
        below, above = (np.sqrt(((groups @ half) ** 2).sum(axis=0)) / len(strata) for half in (values - low, high - values))
        return value - below, value + above

    least, most = np.full(len(value), _SMALLEST), np.zeros(len(value))
    for _ in range(_STEPS):
        middle = (least + most) / 2
        low, high = interval(1 - np.exp(middle))
        holds = (low <= 0) & (high >= 0)
        least, most = np.where(holds, middle, least), np.where(holds, most, middle)
    p = np.where(able & ~np.isnan(value), np.exp(most), np.nan)
    counted = np.where(np.isnan(p), 1.0, p)
    low, high = interval(holm_levels(counted, level))
    corrected = np.where(np.isnan(p), np.nan, holm_array(counted))
    rows = np.stack([value, low, high, p, corrected], axis=1).tolist()
    return [Pooled(mean, bottom, top, alone, together, len(strata)) for mean, bottom, top, alone, together in rows]


def borda(values: Floats, *, higher_is_better: Sequence[bool]) -> Floats:
    """Return each method's Borda count: over benchmarks, how many methods it is better than, ties as half.

    Args:
        values: Shape (benchmarks, methods), without gaps.
        higher_is_better: One per benchmark.

    Source: Borda (1781); Colombo et al. (2022), "What are the best systems?".
    """
    signed = np.where(np.array(higher_is_better, dtype=np.bool_)[:, None], values, -values).round(12)
    better = (signed[:, :, None] > signed[:, None, :]).sum(axis=(0, 2))
    ties = (signed[:, :, None] == signed[:, None, :]).sum(axis=(0, 2)) - len(values)
    return np.asarray(better + ties / 2)
