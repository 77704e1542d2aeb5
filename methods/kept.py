"""Files of intermediate work: JSON that appears whole or not at all, so that a run that was cut off goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.files import whole_text
from benchmarks.fingerprint import content_id


def file_id(identifier: str) -> str:
    """A name for files about a question or document: ids of datasets may hold slashes, and be of any length."""
    return content_id("q", identifier)


def write_json(path: Path, value: Any, *, nan: bool = True) -> None:
    """Write a JSON value.

    Args:
        path: The file.
        value: What goes in.
        nan: Whether it may hold numbers that are none, which JSON does not know; they are written as Python does.

    Raises:
        ValueError: It holds such a number and may not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_text(path, json.dumps(value, ensure_ascii=False, allow_nan=nan, indent=1) + "\n")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read_json(path: Path) -> Any:
    """Read a JSON value.

    Raises:
        UserError: It is damaged.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON Lines.

    Raises:
        UserError: A line is damaged.
    """
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"this file of earlier work cannot be read: {error}", where=str(path), try_this="delete it: it will be made again")
