"""Stream records with positions from a file, a folder of `datasets.save_to_disk` or a hub repository."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.io.encodings import encoding_of, read_text
from benchmarks.io.files import open_bytes, shards_of
from benchmarks.io.records import decoder_of, is_parquet, parquet_schema
from benchmarks.io.tables import open_table
from benchmarks.own.fields import known_questions
from benchmarks.records import BadRecord, Record, bad_record, records

SPLITS: Mapping[str, tuple[str, ...]] = {"train": ("train",), "dev": ("validation", "dev", "val", "valid"), "test": ("test",)}
"""Common names of each split in users' data."""
LOOKED = 100
"""Number of records used for guessing fields."""
TABLES = (".csv", ".tsv", ".tab")
ARROW = (".arrow", ".feather")
_ENDINGS = ("jsonl", "json", "parquet", "csv", "tsv", "ndjson")
_ARROW_FILE = b"ARROW1"
"""First bytes of an Arrow file (as of Feather); a stream, which `datasets` writes, has none."""
_BY_ID = "a list of records with their ids: jq '[to_entries[] | .value + {id: .key}]' FILE"
_BY_IDS = ("queries", "corpus", "relevant_docs")
"""Fields of a file with questions, passages and gold by id."""
_COLUMNS = 'a row per record: frame.to_json(FILE, orient="records", lines=True)'


@dataclass(frozen=True)
class Source:
    """Data files with the options for parsing them.

    Attributes:
        paths: The files, in order.
        delimiter: Field separator of tables; None detects it.
        key: Field with the list of records if a JSON file is one object; None if its records are at the top level.
        by_id: Whether a JSON file is one object with questions, passages and gold by id, as LlamaIndex writes it.
        encoded: Columns of a table whose cells are objects or texts in JSON, as LangSmith and Langfuse write them.
    """

    paths: tuple[Path, ...]
    delimiter: str | None = None
    key: str | None = None
    by_id: bool = False
    encoded: frozenset[str] = frozenset()

    def read(self, path: Path) -> Iterator[Record | BadRecord]:
        """Yield the records of one file; a record that cannot be parsed is yielded as an error."""
        if _is_table(path):
            for item in open_table(path, self.delimiter).items():
                line = Record(item.value, path, item.position)
                yield self._decoded(line) if item.problem is None else bad_record(item.problem, path, item.position)
        elif path.suffix in ARROW:
            for number, row in enumerate(_arrow_rows(path), 1):
                yield Record(row, path, f"row {number}")
        elif is_parquet(path):
            written = _as_written(parquet_schema(path))
            for record in records(path):
                yield from [record] if isinstance(record, BadRecord) else _divided(replace(record, fields=written(record.fields)))
        else:
            for outer in records(path, whole=True, recoded=_recoded(path)):
                if isinstance(outer, BadRecord) or not (self.key or self.by_id):
                    inner: Iterable[Record | BadRecord] = [outer]
                else:
                    inner = _questions_by_id(outer) if self.by_id else _inner(outer, self.key or "")
                for record in inner:
                    yield from [record] if isinstance(record, BadRecord) else _divided(record)

    def passages(self) -> Iterator[Record]:
        """Yield the passages of a file with passages by id, each with the fields `id` and `text`."""
        for path in self.paths if self.by_id else ():
            for outer in records(path, whole=True, recoded=_recoded(path)):
                for name, text in outer.field("corpus", dict).items() if isinstance(outer, Record) else ():
                    yield Record({"id": name, "text": text}, path, f"corpus[{name!r}]")

    def _decoded(self, record: Record) -> Record | BadRecord:
        """Return a row of a table with the values of its encoded cells."""
        values = {name: _json_value(record.fields[name]) for name in self.encoded if record.fields[name].strip()}
        if wrong := next((name for name, value in values.items() if value is None), None):
            return record.problem(f"field {wrong!r} is not JSON, as in other rows", wrong)
        return replace(record, fields={**record.fields, **dict.fromkeys(self.encoded), **values}) if self.encoded else record

    def first(self) -> list[Mapping[str, Any]]:
        """Return the first valid records (up to `LOOKED`)."""
        every = (record for path in self.paths for record in self.read(path))
        return [record.fields for record in islice(every, LOOKED) if isinstance(record, Record)]

    @property
    def layout(self) -> tuple[str, ...]:
        """Describe how tables were parsed and which field contains the records; empty for other files."""
        shards = [f"{len(self.paths)} shards"] if len(self.paths) > 1 else []
        tables = dict.fromkeys(open_table(path, self.delimiter).layout for path in self.paths if _is_table(path))
        encoded = dict.fromkeys(f"JSON encoded as {name}" for path in self.paths if (name := _encoding(path)))
        cells = [f"JSON in the columns {', '.join(sorted(self.encoded))}"] if self.encoded else []
        inside = [f"its records are in the field {self.key}"] if self.key else ["questions, passages and gold by id"] if self.by_id else []
        return (*shards, *tables, *encoded, *cells, *inside)


