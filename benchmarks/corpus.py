"""Store a corpus as an Arrow table of passages, in memory or memory-mapped, with access by row and by id.

`corpus_build` converts a large dump such as Wikipedia into a folder once; `Corpus.open` maps that folder, and passages stay on
disk until they are read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.columns import lists, strings
from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from benchmarks.schema import Passage

# A key only narrows the search: a lookup is right once the id at the place found is compared with the one asked for.


Keys = NDArray[np.uint64]

_CONTENT_ID = 17
"""Length of `fingerprint.content_id`: a letter and sixteen hex digits, from which the key is parsed."""
_MASK = 2**64 - 1


def key(identifier: str) -> int:
    """Return the 64-bit key of an id: the hash that a content id contains, or the hash of any other id."""
    if len(identifier) == _CONTENT_ID:
        try:
            # Masked, because `int` also takes a sign.
            return int(identifier[1:], 16) & _MASK
        except ValueError:
            pass
    return int.from_bytes(hashlib.blake2b(identifier.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def keys_of(identifiers: Collection[str]) -> Keys:
    """Return the 64-bit keys of ids, in order. Shape (ids,)."""
    if set(map(len, identifiers)) == {_CONTENT_ID}:
        digits = "".join([identifier[1:] for identifier in identifiers])
        with suppress(ValueError):
            # fromhex passes over blanks, so a shorter result is not the ids'.
            if len(packed := bytes.fromhex(digits)) * 2 == len(digits):
                return np.frombuffer(packed, ">u8").astype(np.uint64)
    return np.fromiter(map(key, identifiers), dtype=np.uint64, count=len(identifiers))


class IdIndex:
    """Index from ids to positions by binary search over sorted 64-bit keys.

    Args:
        keys: Ascending, shape (n,).
        positions: The position of each key's id, shape (n,).
        id_at: Function that returns the id at a position, to resolve hash collisions.
    """

    def __init__(self, keys: Keys, positions: NDArray[np.integer], id_at: Callable[[int], str]) -> None:
        self._keys = keys
        self._positions = positions
        self._id_at = id_at

    @classmethod
    def of(cls, keys: Keys, id_at: Callable[[int], str]) -> IdIndex:
        """Build the index from the keys of all positions, in order."""
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], order.astype(np.uint32 if len(keys) < 2**32 else np.uint64), id_at)

    @classmethod
    def open(cls, stem: Path, id_at: Callable[[int], str]) -> IdIndex:
        """Memory-map the files that `save` wrote."""
        # As plain arrays: every operation on a `memmap` pays for its being a subclass.
        keys, positions = (np.asarray(np.load(_part(stem, name), mmap_mode="r")) for name in ("keys", "places"))
        return cls(keys, positions, id_at)

    def save(self, stem: Path) -> None:
        """Write `STEM.keys.npy` and `STEM.places.npy`, each atomically."""
        for name, values in (("keys", self._keys), ("places", self._positions)):
            partial = _part(stem, f"{name}.part")
            with open(partial, "wb") as file:
                np.save(file, values)
            os.replace(partial, _part(stem, name))

    def find(self, identifier: str) -> int | None:
        """Return the first position of an id, or None."""
        wanted = key(identifier)
        at = int(self._keys.searchsorted(np.uint64(wanted)))
        while at < len(self._keys) and int(self._keys[at]) == wanted:
            position = int(self._positions[at])
            if self._id_at(position) == identifier:
                return position
            at += 1
        return None

    def places_of(self, keys: Keys) -> NDArray[np.integer]:
        """Return the first position of each key; all keys must be present. Shape (keys,)."""
        return self._positions[np.searchsorted(self._keys, keys)]

    def repeated(self) -> NDArray[np.integer]:
        """Return pairs of positions that have the same key, in ascending order. Shape (pairs, 2)."""
        same = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        return np.stack([self._positions[same], self._positions[same + 1]], axis=1)


def _part(stem: Path, name: str) -> Path:
    return stem.with_name(f"{stem.name}.{name}.npy")


class KeySet:
    """Growing set of 64-bit keys, held in a few sorted arrays (8 bytes per key)."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def add(self, keys: Keys) -> NDArray[np.bool_]:
        """Add keys and report which were new.

        Returns:
            True for each key that was not in the set yet, and for the first of equal new keys. Shape (keys,).
        """
        ordered, first = np.unique(keys, return_index=True)
        new = ~self._contains(ordered)
        mask = np.zeros(len(keys), dtype=np.bool_)
        mask[first[new]] = True
        self._runs.append(ordered[new])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            # Sorting two sorted runs as one is a merge (timsort).
            self._runs.append(np.sort(np.concatenate([self._runs.pop(), self._runs.pop()]), kind="stable"))
        return mask

    def __contains__(self, value: object) -> bool:
        return bool(self._contains(np.array([value], dtype=np.uint64))[0])

    def _contains(self, keys: Keys) -> NDArray[np.bool_]:
        known = np.zeros(len(keys), dtype=np.bool_)
        for run in self._runs:
            if len(run):
                position = np.searchsorted(run, keys)
                position[position == len(run)] = 0
                known |= run[position] == keys
        return known


