"""Approximate search by inner product with a FAISS index on disk, for corpora too large for `embeddings.ExactSearch`.

As with exact search, the caller rescores the candidate rows in float64.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.core.errors import MissingPackage, UserError
from methods.models.embeddings import BLOCK, Rows, Vectors


class ApproximateSearch:
    """Approximate search with a memory-mapped FAISS index, for corpora too large for exact search.

    Args:
        path: A file that `build` wrote.
        overfetch: Number of candidates per wanted row, which the caller rescores in float64.

    Raises:
        MissingPackage: FAISS is not installed.
        UserError: The file cannot be read.
    """

    def __init__(self, path: Path, overfetch: int = 10) -> None:
        faiss = _faiss()
        # Mapping the index as well would make FAISS read the inverted lists, which have their own file.
        kept_apart = faiss.IO_FLAG_ONDISK_SAME_DIR if path.with_suffix(".ivfdata").exists() else faiss.IO_FLAG_MMAP
        flags = kept_apart | faiss.IO_FLAG_READ_ONLY
        graphs = takewhile(Path.exists, (_graph(path, number) for number in count(1)))
        try:
            with _silent():
                self._indexes: list[Any] = [faiss.read_index(str(file), flags) for file in (path, *graphs)]
        except RuntimeError as error:
            raise UserError(
                f"the vector index cannot be read: {str(error).splitlines()[0]}",
                code="unreadable-vector-index",
                where=str(path),
                try_this="delete its folder: it will be built again",
            ) from error
        self._overfetch = overfetch

    @staticmethod
    def build(vectors: Vectors, path: Path, kind: Literal["hnsw", "ivfpq"], seed: int = 0) -> None:
        """Build a FAISS index on disk, shard by shard; finished shards of an interrupted build are reused.

        Memory is limited to one shard and the training sample. Inverted lists are merged on disk. HNSW graphs cannot be merged:
        each shard of `GRAPH` vectors stays separate, and all are searched.

        Args:
            vectors: Shape (n, d).
            path: Output file, written last.
            kind: `hnsw` (graphs over full vectors, better recall) or `ivfpq` (inverted lists of compressed vectors, 10 to 30
                times smaller).
            seed: Random seed for the training sample.

        Raises:
            MissingPackage: FAISS is not installed.
        """
        _faiss()
        if kind == "hnsw":
            _build_graphs(vectors, path)
        else:
            _build_lists(vectors, path, seed)

    def near(self, queries: Vectors, k: int) -> list[Rows]:
        """Return, per query, approximate candidates for the k best; some of the best may be missing."""
        total = sum(index.ntotal for index in self._indexes)
        wanted = min(k * self._overfetch, total)
        if not len(queries) or wanted <= 0:
            return [np.empty(0, dtype=np.int64) for _ in queries]
        results: list[list[Rows]] = [[] for _ in queries]
        first = 0
        for opened in self._indexes:
            index = _faiss().downcast_index(opened)
            if hasattr(index, "hnsw"):
                index.hnsw.efSearch = max(64, wanted)
            elif hasattr(index, "nprobe"):
                index.nprobe = max(1, min(index.nlist, max(16, index.nlist // 32)))
            for result, query in zip(results, queries, strict=True):
                # One by one: threads share a batch in FAISS, and a ranking must not depend on its company.
                rows = index.search(np.ascontiguousarray(query[None]), min(wanted, index.ntotal))[1][0]
                result.append(rows[rows >= 0] + first)
            first += index.ntotal
        return [np.sort(np.concatenate(rows)).astype(np.int64) for rows in results]


GRAPH = 1_000_000
"""Vectors per HNSW graph; building one needs 1.8 GB of memory for 384 dimensions."""
LISTED = 262_144
"""Vectors added to inverted lists between two writes."""
TRAINING_BYTES = 1 << 29
"""Maximum size of the training sample for inverted lists."""
LEAST_TRAINED = 39
"""Minimum training vectors per inverted list, below which FAISS warns."""


def _graph(path: Path, number: int) -> Path:
    """Return the file of graph number `number`; the first one is the index file itself."""
    return path.with_suffix(f".{number}{path.suffix}") if number else path


@contextmanager
def _silent() -> Iterator[None]:
    """Context manager that redirects FAISS's output to stderr, because stdout may be JSON."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)


def _written(index: Any, path: Path) -> None:
    partial = path.with_suffix(".part")
    _faiss().write_index(index, str(partial))
    os.replace(partial, path)


def _build_graphs(vectors: Vectors, path: Path) -> None:
    faiss = _faiss()
    # The first comes last: with it the index is complete.
    for number, start in reversed(list(enumerate(range(0, max(1, len(vectors)), GRAPH)))):
        if _graph(path, number).exists():
            continue
        index = faiss.IndexHNSWFlat(vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 200
        for row in range(start, min(start + GRAPH, len(vectors)), BLOCK):
            index.add(np.ascontiguousarray(vectors[row : min(row + BLOCK, start + GRAPH)]))
        _written(index, _graph(path, number))


def _build_lists(vectors: Vectors, path: Path, seed: int) -> None:
    faiss = _faiss()
    from faiss.contrib.ondisk import merge_ondisk

    trained = path.with_name("trained.faiss")
    if not trained.exists():
        _written(_trained(vectors, seed), trained)
    shards = [(start, path.with_name(f"lists-{start}.faiss")) for start in range(0, len(vectors), LISTED)]
    for start, shard in shards:
        if not shard.exists():
            index = faiss.read_index(str(trained))
            for row in range(start, min(start + LISTED, len(vectors)), BLOCK):
                block = np.ascontiguousarray(vectors[row : min(row + BLOCK, start + LISTED)])
                index.add_with_ids(block, np.arange(row, row + len(block)))
            _written(index, shard)
    index = faiss.read_index(str(trained))
    with _silent():
        merge_ondisk(index, [str(shard) for _, shard in shards], str(path.with_suffix(".ivfdata")))
    _written(index, path)
    for file in (trained, *(shard for _, shard in shards)):
        file.unlink()


def _trained(vectors: Vectors, seed: int) -> Any:
    """Train empty inverted lists on a sample."""
    rows, dimension = vectors.shape
    most = TRAINING_BYTES // (4 * dimension)
    lists = max(1, min(int(4 * rows**0.5), min(rows, most) // LEAST_TRAINED))
    codes = max(size for size in range(1, max(1, dimension // 4) + 1) if dimension % size == 0)
    bits = 8 if rows >= 256 * LEAST_TRAINED else 4
    index = _faiss().index_factory(dimension, f"IVF{lists},PQ{codes}x{bits}", _faiss().METRIC_INNER_PRODUCT)
    sample = np.sort(np.random.default_rng(seed).permutation(rows)[: min(most, max(256 * lists, 256 * 256))])
    index.train(np.ascontiguousarray(vectors[sample]))
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage("faiss-cpu", "ann", "approximate vector search") from error
    return faiss
