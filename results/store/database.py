"""Read and write the store's DuckDB file in transactions.

`shared_connection` keeps the file open and shares it between threads and processes, `attached` opens it in a DuckDB instance,
`schema` makes its tables, and `faults` explains what goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
from filelock import Timeout

from benchmarks.core.errors import Broke, UserError
from results.store import holder, shared_connection
from results.store.faults import explained
from results.store.mounts import refuse_network
from results.store.shared_connection import SharedConnection, connection_to

FILE = "store.duckdb"


class Database:
    """DuckDB file in a folder; all `Database` objects for one file share a connection per process.

    Args:
        folder: The store folder; created on the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE

    @property
    def exists(self) -> bool:
        """Return whether the store's file exists.

        Raises:
            UserError: The folder's path is a file.
        """
        if self.path.exists():
            return True
        if self.folder.is_file():
            what = "this is a file; a store is a folder"
            raise UserError(what, code="unreadable-store", where=str(self.folder), try_this="--store FOLDER")
        return False

    @cached_property
    def _shared(self) -> SharedConnection:
        return connection_to(self.path.resolve())

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a write transaction, committed to disk when the block ends or rolled back on an error.

        Raises:
            UserError: The disk is full, the file belongs to another program or version, or the lock stays taken.
        """
        self._make_folder()
        self._require_file()
        with self._explaining(), self._shared.writing() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Open a connection for reading a consistent snapshot; a nested block in the same thread shares the outer one's.

        Raises:
            UserError: There is no store here, or the file belongs to another program or version.
        """
        if not self.exists:
            what = "there is no store here yet"
            remedy = "ragmeter run EXPERIMENT makes one; for another store, --store FOLDER"
            raise UserError(what, code="unreadable-store", where=str(self.folder), try_this=remedy)
        self._require_file()
        with self._explaining(), self._shared.reading() as connection:
            yield connection

    def rows(self, query: str, values: Sequence[object] = (), *, lenient: bool = False) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; with `lenient`, return no rows if there is no store yet.

        A query that was asked before within this thread's outermost block of `reading` is not asked again.

        Raises:
            UserError: As for `reading`.
        """
        if lenient and not self.exists:
            return []
        with self.reading() as connection:
            known, key = self._shared.known, (query, repr(values))
            if key not in known:
                known[key] = connection.execute(query, values).fetchall()
            return [*known[key]]

    def open_to_write(self) -> None:
        """Open the file for writing now: if it is read before the first write, it need not be opened twice.

        Raises:
            UserError: As `writing`.
        """
        self._make_folder()
        self._require_file()
        with self._explaining(), self._shared.cursor(read_only=False):
            pass

    @contextmanager
    def alone(self) -> Iterator[Path]:
        """Lock out other processes and provide the closed database file, so that it can be replaced.

        Raises:
            UserError: There is no store here, the disk is full, or the lock stays taken.
        """
        with self.reading():
            pass
        with self._explaining(), self._shared.alone():
            yield self.path

    def close(self) -> None:
        """Close the file unless a thread is using it; it is reopened when needed."""
        self._shared.close()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except Timeout:
            raise Broke(
                f"the store was in use for over {shared_connection.PATIENCE_S:.0f} s: {holder.named(self.folder)}",
                code="store-busy",
                where=str(self.folder),
                try_this="wait for that process, or end it; nothing finished is lost",
            ) from None
        except (OSError, duckdb.Error) as error:
            raise explained(error, self.path, shared_connection.PATIENCE_S) from error

    def _require_file(self) -> None:
        if self.path.is_dir():
            raise UserError(
                f"{FILE} is a folder; it must be a file",
                code="folder-instead-of-file",
                where=str(self.path),
                try_this="rename or remove it, or --store FOLDER",
            )

    def _make_folder(self) -> None:
        refuse_network(self.folder.absolute())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the store folder cannot be made: {error.strerror}",
                code="unwritable-store-folder",
                where=str(self.folder),
                try_this="--store FOLDER",
            ) from error
