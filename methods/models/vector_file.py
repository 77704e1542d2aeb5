"""Arrays of an index on disk: vectors written chunk by chunk, so that a build that was cut off continues."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import UserError

Vectors = NDArray[np.float32]


def write_vectors(path: Path, starts: Iterable[int], encode: Callable[[int], Vectors], dimension: int) -> None:
    """Write vectors as one array file, unless it is there; each chunk is a file beside it until all are.

    Args:
        path: The file to write (`….npy`).
        starts: Where the chunks begin: the same on every call.
        encode: From where a chunk begins to its vectors, shape (rows, dimension).
        dimension: Length of a vector.
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
        vectors = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float32, shape=(sum(lengths), dimension))
        row = 0
        for length, (_, chunk) in zip(lengths, chunks, strict=True):
            vectors[row : row + length] = np.load(chunk)
            row += length
        vectors.flush()
    else:
        # An array without rows cannot be mapped.
        with open(partial, "wb") as file:
            np.save(file, np.empty((0, dimension), dtype=np.float32))
    os.replace(partial, path)
    for _, chunk in chunks:
        chunk.unlink()


def read_array(path: Path, *, mapped: bool) -> NDArray:
    """Read an array of an index.

    Args:
        path: The file.
        mapped: Whether it stays on disk; an array without rows cannot. What is written to it stays in memory.

    Raises:
        UserError: It is not there, or damaged.
    """
    try:
        # "c": torch wraps only writable arrays.
        return np.load(path, mmap_mode="c" if mapped else None)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the vectors cannot be read: {error}", where=str(path.parent), try_this="delete this folder: it will be built again"
        ) from error