def open_source(path: Path, split: str, *, delimiter: str | None = None) -> Source:
    """Locate the data files at a path and determine how to parse them.

    Args:
        path: A file, or a folder that `datasets.save_to_disk` wrote.
        split: The split to use if the folder has several.
        delimiter: Field separator of tables; None detects it.

    Raises:
        UserError: The folder holds something else, or lacks the split; or a JSON file holds columns.
    """
    if path.is_dir():
        return Source(_saved(path, split))
    source = Source(shards_of(path), delimiter)
    if _is_table(path):
        return replace(source, encoded=_encoded_columns(source.first()))
    if is_parquet(path):
        return source
    beginning = list(islice(source.read(path), 2))
    if len(beginning) == 1 and isinstance(beginning[0], Record):
        fields = beginning[0].fields
        by_id = all(isinstance(fields.get(name), dict) for name in _BY_IDS)
        return replace(source, by_id=True) if by_id else replace(source, key=_only_list(fields, path))
    return source


def _encoded_columns(rows: Sequence[Mapping[str, str]]) -> frozenset[str]:
    """Return the columns with cells that are all empty, or objects or texts in JSON."""
    cells = {name: [row[name] for row in rows if row[name].strip()] for name in (rows[0] if rows else ())}
    return frozenset(name for name, texts in cells.items() if texts and None not in map(_json_value, texts))


def _json_value(text: str) -> dict[str, Any] | str | None:
    """Return the object or text that a cell holds in JSON, or the object in Python's notation; None for other cells."""
    text = text.strip()
    for read in (json.loads, ast.literal_eval) if text.startswith("{") else (json.loads,) if text.startswith('"') else ():
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = read(text)
            return value if isinstance(value, dict | str) else None
    return None


def hub_patterns(config: str | None, split: str) -> list[str]:
    """Return file name patterns for a split in a hub repository, the most specific first."""
    names = SPLITS.get(split, (split,))
    folders = (f"{config}/", f"data/{config}/", f"{config}-") if config else ("data/", "", "default/", "plain_text/", "main/")
    stems = [f"{folder}{name}" for name in names for folder in folders]
    stems += [f"{config}/{name}/*" for name in names] if config else []
    return [f"{stem}{end}" for stem in stems for end in (*(f"-*.{e}" for e in _ENDINGS), *(f".{e}" for e in _ENDINGS))]


def _is_table(path: Path) -> bool:
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(TABLES):
        return True
    if name.endswith((".jsonl", ".ndjson", ".json", ".parquet", *ARROW)) or is_parquet(path):
        return False
    with open_bytes(path) as source:
        return source.read(1024).lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1] not in (b"{", b"[")


def _encoding(path: Path) -> str | None:
    """Return the encoding of a JSON file that is not UTF-8."""
    if path.suffix in ARROW or _is_table(path) or is_parquet(path):
        return None
    with suppress(UserError):
        encoding = encoding_of(path)
        return encoding.name if encoding.notice and not encoding.mixed else None
    return None


def _recoded(path: Path) -> bytes | None:
    return read_text(path)[0].encode() if _encoding(path) else None


def _only_list(fields: Mapping[str, Any], path: Path) -> str | None:
    """Return the field of a single object that contains the records; None if the object itself is a record.

    Raises:
        UserError: The object has columns, or several fields could contain the records.
    """
    lists = [key for key, value in fields.items() if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)]
    lists = [key for key in lists if len(fields[key]) > 1 or key == "data"]
    if any(isinstance(fields[key], str | dict) and _column(fields[key]) is None for key in known_questions(fields)):
        return None
    inner = [value for value in fields.values() if isinstance(value, dict) and known_questions(value)]
    if 1 < len(inner) == len(fields) and not known_questions(fields):
        raise UserError("this file contains records by their ids", code="records-by-id", where=str(path), try_this=_BY_ID)
    columns = [_column(value) for value in fields.values()]
    split = all(isinstance(fields.get(name), list) for name in ("columns", "data")) and all(isinstance(row, list) for row in fields["data"])
    if split or (len(columns) > 1 and None not in columns and len(set(columns)) == 1 and not lists):
        raise UserError("this file contains columns, not records", code="columns-not-records", where=str(path), try_this=_COLUMNS)
    if len(lists) > 1:
        raise UserError(
            f"several fields contain records: {', '.join(lists)}",
            code="several-record-lists",
            where=str(path),
            try_this="write the questions into a separate file, one record per line",
        )
    return lists[0] if lists else None


def _column(value: Any) -> int | None:
    """Return the length of a column in pandas' JSON format; None for other values."""
    if isinstance(value, dict) and value and all(key.isdecimal() for key in value):
        return len(value)
    return len(value) if isinstance(value, list) and len(value) > 1 and not isinstance(value[0], dict | list) else None


def _questions_by_id(outer: Record) -> Iterator[Record]:
    gold = outer.field("relevant_docs", dict)
    for name, text in outer.field("queries", dict).items():
        yield Record({"id": name, "query": text, "relevant_docs": gold.get(name, [])}, outer.path, f"queries[{name!r}]")