SCHEMA = pa.schema(
    [("id", pa.string()), ("title", pa.string()), ("text", pa.string()), ("sentences", pa.list_(pa.string())), ("document_id", pa.string())]
)
BATCH_ROWS = 8192
BATCH_CHARACTERS = 2 << 20
"""Number of characters after which a builder converts its passages to an Arrow batch."""
SPILL_BYTES = 16 << 20
"""Number of bytes after which a builder moves its passages to a temporary file."""

CARD = "corpus.json"
"""File that describes a corpus folder. It is written last, so a folder without it is unfinished."""
FORMAT = 1
"""Layout version of corpus folders."""


class Corpus(Sequence[Passage]):
    """Passages in a fixed order with unique ids.

    Args:
        table: An Arrow table with the columns of `SCHEMA`.
        folder: Corpus folder with saved indexes; None if indexes are built on demand.
        keys: Key of every row's id (see `key`), if already computed.
    """

    def __init__(self, table: pa.Table, folder: Path | None = None, keys: Keys | None = None) -> None:
        self._table = table.cast(SCHEMA) if table.schema != SCHEMA else table
        self._folder = folder
        self._keys = keys

    @classmethod
    def of(cls, passages: Iterable[Passage]) -> Corpus:
        """Build a corpus from passages; of passages with equal ids, the first is kept."""
        builder = CorpusBuilder()
        builder.add(passages)
        return builder.build()

    @classmethod
    def open(cls, path: Path) -> Corpus:
        """Memory-map an Arrow file that `save` wrote, or a folder that `build_corpus` built.

        Raises:
            UserError: There is no such file or folder, it is not a corpus, or it is damaged.
        """
        if not path.is_dir():
            return cls(mapped(path))
        card = read_card(path)
        shards = [mapped(shard_path(path, number)) for number in range(card["shards"])]
        corpus = cls(pa.concat_tables(shards), path)
        if len(corpus) != card["passages"]:
            raise UserError(
                f"the corpus has {len(corpus):,} passages, but its card states {card['passages']:,}",
                code="corpus-count-mismatch",
                where=str(path),
                try_this="delete the folder and build it again",
            )
        return corpus

    @property
    def folder(self) -> Path | None:
        """Return the corpus folder; None for a corpus in memory or in a single file."""
        return self._folder

    def save(self, path: Path) -> None:
        """Write the corpus as an Arrow IPC file, atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.part")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            writer.write_table(self._table, max_chunksize=BATCH_ROWS)
        os.replace(partial, path)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Passage]:
        if self._folder is None:
            for batch in self._table.to_batches(max_chunksize=BATCH_ROWS):
                yield from _passages(batch)
            return
        # Read, not mapped: pages of the mapping would count as memory of the process, up to the size of the corpus.
        for shard in range(read_card(self._folder)["shards"]):
            with pa.OSFile(str(shard_path(self._folder, shard))) as file, pa.ipc.open_file(file) as batches:
                for number in range(batches.num_record_batches):
                    yield from _passages(batches.get_batch(number))

    def __getitem__(self, row):  # type: ignore[no-untyped-def]  # int or slice, as in Sequence
        if isinstance(row, slice):
            return [self._passage(position) for position in range(*row.indices(len(self)))]
        return self._passage(range(len(self))[row])

    @cached_property
    def _cells(self) -> _Cells:
        return _Cells(self._table)

    def _passage(self, row: int) -> Passage:
        identifier, title, text, sentences, document_id = self._cells.row(row)
        return Passage(identifier, title, text, tuple(sentences or ()), document_id)

    def _id(self, row: int) -> str:
        return self._cells.first(row)

    @cached_property
    def ids(self) -> Ids:
        """Return the passage ids in row order, as a lazy sequence."""
        return Ids(self)

    @cached_property
    def _index(self) -> IdIndex:
        if self._folder is not None:
            return IdIndex.open(self._folder / "ids", self._id)
        keys = self._keys
        if keys is None:
            keys = _joined([keys_of(column.to_pylist()) for column in self._table.column("id").chunks])
        return IdIndex.of(keys, self._id)

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, str) and self._index.find(identifier) is not None

    def row(self, identifier: str) -> int:
        """Return the row number of a passage.

        Raises:
            KeyError: The corpus has no passage with this id.
        """
        row = self._index.find(identifier)
        if row is None:
            raise KeyError(identifier)
        return row

    def get(self, identifiers: Iterable[str]) -> list[Passage]:
        """Return the passages with these ids, in the given order.

        Raises:
            KeyError: The corpus lacks one of them.
        """
        return [self._passage(self.row(identifier)) for identifier in identifiers]

    def restricted(self, identifiers: Collection[str]) -> Corpus:
        """Return the sub-corpus of the given ids, in corpus order; unknown ids are ignored. Returns the corpus itself if
        nothing is removed.
        """
        if len(identifiers) >= len(self):
            return self
        return Corpus.of(self._passage(row) for row in sorted(self.row(each) for each in identifiers if each in self))

    @cached_property
    def _natives(self) -> tuple[_Cells, IdIndex] | None:
        if self._folder is None or not natives_path(self._folder).exists():
            return None
        cells = _Cells(mapped(natives_path(self._folder)))
        return cells, IdIndex.open(self._folder / "natives", cells.first)

    def by_native_id(self, native_id: str) -> str | None:
        """Return the passage id for an id that the dump itself uses; None if the corpus does not have it.

        Passages with equal content are merged; all of their native ids refer to the merged passage.
        """
        if self._natives is None:
            return None
        cells, index = self._natives
        position = index.find(native_id)
        return None if position is None else self._id(cells.cell(position, 1))

    def full_texts(self) -> Iterator[str]:
        """Yield title and text of every passage in row order (`Passage.full_text`)."""
        for passage in self:
            yield passage.full_text

    @cached_property
    def by_document(self) -> dict[str, tuple[str, ...]]:
        """Return each document's passage ids in row order; passages without a document are omitted."""
        documents: dict[str, list[str]] = {}
        for batch in self._table.select(["id", "document_id"]).to_batches(max_chunksize=BATCH_ROWS):
            identifiers, named = batch.columns
            if named.null_count < len(named):
                for identifier, document in zip(identifiers.to_pylist(), named.to_pylist(), strict=True):
                    if document is not None:
                        documents.setdefault(document, []).append(identifier)
        return {document: tuple(identifiers) for document, identifiers in documents.items()}

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of all passages in order."""
        if self._folder is not None:
            return str(read_card(self._folder)["fingerprint"])
        # An id is a hash of the passage's content, so hashing the ids hashes the content.
        return content_hash(self.ids)


class _Cells:
    """Fast access to single rows of a table.

    Arrow's own `take` joins a table's chunks again for every call: 80 times slower at 300,000 passages.
    """

    def __init__(self, table: pa.Table) -> None:
        batches = [batch for batch in table.to_batches() if batch.num_rows]
        self._starts = [0, *accumulate(batch.num_rows for batch in batches)]
        self._columns = [batch.columns for batch in batches]

    def row(self, row: int) -> list[Any]:
        batch = bisect_right(self._starts, row) - 1
        position = row - self._starts[batch]
        return [column[position].as_py() for column in self._columns[batch]]

    def cell(self, row: int, column: int) -> Any:
        batch = bisect_right(self._starts, row) - 1
        return self._columns[batch][column][row - self._starts[batch]].as_py()

    def first(self, row: int) -> str:
        return str(self.cell(row, 0))


class Ids(Sequence[str]):
    """Lazy sequence of a corpus's ids in row order; it equals any sequence with the same ids."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def __len__(self) -> int:
        return len(self._corpus)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[str, ...]: ...
    def __getitem__(self, row: int | slice) -> str | tuple[str, ...]:
        rows = range(len(self))[row]
        return self._corpus._id(rows) if isinstance(rows, int) else tuple(self._corpus._id(row) for row in rows)

    def __iter__(self) -> Iterator[str]:
        for batch in self._corpus._table.select(["id"]).to_batches(max_chunksize=BATCH_ROWS):
            yield from batch.column(0).to_pylist()

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._corpus

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list


