"""Make the tables of the store (`schema.sql`), and check the version of a store's tables."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from benchmarks.core.errors import UserError

SCHEMA = 10
"""Version of `schema.sql`."""


def now() -> datetime:
    """Return the current UTC time without a time zone, the form in which the store keeps times."""
    return datetime.now(UTC).replace(tzinfo=None)


def after_all(
    connection: duckdb.DuckDBPyConnection, table: str, column: str, where: str = "true", values: Sequence[object] = ()
) -> datetime:
    """Return the current time, or one after every time in a column: clocks of machines differ or are set back, and rows are in order.

    Args:
        connection: The open file.
        table, column: The times.
        where, values: Condition on the rows, and its parameters.
    """
    last = connection.execute(f"SELECT max({column}) FROM {table} WHERE {where}", values).fetchone()
    return max(now(), last[0] + timedelta(microseconds=1)) if last and last[0] else now()


def check_schema(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Return whether an open file has a schema; False for an empty file.

    Raises:
        UserError: The file belongs to another program, or to another version of ragmeter.
    """
    try:
        # The order is Python's: for DuckDB, planning it takes longer than reading the row.
        rows = connection.execute("SELECT version, ragmeter FROM ragmeter_schema").fetchall()
    except duckdb.CatalogException:
        if not connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()").fetchall():
            return False
        raise UserError(
            "this DuckDB file belongs to another program",
            code="foreign-database",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        ) from None
    version, writer = max(rows, key=lambda row: row[0], default=(0, "?"))
    if version != SCHEMA:
        # The command of those versions; from 7 on it is another.
        export = "results export FOLDER" if version < 7 else "store export -o FOLDER"
        raise UserError(
            f"the store has schema version {version}, this ragmeter reads {SCHEMA}",
            code="store-version-mismatch",
            where=str(path),
            try_this=f"with the ragmeter that wrote it (version {writer}): `ragmeter {export} --store {path.parent}`; "
            "then with this one: `ragmeter store import FOLDER --store NEW`; the file was left as it is",
        )
    return True


def make_schema(connection: duckdb.DuckDBPyConnection) -> None:
    """Make all tables in an empty file, and note the version of the schema and of ragmeter."""
    connection.execute("BEGIN")
    try:
        connection.execute(importlib.resources.files("results.store").joinpath("schema.sql").read_text("utf-8"))
        connection.execute("INSERT INTO ragmeter_schema VALUES (?, ?, ?)", [SCHEMA, now(), _ragmeter_version()])
        connection.execute("COMMIT")
    except duckdb.Error:
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")
        raise


def _ragmeter_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ragmeter")
    except PackageNotFoundError:
        return "source"
