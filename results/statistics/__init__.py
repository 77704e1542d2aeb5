"""Statistics on plain arrays: intervals, paired tests, ranks, gates, planning. Vectorized and deterministic.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result has the number of questions that it is based on. Questions of one cluster
(a document, a world) are analyzed together (`clusters`). Start with `difference.py`: the difference of two methods,
with all sources of randomness. `tested.py` is its test and interval, `sums.py` and `betting.py` compute their inputs,
`intervals.py` the results as plain values; each other file answers one question. Judging has its own: `battles.py` (win
rates), `bradley_terry.py` (strengths), `judges.py` (agreement, biases), `prediction_powered.py` (means with labels).
"""

from __future__ import annotations

from results.statistics.battles import OrderFlips, RepetitionSpread, TieRule, Verdict, WinRate, win_rates
from results.statistics.bradley_terry import BradleyTerry, Strength, bradley_terry
from results.statistics.core import LEVEL, RESAMPLES, Clusters, Difference, Estimate, Resampling
from results.statistics.difference import AtBothEnds, Range, Side, compared, generalizes, paired
from results.statistics.gate import GateDecision, GateReport, Outcome, clusters_needed, decide_all, non_inferiority
from results.statistics.holm import benjamini_hochberg, holm
from results.statistics.intervals import Family, all_pairs, difference, differences, differences_together, estimate, estimates
from results.statistics.judges import (
    Agreement,
    LengthPreference,
    RepetitionVariance,
    battle_repetition_variance,
    cohen_kappa,
    first_shown_preference,
    krippendorff_alpha,
    length_preference,
    order_flip_rate,
    raw_agreement,
    repetition_variance,
)
from results.statistics.pareto import pareto_front
from results.statistics.pooled import Pooled, borda, pooled
from results.statistics.prediction_powered import PredictionPowered, prediction_powered_mean
from results.statistics.stages import StageLosses, stage_losses
from results.statistics.style_gaps import StyleGap, StyleRobustness, style_robustness
from results.statistics.tested import POWER, Tested, reach

__all__ = [
    "LEVEL",
    "POWER",
    "RESAMPLES",
    "Agreement",
    "AtBothEnds",
    "BradleyTerry",
    "Clusters",
    "Difference",
    "Estimate",
    "Family",
    "GateDecision",
    "GateReport",
    "LengthPreference",
    "OrderFlips",
    "Outcome",
    "Pooled",
    "PredictionPowered",
    "Range",
    "RepetitionSpread",
    "RepetitionVariance",
    "Resampling",
    "Side",
    "StageLosses",
    "Strength",
    "StyleGap",
    "StyleRobustness",
    "Tested",
    "TieRule",
    "Verdict",
    "WinRate",
    "all_pairs",
    "battle_repetition_variance",
    "benjamini_hochberg",
    "borda",
    "bradley_terry",
    "clusters_needed",
    "cohen_kappa",
    "compared",
    "decide_all",
    "difference",
    "differences",
    "differences_together",
    "estimate",
    "estimates",
    "first_shown_preference",
    "generalizes",
    "holm",
    "krippendorff_alpha",
    "length_preference",
    "non_inferiority",
    "order_flip_rate",
    "paired",
    "pareto_front",
    "pooled",
    "prediction_powered_mean",
    "raw_agreement",
    "reach",
    "repetition_variance",
    "stage_losses",
    "style_robustness",
    "win_rates",
]  # fmt: skip
