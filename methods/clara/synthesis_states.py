"""A file of states that grows by whole lines; the last line of an id counts. Only places are held in memory.

A line is `{"id", "made_of", "value"}` and on its way to the disk when `add` returns: it outlives the process.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import IO, Any, Self

from benchmarks.errors import UserError, unwritable
from methods.kept import file_id


class StateFile:
    """States by id; may be used from several threads. A context manager.

    Args:
        path: The file; made when something is first added. A last line that was cut off is removed.

    Raises:
        UserError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, int] = {}
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        if path.exists():
            self._scan()

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, identifier: str, made_of: str) -> Any | None:
        """The state of an id; None where there is none, or it was made of something else."""
        with self._lock:
            place = self._places.get(file_id(identifier))
            if place is None:
                return None
            file = self._opened()
            file.seek(place)
            row = self._row(file.readline(), place)
        return row["value"] if row["id"] == identifier and row["made_of"] == made_of else None

    def add(self, identifier: str, made_of: str, value: Any) -> None:
        """Add the state of an id (JSON).

        Raises:
            UserError: The file cannot be written.
            Broke: The disk is full.
        """
        row = {"id": identifier, "made_of": made_of, "value": value}
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        try:
            with self._lock:
                file = self._opened()
                place = file.seek(0, 2)
                file.write(line)
                file.flush()
                self._places[file_id(identifier)] = place
        except OSError as error:
            raise unwritable(error, self.path, what="the file of states") from error

    def close(self) -> None:
        """Close the file; it opens again when next used."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("r+b" if self.path.exists() else "w+b")
        return self._file

    def _scan(self) -> None:
        place = 0
        try:
            with self.path.open("r+b") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        file.truncate(place)
                        break
                    self._places[file_id(self._row(line, place)["id"])] = place
                    place += len(line)
        except OSError as error:
            raise UserError(f"the states cannot be read: {error.strerror}", where=str(self.path)) from None

    def _row(self, line: bytes, place: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
            return {name: row[name] for name in ("id", "made_of", "value")}
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"this state cannot be read: {error}",
                where=f"{self.path}, byte {place}",
                try_this="remove the line: what it held is made again",
            ) from None
