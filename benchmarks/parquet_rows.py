"""Rows of a Parquet file one after another, a row group at a time, so that memory does not grow with the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.errors import MissingPackage, UserError
from benchmarks.open_file import open_bytes

MAGIC = b"PAR1"
BATCH_ROWS = 256
"""Rows made into Python objects at a time, at most."""
BATCH_BYTES = 1 << 20
"""Bytes made into Python objects at a time, as encoded in the file: a graph's triples grow tenfold and more."""

_PLAIN = {"Value", "List", "LargeList", "Sequence", "ClassLabel"}
"""Feature types of `datasets` whose stored values are the values themselves."""


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its first bytes.

    Raises:
        UserError: It cannot be read.
    """
    with open_bytes(path) as source:
        return source.read(len(MAGIC)) == MAGIC


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file as dicts, in order.

    The hub's files say in their schema which `datasets` features their columns are. Where one of them stores
    something other than its value (`Json` stores text), `datasets` itself decodes the rows.

    Args:
        path: The file, or a member of an archive (`open_file.open_bytes`).

    Raises:
        UserError: The file is cut off or damaged.
        MissingPackage: Its columns must be decoded by `datasets`, which is not installed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_bytes(path) as source:
        try:
            with pq.ParquetFile(source, pre_buffer=False) as file:
                decode = _decoder(file.schema_arrow)
                for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                    for row in batch.to_pylist():
                        yield decode(row) if decode else row
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(
                f"this Parquet file is damaged or cut off: {str(error).splitlines()[0]}", where=str(path), try_this="fetch it again"
            ) from error


def _batch_rows(metadata: Any) -> int:
    """How many rows to read at a time, by their mean size."""
    encoded = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return max(1, min(BATCH_ROWS, BATCH_BYTES * int(metadata.num_rows) // max(1, encoded)))


def _decoder(schema: Any) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """How `datasets` makes a row of what is stored; None where what is stored is the row."""
    stated = (schema.metadata or {}).get(b"huggingface")
    if stated is None or _types(json.loads(stated)) <= _PLAIN:
        return None
    try:
        from datasets import Features
    except ImportError as error:
        raise MissingPackage("datasets", "hub", "a file with decoded columns") from error
    decode: Callable[[dict[str, Any]], dict[str, Any]] = Features.from_arrow_schema(schema).decode_example
    return decode


def _types(stated: Any) -> set[str]:
    """Every feature type that a schema's metadata names."""
    if isinstance(stated, dict):
        own = {stated["_type"]} if isinstance(stated.get("_type"), str) else set()
        return own.union(*map(_types, stated.values()))
    if isinstance(stated, list):
        return set().union(*map(_types, stated))
    return set()
