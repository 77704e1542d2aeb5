"""Runs in and out of a store as Parquet, and two stores made one.

Everything is addressed by content (fingerprints of runs and data), so merging adds what is not there yet: no row comes
in twice, and a question that failed here and was answered there takes the answer while its run is open. A finished run
stays unchanged; if both stores finished the same task with other answers, the imported execution gets an id of its own.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.core.errors import UserError, counted, make_folder
from results.formats.hashes import check_hashes, content_hashes
from results.formats.rescoring import Rescored, rescore
from results.store import queries
from results.store.annotations import with_present
from results.store.database import FILE
from results.store.failures import MAX_RATE, failures
from results.store.invariants import check_run
from results.store.rows import AGGREGATED
from results.store.schema import SCHEMA, now
from results.store.store import BETWEEN_RUNS, BY_RUN, FINISHED, INCOMPLETE, TOKEN, Store
from results.store.variants import style_of_name

MANIFEST = "ragmeter.json"
FORMAT = 1
_BATTLE = ("dataset_fingerprint", "setting", "judge", "question", "one", "other")
_SHARED = {
    "environments": ("environment",),
    "datasets": ("fingerprint",),
    "questions": ("dataset_fingerprint", "question"),
    "clusters": ("dataset_fingerprint", "kind", "question"),
    "passages": ("id",),
    "methods": ("id", "version"),
    "metrics": ("id",),
    "indexing": ("run", "artifact"),
    "checkpoints": ("sha256",),
    "read_questions": ("sha256",),
    "tags": ("name",),
    "gates": ("baseline", "candidate", "metric", "decided_at"),
    "anchors": ("name", "dataset_fingerprint", "setting", "seed", "set_at"),
    "judges": ("judge",),
    "battle_calls": _BATTLE,
    "battles": _BATTLE,
    "annotations": ("dataset_fingerprint", "setting", "question", "one", "other", "criterion", "annotator", "labeled"),
}
"""Tables whose rows belong to no single run, with the columns that identify a row; existing rows stay unchanged.

The rows of one comparison by a judge are imported completely or not at all, because calls and verdicts of different judgings do not fit
together.
"""
_PER_QUESTION = ("evidence", "usage", "calls", "predictions")
"""Tables whose rows per question are imported completely or not at all; `predictions`, which marks existing questions, is last."""
_ABOUT_ANSWERS = {"scores": ("run", "question", "metric"), "judge_calls": ("run", "question", "judge")}
"""Tables about answers, with the columns that identify a group of rows; missing groups about existing answers are imported as a whole."""
_UNUSED_BEFORE = (3, ("battles", "judge_calls"))
"""Tables that were empty before this schema version and had other columns."""
_RENAMED = {"units": "clusters"}
"""Tables by their name before schema version 10."""
_RENAMED_COLUMNS = {"runs": {"unit": "cluster"}, "datasets": {"unit": "cluster"}, "clusters": {"unit": "cluster"}}
"""Columns by table and their name before schema version 10."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Result of `merge`: numbers of new runs, of completed runs, and of their questions and scores.

    Attributes:
        separate: New runs whose id belongs to a run with other answers here; they got ids of their own.
        dropped: Answers of unfinished runs that differ from those of the same run here, and were left out.
        not_shown: By name of an experiment that is here too, the number of runs that only the source shows in it.
    """

    new_runs: int
    completed_runs: int
    questions: int
    scores: Rescored = field(default_factory=Rescored, compare=False)
    separate: int = field(default=0, compare=False)
    dropped: int = field(default=0, compare=False)
    not_shown: Mapping[str, int] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the counts of the merge as a JSON object."""
        counts = {name: getattr(self, name) for name in ("new_runs", "completed_runs", "questions", "separate", "dropped")}
        return counts | {"not_shown": dict(self.not_shown), "scores": self.scores.to_json()}

    def in_words(self) -> list[str]:
        """Return remarks on runs that are kept apart and on scores that could not be recomputed."""
        lines = []
        if self.separate:
            lines.append(f"{counted(self.separate, 'run')} with other answers than the run with this id here: kept as a new run")
        if self.dropped:
            lines.append(f"{counted(self.dropped, 'answer')} of unfinished runs differ from those here: left out, those here stay")
        for name, count in self.not_shown.items():
            line = f"experiment {name!r} is here too and stays as it is: its tables lack {counted(count, 'run')} of the source"
            lines.append(f"{line}; `ragmeter results --all` shows them, `ragmeter run` of a file with all methods adds them")
        return lines + self.scores.in_words()


