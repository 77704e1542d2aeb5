"""Fold the repeats of a method, and if requested its training seeds, into one row.

Each question counts with the mean of its scores over repeats and seeds, so differences stay paired by question.
Differences contain the variance between seeds, which `board.Cell.by_seed` states.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from results.boards.names import base_name, first_name, folded_name
from results.boards.sides import trainings_of
from results.statistics.difference import Side
from results.store.cost_queries import Cost
from results.store.queries import NO_EXPERIMENT, OURS, RunRow
from results.store.score_queries import Columns


@dataclass(frozen=True, slots=True)
class Folded:
    """The rows of several boards.

    Attributes:
        groups: Of each board, a run for each series (`folded_runs`).
        series: By such a run, all that it stands for.
        costs: Mean cost of each run and series.
        violations: By run or series, violated relations between its scores.
    """

    groups: list[list[RunRow]]
    series: dict[str, tuple[str, ...]]
    costs: dict[str, Cost]
    violations: dict[str, Sequence[str]]

    @classmethod
    def of(
        cls, groups: Sequence[Sequence[RunRow]], costs: Mapping[str, Cost], violations: Mapping[str, Sequence[str]], over_seeds: bool = True
    ) -> Folded:
        """Fold the runs of boards; `costs` and `violations` are those of the single runs."""
        series, spent, broken = {}, dict(costs), dict(violations)
        for runs in groups:
            spent |= folded_costs(costs, runs, over_seeds)
            for first, members in series_of(runs, over_seeds).items():
                series[first] = tuple(run.run for run in members)
                if what := list(dict.fromkeys(item for run in series[first] for item in violations.get(run, ()))):
                    broken[first] = what
        return cls([folded_runs(runs, over_seeds) for runs in groups], series, spent, broken)


def series_of(runs: Sequence[RunRow], over_seeds: bool = True) -> dict[str, list[RunRow]]:
    """Group the repeats (and training seeds) of each method; the key is the id of the group's first run.

    Args:
        runs: Runs in the order of the table's rows.
        over_seeds: Whether all training seeds of a method are one row. Repeats of one experiment always share a row.
            Runs of different experiments, and of none, never do: their options may differ.
    """
    results: dict[Hashable, list[RunRow]] = {}
    for run in runs:
        name = (base_name if over_seeds else first_name)(run.method)
        key = run.run if run.experiment == NO_EXPERIMENT else (run.experiment, run.origin == OURS, name)
        results.setdefault(key, []).append(run)
    return {members[0].run: members for members in results.values()}


def folded_runs(runs: Sequence[RunRow], over_seeds: bool = True) -> list[RunRow]:
    """Combine the runs of each series (`series_of`) into one row: finished only if all of them are, with the failures of all
    added.
    """
    rows = []
    for members in series_of(runs, over_seeds).values():
        first = members[0]
        if len(members) > 1:
            unfinished = next((run for run in members if run.status != "finished"), first)
            seeds = len({first_name(run.method) for run in members})
            first = replace(
                first,
                method=folded_name((base_name if over_seeds else first_name)(first.method), seeds, len(members)),
                status=unfinished.status,
                done=min(run.done for run in members),
                failed=sum(run.failed for run in members),
                not_rescored=tuple(sorted({metric for run in members for metric in run.not_rescored})),
            )
        rows.append(first)
    return rows


def folded_columns(
    columns: Columns, runs: Sequence[RunRow], metrics: Sequence[str], over_seeds: bool = True
) -> tuple[Columns, dict[tuple[str, str], NDArray[np.float64]]]:
    """Average per-question scores over the runs of each series (`series_of`): first over repeats of a training, then over
    trainings.

    A question that lacks a score in any run of the series has no score.

    Returns:
        Two values. First, the averaged scores, under the id of each series' first run. Second, by (first run's id, metric), the
        mean score of each training (or of each repeat, if there is one training) over the questions that all runs scored; only
        series with several scored runs have an entry.
    """
    result = Columns(columns.questions, columns.sampled, {}, {}, {})
    apart = {}
    for first, members in series_of(runs, over_seeds).items():
        trainings = trainings_of(members)
        for metric in metrics:
            keys = [(run.run, metric) for run in members]
            if not all(key in columns.values for key in keys):
                continue
            side = Side(np.stack([columns.values[key] for key in keys]), trainings)
            scores, mean = side.by_training() if side.seeds > 1 else side.scores, side.mean
            result.values[first, metric] = mean
            result.unscorable[first, metric] = max(columns.unscorable[key] for key in keys)
            lacking = [columns.unread[key] for key in keys if key in columns.unread]
            if lacking:
                result.unread[first, metric] = np.isnan(mean) & np.any(lacking, axis=0)
            result.unscored[first, metric] = int(result.unread[first, metric].sum()) if lacking else 0
            here = ~np.isnan(mean)
            if len(members) > 1 and here.any():
                apart[first, metric] = scores[:, here].mean(axis=1)
    return result, apart


def folded_costs(costs: Mapping[str, Cost], runs: Sequence[RunRow], over_seeds: bool = True) -> dict[str, Cost]:
    """Average the cost of the runs of each series (`series_of`), by the id of its first run; runs of unknown cost are left out."""
    results = {}
    for first, members in series_of(runs, over_seeds).items():
        known = [costs[run.run] for run in members if run.run in costs]
        if len(known) == 1:
            results[first] = known[0]
        elif known:
            results[first] = Cost(*(float(np.mean([getattr(item, name) for item in known])) for name in Cost.__slots__))
    return results
