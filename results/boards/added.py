"""Columns that people add to an experiment's boards (`score --add`, `judge run`): they stay until they are removed.

A column belongs to a board, not to its runs: with more questions, another seed or a new version of a method, the runs
differ and the board is the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.core.errors import UserError, unknown_name
from results.store.store import Store

_BOARDS = """SELECT DISTINCT m.experiment, r.dataset, r.setting FROM experiment_runs m JOIN runs r USING (run)
    WHERE r.run = ? AND m.metrics IS NOT NULL"""
"""Boards that show chosen columns of a run; all others show every scored metric."""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """Metric column that a user added to one board (dataset and setting) of an experiment, beyond those in its YAML file."""

    experiment: str
    dataset: str
    setting: str
    metric: str


def add_columns(store: Store, run: str, metrics: Sequence[str]) -> None:
    """Add metric columns to the boards that show a run, in every experiment that contains the run.

    Args:
        store: The store to write to.
        run: Fingerprint of the run.
        metrics: Metric ids. Ids that the experiment's file lists, or that were added before, are skipped.
    """
    with store.database.writing() as connection:
        for metric in metrics:
            connection.execute(
                f"""INSERT INTO added_columns SELECT b.*, ? FROM ({_BOARDS}) b
                    WHERE NOT EXISTS (FROM added_columns a WHERE a.experiment = b.experiment
                        AND a.dataset = b.dataset AND a.setting = b.setting AND a.metric = ?)
                    AND NOT EXISTS (FROM experiment_runs m WHERE m.experiment = b.experiment AND m.run = ?
                        AND list_contains(m.metrics, ?))""",
                [metric, run, metric, run, metric],
            )


def added_columns(store: Store, runs: Sequence[str]) -> list[AddedColumn]:
    """List the metric columns that users added to the boards of these runs, oldest first; empty if there is no store yet."""
    if not store.database.exists:
        return []
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT experiment, dataset, setting, metric FROM added_columns a WHERE EXISTS (
                   FROM experiment_runs m JOIN runs r USING (run) WHERE list_contains(?, r.run)
                   AND m.experiment = a.experiment AND r.dataset = a.dataset AND r.setting = a.setting)
               ORDER BY rowid""",
            [list(runs)],
        ).fetchall()
    return [AddedColumn(*row) for row in rows]


def remove_columns(store: Store, runs: Sequence[str], names: Sequence[str], experiment: str | None = None) -> list[AddedColumn]:
    """Remove user-added metric columns from the boards of runs; the scores stay in the store.

    Args:
        store: The store to write to.
        runs: Fingerprints of the runs.
        names: Metric ids, or ids without their version or parameters.
        experiment: Name of the experiment whose boards change; None changes the boards of every experiment that has the runs.

    Returns:
        The removed columns.

    Raises:
        UserError: No user-added column has one of these names: the experiment's file lists the metric, or it does not exist.
    """
    known = [column for column in added_columns(store, runs) if experiment in (None, column.experiment)]
    going = [column for name in names for column in _meant(name, known)]
    with store.database.writing() as connection:
        for item in going:
            connection.execute(
                "DELETE FROM added_columns WHERE experiment = ? AND dataset = ? AND setting = ? AND metric = ?",
                [item.experiment, item.dataset, item.setting, item.metric],
            )
    return list(dict.fromkeys(going))


def _meant(name: str, known: Sequence[AddedColumn]) -> list[AddedColumn]:
    if not known:
        raise UserError(
            f"{name!r} was not added to these tables: no column was",
            code="column-not-added",
            where="--remove",
            try_this="if the experiment's file names the column, remove it from the file",
        )
    for short in (r"$", r"#", r"[(#]", r"[@(#]"):
        results = [column for column in known if name == re.split(short, column.metric)[0]]
        if results:
            return results
    raise unknown_name("added column", name, {column.metric for column in known}, where="--remove")
