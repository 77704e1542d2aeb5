"""Statistics on plain arrays: intervals, paired tests, ranks, gates, planning. Vectorized and deterministic.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result has the number of questions that it is based on. Questions of one cluster
(a document, a world) are analyzed together (`clusters`). Start with `difference.py`: the difference of two methods,
with all sources of randomness. `tested.py` is its test and interval, `sums.py` and `betting.py` compute their inputs,
`intervals.py` the results as plain values; each other file answers one question. Judging has its own: `battles.py` (win
rates), `bradley_terry.py` (strengths), `judges.py` (agreement, biases), `prediction_powered.py` (means with labels).
"""

from __future__ import annotations

from results.statistics.core import LEVEL, RESAMPLES, Clusters, Difference, Estimate, Resampling
from results.statistics.difference import AtBothEnds, Range, Side, compared, generalizes, paired
from results.statistics.gate import GateDecision, GateReport, Outcome, clusters_needed, decide_all, non_inferiority
from results.statistics.holm import benjamini_hochberg, holm
from results.statistics.intervals import Family, all_pairs, difference, differences, differences_together, estimate, estimates
from results.statistics.pooled import Pooled, borda, pooled
from results.statistics.tested import POWER, Tested, reach

__all__ = [
    "LEVEL",
    "POWER",
    "RESAMPLES",
    "AtBothEnds",
    "Clusters",
    "Difference",
    "Estimate",
    "Family",
    "GateDecision",
    "GateReport",
    "Outcome",
    "Pooled",
    "Range",
    "Resampling",
    "Side",
    "Tested",
    "all_pairs",
    "benjamini_hochberg",
    "borda",
    "clusters_needed",
    "compared",
    "decide_all",
    "difference",
    "differences",
    "differences_together",
    "estimate",
    "estimates",
    "generalizes",
    "holm",
    "non_inferiority",
    "paired",
    "pooled",
    "reach",
]  # fmt: skip
