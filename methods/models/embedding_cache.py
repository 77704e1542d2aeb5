"""Vectors kept on disk by (model fingerprint, text hash): what was encoded once is never encoded again.

One folder per model: `vectors.f32`, rows of float32 that are only ever appended, and `rows.sqlite`, which says which
text is in which row. A row counts once its entry is committed, and is written and flushed before that, so many
processes may use a folder at once and `kill -9` loses at most the batch in flight.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import UserError
from methods.models.wal import use_wal

Vectors = NDArray[np.float32]
HASH_BYTES = 16
ASKED_AT_ONCE = 4096
"""Hashes per statement; SQLite allows 32,766."""
WAIT_SECONDS = 300.0
"""Longest wait for another writer; one holds the lock for as long as writing one batch takes."""


def text_hash(text: str) -> bytes:
    """The key of a text: 128 bits, so that a collision among 10^12 texts has a chance of 10^-15."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


class EmbeddingCache:
    """The vectors of one model.

    Args:
        folder: Where caches live; this model's is a folder in it.
        model: Fingerprint of everything that decides a text's vector.
        dimension: Length of a vector.

    Raises:
        UserError: The folder is not such a cache, or one of vectors of another length.
    """

    def __init__(self, folder: Path, model: str, dimension: int) -> None:
        self.folder = folder / model
        self.dimension = dimension
        self._bytes = 4 * dimension
        self.folder.mkdir(parents=True, exist_ok=True)
        self._vectors_path = self.folder / "vectors.f32"
        with self._index() as index:
            use_wal(index, WAIT_SECONDS)
            index.execute("BEGIN IMMEDIATE")
            index.execute("CREATE TABLE IF NOT EXISTS rows (hash BLOB PRIMARY KEY, row INTEGER) WITHOUT ROWID")
            index.execute("CREATE TABLE IF NOT EXISTS size (dimension INTEGER, rows INTEGER)")
            if index.execute("SELECT count(*) FROM size").fetchone()[0] == 0:
                index.execute("INSERT INTO size VALUES (?, 0)", (dimension,))
            found = index.execute("SELECT dimension FROM size").fetchone()[0]
            index.execute("COMMIT")
        if found != dimension:
            raise UserError(
                f"the cache holds vectors of {found} components where the model gives {dimension}",
                where=str(self.folder),
                try_this="delete this folder: it will be built again",
            )

    def __len__(self) -> int:
        with self._index() as index:
            return int(index.execute("SELECT rows FROM size").fetchone()[0])

    def get(self, texts: Sequence[str]) -> tuple[NDArray[np.bool_], Vectors]:
        """Look texts up.

        Returns:
            Which texts are there, shape (texts,), and their vectors in order, shape (found, dimension).

        Raises:
            UserError: The cache is damaged: rows that it lists are missing.
        """
        hashes = [text_hash(text) for text in texts]
        with self._index() as index:
            rows = self._rows(index, hashes)
        places = np.array([rows.get(key, -1) for key in hashes], dtype=np.int64)
        found = places >= 0
        return found, self._read(places[found])

    def put(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Keep vectors; durable when this returns. Texts that are there already keep the vector they have.

        Args:
            texts: The texts.
            vectors: Shape (texts, dimension).
        """
        if vectors.shape != (len(texts), self.dimension):
            raise ValueError(f"{len(texts)} texts need vectors of shape {(len(texts), self.dimension)}")
        places = {text_hash(text): place for place, text in enumerate(texts)}
        with self._index() as index:
            # The lock makes the next free row ours; whatever a killed writer left beyond it is overwritten.
            index.execute("BEGIN IMMEDIATE")
            there = self._rows(index, list(places))
            new = [key for key in places if key not in there]
            first = int(index.execute("SELECT rows FROM size").fetchone()[0])
            if new:
                block = np.ascontiguousarray(vectors[[places[key] for key in new]], dtype="<f4")
                self._write(first, block.tobytes())
                index.executemany("INSERT INTO rows VALUES (?, ?)", zip(new, count(first), strict=False))
                index.execute("UPDATE size SET rows = ?", (first + len(new),))
            index.execute("COMMIT")

    def vectors(self, texts: Sequence[str], encode: Callable[[Sequence[int]], Vectors]) -> Vectors:
        """The vectors of texts, encoding only those that are new, each once.

        Args:
            texts: The texts.
            encode: From places in `texts` to their vectors.

        Returns:
            Shape (texts, dimension).
        """
        first: dict[str, int] = {}
        for place, text in enumerate(texts):
            first.setdefault(text, place)
        wanted = list(first)
        found, known = self.get(wanted)
        result = np.empty((len(wanted), self.dimension), dtype=np.float32)
        result[found] = known
        new = np.flatnonzero(~found)
        if len(new):
            result[new] = encode([first[wanted[place]] for place in new])
            self.put([wanted[place] for place in new], result[new])
        if len(wanted) == len(texts):
            return result
        rows = {text: row for row, text in enumerate(wanted)}
        return result[[rows[text] for text in texts]]

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """A connection of this call's own: safe across threads and forks, and cheap beside a batch."""
        path = self.folder / "rows.sqlite"
        try:
            with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            locked = "locked" in str(error)
            raise UserError(
                f"the cache of embeddings cannot be used: {error}",
                where=str(path),
                try_this="try again when the other process has ended"
                if locked
                else "delete this folder if it is damaged: it will be built again",
            ) from error

    @staticmethod
    def _rows(index: sqlite3.Connection, hashes: Sequence[bytes]) -> dict[bytes, int]:
        rows: dict[bytes, int] = {}
        for start in range(0, len(hashes), ASKED_AT_ONCE):
            asked = hashes[start : start + ASKED_AT_ONCE]
            marks = ",".join("?" * len(asked))
            rows.update(index.execute(f"SELECT hash, row FROM rows WHERE hash IN ({marks})", asked))
        return rows

    def _write(self, first: int, raw: bytes) -> None:
        descriptor = os.open(self._vectors_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            offset, remaining = first * self._bytes, memoryview(raw)
            while remaining:
                written = os.pwrite(descriptor, remaining, offset)
                offset, remaining = offset + written, remaining[written:]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, rows: NDArray[np.int64]) -> Vectors:
        if not len(rows):
            return np.empty((0, self.dimension), dtype=np.float32)
        size = self._vectors_path.stat().st_size // self._bytes if self._vectors_path.exists() else 0
        if int(rows.max()) >= size:
            raise UserError(
                f"the cache of embeddings is damaged: row {int(rows.max())} is listed, {size} rows are there",
                where=str(self._vectors_path),
                try_this="delete this folder: it will be built again",
            )
        mapped = np.memmap(self._vectors_path, dtype="<f4", mode="r", shape=(size, self.dimension))
        return np.asarray(mapped[rows], dtype=np.float32)
