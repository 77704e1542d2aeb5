"""A corpus: passages by row and by id, held as an Arrow table that may live in memory or be memory-mapped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from benchmarks.errors import UserError
from benchmarks.fingerprint import content_hash
from benchmarks.schema import Passage

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("sentences", pa.list_(pa.string())),
        ("document_id", pa.string()),
    ]
)
BATCH_ROWS = 8192


class Corpus(Sequence[Passage]):
    """Passages in a fixed order, each id once.

    Args:
        table: An Arrow table with the columns of `SCHEMA`.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table.cast(SCHEMA) if table.schema != SCHEMA else table

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Corpus:
        """Collect passages, keeping the first of each id (equal ids mean equal content)."""
        unique = {passage.id: passage for passage in passages}
        return cls(_table(list(unique.values())))

    @classmethod
    def open(cls, path: Path) -> Corpus:
        """Memory-map a corpus that `save` wrote; its passages stay on disk until they are read.

        Raises:
            UserError: There is no such file, or it is not a corpus.
        """
        try:
            with pa.memory_map(str(path)) as source:
                return cls(pa.ipc.open_file(source).read_all())
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"this is not a readable corpus: {error}", where=str(path)) from error

    def save(self, path: Path) -> None:
        """Write the corpus as an Arrow IPC file; the file appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.part")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            writer.write_table(self._table, max_chunksize=BATCH_ROWS)
        os.replace(partial, path)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Passage]:
        for batch in self._table.to_batches(max_chunksize=BATCH_ROWS):
            yield from _passages(batch)

    def __getitem__(self, row):  # type: ignore[no-untyped-def]  # int or slice, as in Sequence
        if isinstance(row, slice):
            return list(_passages(self._table.take(range(*row.indices(len(self))))))
        position = range(len(self))[row]
        return next(iter(_passages(self._table.slice(position, 1))))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The passage ids, in row order."""
        return tuple(self._table.column("id").to_pylist())

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {identifier: row for row, identifier in enumerate(self.ids)}

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._rows

    def row(self, identifier: str) -> int:
        """The row of a passage.

        Raises:
            KeyError: The corpus has no passage with this id.
        """
        return self._rows[identifier]

    def get(self, identifiers: Iterable[str]) -> list[Passage]:
        """The passages with these ids, in the order asked for.

        Raises:
            KeyError: The corpus lacks one of them.
        """
        rows = [self._rows[identifier] for identifier in identifiers]
        return list(_passages(self._table.take(rows))) if rows else []

    def full_texts(self) -> Iterator[str]:
        """Title and text of every passage, in row order (`Passage.full_text`)."""
        for passage in self:
            yield passage.full_text

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the passages in their order."""
        # An id is a hash of the passage's content, so hashing the ids hashes the content.
        return content_hash(self.ids)


def _table(passages: Sequence[Passage]) -> pa.Table:
    return pa.table(
        {
            "id": [p.id for p in passages],
            "title": [p.title for p in passages],
            "text": [p.text for p in passages],
            "sentences": [list(p.sentences) for p in passages],
            "document_id": [p.document_id for p in passages],
        },
        schema=SCHEMA,
    )


def _passages(rows: pa.Table | pa.RecordBatch) -> Iterator[Passage]:
    columns = [rows.column(name).to_pylist() for name in SCHEMA.names]
    for identifier, title, text, sentences, document_id in zip(*columns, strict=True):
        yield Passage(identifier, title, text, tuple(sentences or ()), document_id)
