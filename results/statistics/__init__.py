"""Statistics that decide, on plain arrays: intervals, paired tests, ranks, gates, budgets. Seeded and vectorized.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result says how many questions stood behind it. Where questions share a document
they are resampled together (`clusters`). `core.py` has what all results are made of, `bootstrap.py` the resampling,
`intervals.py` means and paired differences; each other file answers one question. Judging has its own: `battles.py`
(win rates), `bradley_terry.py` (strengths), `judges.py` (agreement, habits, prediction-powered means).
"""

from __future__ import annotations

from results.statistics.battles import OrderFlips, RepetitionSpread, TieRule, Verdict, WinRate, win_rates
from results.statistics.bootstrap import Distribution
from results.statistics.bradley_terry import BradleyTerry, Strength, bradley_terry
from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Difference, Estimate, Method
from results.statistics.gate import (
    POWER,
    GateDecision,
    GateReport,
    Outcome,
    decide_all,
    minimum_detectable,
    non_inferiority,
    questions_needed,
    standard_error,
)
from results.statistics.intervals import (
    StageLosses,
    StyleGap,
    StyleRobustness,
    all_pairs,
    benjamini_hochberg,
    difference,
    differences,
    estimate,
    estimates,
    holm,
    pareto_front,
    sign_flip_all_pairs,
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
    "LEVEL", "METHOD", "POWER", "RESAMPLES",
    "Agreement", "BradleyTerry", "Clusters", "Difference", "Distribution", "Estimate", "GateDecision",
    "GateReport", "LengthPreference", "Method", "OrderFlips", "Outcome", "PredictionPowered",
    "RepetitionSpread", "RepetitionVariance", "StageLosses", "Strength", "StyleGap", "StyleRobustness", "TieRule",
    "Verdict", "WinRate",
    "all_pairs", "battle_repetition_variance", "benjamini_hochberg", "bradley_terry", "cohen_kappa",
    "decide_all", "difference", "differences", "estimate", "estimates", "first_shown_preference",
    "holm", "krippendorff_alpha", "length_preference", "minimum_detectable", "non_inferiority", "order_flip_rate",
    "pareto_front", "prediction_powered_mean", "questions_needed", "raw_agreement",
    "repetition_variance", "sign_flip_all_pairs", "stage_losses", "standard_error", "style_robustness",
    "win_rates",
]  # fmt: skip
