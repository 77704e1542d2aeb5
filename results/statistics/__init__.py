"""Statistics that decide, on plain arrays: intervals, paired tests, ranks, gates, budgets. Seeded and vectorised.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result says how many questions stood behind it. Where questions share a document
they are resampled together (`clusters`). `core.py` has what all results are made of, `bootstrap.py` the resampling,
`intervals.py` means and paired differences; each other file answers one question. Judging has its own: `battles.py`
(win rates), `bradley_terry.py` (strengths), `agreement.py`, `judge_bias.py`, `prediction_powered.py`.
"""

from results.statistics.agreement import Agreement, cohen_kappa, krippendorff_alpha, raw_agreement
from results.statistics.battles import OrderFlips, RepetitionSpread, TieRule, Verdict, WinRate, win_rates
from results.statistics.bootstrap import Distribution
from results.statistics.bradley_terry import BradleyTerry, Strength, bradley_terry
from results.statistics.budget import pareto_front
from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Difference, Estimate, Method
from results.statistics.corrections import benjamini_hochberg, holm
from results.statistics.gate import GateDecision, GateReport, Outcome, decide_all, non_inferiority
from results.statistics.intervals import all_pairs, difference, differences, estimate, estimates, sign_flip_all_pairs
from results.statistics.judge_bias import (
    LengthPreference,
    RepetitionVariance,
    battle_repetition_variance,
    first_shown_preference,
    length_preference,
    order_flip_rate,
    repetition_variance,
)
from results.statistics.power import POWER, minimum_detectable, questions_needed, standard_error
from results.statistics.prediction_powered import PredictionPowered, prediction_powered_mean
from results.statistics.stages import StageLosses, stage_losses
from results.statistics.styles import StyleDrop, StyleRobustness, style_robustness

__all__ = [
    "LEVEL", "METHOD", "POWER", "RESAMPLES",
    "Agreement", "BradleyTerry", "Clusters", "Difference", "Distribution", "Estimate", "GateDecision",
    "GateReport", "LengthPreference", "Method", "OrderFlips", "Outcome", "PredictionPowered",
    "RepetitionSpread", "RepetitionVariance", "StageLosses", "Strength", "StyleDrop", "StyleRobustness", "TieRule",
    "Verdict", "WinRate",
    "all_pairs", "battle_repetition_variance", "benjamini_hochberg", "bradley_terry", "cohen_kappa",
    "decide_all", "difference", "differences", "estimate", "estimates", "first_shown_preference",
    "holm", "krippendorff_alpha", "length_preference", "minimum_detectable", "non_inferiority", "order_flip_rate",
    "pareto_front", "prediction_powered_mean", "questions_needed", "raw_agreement",
    "repetition_variance", "sign_flip_all_pairs", "stage_losses", "standard_error", "style_robustness",
    "win_rates",
]  # fmt: skip
