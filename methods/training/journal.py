"""A file of work that grows by whole lines: what was asked for once is not asked for again.

A line is `{"id", "made_of", "value"}`. It counts for whoever asks under the same id and with the same ingredients; of
several the last one does. A line that was cut off, when whoever wrote it was stopped, is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError, require_writable, unwritable

_WHAT = "the file of earlier work"


class Journal:
    """A file of results by id.

    Args:
        path: The file; made when something is first added.

    Raises:
        UserError: The file is damaged, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        # What is found out with the first result has been paid for already.
        require_writable(path, what=_WHAT)
        self._path = path
        self._kept: dict[str, tuple[str, Any]] = {}
        if path.exists():
            _mend(path)
            for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
                if line:
                    self._read(line, number)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, identifier: str, made_of: str) -> Any | None:
        """What is kept under an id; None where there is nothing, or it was made of something else."""
        kept = self._kept.get(identifier)
        return kept[1] if kept is not None and kept[0] == made_of else None

    def add(self, made: Iterable[tuple[str, str, Any]]) -> None:
        """Add ids, what each was made of, and the results (JSON); they are on disk when this returns.

        Raises:
            UserError: The file cannot be written.
            Broke: The disk is full.
        """
        lines = []
        for identifier, made_of, value in made:
            self._kept[identifier] = (made_of, value)
            row: Mapping[str, Any] = {"id": identifier, "made_of": made_of, "value": value}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
        if not lines:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", newline="\n") as file:
                file.write("".join(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(error, self._path, what=_WHAT) from error

    def _read(self, line: str, number: int) -> None:
        try:
            row = json.loads(line)
            self._kept[row["id"]] = (row["made_of"], row["value"])
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"this line of earlier work cannot be read: {error}",
                where=f"{self._path}:{number}",
                try_this="remove the line: what it held is made again",
            ) from None


def _mend(path: Path) -> None:
    """Cut a file behind its last line break."""
    raw = path.read_bytes()
    if raw and not raw.endswith(b"\n"):
        with path.open("rb+") as file:
            file.truncate(raw.rfind(b"\n") + 1)
