"""The vectors of a corpus's triples, each encoded once, when it is first asked for.

A question graph asks for its own triples alone, so a few questions of a large corpus cost a few blocks. Blocks are the
same rows in whatever order questions come, and a vector depends on its block alone; that is why they are encoded whole.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.graphs import Triples
from methods.knowledge.linearise import LineariseConfig, linearised
from methods.models.encoder import Encoder, Vectors

BLOCK = 1024
"""Triples encoded together."""
IN_MEMORY = 1 << 30
"""Bytes of vectors that are held in memory; more of them lie in a temporary file, from which memory is given back."""


class TripleVectors:
    """Vectors by row.

    Args:
        triples: The rows.
        encoder: Its passages are triples; what its cache holds is not encoded again.
        linearise: How they are written.
        titled: Whether the encoder is given each triple's head as the title of its text.
        folder: Where a temporary file goes, if one is needed; None: where the system puts them.
    """

    def __init__(
        self, triples: Triples, encoder: Encoder, linearise: LineariseConfig, folder: Path | None = None, *, titled: bool = False
    ) -> None:
        self._triples, self._encoder, self._linearise, self._titled = triples, encoder, linearise, titled
        self._known = np.zeros(-(-len(triples) // BLOCK), bool)
        self._vectors = _room(len(triples), encoder.dimension, folder)
        self.longest = 0.0
        """Length of the longest vector so far."""

    def __len__(self) -> int:
        return len(self._triples)

    def of(self, rows: NDArray[np.integer]) -> Vectors:
        """The vectors of some rows: shape (rows, dimension)."""
        self._make(np.unique(np.asarray(rows, np.int64) // BLOCK))
        return self._vectors[rows]

    def all(self) -> Vectors:
        """The vectors of all rows: shape (triples, dimension)."""
        self._make(np.arange(len(self._known)))
        return self._vectors

    def _make(self, blocks: NDArray[np.int64]) -> None:
        for block in blocks[~self._known[blocks]].tolist():
            rows = np.arange(block * BLOCK, min((block + 1) * BLOCK, len(self)))
            texts = linearised(self._triples, rows, self._linearise)
            titles = [head for head, _, _ in self._triples.take(rows)] if self._titled else None
            inputs = list(zip(titles or [""] * len(texts), texts, strict=True))
            # Relations of which only the last part is written may make two triples read alike.
            places = {one: place for place, one in enumerate(dict.fromkeys(inputs))}
            vectors = self._encoder.passages([text for _, text in places], [title for title, _ in places] if self._titled else None)
            self._vectors[rows] = vectors[[places[one] for one in inputs]]
            self.longest = max(self.longest, float(np.linalg.norm(vectors, axis=1).max()))
            self._known[block] = True


def _room(rows: int, dimension: int, folder: Path | None) -> Vectors:
    if rows * dimension * 4 <= IN_MEMORY:
        return np.empty((rows, dimension), np.float32)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        # The file has no name any more and lives as long as its map; what was not written takes no disk.
        return np.asarray(np.memmap(file, np.float32, "w+", shape=(rows, dimension)))
