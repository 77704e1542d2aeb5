"""Search exactly by inner product (blocked matrix products), and cache embeddings.

A search returns candidate rows that may be among the best; the caller rescores them in float64, so that results do not depend on
the batch. Exact search never misses a best row, because its margin bounds the rounding error of the product. Up to about a million
vectors it is also faster than `approximate_search`.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from methods.models.reply_cache import use_wal

if TYPE_CHECKING:
    from torch import Tensor

# One folder per model: `vectors.f32`, rows of float32 that are only ever appended, and `rows.sqlite`, which says which
# text is in which row. A row counts once its entry is committed, and is written and flushed before that, so many
# processes may use a folder at once and `kill -9` loses at most the batch in flight.


Vectors = NDArray[np.float32]
HASH_BYTES = 16
CALLS_AT_ONCE = 4096
"""Hashes per SQL statement; SQLite allows 32,766 parameters."""
WAIT_SECONDS = 300.0
"""Maximum seconds to wait for another writer's lock."""


def text_hash(text: str) -> bytes:
    """Return a 128-bit key of a text; the collision probability among 10^12 texts is about 10^-15."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


class EmbeddingCache:
    """Disk cache of one model's vectors by text.

    Args:
        folder: Folder of all caches; the model gets a subfolder.
        model: Fingerprint of everything that determines a text's vector.
        dimension: Length of a vector.

    Raises:
        UserError: The folder is not a cache, or has vectors of another length.
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
            result = index.execute("SELECT dimension FROM size").fetchone()[0]
            index.execute("COMMIT")
        if result != dimension:
            raise UserError(
                f"the cache holds vectors of {result} components, but the model gives {dimension}",
                code="cache-dimension-mismatch",
                where=str(self.folder),
                try_this="delete this folder: it will be built again",
            )

    def __len__(self) -> int:
        with self._index() as index:
            return int(index.execute("SELECT rows FROM size").fetchone()[0])

    def get(self, texts: Sequence[str]) -> tuple[NDArray[np.bool_], Vectors]:
        """Look up the vectors of texts.

        Returns:
            A mask of the cached texts, shape (texts,), and their vectors in order, shape (found, dimension).

        Raises:
            UserError: The cache is damaged: rows that it lists are missing.
        """
        hashes = [text_hash(text) for text in texts]
        with self._index() as index:
            rows = self._find_rows(index, hashes)
        positions = np.array([rows.get(key, -1) for key in hashes], dtype=np.int64)
        result = positions >= 0
        return result, self._read(positions[result])

    def put(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Store vectors durably; vectors of texts that are already cached are kept.

        Args:
            texts: The texts.
            vectors: Shape (texts, dimension).
        """
        if vectors.shape != (len(texts), self.dimension):
            raise ValueError(f"{len(texts)} texts need vectors of shape {(len(texts), self.dimension)}")
        positions = {text_hash(text): position for position, text in enumerate(texts)}
        with self._index() as index:
            # The lock reserves the next free row; remains of a killed writer after it are overwritten.
            index.execute("BEGIN IMMEDIATE")
            there = self._find_rows(index, list(positions))
            new = [key for key in positions if key not in there]
            first = int(index.execute("SELECT rows FROM size").fetchone()[0])
            if new:
                block = np.ascontiguousarray(vectors[[positions[key] for key in new]], dtype="<f4")
                self._write(first, block.tobytes())
                index.executemany("INSERT INTO rows VALUES (?, ?)", zip(new, count(first), strict=False))
                index.execute("UPDATE size SET rows = ?", (first + len(new),))
            index.execute("COMMIT")

    def vectors(self, texts: Sequence[str], encode: Callable[[Sequence[int]], Vectors]) -> Vectors:
        """Return the vectors of texts, encoding and caching each new text once.

        Args:
            texts: The texts.
            encode: Function from positions in `texts` to their vectors.

        Returns:
            Shape (texts, dimension).
        """
        first: dict[str, int] = {}
        for position, text in enumerate(texts):
            first.setdefault(text, position)
        wanted = list(first)
        match, known = self.get(wanted)
        if bad := int((~np.isfinite(known)).any(axis=1).sum()):
            raise UserError(
                f"{bad:,} of {len(known):,} vectors in the cache of embeddings contain NaN or infinity",
                code="cached-vectors-not-finite",
                where=str(self.folder),
                try_this="delete this folder: it will be built again",
            )
        result = np.empty((len(wanted), self.dimension), dtype=np.float32)
        result[match] = known
        new = np.flatnonzero(~match)
        if len(new):
            result[new] = encode([first[wanted[position]] for position in new])
            self.put([wanted[position] for position in new], result[new])
        if len(wanted) == len(texts):
            return result
        rows = {text: row for row, text in enumerate(wanted)}
        return result[[rows[text] for text in texts]]

    @contextmanager
    def _index(self) -> Iterator[sqlite3.Connection]:
        """Open a database connection for one call, which is safe across threads and forks."""
        path = self.folder / "rows.sqlite"
        try:
            with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
                yield connection
        except sqlite3.DatabaseError as error:
            locked = "locked" in str(error)
            raise UserError(
                f"the cache of embeddings cannot be used: {error}",
                code="unusable-embedding-cache",
                where=str(path),
                try_this="try again when the other process has ended"
                if locked
                else "delete this folder if it is damaged: it will be built again",
            ) from error

    @staticmethod
    def _find_rows(index: sqlite3.Connection, hashes: Sequence[bytes]) -> dict[bytes, int]:
        rows: dict[bytes, int] = {}
        for start in range(0, len(hashes), CALLS_AT_ONCE):
            queries = hashes[start : start + CALLS_AT_ONCE]
            marks = ",".join("?" * len(queries))
            rows.update(index.execute(f"SELECT hash, row FROM rows WHERE hash IN ({marks})", queries))
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
                f"the cache of embeddings is damaged: row {int(rows.max())} is listed, but it has only {size} rows",
                code="damaged-embedding-cache",
                where=str(self._vectors_path),
                try_this="delete this folder: it will be built again",
            )
        mapped = np.memmap(self._vectors_path, dtype="<f4", mode="r", shape=(size, self.dimension))
        return np.asarray(mapped[rows], dtype=np.float32)


def write_vectors(path: Path, starts: Iterable[int], encode: Callable[[int], NDArray], dimension: int, dtype: Any = np.float32) -> None:
    """Write vectors to an array file chunk by chunk, resuming an interrupted write; an existing file is kept.

    Args:
        path: The file to write (`….npy`).
        starts: Start rows of the chunks, the same on every call.
        encode: Function from a chunk's start row to its vectors, shape (rows, dimension).
        dimension: Length of a vector.
        dtype: Data type of the numbers.
    """
    if path.exists():
        return
    chunks = [(start, path.with_name(f"{path.stem}-{start}.chunk.npy")) for start in starts]
    for start, chunk in chunks:
        if not chunk.exists():
            partial = chunk.with_suffix(".part")
            with open(partial, "wb") as file:
                np.save(file, encode(start))
            os.replace(partial, chunk)
    lengths = [len(np.load(chunk, mmap_mode="r")) for _, chunk in chunks]
    partial = path.with_suffix(".part")
    if sum(lengths):
        vectors = np.lib.format.open_memmap(partial, mode="w+", dtype=dtype, shape=(sum(lengths), dimension))
        row = 0
        for length, (_, chunk) in zip(lengths, chunks, strict=True):
            vectors[row : row + length] = np.load(chunk)
            row += length
        vectors.flush()
    else:
        # An array without rows cannot be mapped.
        with open(partial, "wb") as file:
            np.save(file, np.empty((0, dimension), dtype=dtype))
    os.replace(partial, path)
    for _, chunk in chunks:
        chunk.unlink()


def read_array(path: Path, *, mapped: bool) -> NDArray:
    """Load an array file of an index.

    Args:
        path: The file.
        mapped: Whether to memory-map it (copy-on-write); an empty array is always loaded.

    Raises:
        UserError: The file is missing or damaged.
    """
    try:
        # "c": torch wraps only writable arrays.
        return np.load(path, mmap_mode="c" if mapped else None)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the vectors cannot be read: {error}",
            code="unreadable-vectors",
            where=str(path.parent),
            try_this="delete this folder: it will be built again",
        ) from error


Rows = NDArray[np.int64]
Precision = Literal["float32", "bfloat16"]

BLOCK = 65536
"""Vectors multiplied at a time, which limits memory to BLOCK × QUERIES scores."""
QUERIES = 256
"""Queries multiplied at a time."""
RESIDENT_BYTES = 2 << 30
"""Maximum size of a bfloat16 copy in main memory."""
EPSILON = float(np.finfo(np.float32).eps)
ROUNDOFF = {"bfloat16": 2.0**-8, "tf32": 2.0**-11}
"""Maximum relative rounding error of each type."""


class Search(Protocol):
    """Protocol of vector search."""

    def near(self, queries: Vectors, k: int) -> list[Rows]:
        """Return, per query, ascending candidate rows that may be among the k with the largest inner product."""
        ...


def exact_scores(vectors: Vectors, query: NDArray, rows: Rows) -> NDArray[np.float64]:
    """Compute inner products of some rows with a query in float64, each summed independently: shape (rows,)."""
    return (vectors[rows].astype(np.float64) * query.astype(np.float64)).sum(axis=1)


class ExactSearch:
    """Exact search that compares every vector with every query.

    In d dimensions, the error of a float32 inner product is at most d · ε · |q| · max |v|, in any order of summation. In
    bfloat16, the rounding of query, vectors and result is added; that of the vectors is measured. Rows whose scores differ by
    more than twice the total error cannot change places.

    Args:
        vectors: Shape (n, d), in memory or mapped; writable or mapped with mode "c", as torch requires.
        device: Device for the products. Vectors stay on a GPU with enough memory.
        precision: Type of the products. None uses float32, or bfloat16 on CPUs with AMX and on GPUs that only have memory for
            that.
    """

    def __init__(self, vectors: Vectors, device: str = "cpu", precision: Precision | None = None) -> None:
        self.vectors = vectors
        self.device = device
        self.precision: Precision = precision or _precision(vectors, device)
        self._resident: list[Tensor] | None = None

    @cached_property
    def longest(self) -> float:
        """Return the largest norm of all vectors, in one pass."""
        longest = float(np.max([np.linalg.norm(block, axis=1).max() for block in self._numpy_blocks()], initial=0.0))
        if not np.isfinite(longest):
            raise UserError(
                "the index contains vectors with NaN or infinity",
                code="index-not-finite",
                try_this="delete the store's `artifacts` folder: it is built again",
            )
        return longest

    def near(self, queries: Vectors, k: int) -> list[Rows]:
        """Return, per query, all rows whose score is within the rounding error of the k-th best.

        Args:
            queries: Shape (m, d).
            k: Number of results wanted.

        Returns:
            Per query, at least min(k, n) ascending row numbers.
        """
        k = min(k, len(self.vectors))
        if not len(queries) or k <= 0:
            return [np.empty(0, dtype=np.int64) for _ in queries]
        starts = range(0, len(queries), QUERIES)
        return [rows for start in starts for rows in self._near(queries[start : start + QUERIES], k)]

    def _near(self, queries: Vectors, k: int) -> list[Rows]:
        import torch

        exact = torch.tensor(queries, device=self.device)
        wanted = exact.to(getattr(torch, self.precision))
        blocks = self._blocks()
        slack = 2 * self._error(exact, wanted)
        top = torch.full((len(queries), k), -torch.inf, device=self.device)
        results: list[tuple[NDArray, NDArray, NDArray]] = []
        start = 0
        for block in blocks:
            block = block.to(self.device)
            scores = (wanted @ block.T).float()
            top = torch.cat([top, scores.topk(min(k, scores.shape[1]), dim=1).values], dim=1).topk(k, dim=1).values
            which, row = (scores >= top[:, -1:] - slack).nonzero(as_tuple=True)
            results.append((which.cpu().numpy(), row.cpu().numpy() + start, scores[which, row].cpu().numpy()))
            start += len(block)
        which, rows, scored = (np.concatenate(parts) for parts in zip(*results, strict=True))
        # Early blocks were cut at a threshold that later blocks raised.
        kept = scored >= (top[:, -1] - slack[:, 0]).cpu().numpy()[which]
        which, rows = which[kept], rows[kept]
        order = np.lexsort((rows, which))
        return np.split(rows[order], np.searchsorted(which[order], np.arange(1, len(queries))))

    def _error(self, exact: Tensor, wanted: Tensor) -> Tensor:
        """Return the error bound of a computed inner product per query: shape (m, 1)."""
        import torch

        length = exact.norm(dim=1, keepdim=True) * self.longest
        error = self.vectors.shape[1] * EPSILON * length
        if self.precision == "bfloat16":
            rounded = wanted.float()
            error = 1.01 * error + (exact - rounded).norm(dim=1, keepdim=True) * self.longest
            error = error + rounded.norm(dim=1, keepdim=True) * self._rounding
            error = error + 1.01 * ROUNDOFF["bfloat16"] * length
        elif self.device.startswith("cuda") and torch.get_float32_matmul_precision() != "highest":
            error = error + 2.01 * ROUNDOFF["tf32"] * length
        return error

    @cached_property
    def _rounding(self) -> float:
        """Return the largest rounding error of a vector in bfloat16 (Euclidean distance)."""
        import torch

        moved = (torch.from_numpy(block) for block in self._numpy_blocks())
        lengths = (float((block - block.bfloat16().float()).norm(dim=1).max()) for block in moved)
        return 1.0001 * max(lengths, default=0.0)

    def _numpy_blocks(self) -> list[Vectors]:
        return [self.vectors[start : start + BLOCK] for start in range(0, len(self.vectors), BLOCK)]

    def _blocks(self) -> Sequence[Tensor | _Later]:
        """Return the vectors in blocks, on the device if there is room, else converted on demand."""
        import torch

        if self._resident is not None:
            return self._resident
        dtype = getattr(torch, self.precision)
        blocks = [torch.from_numpy(block) for block in self._numpy_blocks()]
        if self.device == "cpu" and self.precision == "float32":
            return blocks
        size = self.vectors.size * (2 if self.precision == "bfloat16" else 4)
        if size <= _room(self.device):
            self._resident = [block.to(self.device, dtype) for block in blocks]
            return self._resident
        return [_Later(block, dtype) for block in blocks]


class _Later:
    """A block that is converted on demand."""

    def __init__(self, block: Tensor, dtype: Any) -> None:
        self._block = block
        self._dtype = dtype

    def to(self, device: str) -> Tensor:
        return self._block.to(device, self._dtype)


def _room(device: str) -> int:
    """Return the bytes available for vectors on a device."""
    import torch

    if device.startswith("cuda"):
        # The rest is for scores and for the models that share the device.
        return int(torch.cuda.mem_get_info(torch.device(device))[0] * 0.5)
    return RESIDENT_BYTES


def _precision(vectors: Vectors, device: str) -> Precision:
    """Choose the type for products."""
    import torch

    if device.startswith("cuda"):
        room = _room(device)
        return "bfloat16" if vectors.size * 2 <= room < vectors.size * 4 else "float32"
    amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return "bfloat16" if device == "cpu" and vectors.size * 2 <= RESIDENT_BYTES and amx() else "float32"
