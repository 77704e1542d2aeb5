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
    """Return the finished runs of this run's row on a board, this run included; the row's first run comes first.

    Args:
        store: The store to read.
        run: One of them; a run of no experiment is the only one.
        over_seeds: Whether the other trainings of the method in its experiment count, too.
        until: Only those that had begun by then.
    """
    if run.experiment == queries.NO_EXPERIMENT:
        return [run]
    alike = queries.runs(store, run.experiment, dataset_fingerprint=run.dataset_fingerprint)
    for group in groups([other for other in alike if other.run == run.run or other.status == FINISHED]):
        for members in series_of(group, over_seeds).values():
            if run.run in [other.run for other in members]:
                return [other for other in members if until is None or other.run == run.run or other.started_at <= until]
    return [run]


def side_by_side(store: Store, runs: Sequence[RunRow], over_seeds: bool = False) -> dict[str, list[RunRow]]:
    """Return the runs of each side, by the id of the named run.

    Two runs of one row are compared as they are, since they are each other's repeats or seeds.
    """
    members = {run.run: members_of(store, run, over_seeds) for run in runs}
    every = [{other.run for other in side} for side in members.values()]
    if len(set().union(*every)) < sum(map(len, every)):
        return {run.run: [run] for run in runs}
    return members
