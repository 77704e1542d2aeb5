"""Hashes of an export's content for each run: a run that was changed after the export is refused.

A hash shows damage and careless edits. It is not a signature: everyone who edits an export can recompute its hashes, so
imported scores are computed again as well (`results.formats.rescoring`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.core.errors import UserError, counted
from results.store.store import shortened

_NOT_HASHED = ("summaries", "experiments", "experiment_runs", "tags", "anchors", "imports")
"""Sums of other rows, and facts of a store about runs that are not part of them."""


def content_hashes(folder: Path, tables: Sequence[str]) -> dict[str, str]:
    """Compute a content hash for each run of an export, over its rows, its questions with their gold, and its pairwise verdicts."""
    parts = []
    with duckdb.connect() as connection:
        for table in sorted(set(tables) - set(_NOT_HASHED)):
            rows = _rows(folder, table)
            names = {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()}
            if table in ("questions", "clusters"):
                parts.append((table, "r.run", f"{_rows(folder, 'runs')} r JOIN {rows} t USING (dataset_fingerprint)"))
            elif owner := {"run", "one", "other"} & names:
                parts += [(table, f"t.{name}", f"{rows} t WHERE {name} IS NOT NULL") for name in sorted(owner)]
        lines = " UNION ALL ".join(
            f"SELECT {run} AS run, md5('{table}' || to_json(t)::VARCHAR) AS line FROM {of}" for table, run, of in parts
        )
        return dict(connection.execute(f"SELECT run, sha256(string_agg(line, '' ORDER BY line)) FROM ({lines}) GROUP BY 1").fetchall())


def check_hashes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Verify an export against the content hashes in its manifest; manifests of older versions have none and pass.

    Raises:
        UserError: A run's content was changed after the export.
    """
    if (recorded := manifest.get("runs")) is None:
        return
    actual = content_hashes(folder, list(manifest["rows"]))
    changed = [run for run in {**actual, **recorded} if actual.get(run) != recorded.get(run)]
    if changed:
        raise UserError(
            f"{counted(len(changed), 'run')} of this export changed after it was written: {', '.join(map(shortened, changed[:5]))}",
            code="export-changed",
            where=str(folder),
            try_this="export them again from the store that holds them",
        )


def _rows(folder: Path, table: str) -> str:
    path = str(folder / f"{table}.parquet").replace("'", "''")
    return f"read_parquet('{path}')"
