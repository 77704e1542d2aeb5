"""Statistics that decide, on plain arrays: intervals, paired tests, ranks, gates, planning. Vectorized, the same every time.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result says how many questions stood behind it. Questions of one sampling cluster
(a document, a world) are judged together (`clusters`). `core.py` has what all results are made of, `closed_form.py`
the one engine of means and differences, `intervals.py` what is made of them, `bootstrap.py` the resampling of what is
no mean; each other file answers one question. Judging has its own: `battles.py` (win rates), `bradley_terry.py`
(strengths), `judges.py` (agreement, habits, prediction-powered means).
"""

from __future__ import annotations

from results.statistics.battles import OrderFlips, RepetitionSpread, TieRule, Verdict, WinRate, win_rates
from results.statistics.bradley_terry import BradleyTerry, Strength, bradley_terry
from results.statistics.closed_form import POWER, Moments, paired, reach
from results.statistics.core import LEVEL, RESAMPLES, Clusters, Difference, Estimate, Resampling
from results.statistics.gate import GateDecision, GateReport, Outcome, clusters_needed, decide_all, non_inferiority
from results.statistics.intervals import (
    Family,
    StageLosses,
    StyleGap,
    StyleRobustness,
    all_pairs,
    benjamini_hochberg,
    difference,
    differences,
    differences_together,
    estimate,
    estimates,
    holm,
    pareto_front,
    stage_losses,
    style_robustness,
)
from results.statistics.judges import (
    Agreement,
    LengthPreference,
    PredictionPowered,
    RepetitionVariance,
    battle_repetition_variance,
    cohen_kappa,
    first_shown_preference,
    krippendorff_alpha,
    length_preference,
    order_flip_rate,
    prediction_powered_mean,
    raw_agreement,
    repetition_variance,
)

__all__ = [
    "LEVEL",
    "POWER",
    "RESAMPLES",
    "Agreement",
    "BradleyTerry",
    "Clusters",
    "Difference",
    "Estimate",
    "Family",
    "GateDecision",
    "GateReport",
    "LengthPreference",
    "Moments",
    "OrderFlips",
    "Outcome",
    "PredictionPowered",
    "RepetitionSpread",
    "RepetitionVariance",
    "Resampling",
    "StageLosses",
    "Strength",
    "StyleGap",
    "StyleRobustness",
    "TieRule",
    "Verdict",
    "WinRate",
    "all_pairs",
    "battle_repetition_variance",
    "benjamini_hochberg",
    "bradley_terry",
    "clusters_needed",
    "cohen_kappa",
    "decide_all",
    "difference",
    "differences",
    "differences_together",
    "estimate",
    "estimates",
    "first_shown_preference",
    "holm",
    "krippendorff_alpha",
    "length_preference",
    "non_inferiority",
    "order_flip_rate",
    "paired",
    "pareto_front",
    "prediction_powered_mean",
    "raw_agreement",
    "reach",
    "repetition_variance",
    "stage_losses",
    "style_robustness",
    "win_rates",
]  # fmt: skip