def _inner(outer: Record, key: str) -> Iterator[Record | BadRecord]:
    for number, value in enumerate(outer.field(key, list), 1):
        position = f"{key}[{number - 1}]"
        if isinstance(value, dict):
            yield Record(value, outer.path, position)
        else:
            yield bad_record("a record must be an object", outer.path, position)


def _divided(record: Record) -> Iterator[Record]:
    """Yield the questions of an article in SQuAD's layout as records, each with its paragraph; other records are unchanged."""
    items = record.fields.get("paragraphs")
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) and isinstance(item.get("qas"), list) for item in items):
        yield record
        return
    for number, paragraph in enumerate(items):
        for place, entry in enumerate(paragraph["qas"]):
            fields = dict(entry) if isinstance(entry, dict) else {"question": entry}
            answers, answerable = fields.get("answers"), fields.pop("is_impossible", False) is not True
            if isinstance(answers, list):
                fields["answers"] = [answer["text"] if isinstance(answer, dict) and "text" in answer else answer for answer in answers]
            text = {"title": record.fields.get("title"), "text": paragraph.get("context"), "is_supporting": answerable}
            fields |= {"answerable": answerable, "contexts": [text]}
            yield Record(fields, record.path, f"{record.position}.paragraphs[{number}].qas[{place}]")


def _saved(folder: Path, split: str) -> tuple[Path, ...]:
    """Return the Arrow files of a dataset folder.

    Raises:
        UserError: The folder has no dataset, or not this split.
    """
    listing, state = folder / "dataset_dict.json", folder / "state.json"
    if listing.is_file():
        names = _json(listing).get("splits", [])
        name = next((name for name in SPLITS.get(split, (split,)) if name in names), None)
        if name is None:
            raise unknown_name("split", split, names, where=str(folder))
        return _saved(folder / name, split)
    if not state.is_file():
        raise UserError(
            "this folder is not a dataset on disk",
            code="not-saved-dataset",
            where=str(folder),
            try_this="name a file with questions, or a folder that datasets.save_to_disk wrote; texts are named by documents: FOLDER",
        )
    content = _json(state)
    if content.get("_indices_data_files"):
        raise UserError(
            "this dataset was saved with a selection of its rows",
            code="saved-selection",
            where=str(state),
            try_this="dataset.flatten_indices().save_to_disk(FOLDER)",
        )
    return tuple(folder / item["filename"] for item in content["_data_files"])


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError) as error:
        raise UserError(f"this file cannot be read: {error}", code="unreadable-file", where=str(path)) from error


def _arrow_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as file:
            framed = file.read(len(_ARROW_FILE)) == _ARROW_FILE
            file.seek(0)
            with pa.ipc.open_file(file) if framed else pa.ipc.open_stream(file) as reader:
                decode, written = decoder_of(reader.schema), _as_written(reader.schema)
                batches = (reader.get_batch(number) for number in range(reader.num_record_batches)) if framed else reader
                for batch in batches:
                    for row in batch.to_pylist():
                        yield written(decode(row) if decode else row)
    except (pa.ArrowInvalid, OSError) as error:
        what = f"this Arrow file is damaged or cut off: {str(error).splitlines()[0]}"
        raise UserError(what, code="damaged-arrow", where=str(path), try_this="save the dataset again") from error


Convert = Callable[[Any], Any]


def _as_written(schema: Any) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function from a stored row to its values as people write them: labels by name, and 0.1 for the nearest float of 16
    or 32 bits, also within lists and objects.
    """
    stored = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features") or {}
    return _members({field.name: _written(field.type, stored.get(field.name)) for field in schema}) or dict


def _written(kind: Any, feature: Any) -> Convert | None:
    """Return the function for values of an Arrow type, with the feature of `datasets` that they are; None if they stay as they are."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = feature[0] if isinstance(feature, list) and feature else feature.get("feature") if isinstance(feature, dict) else None
        item = _written(kind.value_type, inner)
        return None if item is None else lambda values: [value if value is None else item(value) for value in values]
    if pa.types.is_struct(kind):
        # A sequence of objects is stored as an object of lists.
        sequence = feature.get("feature") if isinstance(feature, dict) and feature.get("_type") == "Sequence" else None
        named = {name: [inner] for name, inner in sequence.items()} if isinstance(sequence, dict) else feature
        return _members({each.name: _written(each.type, named.get(each.name) if isinstance(named, dict) else None) for each in kind})
    if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and (names := feature.get("names")):
        return lambda number: names[number] if isinstance(number, int) and 0 <= number < len(names) else number
    small = np.float32 if pa.types.is_float32(kind) else np.float16 if pa.types.is_float16(kind) else None
    return None if small is None else lambda number: float(str(small(number)))


def _members(converts: Mapping[str, Convert | None]) -> Convert | None:
    changing = {name: convert for name, convert in converts.items() if convert is not None}
    if not changing:
        return None
    return lambda row: row | {name: convert(row[name]) for name, convert in changing.items() if row.get(name) is not None}
