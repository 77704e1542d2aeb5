"""Delete runs that are no longer needed, and give their disk space back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from results.formats.exchange import quoted
from results.judging import labels as labeling
from results.store.database import Database
from results.store.queries import RunRow
from results.store.store import BETWEEN_RUNS, BY_RUN, Store


@dataclass(frozen=True, slots=True)
class Pruned:
    """Result of `prune`: numbers of deleted runs, datasets without runs, passages without references, and bytes of artifacts.

    Human labels are kept; `resting` is the number of labels whose answers were deleted.
    """

    runs: int
    datasets: int
    passages: int
    artifact_bytes: int
    resting: int = 0


def orphans(store: Store, runs: Sequence[RunRow]) -> list[RunRow]:
    """Select runs that nothing refers to: no experiment, no tag, and not submitted.

    Args:
        store: The store that holds the runs.
        runs: The runs to select from.
    """
    with store.database.reading() as connection:
        tagged = {row[0] for row in connection.execute("SELECT run FROM tags WHERE run IS NOT NULL").fetchall()}
    return [run for run in runs if run.experiment == "-" and run.origin == "run" and run.run not in tagged]


def references(store: Store, runs: Sequence[str]) -> dict[str, list[str]]:
    """List what refers to runs: tags, experiments, gate decisions and human labels.

    Args:
        store: The store that holds the runs.
        runs: Ids of the runs.

    Returns:
        By run id, for example `["tag main", "experiment rag", "2 gate decisions"]`.
    """
    query = """
        SELECT run, 'tag ' || name FROM tags WHERE list_contains($1, run)
        UNION ALL SELECT run, 'anchor of ' || name FROM anchors WHERE list_contains($1, run)
        UNION ALL SELECT run, 'experiment ' || experiment FROM experiment_runs WHERE list_contains($1, run)
        UNION ALL SELECT run, count(*) || ' gate decision' || CASE WHEN count(*) > 1 THEN 's' ELSE '' END
            FROM (SELECT unnest([baseline, candidate]) AS run FROM gates) WHERE list_contains($1, run) GROUP BY run
        UNION ALL SELECT run, count(*) || ' label' || CASE WHEN count(*) > 1 THEN 's' ELSE '' END
            FROM (SELECT unnest([one, other]) AS run FROM annotations) WHERE list_contains($1, run) GROUP BY run"""
    with store.database.reading() as connection:
        rows = connection.execute(query, [list(runs)]).fetchall()
    results: dict[str, list[str]] = {run: [] for run in runs}
    for run, what in sorted(rows):
        results[run].append(what)
    return results


def prune(store: Store, runs: Sequence[str], *, artifacts: bool = False) -> Pruned:
    """Delete runs, and then datasets, passages and experiments that only these runs used.

    Args:
        store: The store to delete from.
        runs: Fingerprints of the runs; if empty, only unused datasets, passages and experiments are deleted.
        artifacts: Whether to delete indexes and embeddings, too; they are rebuilt when needed.
    """
    labels = labeling.standing(store, runs)[0]
    with store.database.writing() as connection:
        counted = {table: _count(connection, table) for table in ("runs", "datasets", "passages")}
        for table in (*BY_RUN, "imports", "experiment_runs", "runs"):
            connection.execute(f"DELETE FROM {table} WHERE list_contains(?, run)", [list(runs)])
        for table in BETWEEN_RUNS:
            connection.execute(f"DELETE FROM {table} WHERE list_contains(?, one) OR list_contains(?, other)", [list(runs)] * 2)
        connection.execute("DELETE FROM experiments WHERE name NOT IN (SELECT experiment FROM experiment_runs)")
        connection.execute("DELETE FROM added_columns WHERE experiment NOT IN (SELECT name FROM experiments)")
        connection.execute("DELETE FROM datasets WHERE fingerprint NOT IN (SELECT dataset_fingerprint FROM runs)")
        for table in ("questions", "clusters"):
            connection.execute(f"DELETE FROM {table} WHERE dataset_fingerprint NOT IN (SELECT fingerprint FROM datasets)")
        connection.execute("DELETE FROM environments WHERE environment NOT IN (SELECT environment FROM runs WHERE environment IS NOT NULL)")
        connection.execute(
            """DELETE FROM passages WHERE id NOT IN (SELECT id FROM evidence
               UNION SELECT unnest(evidence) FROM questions)"""
        )
        gone = {table: before - _count(connection, table) for table, before in counted.items()}
    freed = 0
    if artifacts and store.artifacts.exists():
        freed = sum(file.stat().st_size for file in store.artifacts.rglob("*") if file.is_file())
        shutil.rmtree(store.artifacts)
    return Pruned(gone["runs"], gone["datasets"], gone["passages"], freed, labels)


def vacuum(database: Database) -> tuple[int, int]:
    """Rewrite the store's file without the space of deleted rows; other processes wait.

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
                connection.execute(f"ATTACH '{quoted(path)}' AS old (READ_ONLY)")
                connection.execute(f"ATTACH '{quoted(copy)}' AS new")
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