def export(store: Store, folder: Path, runs: Sequence[str] | None = None, *, hashes: bool = True) -> dict[str, int]:
    """Export a store's tables as Parquet files, one per table, with a manifest that holds a content hash per run.

    Args:
        store: What to export.
        folder: Destination; must not exist, or be empty.
        runs: Fingerprints of the runs to export, together with their datasets, cards and questions; None exports all.
        hashes: Whether to write content hashes into the manifest.

    Returns:
        Number of exported rows by table.

    Raises:
        UserError: The folder is not empty or cannot be created, or a run is unknown.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError("this is a file, not a folder", code="not-a-folder", where=str(folder), try_this="name a new folder")
    if folder.exists() and any(folder.iterdir()):
        raise UserError("this folder is not empty", code="folder-not-empty", where=str(folder), try_this="name a new one")
    making = folder.with_name(f".{folder.name}.part")
    rows = {}
    with store.database.reading() as connection:
        chosen = _chosen(connection, runs)
        # Not before it is known that there is something to export.
        shutil.rmtree(making, ignore_errors=True)
        make_folder(making, folder)
        for table, condition in chosen.items():
            connection.execute(f"COPY (FROM {table} WHERE {condition}) TO '{quoted(making / table)}.parquet'")
            counted = connection.execute(f"SELECT count(*) FROM '{quoted(making / table)}.parquet'").fetchone()
            rows[table] = int(counted[0]) if counted else 0
    manifest: dict[str, Any] = {"format": FORMAT, "schema": SCHEMA, "exported_at": now().isoformat(), "rows": rows}
    if hashes:
        manifest["runs"] = content_hashes(making, list(rows))
    (making / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    if folder.exists():
        folder.rmdir()
    making.rename(folder)
    return rows


def _chosen(connection: duckdb.DuckDBPyConnection, runs: Sequence[str] | None) -> dict[str, str]:
    """Return the condition of the exported rows per table."""
    query = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() ORDER BY 1"
    tables = [row[0] for row in connection.execute(query).fetchall()]
    tables.remove("ragmeter_schema")
    if runs is None:
        return dict.fromkeys(tables, "true")
    known = {row[0] for row in connection.execute("SELECT run FROM runs").fetchall()}
    for run in runs:
        if run not in known:
            raise UserError(f"run {run!r} is not in the store", code="unknown-run", try_this="`ragmeter list runs` lists them")
    named = ", ".join(f"'{run}'" for run in runs)
    mine = f"run IN ({named})"
    data = f"SELECT dataset_fingerprint FROM runs WHERE {mine}"
    conditions = dict.fromkeys(("runs", *BY_RUN, "experiment_runs"), mine)
    conditions |= {
        "datasets": f"fingerprint IN ({data})",
        "questions": f"dataset_fingerprint IN ({data})",
        "clusters": f"dataset_fingerprint IN ({data})",
        "experiments": f"name IN (SELECT experiment FROM experiment_runs WHERE {mine})",
        "added_columns": f"experiment IN (SELECT experiment FROM experiment_runs WHERE {mine})",
        "environments": f"environment IN (SELECT environment FROM runs WHERE {mine})",
        "passages": f"""id IN (SELECT id FROM evidence WHERE {mine}
                        UNION SELECT unnest(evidence) FROM questions WHERE dataset_fingerprint IN ({data}))""",
        "metrics": f"id IN (SELECT metric FROM summaries WHERE {mine})",
        "methods": "true",
        "judges": "true",
    }
    between = f"one IN ({named}) AND (other IS NULL OR other IN ({named}))"
    conditions |= dict.fromkeys((*BETWEEN_RUNS, "annotations"), between)
    return {table: conditions[table] for table in tables if table in conditions}


def merge(store: Store, source: Path) -> Merged:
    """Import all data of another store, or of an export, that this one lacks, in one transaction.

    Imported scores are recomputed from the answers; scores that cannot be recomputed are marked (`results.formats.rescoring`).

    Args:
        store: The destination; created if it does not exist.
        source: A store folder, or a folder that `export` wrote.

    Raises:
        UserError: The source is not a store or an export, is this store, was written by a newer ragmeter, or was changed after
            the export.
    """
    if (source / FILE).is_file() and store.database.exists and source.resolve() == store.folder.resolve():
        raise UserError("this is the store itself", code="target-is-the-store", where=str(source), try_this="name another one")
    with _exported(source) as folder:
        manifest = _manifest(folder)
        check_hashes(folder, manifest)
        version, unused = _UNUSED_BEFORE
        tables = [name for name in manifest["rows"] if manifest["schema"] >= version or name not in unused]
        results = {_RENAMED.get(table, table): f"read_parquet('{quoted(folder / table)}.parquet')" for table in tables}
        with store.database.writing() as connection:
            _rename_columns(connection, results)
            merged = _merge(connection, results)
            runs = connection.execute(f"SELECT run FROM {results['runs']}").fetchall()
            fresh = connection.execute("FROM fresh_scores").fetchall()
            for table in ("wanted", "others", "closed", "renamed", "fresh_scores"):
                connection.execute(f"DROP TABLE {table}")
        _conclude(store, [run for (run,) in runs])
        merged = replace(merged, scores=rescore(store, fresh))
        # Violations of half of a run do not hold for the whole run.
        for (run,) in runs:
            check_run(store, run)
        return merged


@contextmanager
def _exported(source: Path) -> Iterator[Path]:
    """Open the source as an export."""
    if (source / MANIFEST).is_file():
        yield source
    elif (source / FILE).is_file():
        with tempfile.TemporaryDirectory(prefix="ragmeter-merge-") as made:
            folder = Path(made) / "export"
            export(Store(source), folder, hashes=False)
            yield folder
    else:
        raise UserError(
            "this is neither a store nor an export of one",
            code="not-store-or-export",
            where=str(source),
            try_this=f"name a folder that holds {FILE} or {MANIFEST}",
        )


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        known = manifest["format"] == FORMAT and int(manifest["schema"]) <= SCHEMA
        tables = list(manifest["rows"])
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise UserError("this is not the manifest of an export", code="not-export-manifest", where=str(path)) from None
    if not known:
        raise UserError("a newer ragmeter wrote this export", code="export-too-new", where=str(path), try_this="upgrade ragmeter")
    for table in tables:
        if not re.fullmatch(r"[a-z_]+", table) or not (folder / f"{table}.parquet").is_file():
            raise UserError(f"the export lacks {table}.parquet", code="export-table-missing", where=str(folder), try_this="export it again")
    return manifest


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> set[str]:
    return {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def _rename_columns(connection: duckdb.DuckDBPyConnection, source: dict[str, str]) -> None:
    """Rename the columns of an older schema; sampling was recorded per run, not per experiment."""
    for table, renamed in _RENAMED_COLUMNS.items():
        if table in source and (old := renamed.keys() & _columns(connection, source[table])):
            names = ", ".join(f"{name} AS {renamed[name]}" for name in sorted(old))
            source[table] = f"(SELECT * RENAME ({names}) FROM {source[table]})"
    shown, runs = "experiment_runs", source["runs"]
    if shown in source and "cluster" not in _columns(connection, source[shown]) and "cluster" in _columns(connection, runs):
        source[shown] = f"(SELECT m.*, r.cluster FROM {source[shown]} m LEFT JOIN {runs} r USING (run))"


def quoted(path: Path) -> str:
    """Return a path for a string literal of SQL."""
    return str(path).replace("'", "''")


def _merge(connection: duckdb.DuckDBPyConnection, source: dict[str, str]) -> Merged:
    def one(query: str) -> int:
        row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    if "base" not in _columns(connection, source["runs"]):
        # Of a ragmeter whose rows did not say yet what they ask.
        names = [name for (name,) in connection.execute(f"SELECT DISTINCT dataset FROM {source['runs']}").fetchall()]
        columns = [style_of_name(name).row() for name in names]
        connection.register("styles", pa.table({"dataset": names, **{key: [row[key] for row in columns] for key in columns[0]}}))
        source["runs"] = f"(SELECT * FROM {source['runs']} JOIN styles USING (dataset))"
    connection.execute("CREATE TEMP TABLE closed AS SELECT run FROM runs WHERE status = 'finished'")
    _separate(connection, source)
    fresh = f"FROM {source['runs']} there ANTI JOIN runs USING (run)"
    new = one(f"SELECT count(*) {fresh}")
    connection.execute(f"INSERT INTO runs BY NAME SELECT there.* {fresh}")
    # Questions to take: not answered here, or failed here and answered there.
    connection.execute(
        f"""CREATE TEMP TABLE wanted AS SELECT there.run, there.question FROM {source["predictions"]} there
            ANTI JOIN closed USING (run) LEFT JOIN predictions here USING (run, question)
            WHERE here.run IS NULL OR (here.failed IS NOT NULL AND there.failed IS NULL)"""
    )
    questions = one("SELECT count(*) FROM wanted")
    touched = one("SELECT count(DISTINCT run) FROM wanted")
    for table in (*_PER_QUESTION, *_ABOUT_ANSWERS):
        connection.execute(f"DELETE FROM {table} USING wanted w WHERE {table}.run = w.run AND {table}.question = w.question")
    for table in BETWEEN_RUNS:
        connection.execute(
            f"""DELETE FROM {table} USING wanted w WHERE {table}.question = w.question
                AND ({table}.one = w.run OR {table}.other = w.run)"""
        )
    # Exports of a ragmeter before schema version 8 have no calls.
    for table in (table for table in _PER_QUESTION if table in source):
        taken = f"FROM {source[table]} there SEMI JOIN wanted USING (run, question)"
        connection.execute(f"INSERT INTO {table} BY NAME SELECT there.* {taken}")
    # Scores and judgments of other answers say nothing about those that are here.
    connection.execute(
        f"""CREATE TEMP TABLE others AS
            SELECT there.run, there.question, there.failed IS NULL AS answered FROM {source["predictions"]} there
            JOIN predictions here USING (run, question) WHERE {_differ(source)} OR (there.failed IS NULL) <> (here.failed IS NULL)"""
    )
    if "annotations" in source and "labeled" not in _columns(connection, source["annotations"]):
        present = with_present(source["annotations"], source["questions"], source["predictions"])
        source["annotations"] = f"(SELECT * RENAME (present AS labeled) FROM ({present}))"
    for table, keys in _SHARED.items():
        if table in source:
            same = " AND ".join(f"here.{key} IS NOT DISTINCT FROM there.{key}" for key in keys)
            fits = "NOT EXISTS (FROM others o WHERE o.question = there.question AND o.run IN (there.one, there.other))"
            connection.execute(
                f"INSERT INTO {table} BY NAME SELECT * FROM {source[table]} there WHERE "
                f"NOT EXISTS (FROM {table} here WHERE {same}) AND {fits if table in BETWEEN_RUNS else 'true'}"
            )
    connection.execute(
        f"""CREATE TEMP TABLE fresh_scores AS SELECT DISTINCT run, metric FROM {source["scores"]} there
            ANTI JOIN scores here USING (run, question, metric)
            WHERE EXISTS (FROM predictions p WHERE p.run = there.run AND p.question = there.question)
            AND NOT EXISTS (FROM others o WHERE o.run = there.run AND o.question = there.question)"""
    )
    connection.execute("DELETE FROM imports WHERE (run, metric) IN (FROM fresh_scores)")
    connection.execute("INSERT INTO imports SELECT run, metric, 'the import was interrupted', ? FROM fresh_scores", [now()])
    for table in _ABOUT_ANSWERS.keys() & source.keys():
        connection.execute(
            f"""INSERT INTO {table} BY NAME SELECT there.* FROM {source[table]} there
                ANTI JOIN {table} here USING ({", ".join(_ABOUT_ANSWERS[table])})
                WHERE EXISTS (FROM predictions p WHERE p.run = there.run AND p.question = there.question)
                AND NOT EXISTS (FROM others o WHERE o.run = there.run AND o.question = there.question)"""
        )
    connection.execute(f"DELETE FROM summaries WHERE run IN (SELECT run FROM {source['runs']})")
    connection.execute(
        f"""INSERT INTO summaries BY NAME {AGGREGATED} WHERE run IN (SELECT run FROM {source["runs"]})
            GROUP BY run, metric ORDER BY run, min(rowid)"""
    )
    accepted = ", accepted_at = there.accepted_at" if "accepted_at" in _columns(connection, source["runs"]) else ""
    connection.execute(
        f"""UPDATE runs SET status = '{FINISHED}', error = NULL{accepted} FROM {source["runs"]} there
            WHERE there.run = runs.run AND there.status = '{FINISHED}' AND runs.status <> '{FINISHED}'
            AND runs.questions = (SELECT count(*) FROM predictions p WHERE p.run = runs.run)"""
    )
    not_shown = connection.execute(
        f"""SELECT experiment, count(*) FROM {source["experiment_runs"]} there ANTI JOIN experiment_runs here USING (experiment, run)
            WHERE experiment IN (SELECT name FROM experiments) AND run IN (SELECT run FROM runs)
            GROUP BY experiment ORDER BY experiment"""
    ).fetchall()
    separate, dropped = one("SELECT count(*) FROM renamed"), one("SELECT count(*) FROM others WHERE answered")
    for table in ("experiment_runs", "added_columns"):
        if table in source:
            connection.execute(
                f"""INSERT INTO {table} BY NAME SELECT there.* FROM {source[table]} there
                    WHERE NOT EXISTS (FROM experiments e WHERE e.name = there.experiment)"""
            )
    fresh = f"FROM {source['experiments']} there ANTI JOIN experiments USING (name)"
    connection.execute(f"INSERT INTO experiments BY NAME SELECT there.* {fresh}")
    return Merged(new, max(0, touched - new), questions, separate=separate, dropped=dropped, not_shown=dict(not_shown))


def _conclude(store: Store, runs: Sequence[str]) -> None:
    """Finish merged runs whose questions are all there, unless their failures make them incomplete.

    An experiment may allow more failures: its run then finishes them.
    """
    for run in queries.runs(store):
        if run.run not in runs or run.status == FINISHED or run.done < run.questions:
            continue
        failed = failures(store, [run.run])[run.run]
        incomplete = failed.unresolved or failed.too_many(MAX_RATE) or (run.status == INCOMPLETE and failed.failed)
        store.end(run.run, INCOMPLETE, failed.in_words()) if incomplete else store.end(run.run, FINISHED)


def _differ(source: Mapping[str, str]) -> str:
    """Return SQL that is true if `here` and `there` answered a question differently; without a reader, the ranking is the answer."""
    ranking = "(SELECT list(id ORDER BY rank) FROM {0} e WHERE e.run = {1}.run AND e.question = {1}.question)"
    mine, theirs = ranking.format("evidence", "here"), ranking.format(source["evidence"], "there")
    return f"(there.answer IS DISTINCT FROM here.answer OR {theirs} IS DISTINCT FROM {mine})"


_RUN_COLUMNS = {"run", "one", "other", "baseline", "candidate", "anchor"}


def _separate(connection: duckdb.DuckDBPyConnection, source: dict[str, str]) -> None:
    """Give an imported execution a new id if the one with that id has other answers here: a run must not mix the answers of two systems.

    If the execution here is finished, a finished one with other answers or failures gets a new id. If it is not, one that would
    complete it does if answers to the same questions differ; an answer may replace a failure.
    """
    connection.execute(
        f"""CREATE TEMP TABLE renamed AS
            SELECT run, split_part(run, '.', 1) || '.' || left(md5(run || there.started_at::VARCHAR), {TOKEN}) AS id
            FROM {source["runs"]} there WHERE run IN (
                SELECT there.run FROM {source["predictions"]} there JOIN predictions here USING (run, question)
                JOIN {source["runs"]} execution USING (run) LEFT JOIN closed USING (run)
                WHERE CASE WHEN closed.run IS NULL
                    THEN there.failed IS NULL AND here.failed IS NULL AND {_differ(source)}
                        AND there.run IN (SELECT run FROM {source["predictions"]} ANTI JOIN predictions USING (run, question))
                    ELSE execution.status = '{FINISHED}' AND ({_differ(source)} OR (there.failed IS NULL) <> (here.failed IS NULL)) END)"""
    )
    if not connection.execute("FROM renamed").fetchall():
        return
    for table, rows in source.items():
        if names := sorted(_columns(connection, rows) & _RUN_COLUMNS):
            ids = ", ".join(f"coalesce((SELECT id FROM renamed r WHERE r.run = t.{name}), t.{name}) AS {name}" for name in names)
            source[table] = f"(SELECT * REPLACE ({ids}) FROM {rows} t)"