class CorpusBuilder:
    """Incremental builder of a corpus; large amounts of text are moved to a temporary file."""

    def __init__(self) -> None:
        self._seen = KeySet()
        self._keys: list[Keys] | None = []  # None once the passages are in a file: made again if they are asked for
        self._waiting: dict[str, Passage] = {}
        self._length = 0
        self._tables: list[pa.Table] = []
        self._size = 0
        self._spilled: _TemporaryTable | None = None

    def add(self, passages: Iterable[Passage]) -> None:
        """Append passages; ids that were added before are skipped."""
        waiting = self._waiting
        for passage in passages:
            waiting.setdefault(passage.id, passage)
            self._length += len(passage.text)
            if self._length > BATCH_CHARACTERS or len(waiting) == BATCH_ROWS:
                self._flush()
                waiting = self._waiting

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, str) and (identifier in self._waiting or key(identifier) in self._seen)

    def build(self) -> Corpus:
        """Return the corpus of all passages added so far."""
        self._flush()
        if self._spilled is not None:
            self._tables, self._spilled, self._size = [self._spilled.close()], None, 0
        keys = None if self._keys is None else _joined(self._keys)
        return Corpus(pa.concat_tables(self._tables), keys=keys)

    def _flush(self) -> None:
        # The empty table is kept, so that a corpus without passages has its columns.
        keys = keys_of(self._waiting)
        new = self._seen.add(keys)
        if self._keys is not None:
            self._keys.append(keys[new])
        passages = [passage for passage, fresh in zip(self._waiting.values(), new, strict=True) if fresh]
        self._waiting, self._length = {}, 0
        if passages or not (self._tables or self._spilled):
            self._keep(table_of(passages))

    def _keep(self, table: pa.Table) -> None:
        self._tables.append(table)
        self._size += table.nbytes
        if self._size > SPILL_BYTES:
            self._spilled, self._keys = self._spilled or _TemporaryTable(), None
            for item in self._tables:
                self._spilled.write(item)
            # Once spilled, every further table goes straight to the file.
            self._tables, self._size = [], SPILL_BYTES


