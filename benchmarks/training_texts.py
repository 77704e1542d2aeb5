"""The texts of any training file, one after another with the place where each stands.

JSON (Lines, an array, one object), CSV and TSV, Parquet, and plain text; each may be gzip-compressed or a member of a
zip archive. Every string of a record counts, however deep it lies and whatever its field is called.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import UserError
from benchmarks.json_stream import stream
from benchmarks.open_file import archive_of, open_bytes
from benchmarks.parquet_rows import is_parquet, rows

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".md", ".parquet")
"""Names of files that are taken from a folder; `.gz` may follow."""

_TABLES = {".csv": ",", ".tsv": "\t"}
_PLAIN = (".txt", ".md")
_LONGEST_FIELD = 1 << 30
_HEAD = 4096


class Text(NamedTuple):
    """A text of a training file.

    Attributes:
        text: As it stands there.
        number: 1-based number of its line, record or row (`unit`).
        joined: Whether it goes on where the text before it ended: a line of plain text, an item of a list of strings.
    """

    text: str
    number: int
    joined: bool


def training_files(given: Path) -> list[Path]:
    """A file itself, or the training files in a folder and its folders, by name.

    Raises:
        UserError: There is no such file or folder, or none in it.
    """
    if not given.is_dir():
        if archive_of(given) is None and not given.exists():
            raise UserError("there is no such training file or folder", where=str(given))
        return [given]
    found = sorted(f for f in given.rglob("*") if f.is_file() and f.name.lower().removesuffix(".gz").endswith(SUFFIXES))
    if not found:
        raise UserError("this folder holds no training file", where=str(given), try_this=f"files that end in {', '.join(SUFFIXES)}")
    return found


def unit(path: Path) -> str:
    """What the texts of a file are numbered by: `line`, `record` or `row`."""
    kind = _kind(path)
    return "row" if kind == "parquet" else "record" if kind == "array" else "line"


def texts(path: Path, *, skip_bad: bool = False, skipped: list[str] | None = None) -> Iterator[Text]:
    """The texts of a file, in order.

    Args:
        path: The file, or `archive.zip!member`.
        skip_bad: Leave out records that cannot be read instead of stopping.
        skipped: Receives their places.

    Raises:
        UserError: The file cannot be read, or a record is bad and `skip_bad` is off.
    """
    kind = _kind(path)
    if kind == "parquet":
        for number, row in enumerate(rows(path), 1):
            yield from _strings(row, number)
    elif kind in _TABLES:
        yield from _table(path, _TABLES[kind])
    elif kind == "text":
        with open_bytes(path) as source:
            for number, line in enumerate(source, 1):
                yield Text(line.decode("utf-8", "replace"), number, number > 1)
    else:
        for item in stream(path, whole=kind == "object"):
            if item.problem is None:
                yield from _strings(item.value, item.line if item.number is None else item.number)
            elif not skip_bad:
                raise UserError(
                    item.problem, where=f"{path}, {item.place}", try_this="repair the file, or skip bad records (each is counted)"
                )
            elif skipped is not None:
                skipped.append(f"{path}, {item.place}")


def _kind(path: Path) -> str:
    """`parquet`, `.csv`, `.tsv`, `text`, `array`, `object` or `lines`: by content, then by name."""
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
        for place, inner in enumerate(value):
            # Sentences of a paragraph are one text.
            yield from _strings(inner, number, joined=place > 0 and isinstance(inner, str))


def _table(path: Path, delimiter: str) -> Iterator[Text]:
    csv.field_size_limit(_LONGEST_FIELD)
    with open_bytes(path) as source:
        lines = io.TextIOWrapper(source, "utf-8-sig", "replace", newline="")
        reader = csv.reader(lines, delimiter=delimiter)
        try:
            for cells in reader:
                for cell in cells:
                    yield Text(cell, reader.line_num, False)
        except csv.Error as error:
            raise UserError(f"this is no table: {error}", where=f"{path}, line {reader.line_num}") from error
