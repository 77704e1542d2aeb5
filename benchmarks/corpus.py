"""A corpus: passages by row and by id, held as an Arrow table that may live in memory or be memory-mapped."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
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
        builder = CorpusBuilder()
        builder.add(passages)
        return builder.build()

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
            return [self._passage(position) for position in range(*row.indices(len(self)))]
        return self._passage(range(len(self))[row])

    @cached_property
    def _batches(self) -> tuple[list[int], list[list[pa.Array]]]:
        batches = [batch for batch in self._table.to_batches() if batch.num_rows]
        starts = [0, *accumulate(batch.num_rows for batch in batches)]
        return starts, [batch.columns for batch in batches]

    def _passage(self, row: int) -> Passage:
        # Arrow's own `take` joins a table's chunks anew for every call: 80 times slower at 300,000 passages.
        starts, batches = self._batches
        batch = bisect_right(starts, row) - 1
        identifier, title, text, sentences, document_id = (
            column[row - starts[batch]].as_py() for column in batches[batch]
        )
        return Passage(identifier, title, text, tuple(sentences or ()), document_id)

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
        return [self._passage(self._rows[identifier]) for identifier in identifiers]

    def full_texts(self) -> Iterator[str]:
        """Title and text of every passage, in row order (`Passage.full_text`)."""
        for passage in self:
            yield passage.full_text

    @cached_property
    def by_document(self) -> dict[str, tuple[str, ...]]:
        """The ids of each document's passages, in row order; passages without a document are left out."""
        documents: dict[str, list[str]] = {}
        for identifier, document in zip(self.ids, self._table.column("document_id").to_pylist(), strict=True):
            if document is not None:
                documents.setdefault(document, []).append(identifier)
        return {document: tuple(identifiers) for document, identifiers in documents.items()}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the passages in their order."""
        # An id is a hash of the passage's content, so hashing the ids hashes the content.
        return content_hash(self.ids)


class CorpusBuilder:
    """Collects passages into a corpus; those already seen are held as Arrow, not as objects."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._waiting: list[Passage] = []
        self._tables: list[pa.Table] = []

    def add(self, passages: Iterable[Passage]) -> None:
        """Append passages, except those whose id is there already."""
        for passage in passages:
            if passage.id not in self._seen:
                self._seen.add(passage.id)
                self._waiting.append(passage)
                if len(self._waiting) == BATCH_ROWS:
                    self._flush()

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._seen

    def build(self) -> Corpus:
        """The corpus of everything added so far."""
        self._flush()
        return Corpus(pa.concat_tables(self._tables))

    def _flush(self) -> None:
        # The empty table is kept, so that a corpus without passages has its columns.
        if self._waiting or not self._tables:
            self._tables.append(_table(self._waiting))
            self._waiting = []


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
