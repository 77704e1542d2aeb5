"""Attach the store's file to a DuckDB instance that the process keeps for the next file.

Starting an instance takes ten times as long as attaching a file to it. An instance has one file at a time, so that a fatal
error, which ends all work of an instance, concerns no other file.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import duckdb

from results.store.faults import busy

_KEPT = 2
"""Maximum number of instances without a file; each has several threads, and a few megabytes."""
_LARGE_BYTES = 2**24
"""Minimum size of a file whose instance is not kept, because it would not return the memory that queries took."""
_idle: list[duckdb.DuckDBPyConnection] = []


class AttachedFile:
    """A file that is open in a DuckDB instance of its own.

    Args:
        path: The file; made if it is missing.
        read_only: Whether other processes can read it meanwhile; then it must exist.

    Attributes:
        connection: A connection whose tables are those of the file.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path, self._spilled = path, Path(f"{path}.tmp")
        try:
            self.connection = _idle.pop()
        except IndexError:
            self.connection = duckdb.connect()
        try:
            self.connection.execute(f"SET temp_directory = {_literal(self._spilled)}")
            # Without the type, DuckDB 2.0 reads the header before it locks the file.
            mode = "READ_ONLY" if read_only else "READ_WRITE"
            self.connection.execute(f"ATTACH {_literal(path)} AS store (TYPE duckdb, {mode})")
            self.connection.execute("USE store")
        except BaseException as error:
            # It is tried again soon while another process has the file.
            _give_back(self.connection, reusable=isinstance(error, duckdb.Error) and busy(error))
            raise

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for another thread, or for a transaction of its own."""
        cursor = self.connection.cursor()
        cursor.execute("USE store")
        return cursor

    def close(self, *, sound: bool = True) -> None:
        """Merge the write-ahead log into the file and close it; all cursors must be closed before.

        Args:
            sound: Whether the instance can take another file; after an error it may be unusable.
        """
        reusable = False
        try:
            # If this is skipped, or fails because the disk is full, closing the instance closes the file.
            if sound:
                with suppress(duckdb.Error, OSError):
                    self.connection.execute("USE memory; DETACH store")
                    # DuckDB removes the folder of a query that did not fit into memory only when the instance is closed.
                    reusable = not self._spilled.exists() and self._path.stat().st_size < _LARGE_BYTES
        finally:
            _give_back(self.connection, reusable=reusable)


def close_instances() -> None:
    """Close the instances without a file, for example before a fork, which their threads do not survive."""
    with suppress(IndexError):
        while True:
            _idle.pop().close()


def _give_back(connection: duckdb.DuckDBPyConnection, *, reusable: bool) -> None:
    if reusable and len(_idle) < _KEPT:
        _idle.append(connection)
    else:
        connection.close()


def _literal(path: Path) -> str:
    quoted = str(path).replace("'", "''")
    return f"'{quoted}'"
