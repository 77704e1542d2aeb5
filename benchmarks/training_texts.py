"""Read all texts of training files, with the position of each.

JSON (Lines, an array, one object), CSV and TSV, Parquet, and plain text; each may be gzip-compressed or a member of a zip
archive. Every string of a record counts, however deep it lies and whatever its field is called.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.core.errors import UserError
from benchmarks.io.files import archive_of, open_bytes
from benchmarks.io.records import is_parquet, rows, stream_json

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".md", ".parquet")
"""Suffixes of the files that are read from a folder; each may be followed by `.gz`."""

_TABLES = {".csv": ",", ".tsv": "\t"}
_PLAIN = (".txt", ".md")
_LONGEST_FIELD = 1 << 30
_HEAD = 4096


class Text(NamedTuple):
    """A piece of text from a training file.

    Attributes:
        text: The text.
        number: 1-based number of its line, record or row (`unit`).
        joined: Whether it continues the previous text, like a line of plain text or an item of a list of strings.
    """

    text: str
    number: int
    joined: bool


def training_files(value: Path) -> list[Path]:
    """Return the path itself if it is a file, else all training files in the folder, recursively and sorted.

    Raises:
        UserError: The file or folder does not exist, or the folder has no training files.
    """
    if not value.is_dir():
        if archive_of(value) is None and not value.exists():
            raise UserError("training file or folder does not exist", code="missing-file", where=str(value))
        return [value]
    results = sorted(f for f in value.rglob("*") if f.is_file() and f.name.lower().removesuffix(".gz").endswith(SUFFIXES))
    if not results:
        raise UserError(
            "this folder contains no training file",
            code="folder-without-training-file",
            where=str(value),
            try_this=f"files that end in {', '.join(SUFFIXES)}",
        )
    return results


def unit(path: Path) -> str:
    """Return what a file's positions count: `line`, `record` or `row`."""
    kind = _kind(path)
    return "row" if kind == "parquet" else "record" if kind == "array" else "line"


def texts(path: Path, *, skip_bad: bool = False, skipped: list[str] | None = None) -> Iterator[Text]:
    """Yield all strings of a training file, in order.

    Args:
        path: The file, or `archive.zip!member`.
        skip_bad: Leave out records that cannot be read instead of stopping.
        skipped: List that receives the positions of skipped records.

    Raises:
        UserError: The file cannot be read, or a record is bad and `skip_bad` is off.
    """
    kind = _kind(path)
    if kind == "parquet":
        for number, row in enumerate(rows(path), 1):
            yield from _strings(row, number)
    elif kind in _TABLES:
        yield from _read_table(path, _TABLES[kind])
    elif kind == "text":
        with open_bytes(path) as source:
            for number, line in enumerate(source, 1):
                yield Text(line.decode("utf-8", "replace"), number, number > 1)
    else:
        for item in stream_json(path, whole=kind == "object"):
            if item.problem is None:
                yield from _strings(item.value, item.line if item.number is None else item.number)
            elif not skip_bad:
                raise UserError(
                    item.problem,
                    code="bad-record",
                    where=f"{path}, {item.position}",
                    try_this="repair the file, or skip bad records (each is counted)",
                )
            elif skipped is not None:
                skipped.append(f"{path}, {item.position}")


def _kind(path: Path) -> str:
    """Detect a file's format by content, then name: `parquet`, `.csv`, `.tsv`, `text`, `array`, `object` or `lines`."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if is_parquet(path):
        return "parquet"
    if suffix in _TABLES:
        return suffix
    with open_bytes(path) as source:
        head = source.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    if suffix in _PLAIN or head[:1] not in (b"{", b"[", b'"'):
        return "text"
    if head[:1] == b"[":
        return "array"
    # One object that spreads over several lines is read as a whole, so it is not looked for in what is JSON Lines.
    return "object" if suffix == ".json" or head.split(b"\n", 1)[0].strip() == b"{" else "lines"


def _strings(value: Any, number: int, joined: bool = False) -> Iterator[Text]:
    if isinstance(value, str):
        yield Text(value, number, joined)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner, number)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            # Sentences of a paragraph are one text.
            yield from _strings(inner, number, joined=position > 0 and isinstance(inner, str))


def _read_table(path: Path, delimiter: str) -> Iterator[Text]:
    csv.field_size_limit(_LONGEST_FIELD)
    with open_bytes(path) as source:
        lines = io.TextIOWrapper(source, "utf-8-sig", "replace", newline="")
        reader = csv.reader(lines, delimiter=delimiter)
        try:
            for cells in reader:
                for cell in cells:
                    yield Text(cell, reader.line_num, False)
        except csv.Error as error:
            raise UserError(f"this is not a table: {error}", code="not-table", where=f"{path}, line {reader.line_num}") from error
