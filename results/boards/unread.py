"""Questions without a value from the judge: bounds instead of a guess, and the limit above which a value is not shown.

Unread verdicts are not missing at random: a judge stumbles over the hard answers, while exact matches are settled
without a call. So a value that leaves verdicts out comes with bounds: its value if all of them were wrong, and if all were
right. It is not shown if too many are missing, or if nothing that the judge was asked could be
read. A difference is significant only if it is at both ends of the bounds (`results.statistics.difference`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection

from judges.judge import NOTHING_CLAIMED
from results.boards.primary import with_profile
from results.statistics.core import Estimate
from results.statistics.difference import Range
from results.store.failures import FROM_QUESTIONS
from results.store.queries import RunRow
from results.store.score_queries import Columns
from results.store.store import INCOMPLETE, Store

MAX_UNSCORED = 0.05
"""Share of missing verdicts above which a value is not shown, unless an experiment sets `max_unscored`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a judged score over all possible values of its missing verdicts.

    Attributes:
        unread: Number of questions that the judge gave no value.
        scorable: Number of questions with a value, plus `unread`.
        if_wrong, if_right: The mean with missing values set to the metric's worst, and to its best value; NaN if the metric is
            unbounded.
        incomplete: Why the mean is hidden (too many verdicts are missing); empty if it is shown.
    """

    unread: int
    scorable: int
    if_wrong: float
    if_right: float
    incomplete: str = ""

    @property
    def low(self) -> float:
        """Return the smaller of the two bounds."""
        return min(self.if_wrong, self.if_right)

    @property
    def high(self) -> float:
        """Return the larger of the two bounds."""
        return max(self.if_wrong, self.if_right)

    def to_json(self) -> dict[str, Any]:
        """Return the bounds as JSON; for a measure where lower is better, `low_if_wrong` is the larger one."""
        wrong, right = (None if math.isnan(value) else value for value in (self.if_wrong, self.if_right))
        known = {"unread": self.unread, "scorable": self.scorable, "low_if_wrong": wrong, "high_if_right": right}
        return known | ({"incomplete": self.incomplete} if self.incomplete else {})


@dataclass(frozen=True, slots=True)
class Missing:
    """Missing verdicts of a judge on one run.

    Attributes:
        unread: Questions without a verdict; an answer that was judged and claims nothing is not among them.
        silent: Whether no reply of the judge about the run could be read.
    """

    unread: int = 0
    silent: bool = False


def together(members: Sequence[Missing]) -> Missing:
    """Combine missing verdicts over several seeds: the largest number of any seed, since questions without a value in one are left out."""
    return Missing(max((item.unread for item in members), default=0), any(item.silent for item in members))


def ends(definition: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and largest possible value of a metric; NaN for both if it is unbounded."""
    low, high = definition.get("low"), definition.get("high")
    return (math.nan, math.nan) if low is None or high is None else (float(low), float(high))


def range_of_metric(definition: Mapping[str, Any]) -> Range:
    """Return a metric's range of values for tests; 0 to 1 if the definition does not state it."""
    if "low" not in definition:
        return Range()
    low, high = definition["low"], definition["high"]
    return Range(None if low is None else float(low), None if high is None else float(high))


def bounds_of(value: float, n: int, unread: int, definition: Mapping[str, Any], missing: Missing, most: float) -> Bounds:
    """Compute the bounds of a mean that leaves out questions with missing verdicts.

    Args:
        value, n: Mean over the questions with a value, and their number.
        unread: Number of questions without a value.
        definition: Definition of the metric.
        missing: Counts of the run's missing verdicts.
        most: Share of missing verdicts above which the mean is hidden.
    """
    worst, best = ends(definition)
    if not definition.get("higher_is_better", True):
        worst, best = best, worst
    scorable = n + unread
    total = value * n if n else 0.0
    if_wrong, if_right = ((total + unread * end) / scorable for end in (worst, best))
    return Bounds(unread, scorable, if_wrong, if_right, why_incomplete(missing, scorable, most))


