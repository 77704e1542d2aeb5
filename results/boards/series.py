"""Group runs that count as one side of a comparison: the repeats of a method and, if requested, its training seeds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from results.boards.board import groups
from results.boards.folded import series_of
from results.store import queries
from results.store.queries import RunRow
from results.store.store import FINISHED, Store


def members_of(store: Store, run: RunRow, over_seeds: bool = False, until: datetime | None = None) -> list[RunRow]:
    """Return all finished runs that share a table row with this run (its repeats and, on request, seeds), in table order.

    Args:
        store: The store to read.
        run: The run; it is returned even if unfinished. A run without an experiment stands alone.
        over_seeds: Whether to include the method's other training seeds in the experiment.
        until: Leave out runs that started later; None keeps all.
    """
    if run.experiment == queries.NO_EXPERIMENT:
        return [run]
    same_data = queries.runs(store, run.experiment, dataset_fingerprint=run.dataset_fingerprint)
    for group in groups([other for other in same_data if other.run == run.run or other.status == FINISHED]):
        for members in series_of(group, over_seeds).values():
            if run.run in [other.run for other in members]:
                return [other for other in members if until is None or other.run == run.run or other.started_at <= until]
    return [run]


def side_by_side(store: Store, runs: Sequence[RunRow], over_seeds: bool = False) -> dict[str, list[RunRow]]:
    """Return, for each run to compare, the run with its repeats (and seeds); the key is the id of the run.

    If two of the runs share a row (they are repeats or seeds of each other), each stands alone.
    """
    members = {run.run: members_of(store, run, over_seeds) for run in runs}
    every = [{other.run for other in side} for side in members.values()]
    if len(set().union(*every)) < sum(map(len, every)):
        return {run.run: [run] for run in runs}
    return members
