"""Keeping a store small: what may go, letting it go, and giving the room back to the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from results import labelling
from results.database import Database
from results.queries import RunRow
from results.store import BETWEEN_RUNS, BY_RUN, Store


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went: runs, data sets that no run is about any more, passages that nothing names, and bytes of artefacts.

    People's labels stay; `resting` is how many are about answers that are gone now.
    """

    runs: int
    datasets: int
    passages: int
    artefact_bytes: int
    resting: int = 0


def orphans(store: Store, runs: Sequence[RunRow]) -> list[RunRow]:
    """Runs that no experiment names, that were not submitted and that no name blesses.

    Args:
        store: Where they are.
        runs: Those to choose from.
    """
    with store.database.reading() as connection:
        blessed = {row[0] for row in connection.execute("SELECT run FROM blessings WHERE run IS NOT NULL").fetchall()}
    return [run for run in runs if run.experiment == "-" and run.origin == "run" and run.run not in blessed]


def prune(store: Store, runs: Sequence[str], *, artefacts: bool = False) -> Pruned:
    """Delete runs, and then data, passages and experiments that only they referred to.

    Args:
        store: Where.
        runs: Fingerprints; may be empty, to delete only what nothing refers to any more.
        artefacts: Delete indexes and embeddings too; they are made again when needed.
    """
    labels = labelling.standing(store, runs)[0]
    with store.database.writing() as connection:
        counted = {table: _count(connection, table) for table in ("runs", "datasets", "passages")}
        for table in (*BY_RUN, "experiment_runs", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE list_contains(?, run)", [list(runs)])
        for table in BETWEEN_RUNS:
            connection.execute(f"DELETE FROM {table} WHERE list_contains(?, one) OR list_contains(?, other)", [list(runs)] * 2)
        connection.execute("DELETE FROM experiments WHERE name NOT IN (SELECT experiment FROM experiment_runs)")
        connection.execute("DELETE FROM added_columns WHERE experiment NOT IN (SELECT name FROM experiments)")
        connection.execute("DELETE FROM datasets WHERE fingerprint NOT IN (SELECT dataset_fingerprint FROM runs)")
        connection.execute("DELETE FROM questions WHERE dataset_fingerprint NOT IN (SELECT fingerprint FROM datasets)")
        connection.execute("DELETE FROM environments WHERE environment NOT IN (SELECT environment FROM runs WHERE environment IS NOT NULL)")
        connection.execute(
            """DELETE FROM passages WHERE id NOT IN (SELECT split_part(id, '#', 1) FROM evidence
               UNION SELECT unnest(evidence) FROM questions)"""
        )
        gone = {table: before - _count(connection, table) for table, before in counted.items()}
    freed = 0
    if artefacts and store.artefacts.exists():
        freed = sum(file.stat().st_size for file in store.artefacts.rglob("*") if file.is_file())
        shutil.rmtree(store.artefacts)
    return Pruned(gone["runs"], gone["datasets"], gone["passages"], freed, labels)


def vacuum(database: Database) -> tuple[int, int]:
    """Write the store's file anew without the room that deleted rows left; readers are not disturbed.

    Returns:
        Bytes before and after.

    Raises:
        UserError: The store cannot be written; it is left as it is.
    """
    with database.alone() as path:
        before = _size(path)
        copy = path.with_name(f".{path.name}.vacuum")
        copy.unlink(missing_ok=True)
        try:
            with duckdb.connect() as connection:
                connection.execute(f"ATTACH '{_quoted(path)}' AS old (READ_ONLY)")
                connection.execute(f"ATTACH '{_quoted(copy)}' AS new")
                connection.execute("COPY FROM DATABASE old TO new")
                connection.execute("DETACH new")
                connection.execute("DETACH old")
            os.replace(copy, path)
        finally:
            copy.unlink(missing_ok=True)
        return before, _size(path)


def _size(path: Path) -> int:
    log = path.with_name(f"{path.name}.wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