def why_incomplete(missing: Missing, scorable: int, most: float) -> str:
    """Explain why a judge's mean is hidden (too many verdicts are missing); empty if it is shown.

    Args:
        missing: Counts of missing verdicts.
        scorable: Number of questions that could have a value.
        most: Share of missing verdicts above which the mean is hidden; applies from 20 questions on.
    """
    if missing.unread <= most * scorable:
        return ""
    if missing.silent:
        return f"{INCOMPLETE}: none of the judge's replies could be read ({missing.unread:,} of {scorable:,} verdicts are missing)"
    if scorable >= FROM_QUESTIONS:
        return f"{INCOMPLETE}: {missing.unread:,} of {scorable:,} verdicts are missing, more than {100 * most:g} %"
    return ""


def missing_values(connection: DuckDBPyConnection, runs: Sequence[str], metrics: Sequence[str]) -> dict[tuple[str, str], Missing]:
    """Count the missing verdicts of judges, by run and metric; pairs without a missing verdict are omitted."""
    counts = connection.execute(
        """SELECT run, metric, count(*) FROM scores WHERE list_contains(?, run) AND list_contains(?, metric)
           AND unscored IS NOT NULL AND NOT list_contains(?, unscored) GROUP BY ALL""",
        [list(runs), list(metrics), list(NOTHING_CLAIMED)],
    ).fetchall()
    if not counts:
        return {}
    silent = set(
        connection.execute(
            """SELECT c.run, m.id FROM judge_calls c JOIN metrics m ON m.judge = c.judge WHERE list_contains(?, c.run)
               GROUP BY ALL HAVING count(c.call) > 0 AND count(*) FILTER (c.call IS NOT NULL AND c.unscored IS NULL) = 0""",
            [list(runs)],
        ).fetchall()
    )
    return {(run, metric): Missing(count, (run, metric) in silent) for run, metric, count in counts}


def bounds_of_rows(
    store: Store, scores: Columns, members: Mapping[str, Sequence[RunRow]], known: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], Bounds]:
    """Compute the bounds of every judged score, by row and metric.

    Args:
        store: The store to read.
        scores: Per-question scores of the rows.
        members: The runs of each row (repeats and seeds).
        known: Definitions of metrics by id.
    """
    judged = [key for key in scores.values if key in scores.unread or known.get(key[1], {}).get("judge") is not None]
    missing: Mapping[tuple[str, str], Missing] = {}
    most = MAX_UNSCORED
    if scores.unread:
        every = [run for rows in members.values() for run in rows]
        with store.database.reading() as connection:
            missing = missing_values(connection, [run.run for run in every], [metric for _, metric in scores.unread])
            most = max_unscored(connection, {run.experiment for run in every})
    results = {}
    for row, metric in judged:
        values, unread = scores.values[row, metric], scores.unscored[row, metric]
        n = int(np.isfinite(values).sum())
        if n + unread:
            of_row = together([missing[run.run, metric] for run in members[row] if (run.run, metric) in missing])
            value = float(np.nanmean(values)) if n else math.nan
            results[row, metric] = bounds_of(value, n, unread, known.get(metric, {}), of_row, most)
    return results


def without_incomplete(value: Estimate, bounds: Bounds | None) -> Estimate:
    """Replace an estimate's numbers by NaN if its bounds state that too many verdicts are missing; otherwise return it unchanged."""
    if bounds is None or not bounds.incomplete:
        return value
    return replace(value, value=math.nan, low=math.nan, high=math.nan, insufficient_data=bounds.incomplete)


def max_unscored(connection: DuckDBPyConnection, experiments: Collection[str]) -> float:
    """Return the strictest `max_unscored` (allowed share of missing verdicts) of these experiments; the default if none is stored."""
    rows = connection.execute("SELECT source, profile FROM experiments WHERE list_contains(?, name)", [list(experiments)]).fetchall()
    return min((float(with_profile(*row).get("max_unscored", MAX_UNSCORED)) for row in rows), default=MAX_UNSCORED)


def max_unscored_of_runs(connection: DuckDBPyConnection, runs: Sequence[str]) -> float:
    """Return the strictest `max_unscored` (allowed share of missing verdicts) of the experiments that show any of these runs."""
    rows = connection.execute("SELECT DISTINCT experiment FROM experiment_runs WHERE list_contains(?, run)", [list(runs)]).fetchall()
    return max_unscored(connection, [name for (name,) in rows])
