"""Statistics that decide, on plain arrays: intervals, paired tests, ranks, gates, budgets. Seeded and vectorised.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result says how many questions stood behind it. Where questions share a document
they are resampled together (`clusters`). `core.py` has what all results are made of, `bootstrap.py` the resampling,
`intervals.py` means and paired differences; each other file answers one question.
"""

from results.statistics.bootstrap import Distribution
from results.statistics.budget import AtEqualTokens, at_equal_tokens, pareto_front
from results.statistics.core import LEVEL, METHOD, RESAMPLES, Clusters, Difference, Estimate, Method
from results.statistics.corrections import benjamini_hochberg, holm
from results.statistics.gate import GateDecision, GateReport, Outcome, decide_all, non_inferiority
from results.statistics.intervals import (
    all_pairs,
    difference,
    differences,
    estimate,
    estimates,
    sign_flip_all_pairs,
    sign_flip_p,
)
from results.statistics.power import POWER, minimum_detectable, power_for, questions_needed, standard_error
from results.statistics.ranks import Rank, ranks
from results.statistics.stages import StageLosses, stage_losses
from results.statistics.styles import StyleDrop, StyleRobustness, style_robustness
from results.statistics.variance import VarianceBudget, crossed_means, variance_budget

__all__ = [
    "LEVEL", "METHOD", "POWER", "RESAMPLES",
    "AtEqualTokens", "Clusters", "Difference", "Distribution", "Estimate", "GateDecision", "GateReport", "Method",
    "Outcome", "Rank", "StageLosses", "StyleDrop", "StyleRobustness", "VarianceBudget",
    "all_pairs", "at_equal_tokens", "benjamini_hochberg", "crossed_means", "decide_all", "difference", "differences",
    "estimate", "estimates", "holm", "minimum_detectable", "non_inferiority", "pareto_front", "power_for",
    "questions_needed", "ranks", "sign_flip_all_pairs", "sign_flip_p", "stage_losses", "standard_error",
    "style_robustness", "variance_budget",
]  # fmt: skip
