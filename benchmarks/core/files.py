"""Write files atomically or line by line, so that an interrupted write is never mistaken for a complete file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self, TypeVar

from benchmarks.core.errors import unwritable

T = TypeVar("T")

CACHE_VARIABLE = "RAGMETER_CACHE"
"""Environment variable of the cache folder; default ~/.cache/ragmeter."""


def cache_home() -> Path:
    """Return the cache folder. Everything in it can be rebuilt."""
    named = os.environ.get(CACHE_VARIABLE)
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ragmeter"
    return base.expanduser()


def whole(path: Path, write: Callable[[Path], T]) -> T:
    """Write a file atomically: to a temporary name in the same folder, then rename it, replacing an existing file.

    Args:
        path: The file, in an existing folder.
        write: Function that writes the content to the path it receives.

    Returns:
        What `write` returns.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        result = write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return result


def whole_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    whole(path, lambda partial: partial.write_text(text, "utf-8"))


class Lines:
    """Append-only file of lines; a context manager.

    Appended lines survive a crash of the process immediately. They survive a crash of the machine after at most a second of
    further writes, or once the file is closed.

    Args:
        path: The file; created with the first line.
        what: Description of the file in errors.
    """

    def __init__(self, path: Path, what: str = "this file") -> None:
        self.path, self._what = path, what
        self._file: IO[bytes] | None = None
        self._kept_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, lines: str) -> int:
        """Append whole lines.

        Returns:
            Byte offset of the first line.

        Raises:
            UserError: The file cannot be written.
            Broke: The disk is full.
        """
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("ab")
            position = self._file.tell()
            self._file.write(lines.encode("utf-8", "backslashreplace"))
            self._file.flush()
            if time.monotonic() - self._kept_at > 1:
                self._keep(self._file)
        except OSError as error:
            raise unwritable(error, self.path, what=self._what) from error
        return position

    def close(self) -> None:
        """Close the file; adding lines reopens it.

        Raises:
            UserError, Broke: As in `add`.
        """
        file, self._file = self._file, None
        if file is not None:
            try:
                with file:
                    self._keep(file)
            except OSError as error:
                raise unwritable(error, self.path, what=self._what) from error

    def _keep(self, file: IO[bytes]) -> None:
        os.fsync(file.fileno())
        self._kept_at = time.monotonic()


def mend(path: Path) -> None:
    """Truncate a file after its last line break, since a killed process may have left an incomplete line."""
    with path.open("rb+") as file:
        end = at = file.seek(0, os.SEEK_END)
        while at > 0:
            start = max(0, at - 65536)
            file.seek(start)
            newline = file.read(at - start).rfind(b"\n")
            at = start + newline + 1 if newline >= 0 else start
            if newline >= 0:
                break
        if at < end:
            file.truncate(at)
