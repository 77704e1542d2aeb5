"""Record the expected row counts next to the store's file, so that lost data are noticed.

DuckDB keeps the last transactions in a write-ahead log, `store.duckdb.wal`. If that log is cut off, emptied or deleted,
DuckDB opens the rest without an error. So each commit records the number of rows of each run in `store.counts.json`.
Opening compares: fewer rows than recorded are lost rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

FILE = "store.counts.json"
_VERSION = 1
ANSWERS, SCORES, COMPARISONS, LABELS = "answers", "scores", "comparisons", "labels"
_COUNT = f"""
    SELECT '{ANSWERS}' AS what, run, count(*) AS rows FROM predictions GROUP BY run
    UNION ALL SELECT '{SCORES}', run, sum(scored)::BIGINT FROM summaries GROUP BY run
    UNION ALL SELECT '{COMPARISONS}', '', count(*) FROM battle_calls
    UNION ALL SELECT '{LABELS}', '', count(*) FROM annotations
"""
# Some milliseconds for a million answers: `summaries` has the sums of scores.
_LISTED = 5

Counts = Mapping[tuple[str, str], int]
"""Rows by kind and run; the run is '' for kinds that belong to several runs."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Committed rows that are missing from the store's file, found by comparing recorded counts.

    Attributes:
        what: Kind of the rows.
        run: Run that the rows belong to, '' for rows shared by runs.
        missing, recorded: Numbers of missing rows and of recorded rows.
    """

    what: str
    run: str
    missing: int
    recorded: int

    def __str__(self) -> str:
        of = f"run {self.run}: " if self.run else ""
        return f"{of}{self.missing:,} of {self.recorded:,} {self.what}"


def count(connection: duckdb.DuckDBPyConnection) -> Counts:
    """Count the rows of an open store by kind and run; zero counts are left out."""
    return {(what, run): rows for what, run, rows in connection.execute(_COUNT).fetchall() if rows}


def read(folder: Path) -> Counts | None:
    """Read the row counts recorded next to the store; None if there are none, or if they are unreadable (after a power failure)."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if document["version"] != _VERSION:
            return None
        return {(what, run): int(rows) for what, runs in document["rows"].items() for run, rows in runs.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def write(folder: Path, counts: Counts) -> None:
    """Record row counts next to the store, atomically. If the disk is full, nothing is recorded."""
    path, partial = folder / FILE, folder / f".{FILE}.{os.getpid()}"
    rows: dict[str, dict[str, int]] = {}
    for (what, run), number in sorted(counts.items()):
        rows.setdefault(what, {})[run] = number
    try:
        partial.write_text(json.dumps({"version": _VERSION, "rows": rows}), encoding="utf-8")
        os.replace(partial, path)
    except OSError:
        # Old counts would report a loss after rows were deleted.
        for stale in (partial, path):
            with suppress(OSError):
                stale.unlink()


class Recording:
    """Records row counts before and after a commit, so that a process killed in between causes no false alarm.

    Args:
        folder: The store folder.
        connection: A connection in a transaction that is about to commit.
    """

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._folder = folder
        self._before, self._after = read(folder) or {}, count(connection)
        if lost(self._before, self._after):
            # Deleted on purpose: the lower counts hold before the commit as well.
            kept = {key: min(rows, self._after.get(key, 0)) for key, rows in self._before.items()}
            write(folder, {key: rows for key, rows in kept.items() if rows})

    def committed(self) -> None:
        """Record the new row counts after the commit, if they changed."""
        if self._before != self._after:
            write(self._folder, self._after)


def lost(recorded: Counts, present: Counts) -> list[Loss]:
    """List recorded rows that are missing, sorted by kind and run."""
    missing = {key: rows - present.get(key, 0) for key, rows in recorded.items()}
    return [Loss(*key, number, recorded[key]) for key, number in sorted(missing.items()) if number > 0]


def mark(connection: duckdb.DuckDBPyConnection, losses: Sequence[Loss]) -> None:
    """Mark runs that lost rows as interrupted, so that they are not compared, and rerunning the command asks the lost questions again.

    Each run is marked in its own transaction; repeating the call after an error is safe.
    """
    by_run: dict[str, list[str]] = {}
    for loss in losses:
        if loss.run:
            by_run.setdefault(loss.run, []).append(f"{loss.missing:,} of {loss.recorded:,} {loss.what}")
    for run, parts in by_run.items():
        error = f"lost with the store's write-ahead log: {', '.join(parts)}"
        connection.execute("UPDATE runs SET status = 'interrupted', error = ? WHERE run = ?", [error, run])


def unknown(folder: Path) -> str:
    """Return the message for a store that has rows but no readable row counts."""
    return (
        "warning: the recorded row counts of the store are missing or cannot be read, so rows lost before now cannot be noticed\n"
        f"  where: {folder / FILE}\n"
        "  try:   compare `ragmeter results` with what you expect; if rows are missing, put back the whole folder from a backup"
    )


def described(losses: Sequence[Loss], folder: Path) -> str:
    """Return the message about lost rows, with cause and remedy."""
    shown = [str(loss) for loss in losses[:_LISTED]]
    more = [f"and {len(losses) - _LISTED} more"] if len(losses) > _LISTED else []
    return (
        f"warning: the store lost data: {'; '.join([*shown, *more])}\n"
        f"  where: {folder}: `store.duckdb.wal` was cut off, emptied or deleted, or `store.duckdb` is an older copy\n"
        "  try:   put back both files from a backup; else run the same commands again: only the missing questions are asked"
    )
