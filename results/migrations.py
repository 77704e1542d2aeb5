"""The schema of the store file, version by version, and how an older file becomes a present one."""

from __future__ import annotations

import importlib.resources
import re
import shutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb

from benchmarks.errors import UserError


@cache
def scripts() -> tuple[str, ...]:
    """The SQL that leads from each version to the next; the first one makes version 1 of an empty file."""
    folder = importlib.resources.files("results").joinpath("schema")
    named = sorted((item.name, item) for item in folder.iterdir() if re.fullmatch(r"\d{4}\.sql", item.name))
    return tuple(item.read_text("utf-8") for _, item in named)


def newest() -> int:
    """The schema version that this code speaks."""
    return len(scripts())


def now() -> datetime:
    """The present moment, UTC without a zone, as the store keeps it."""
    return datetime.now(UTC).replace(tzinfo=None)


def version_of(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """The schema version of an open file; 0 for an empty one.

    Raises:
        UserError: The file belongs to another program, or to a newer ragmeter.
    """
    names = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not names:
        return 0
    if "ragmeter_schema" not in names:
        raise UserError(
            "this DuckDB file belongs to another program",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        )
    row = connection.execute("SELECT version, ragmeter FROM ragmeter_schema ORDER BY version DESC LIMIT 1").fetchone()
    version, writer = row if row else (0, "?")
    if version > newest():
        raise UserError(
            f"the store has schema version {version}, this ragmeter speaks {newest()}",
            where=str(path),
            try_this=f"upgrade ragmeter (version {writer} wrote it), or choose another --store FOLDER",
        )
    return int(version)


def migrate(connection: duckdb.DuckDBPyConnection, path: Path) -> Path | None:
    """Bring an open, writable file to the newest version, all steps or none; call under the store's lock.

    Returns:
        The backup of the file as it was, None where nothing had to be done or the file was empty.

    Raises:
        UserError: The file cannot be migrated; it is left as it is.
    """
    found = version_of(connection, path)
    if found == newest():
        return None
    backup = None
    if found:
        backup = path.with_name(f"{path.name}.v{found}-{now():%Y%m%dT%H%M%S}")
        # After a checkpoint everything is in the file itself, and the lock keeps writers away while it is copied.
        connection.execute("CHECKPOINT")
        shutil.copy2(path, backup)
    connection.execute("BEGIN")
    try:
        for number, script in enumerate(scripts()[found:], start=found + 1):
            connection.execute(script)
            connection.execute("INSERT INTO ragmeter_schema VALUES (?, ?, ?)", [number, now(), _ragmeter_version()])
        connection.execute("COMMIT")
    except duckdb.Error as error:
        connection.execute("ROLLBACK")
        raise UserError(
            f"the store cannot be brought from schema version {found} to {newest()}: {error}",
            where=str(path),
            try_this="nothing was changed; use the ragmeter release that wrote it, or another --store FOLDER",
        ) from error
    return backup


def _ragmeter_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ragmeter")
    except PackageNotFoundError:
        return "source"
