"""SQLite's write-ahead log (WAL), switched on by processes that may start together."""

from __future__ import annotations

import sqlite3
import time

_PAUSE_S = 0.01


def use_wal(connection: sqlite3.Connection, patience_s: float) -> None:
    """Put a connection's file into WAL mode, in which readers and a writer do not wait for each other.

    SQLite does not wait for the lock that setting the mode takes, whatever the connection's timeout, so processes
    that open a new file together would refuse each other: here they wait.

    Args:
        connection: An open connection, outside a transaction.
        patience_s: Longest wait for other processes, in seconds.

    Raises:
        sqlite3.OperationalError: The file was locked for all that time, or cannot be written.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            # Setting the mode takes the lock even where it changes nothing.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
