"""Files of intermediate work: JSON that appears whole or not at all, so that a run that was cut off goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import content_id


def file_id(identifier: str) -> str:
    """A name for files about a question or document: ids of datasets may hold slashes, and be of any length."""
    return content_id("q", identifier)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value."""
    _write(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines."""
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    partial.write_text(text, "utf-8")
    partial.replace(path)


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
    return UserError(
        f"this file of earlier work cannot be read: {error}", where=str(path),
        try_this="delete it: it will be made again",
    )  # fmt: skip
