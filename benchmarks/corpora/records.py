"""The passages of a dump, one after another, from any record on.

| layout | a record |
| --- | --- |
| `dpr` | a line `id TAB text TAB title` with a header (`psgs_w100.tsv`); texts in quotes are unquoted |
| `atlas` | a JSON line `{id, title, section, text}`; as in Atlas, the section joins the title: `title: section` |
| `jsonl` | a JSON line `{id or _id?, title?, text}` |
| `parquet` | a row with the columns `text`, `title`? and `id`? (others are not read) |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import UserError, unknown_name
from benchmarks.open_file import open_bytes
from benchmarks.parquet_rows import is_parquet
from benchmarks.sources import BadRecord, Record
from benchmarks.tab_separated import cut_off, fields, numbered_lines

SUFFIXES = (".tsv", ".jsonl", ".parquet")
"""Names of files that are taken from a folder; `.gz` may follow."""

BATCH_ROWS = 1024
"""Parquet rows made into Python objects at a time."""

_DPR = ("id", "text", "title")
_REPAIR = "repair the file, or skip bad records (each is counted and named)"


class Entry(NamedTuple):
    """A passage as a dump gives it."""

    native_id: str | None
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Read:
    """What stands at one place of a file.

    Attributes:
        entry: The passage, or the error that describes what is there instead; None for a header.
        place: Lines or rows read up to and including this one: where reading goes on.
        size: Bytes read for it; 0 where that is not known.
    """

    entry: Entry | BadRecord | None
    place: int
    size: int = 0


def layout_of(path: Path) -> str:
    """The layout of a dump, by its content.

    Raises:
        UserError: It is none of those known.
    """
    if is_parquet(path):
        return "parquet"
    _, line = next(iter(numbered_lines(path)))
    if line.lstrip().startswith(b"{"):
        return "atlas" if b'"section"' in line else "jsonl"
    try:
        fields(line, _DPR)
    except ValueError as error:
        raise UserError(
            "this is no dump of passages that is known here",
            where=f"{path}, line 1",
            try_this="DPR's tab-separated lines, JSON Lines {id, title, text}, or Parquet with the column text",
        ) from error
    return "dpr"


def dump_files(source: Path) -> list[Path]:
    """A dump's files: the file itself, or those in a folder, by name.

    Raises:
        UserError: There is none.
    """
    if not source.is_dir():
        if not source.exists():
            raise UserError("there is no such file or folder", where=str(source))
        return [source]
    found = sorted(f for f in source.iterdir() if f.is_file() and f.name.removesuffix(".gz").endswith(SUFFIXES))
    if not found:
        raise UserError("this folder holds no dump of passages", where=str(source), try_this=f"files that end in {', '.join(SUFFIXES)}")
    return found


def read(path: Path, layout: str, skip: int = 0) -> Iterator[Read]:
    """What a file holds behind its first `skip` lines or rows.

    Raises:
        UserError: There is no such layout, or the file cannot be read.
    """
    if layout not in LAYOUTS:
        raise unknown_name("layout of a dump", layout, LAYOUTS)
    return LAYOUTS[layout](path, skip)


def _dpr(path: Path, skip: int) -> Iterator[Read]:
    order = [0, 1, 2]
    if skip:
        # The header says where the columns are, wherever reading goes on.
        order = _columns(fields(next(iter(numbered_lines(path)))[1], _DPR)) or order
    for number, raw in numbered_lines(path, skip):
        entry: Entry | BadRecord | None
        try:
            found = fields(raw, _DPR)
            header = _columns(found) if number == 1 else None
            if header is not None:
                order, entry = header, None
            else:
                native, text, title = (found[column] for column in order)
                entry = Entry(native, title, text)
        except ValueError as error:
            entry = _bad(path, f"line {number}", f"{error}{cut_off(raw)}")
        yield Read(entry, number, len(raw))


def _columns(names: list[str]) -> list[int] | None:
    """Where id, text and title stand, if these are the fields of a header."""
    return [names.index(name) for name in _DPR] if sorted(names) == sorted(_DPR) else None


def _json_lines(path: Path, skip: int, sections: bool = False) -> Iterator[Read]:
    for number, raw in numbered_lines(path, skip):
        entry: Entry | BadRecord
        try:
            value = json.loads(raw.decode("utf-8"), strict=False)
            if not isinstance(value, dict):
                raise ValueError(f"a record must be an object, not {type(value).__name__}")
            entry = _entry(Record(value, path, f"line {number}"), sections)
            if b"\\u" in raw:
                "".join(filter(None, entry)).encode("utf-8")
        except BadRecord as error:
            entry = error
        except UnicodeEncodeError:
            entry = _bad(path, f"line {number}", "half of a surrogate pair stands for a character")
        except UnicodeDecodeError as error:
            entry = _bad(path, f"line {number}", f"byte 0x{raw[error.start]:02x} is not UTF-8")
        except (ValueError, RecursionError) as error:
            what = f"this is not JSON: {error}" if raw.strip() else "the line is empty"
            entry = _bad(path, f"line {number}", f"{what}{cut_off(raw) if raw.strip() else ''}")
        yield Read(entry, number, len(raw))


def _atlas(path: Path, skip: int) -> Iterator[Read]:
    return _json_lines(path, skip, sections=True)


def _entry(record: Record, sections: bool) -> Entry:
    name = "id" if "id" in record.fields else "_id"
    native = record.fields.get(name)
    if type(native) is int:
        native = str(native)
    elif native is not None:
        native = record.text(name)
    title, text = record.text("title", ""), record.text("text")
    section = record.text("section", "") if sections else ""
    return Entry(native, f"{title}: {section}" if section else title, text)


def _parquet(path: Path, skip: int) -> Iterator[Read]:
    import pyarrow.parquet as pq

    with open_bytes(path) as source, _damage(path), pq.ParquetFile(source, pre_buffer=False) as file:
        names = set(file.schema_arrow.names)
        if "text" not in names:
            raise UserError(
                f"this Parquet file has no column text, only {', '.join(sorted(names))}",
                where=str(path),
                try_this="rename the column that holds the passages",
            )
        wanted = [name for name in ("id", "_id", "title", "text") if name in names]
        groups, start = _groups_from(file, skip)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=wanted):
            for row in batch.to_pylist():
                start += 1
                if start > skip:
                    yield Read(_row(row, path, start), start)


def _groups_from(file: Any, skip: int) -> tuple[list[int], int]:
    """The row groups that hold the rows behind the first `skip`, and how many rows stand before them."""
    start = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if start + rows > skip:
            return list(range(group, file.num_row_groups)), start
        start += rows
    return [], start


def _row(row: dict[str, Any], path: Path, number: int) -> Entry | BadRecord:
    try:
        return _entry(Record(row, path, f"row {number}"), sections=False)
    except BadRecord as error:
        return error


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        raise UserError(
            f"this Parquet file is damaged or cut off: {str(error).splitlines()[0]}", where=str(path), try_this="fetch it again"
        ) from error


def _bad(path: Path, place: str, what: str) -> BadRecord:
    return BadRecord(what, where=f"{path}, {place}", try_this=_REPAIR)


LAYOUTS: dict[str, Callable[[Path, int], Iterator[Read]]] = {"dpr": _dpr, "atlas": _atlas, "jsonl": _json_lines, "parquet": _parquet}
"""By name: from a file and a number of lines or rows to leave out to what follows."""
