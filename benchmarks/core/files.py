"""Files that appear whole or not at all, or grow by whole lines, so that what was cut off is never taken for finished."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self, TypeVar

from benchmarks.core.errors import unwritable

T = TypeVar("T")

CACHE_VARIABLE = "RAGMETER_CACHE"
"""Environment variable: the folder for what is made once and read again; ~/.cache/ragmeter without it."""


def cache_home() -> Path:
    """Return the folder for what can be made again at any time."""
    named = os.environ.get(CACHE_VARIABLE)
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ragmeter"
    return base.expanduser()


def whole(path: Path, write: Callable[[Path], T]) -> T:
    """Write a file under another name next to its own, then give it its own, in place of any that is there.

    Args:
        path: The file, in a folder that is there.
        write: Writes it to the path that it is given.

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
    """Write a text in UTF-8, as `whole` does."""
    whole(path, lambda partial: partial.write_text(text, "utf-8"))


class Lines:
    """A file that lines are added to; a context manager.

    What was added outlives the process at once, and within a second of further lines, or when the file is closed, the
    machine.

    Args:
        path: The file; made when a line is first added.
        what: What errors call it.
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
        """Add whole lines.

        Returns:
            The byte at which they begin.

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
        """Close the file; it opens again when next added to.

        Raises:
            UserError, Broke: As `add`.
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
    """Cut a file behind its last line break: a process that was killed may have left a part of a line."""
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
