"""What the native formats of worlds share: what a format declares, and files that appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.files import whole_text
from benchmarks.registry import Benchmark
from benchmarks.schema import Question

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NativeFormat:
    """A format of another dataset's files.

    Attributes:
        subsets: The subsets of worlds that it can be written of, the usual one first.
        suits: Whether it can express an answerable question.
        write: From a benchmark and its suitable questions to texts by file name; "" is the file itself, other names
            are files beside it.
    """

    subsets: tuple[str, ...]
    suits: Callable[[Question], bool]
    write: Callable[[Benchmark, Sequence[Question]], Mapping[str, str]]


def put(files: Mapping[str, str], path: Path, overwrite: bool) -> None:
    """Write texts to a file and to others beside it, each of which appears whole or not at all.

    Args:
        files: Text by name; "" is the file itself.
        path: The file.
        overwrite: Whether files that are there may be replaced.

    Raises:
        UserError: A file is in the way.
    """
    for name, text in files.items():
        target = path.with_name(name) if name else path
        if target.exists() and not overwrite:
            raise UserError("this file is in the way", where=str(target), try_this="choose another folder, or overwrite=True")
        target.parent.mkdir(parents=True, exist_ok=True)
        whole_text(target, text)


def json_lines(rows: Iterable[Row]) -> str:
    """Rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
