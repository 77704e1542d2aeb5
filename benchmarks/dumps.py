"""Read the passages of a corpus dump one by one, starting at any record.

| layout | a record |
| --- | --- |
| `dpr` | a line `id TAB text TAB title` with a header (`psgs_w100.tsv`); texts in quotes are unquoted |
| `atlas` | a JSON line `{id, title, section, text}`; as in Atlas, the section joins the title: `title: section` |
| `jsonl` | a JSON line `{id or _id?, title?, text}` |
| `parquet` | a row with the columns `text`, `title`? and `id`? (others are not read) |
| `beir` | a JSON line or a Parquet row `{_id, title?, text}`, or with the names of `_NAMES`; every id is a passage of its own |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.io.files import open_bytes, shards_of
from benchmarks.io.records import cut_off, fields, is_parquet, numbered_lines
from benchmarks.records import BadRecord, Record

BEIR = "beir"
"""Layout in which passages with equal texts but different ids stay separate."""

VERSION = 2
"""Version of the parsers. Corpora in the cache are built again if it changes."""
SUFFIXES = (".tsv", ".jsonl", ".parquet")
"""Suffixes of the files that are read from a folder; each may be followed by `.gz`."""

PARQUET_ROWS = 1024
"""Number of Parquet rows converted to Python objects at a time."""

_DPR = ("id", "text", "title")
_DECODER = json.JSONDecoder(strict=False)
_ENDS = ("\n", "", "\r\n")
_REPAIR = "repair the file, or skip bad records (each is counted and named)"


_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("_id", "id", "docid", "doc_id"),
    "text": ("text", "content", "contents", "segment", "passage"),
    "title": ("title", "wikipedia_title"),
    "document": ("document_id", "wikipedia_id"),
}
"""Field names in the layout `beir`: BEIR, MTEB, BRIGHT, FlashRAG's corpora, TREC RAG's segments and KILT."""


class Entry(NamedTuple):
    """A passage of a dump, with its source document if the dump names it."""

    native_id: str | None
    title: str
    text: str
    document: str | None = None


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Read:
    """A parsed line or row of a dump file, with its position.

    Attributes:
        entry: The passage, or the error if it could not be parsed; None for a header.
        position: Number of lines or rows read including this one; pass it as `skip` to resume.
        size: Number of bytes of the line; 0 if unknown.
    """

    entry: Entry | BadRecord | None
    position: int
    size: int = 0


def layout_of(path: Path) -> str:
    """Detect the layout of a dump from its content.

    Raises:
        UserError: No known layout matches.
    """
    if is_parquet(path):
        return "parquet"
    _, line = next(iter(numbered_lines(path)))
    if line.lstrip().startswith(b"{"):
        return "atlas" if b'"section"' in line else "jsonl"
    _require_columns(line, path)
    try:
        fields(line, _DPR)
    except ValueError as error:
        raise UserError(
            "unknown layout of a dump of passages",
            code="unknown-dump-layout",
            where=f"{path}, line 1",
            try_this="DPR's tab-separated lines, JSON Lines {id, title, text}, or Parquet with the column text",
        ) from error
    return "dpr"


def dump_files(source: Path) -> list[Path]:
    """Return a dump's files: the file itself, or the files of a folder in alphabetical order.

    Raises:
        UserError: No file was found.
    """
    if not source.is_dir():
        if not source.exists():
            raise UserError("file or folder does not exist", code="missing-file", where=str(source))
        return list(shards_of(source))
    files = sorted(file for file in source.iterdir() if file.is_file())
    results = [file for file in files if file.name.removesuffix(".gz").endswith(SUFFIXES)]
    # MS MARCO's segments are JSON Lines named .json; a card may be named so too.
    results = results or [file for file in files if file.name.removesuffix(".gz").endswith(".json")]
    if not results:
        raise UserError(
            "this folder contains no dump of passages",
            code="folder-without-dump",
            where=str(source),
            try_this=f"files that end in {', '.join(SUFFIXES)}",
        )
    return results


def read(path: Path, layout: str, skip: int = 0) -> Iterator[Read]:
    """Yield the parsed lines or rows of a dump file after the first `skip`.

    Raises:
        UserError: There is no such layout, or the file cannot be read.
    """
    if layout not in LAYOUTS:
        raise unknown_name("layout of a dump", layout, LAYOUTS)
    return LAYOUTS[layout](path, skip)


def _dpr(path: Path, skip: int) -> Iterator[Read]:
    order = [0, 1, 2]
    if skip:
        # The header says where the columns are, wherever reading continues.
        order = _record_columns(fields(next(iter(numbered_lines(path)))[1], _DPR)) or order
    for number, raw in numbered_lines(path, skip):
        if number == 1:
            _require_columns(raw, path)
        entry: Entry | BadRecord | None
        try:
            result = fields(raw, _DPR)
            header = _record_columns(result) if number == 1 else None
            if header is not None:
                order, entry = header, None
            else:
                native, text, title = (result[column] for column in order)
                entry = Entry(native, title, text)
        except ValueError as error:
            entry = _bad(path, f"line {number}", f"{error}{cut_off(raw)}")
        yield Read(entry, number, len(raw))


def _require_columns(raw: bytes, path: Path) -> None:
    """Check the column names in a table's header, if the first line is one.

    Raises:
        UserError: Columns are missing; the message lists all of them.
    """
    names = raw.decode("utf-8", "replace").rstrip("\r\n").split("\t")
    lacking = [name for name in _DPR if name not in names]
    if 0 < len(lacking) < len(_DPR) and all(name.isidentifier() for name in names):
        what = f"this table has no column {' and no column '.join(lacking)}, only {', '.join(names)}"
        raise UserError(what, code="missing-columns", where=f"{path}, line 1", try_this=f"name its columns {', '.join(_DPR)}")


def _record_columns(names: list[str]) -> list[int] | None:
    """Return the positions of id, text and title if these names are the header of a table, else None."""
    return [names.index(name) for name in _DPR] if sorted(names) == sorted(_DPR) else None


def _json_lines(path: Path, skip: int, parse: Callable[[Record], Entry] | None = None) -> Iterator[Read]:
    for number, raw in numbered_lines(path, skip):
        entry: Entry | BadRecord | None
        try:
            if parse is _own_entry and not raw.strip():
                yield Read(None, number, len(raw))
                continue
            value = _decoded(raw.decode("utf-8"))
            if not isinstance(value, dict):
                raise ValueError(f"a record must be an object, not {type(value).__name__}")
            entry = (parse or _entry)(Record(value, path, f"line {number}"))
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


def _decoded(text: str) -> Any:
    """Parse a line as JSON, faster than `json.loads` for lines without surrounding white space."""
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return _DECODER.decode(text)
    return value if text[end:] in _ENDS else _DECODER.decode(text)


def _atlas(path: Path, skip: int) -> Iterator[Read]:
    return _json_lines(path, skip, _section_entry)


def _section_entry(record: Record) -> Entry:
    return _entry(record, sections=True)


def _entry(record: Record, sections: bool = False) -> Entry:
    name = "id" if "id" in record.fields else "_id"
    native = None if record.fields.get(name) is None else _identifier(record, name)
    title, text = record.text("title", ""), record.text("text")
    section = record.text("section", "") if sections else ""
    return Entry(native, f"{title}: {section}" if section else title, text)


def _beir(path: Path, skip: int) -> Iterator[Read]:
    if is_parquet(path):
        return _parquet(path, skip, _own_entry)
    return _json_lines(path, skip, _own_entry)


def _own_entry(record: Record) -> Entry:
    """Return a passage with its own id as part of its identity.

    Raises:
        BadRecord: The id or text is missing.
    """
    fields = record.fields
    native, title, text = fields.get("_id"), fields.get("title", ""), fields.get("text")
    if type(native) is type(title) is type(text) is str and fields.keys().isdisjoint(_NAMES["document"]):
        return Entry(native, title, text)
    field_of = {meaning: next((name for name in names if fields.get(name) is not None), None) for meaning, names in _NAMES.items()}
    if field_of["id"] is None or field_of["text"] is None:
        lacking, names = next((meaning, _NAMES[meaning]) for meaning in ("id", "text") if field_of[meaning] is None)
        raise record.problem(f"the record lacks {lacking}", names[0], f"one of the fields {', '.join(names)}")
    native, title = _identifier(record, field_of["id"]), record.text(field_of["title"] or "title", "")
    # KILT's pages are lists of paragraphs.
    text = "".join(record.texts(field_of["text"])) if type(fields[field_of["text"]]) is list else record.text(field_of["text"])
    if field_of["text"] == "contents" and not title and "\n" in text.strip():
        # FlashRAG writes the title as the first line; Pyserini's passages without a title have only one.
        title, _, text = text.partition("\n")
        title = title.strip('"')
    document = None if field_of["document"] is None else _identifier(record, field_of["document"])
    if document is None and field_of["text"] == "segment":
        document = native.partition("#")[0]
    return Entry(native, title, text, document)


def _identifier(record: Record, name: str) -> str:
    value = record.fields[name]
    return str(value) if type(value) is int else record.text(name)


def _parquet(path: Path, skip: int, entry: Callable[[Record], Entry] | None = None) -> Iterator[Read]:
    import pyarrow.parquet as pq

    with open_bytes(path) as source, _damage(path), pq.ParquetFile(source, pre_buffer=False) as file:
        names = set(file.schema_arrow.names)
        wanted = [name for name in dict.fromkeys(chain(*_NAMES.values())) if name in names]
        if entry is None and "text" not in names:
            raise UserError(
                f"this Parquet file has no column text, only {', '.join(sorted(names))}",
                code="missing-text-column",
                where=str(path),
                try_this="rename the column that holds the passages",
            )
        if entry is None:
            wanted = [name for name in wanted if name in ("id", "_id", "title", "text")]
        groups, start = _groups_from(file, skip)
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, row_groups=groups, columns=wanted):
            for row in batch.to_pylist():
                start += 1
                if start > skip:
                    yield Read(_row(row, path, start, entry or _entry), start)


def _groups_from(file: Any, skip: int) -> tuple[list[int], int]:
    """Return the Parquet row groups after the first `skip` rows, and the number of rows before them."""
    start = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if start + rows > skip:
            return list(range(group, file.num_row_groups)), start
        start += rows
    return [], start


def _row(row: dict[str, Any], path: Path, number: int, entry: Callable[[Record], Entry]) -> Entry | BadRecord:
    try:
        return entry(Record(row, path, f"row {number}"))
    except BadRecord as error:
        return error


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise UserError(
            f"this Parquet file is damaged or cut off: {str(error).splitlines()[0]}",
            code="damaged-parquet",
            where=str(path),
            try_this="fetch it again",
        ) from error


def _bad(path: Path, position: str, what: str) -> BadRecord:
    return BadRecord(what, code="missing-columns", where=f"{path}, {position}", try_this=_REPAIR)


LAYOUTS: dict[str, Callable[[Path, int], Iterator[Read]]] = {
    "dpr": _dpr,
    "atlas": _atlas,
    "jsonl": _json_lines,
    "parquet": _parquet,
    BEIR: _beir,
}
"""Parser per layout. Each takes a file and the number of lines or rows to skip, and yields the entries that follow."""
