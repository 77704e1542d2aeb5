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
from results.boards.primary import laid
from results.statistics.core import Estimate
from results.statistics.difference import Range
from results.store.failures import FROM_QUESTIONS
from results.store.queries import Columns, RunRow
from results.store.store import INCOMPLETE, Store

MAX_UNSCORED = 0.05
"""Share of missing verdicts above which a value is not shown, unless an experiment sets `max_unscored`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a value whose verdicts are partly missing.

    Attributes:
        unread: Questions without a value from the judge.
        scorable: These and the questions with a value.
        if_wrong, if_right: The value with each of them at the metric's worst, and at its best; NaN if it has none.
        incomplete: Why the value is not shown: too many verdicts are missing. Empty if it is shown.
    """

    unread: int
    scorable: int
    if_wrong: float
    if_right: float
    incomplete: str = ""

    @property
    def low(self) -> float:
        """Return the smaller end."""
        return min(self.if_wrong, self.if_right)

    @property
    def high(self) -> float:
        """Return the larger end."""
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
    """Return what is missing of the mean over several seeds: at least as much as of any of them."""
    return Missing(max((item.unread for item in members), default=0), any(item.silent for item in members))


def ends(definition: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and the largest value of a metric; NaN if it has none."""
    low, high = definition.get("low"), definition.get("high")
    return (math.nan, math.nan) if low is None or high is None else (float(low), float(high))


def range_of_metric(definition: Mapping[str, Any]) -> Range:
    """Return a metric's range; a metric that is not described has fractions of 1."""
    if "low" not in definition:
        return Range()
    low, high = definition["low"], definition["high"]
    return Range(None if low is None else float(low), None if high is None else float(high))


def bounds_of(value: float, n: int, unread: int, definition: Mapping[str, Any], missing: Missing, most: float) -> Bounds:
    """Return the bounds of a mean that leaves questions out.

    Args:
        value, n: Mean over the n questions with a value.
        unread: Questions without one.
        definition: Of the metric.
        missing: What is missing of it.
        most: The share of missing verdicts above which it is not shown.
    """
    worst, best = ends(definition)
    if not definition.get("higher_is_better", True):
        worst, best = best, worst
    scorable = n + unread
    total = value * n if n else 0.0
    if_wrong, if_right = ((total + unread * end) / scorable for end in (worst, best))
    return Bounds(unread, scorable, if_wrong, if_right, why_incomplete(missing, scorable, most))


def why_incomplete(missing: Missing, scorable: int, most: float) -> str:
    """Return why a judge's values are not shown, because too many verdicts are missing; empty if they are shown.

    Args:
        missing: What is missing.
        scorable: Questions that could have a value.
        most: The share of missing verdicts above which values are not shown, from 20 questions on.
    """
    if missing.unread <= most * scorable:
        return ""
    if missing.silent:
        return f"{INCOMPLETE}: none of the judge's replies could be read ({missing.unread:,} of {scorable:,} verdicts are missing)"
    if scorable >= FROM_QUESTIONS:
        return f"{INCOMPLETE}: {missing.unread:,} of {scorable:,} verdicts are missing, more than {100 * most:g} %"
    return ""


def missing_values(connection: DuckDBPyConnection, runs: Sequence[str], metrics: Sequence[str]) -> dict[tuple[str, str], Missing]:
    """Return what is missing of judges' values, by run and metric; nothing for what is complete."""
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
    """Return the bounds of every value that a judge gave, by row and metric.

    Args:
        store: The store to read.
        scores: Of the rows.
        members: The runs of each row.
        known: Definitions of metrics.
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
    """Return an estimate, without its numbers if too many verdicts are missing."""
    if bounds is None or not bounds.incomplete:
        return value
    return replace(value, value=math.nan, low=math.nan, high=math.nan, insufficient_data=bounds.incomplete)


def max_unscored(connection: DuckDBPyConnection, experiments: Collection[str]) -> float:
    """Return the smallest `max_unscored` of stored experiments; the default if none of them is stored."""
    rows = connection.execute("SELECT source, profile FROM experiments WHERE list_contains(?, name)", [list(experiments)]).fetchall()
    return min((float(laid(*row).get("max_unscored", MAX_UNSCORED)) for row in rows), default=MAX_UNSCORED)


def max_unscored_of_runs(connection: DuckDBPyConnection, runs: Sequence[str]) -> float:
    """Return the smallest `max_unscored` of the experiments that show any of these runs."""
    rows = connection.execute("SELECT DISTINCT experiment FROM experiment_runs WHERE list_contains(?, run)", [list(runs)]).fetchall()
    return max_unscored(connection, [name for (name,) in rows])