def _joined(keys: Sequence[Keys]) -> Keys:
    return np.concatenate(keys) if keys else np.empty(0, dtype=np.uint64)


class _TemporaryTable:
    """Table in a temporary, memory-mapped file, which is deleted when no longer mapped."""

    def __init__(self) -> None:
        handle, self._path = tempfile.mkstemp(prefix="ragmeter-", suffix=".arrow")
        os.close(handle)
        self._sink = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._sink, SCHEMA)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, max_chunksize=BATCH_ROWS)

    def close(self) -> pa.Table:
        self._writer.close()
        self._sink.close()
        pa.default_memory_pool().release_unused()
        try:
            return mapped(Path(self._path))
        finally:
            os.unlink(self._path)


def mapped(path: Path) -> pa.Table:
    """Memory-map an Arrow IPC file.

    Raises:
        UserError: There is no such file, or it is not readable.
    """
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"this is not a readable corpus: {error}", code="unreadable-corpus", where=str(path)) from error


def shard_path(folder: Path, number: int) -> Path:
    """Return the path of the passage file with this number in a corpus folder."""
    return folder / f"passages-{number:05}.arrow"


def natives_path(folder: Path) -> Path:
    """Return the path of the file that maps native ids to rows in a corpus folder; it is absent if the dump has no ids."""
    return folder / "natives.arrow"


def read_card(folder: Path) -> dict[str, Any]:
    """Read the description (`CARD`) of a corpus folder.

    Raises:
        UserError: The folder is not a finished corpus, or has another `FORMAT`.
    """
    try:
        card = json.loads((folder / CARD).read_text("utf-8"))
        form = card["format"]
    except FileNotFoundError:
        raise UserError(
            "this folder contains no finished corpus",
            code="folder-unfinished",
            where=str(folder),
            try_this="build it: ragmeter data build-corpus",
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the corpus card cannot be read: {error}", code="unreadable-corpus-card", where=str(folder / CARD)) from error
    if form != FORMAT:
        raise UserError(
            f"this corpus has format {form}; this ragmeter reads format {FORMAT}",
            code="corpus-format-mismatch",
            where=str(folder),
            try_this="build it again",
        )
    return dict(card)


def table_of(passages: Sequence[Passage]) -> pa.Table:
    """Convert passages to an Arrow table with the columns of `SCHEMA`."""
    ids, titles, texts = ([getattr(p, name) for p in passages] for name in ("id", "title", "text"))
    return table_of_columns(ids, titles, texts, [p.document_id for p in passages], [p.sentences for p in passages])


def table_of_columns(
    ids: Sequence[str],
    titles: Sequence[str],
    texts: Sequence[str],
    documents: Sequence[str | None],
    sentences: Sequence[Sequence[str]] | None = None,
) -> pa.Table:
    """Convert columns to an Arrow table with the columns of `SCHEMA`; without `sentences`, that column is empty."""
    columns = [*map(strings, (ids, titles, texts)), lists(sentences or [()] * len(ids)), strings(documents)]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _passages(rows: pa.Table | pa.RecordBatch) -> Iterator[Passage]:
    columns = [rows.column(name).to_pylist() for name in SCHEMA.names]
    for identifier, title, text, sentences, document_id in zip(*columns, strict=True):
        yield Passage(identifier, title, text, tuple(sentences or ()), document_id)
