"""Retrieve with all three modes of BGE-M3: dense, sparse and multi-vector scores in one weighted sum.

For the dense mode only, use `dense` with the preset bge-m3, which also searches large corpora fast. Here every passage
that a query may use is scored in every mode, which suits documents of hundreds of passages. The index stores token
vectors in half precision: about 2 KiB per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.models.late_interaction import MODES, M3Config, M3Encoder, M3Vectors, Mode
from methods.registry import ModelMethodConfig, register
from methods.retrieval.ranking import Rows, Scope, best_rows, built_once, truncation_notes
from methods.work import FLOAT, HALF, Lengths, Work, encode, index, vectors

CHUNK = 256
"""Number of passages encoded at once."""
SCORED = 512
"""Number of passages scored at once; limits the memory for the vectors of their tokens."""
ARRAYS = ("dense", "tokens", "weights", "lexical_starts", "multi", "multi_starts")


class BgeM3Config(M3Config, ModelMethodConfig):
    """Options of BGE-M3: encoder, modes and their weights."""

    modes: tuple[Mode, ...] = Field(MODES, min_length=1, description="modes of BGE-M3 whose scores are summed, weighted by `weights`")


def _work(config: BgeM3Config, lengths: Lengths) -> Work:
    """Estimate the disk space: one vector per passage; per token a 16-bit vector, and a weight with its position."""
    read = lengths.corpus * min(lengths.passage, config.max_length)
    kept = vectors(config, lengths, lengths.corpus) + vectors(config, lengths, read, HALF) + Work(bytes=3 * FLOAT * read)
    return index(encode(config, lengths.corpus, lengths.passage) + kept) + encode(config, lengths.questions, lengths.question)


@register(
    "bge_m3",
    kind="retriever",
    summary="BGE-M3's dense, sparse and multi-vector scores, summed by ARK's weights",
    paper="Chen et al. 2024, BGE M3-Embedding (arXiv:2402.03216)",
    presets={"dense_only": {"modes": ("dense",)}, "library": {"weights": {"dense": 1.0, "sparse": 1.0, "multi": 1.0}}},
    work=_work,
)
class BgeM3:
    """Retriever role: sums dense, sparse and multi-vector scores of BGE-M3.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: BgeM3Config, services: Services) -> None:
        self.config = config
        self._encoder = M3Encoder(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the corpus, or memory-map the index in `folder`."""
        arrays = self._arrays(corpus) if folder is None else self._kept(corpus, folder)
        made = BgeM3Index(self._encoder, self.config, corpus, Kept(arrays))
        made.notes = truncation_notes(folder, corpus, self._encoder.truncation)
        return made

    def _kept(self, corpus: Corpus, folder: Path) -> dict[str, NDArray[Any]]:
        built_once(folder, len(corpus), lambda target: self._save(corpus, target))
        try:
            return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
        except (OSError, ValueError) as error:
            raise UserError(
                f"the vectors cannot be read: {error}",
                code="unreadable-vectors",
                where=str(folder),
                try_this="delete this folder: it will be built again",
            ) from error

    def _save(self, corpus: Corpus, folder: Path) -> None:
        for name, array in self._arrays(corpus).items():
            np.save(folder / f"{name}.npy", array)

    def _arrays(self, corpus: Corpus) -> dict[str, NDArray[Any]]:
        vectors: list[M3Vectors] = []
        for start in range(0, len(corpus), CHUNK):
            results = self._encoder.encode([passage.full_text for passage in corpus[start : start + CHUNK]])
            vectors += [M3Vectors(item.dense, item.tokens, item.weights, item.multi.astype(np.float16)) for item in results]
        lexical = np.cumsum([0, *(len(vector.tokens) for vector in vectors)])
        multi = np.cumsum([0, *(len(vector.multi) for vector in vectors)])
        if not vectors:
            empty = np.empty(0, dtype=np.float32)
            return {
                "dense": empty,
                "tokens": empty.astype(np.int64),
                "weights": empty,
                "lexical_starts": lexical,
                "multi": empty.astype(np.float16),
                "multi_starts": multi,
            }
        return {
            "dense": np.stack([vector.dense for vector in vectors]),
            "tokens": np.concatenate([vector.tokens for vector in vectors]),
            "weights": np.concatenate([vector.weights for vector in vectors]),
            "lexical_starts": lexical,
            "multi": np.concatenate([vector.multi for vector in vectors]),
            "multi_starts": multi,
        }


class Kept:
    """Flat arrays with the three representations of all passages, in memory or memory-mapped.

    Args:
        arrays: Arrays by the names in `ARRAYS`; `…_starts` have the start of each passage and the end of the last.
    """

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays

    def vectors(self, rows: Rows) -> list[M3Vectors]:
        """Return the vectors of passages by row."""
        return [self._one(int(row)) for row in rows]

    def _one(self, row: int) -> M3Vectors:
        arrays = self._arrays
        lexical = slice(arrays["lexical_starts"][row], arrays["lexical_starts"][row + 1])
        multi = slice(arrays["multi_starts"][row], arrays["multi_starts"][row + 1])
        return M3Vectors(
            arrays["dense"][row], arrays["tokens"][lexical], arrays["weights"][lexical], arrays["multi"][multi].astype(np.float32)
        )


class BgeM3Index:
    """Index of a corpus with BGE-M3's vectors.

    Args:
        encoder: Encoder of the queries.
        config: Options, with the modes in use.
        corpus: The passages.
        kept: Their vectors.
    """

    def __init__(self, encoder: M3Encoder, config: BgeM3Config, corpus: Corpus, kept: Kept) -> None:
        self.device = encoder.device
        self.notes: Mapping[str, Any] = {}
        self._encoder = encoder
        self._config = config
        self._scope = Scope(corpus)
        self._everything: Rows = np.arange(len(corpus), dtype=np.int64)
        self._kept = kept

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank passages by the weighted sum of the modes' scores."""
        return [self._ranking(query, k) for query in queries]

    def _ranking(self, query: Query, k: int) -> Ranking:
        allowed = self._scope.rows_for(query)
        rows = self._everything if allowed is None else allowed
        # One query at a time, so that its vectors depend only on its text.
        encoded = self._encoder.encode([query.text])
        parts = [
            self._encoder.scores(encoded, self._kept.vectors(rows[start : start + SCORED]), self._config.modes)[0]
            for start in range(0, len(rows), SCORED)
        ]
        scores = np.concatenate(parts) if parts else np.empty(0)
        best = best_rows(scores, k)
        return self._scope.ranking(query, rows[best], scores[best])
