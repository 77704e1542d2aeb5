"""Explain faults of the store's file, such as a full disk, so that the user can fix them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import duckdb

from benchmarks.core.errors import Broke, UserError
from results.store import holder


class DiskFull(Broke):
    """Raised if a file of the store cannot grow because the disk is full; data written before are kept."""

    def __init__(self, path: Path, what: str = "the disk is full") -> None:
        super().__init__(
            what,
            code="disk-full",
            where=str(path),
            try_this="free some space or raise the limit, then repeat the command (`ragmeter run --resume` for a run); "
            "finished work is kept",
        )


class Damaged(Broke):
    """Raised if the store's file lost content because it was truncated or overwritten."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            "the store's file is damaged or cut off",
            code="damaged-store",
            where=str(path),
            try_this="put a backup in its place, or name another --store FOLDER and fill it with `ragmeter results "
            "merge` from exports or other stores; the file was left as it is",
        )


def busy(error: duckdb.Error) -> bool:
    """Return whether a DuckDB error means that another process, or another part of this one, has the file open."""
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "Unique file handle conflict" in text


def _damaged(text: str, file: str) -> bool:
    """Return whether DuckDB reports that the store's own file, not an imported one, is damaged."""
    cut = "Could not read enough bytes" in text and (f'{file}"' in text or f"{file}.wal" in text)
    return cut or "Corrupt database file" in text or "Failure while replaying WAL" in text


_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached the limit on the size of files (`ulimit -f`)",
}


def explained(error: Exception, path: Path, patience: float) -> Exception:
    """Return a `UserError` for errors that a user can fix, and all others unchanged.

    Args:
        error: An error of DuckDB or of the file system.
        path: The store's file.
        patience: Seconds for which this process has waited if another one has the file open.
    """
    text = str(error)
    if getattr(error, "errno", None) in (errno.ENOLCK, errno.EOPNOTSUPP):
        return UserError(
            f"this file system has no file locks: {os.strerror(error.errno)}",  # type: ignore[attr-defined]
            code="no-file-locks",
            where=str(path.parent),
            try_this="--store FOLDER on a local disk",
        )
    for number, what in _FULL.items():
        if os.strerror(number) in text or getattr(error, "errno", None) == number:
            named = re.search(r'file \\?"([^"\\]+)', text)
            return DiskFull(Path(named[1]) if named else Path(getattr(error, "filename", None) or path), what)
    if "not a valid DuckDB database" in text or "magic bytes" in text:
        return UserError(
            "this file is not a DuckDB database",
            code="not-a-database",
            where=str(path),
            try_this="choose another folder with --store FOLDER; the file was left as it is",
        )
    if isinstance(error, duckdb.Error) and _damaged(text, path.name):
        return Damaged(path)
    if "Permission denied" in text or getattr(error, "errno", None) in (13, 30):
        return UserError("the store cannot be written", code="unwritable-store", where=str(path), try_this="--store FOLDER")
    if isinstance(error, duckdb.Error) and busy(error):
        what = f"the store was in use for over {patience:.0f} s: {holder.named(path.parent, error)}"
        return Broke(what, code="unreadable-store", where=str(path), try_this="wait for that process, or end it; nothing finished is lost")
    return error
