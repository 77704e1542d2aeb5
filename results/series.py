"""One method trained from several seeds: its runs, called `NAME #SEED`, as one row.

Each question counts with the mean of its scores over the seeds, so differences stay paired by question. Intervals are
of the questions alone, for these very seeds; how far the seeds lie apart is stated beside (`Cell.by_seed`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from results.queries import Columns, Cost, RunRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEEDED = re.compile(r"(.+) #(\d+)")
_FOLDED = re.compile(r"(.+) \(\d+ seeds\)")


def seeded_name(method: str, seed: int) -> str:
    """What the run of one seed is called."""
    return f"{method} #{seed}"


def stem(name: str) -> str:
    """The method's name without its seed."""
    found = _SEEDED.fullmatch(name)
    return found[1] if found else name


def folded_name(name: str, seeds: int) -> str:
    """What several seeds of a method are called together."""
    return f"{name} ({seeds} seeds)" if seeds > 1 else name


def is_called(name: str, method: str) -> bool:
    """Whether a row's name is that of a method, or of all seeds of it, of which the method may be one."""
    found = _FOLDED.fullmatch(name)
    return name == method or (found is not None and found[1] == stem(method))


def series_of(runs: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    """Runs by the id of the one that stands for them: of the same method, in the order given."""
    found: dict[str, list[RunRow]] = {}
    for run in runs:
        found.setdefault(stem(run.method), []).append(run)
    return {members[0].run: members for members in found.values()}


def folded_runs(runs: Sequence[RunRow]) -> list[RunRow]:
    """One run for each series: finished if all are, with the failures of all."""
    rows = []
    for members in series_of(runs).values():
        first = members[0]
        if len(members) > 1:
            unfinished = next((run for run in members if run.status != "finished"), first)
            first = replace(
                first,
                method=folded_name(stem(first.method), len(members)),
                status=unfinished.status,
                done=min(run.done for run in members),
                failed=sum(run.failed for run in members),
            )
        rows.append(first)
    return rows


def folded_columns(
    columns: Columns, runs: Sequence[RunRow], metrics: Sequence[str]
) -> tuple[Columns, dict[tuple[str, str], NDArray[np.float64]]]:
    """Scores averaged over the seeds of each series.

    A question without a score in one of them has none.

    Returns:
        The columns of the runs that stand for their series, and under the same keys each seed's mean, in the order of
        the runs, over the questions that all have; only of series of several runs that were all scored.
    """
    found = Columns(columns.questions, columns.documents, {}, {}, {})
    apart = {}
    for first, members in series_of(runs).items():
        for metric in metrics:
            keys = [(run.run, metric) for run in members]
            if not all(key in columns.values for key in keys):
                continue
            scores = np.stack([columns.values[key] for key in keys])
            mean = scores.mean(axis=0)
            found.values[first, metric] = mean
            found.unscorable[first, metric] = max(columns.unscorable[key] for key in keys)
            found.unscored[first, metric] = max(columns.unscored[key] for key in keys)
            here = ~np.isnan(mean)
            if len(members) > 1 and here.any():
                apart[first, metric] = scores[:, here].mean(axis=1)
    return found, apart


def folded_costs(costs: Mapping[str, Cost], runs: Sequence[RunRow]) -> dict[str, Cost]:
    """Mean cost of a series."""
    found = {}
    for first, members in series_of(runs).items():
        known = [costs[run.run] for run in members if run.run in costs]
        if known:
            found[first] = Cost(*(float(np.mean([getattr(one, name) for one in known])) for name in Cost.__slots__))
    return found
