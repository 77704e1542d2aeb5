"""Dense retrieval: passages and queries as vectors, ranked by their inner product, exactly.

Search is a blocked matrix product in float32, which is fast, decided in float64, which is unique: the product finds
every passage that could be among the k best given float32's rounding, then those few are scored again in float64,
row by row. So a ranking does not depend on which other queries were in the batch, and ties go by corpus order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.schema import Query
from methods.api import Index, Ranking, Services
from methods.baselines.ranking import Rows, Scope, best_rows, built_once
from methods.models.encoder import Encoder, EncoderConfig, Vectors
from methods.models.weights import locate, weights_hash
from methods.registry import MethodConfig, register

CHUNK = 2048
"""Passages encoded between two writes; fixed, so that an index continued after a cut equals one built in one go."""
BLOCK = 65536
"""Passages multiplied at once: bounds memory at BLOCK × queries scores."""
EPSILON = float(np.finfo(np.float32).eps)


class DenseConfig(EncoderConfig, MethodConfig):
    """Options of dense retrieval: those of its encoder."""

    def preflight(self) -> None:
        """Check the model's folder."""
        locate(self.model)


@register(
    "dense",
    kind="retriever",
    summary="any SentenceTransformer with exact inner-product search; MiniLM by default",
    config=DenseConfig,
    paper="Reimers and Gurevych 2019, Sentence-BERT (arXiv:1908.10084)",
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model, config.revision),
)
class Dense:
    """Retriever that compares vectors.

    Args:
        config: Options.
        services: Lends the device.
    """

    def __init__(self, config: DenseConfig, services: Services) -> None:
        self.encoder = Encoder(config, services.device)

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Encode the corpus, or memory-map the vectors in `folder`; a build that was cut off continues."""
        if folder is None:
            chunks = [self._encode(corpus, start) for start in range(0, len(corpus), CHUNK)]
            vectors = np.concatenate(chunks) if chunks else np.empty((0, self.encoder.dimension), dtype=np.float32)
            return DenseIndex(self.encoder, corpus, vectors)
        built_once(folder, len(corpus), lambda target: self._save(corpus, target))
        try:
            # "c": torch wraps only writable arrays; what it would write stays in memory, the file is never changed.
            vectors = np.load(folder / "vectors.npy", mmap_mode="c" if len(corpus) else None)
        except (OSError, ValueError) as error:
            raise UserError(
                f"the vectors cannot be read: {error}",
                where=str(folder),
                try_this="delete this folder: it will be built again",
            ) from error
        return DenseIndex(self.encoder, corpus, vectors)

    def _encode(self, corpus: Corpus, start: int) -> Vectors:
        return self.encoder.passages([passage.full_text for passage in corpus[start : start + CHUNK]])

    def _save(self, corpus: Corpus, folder: Path) -> None:
        """Encode chunk by chunk; each chunk is a file until all are there."""
        shape = (len(corpus), self.encoder.dimension)
        starts = range(0, len(corpus), CHUNK)
        chunks = [folder / f"chunk{start}.npy" for start in starts]
        for start, path in zip(starts, chunks, strict=True):
            if not path.exists():
                partial = path.with_suffix(".part")
                with open(partial, "wb") as file:
                    np.save(file, self._encode(corpus, start))
                os.replace(partial, path)
        if not len(corpus):
            np.save(folder / "vectors.npy", np.empty(shape, dtype=np.float32))
            return
        vectors = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=shape)
        for start, path in zip(starts, chunks, strict=True):
            vectors[start : start + CHUNK] = np.load(path)
        vectors.flush()
        for path in chunks:
            path.unlink()


class DenseIndex:
    """A corpus as vectors.

    Args:
        encoder: For the queries.
        corpus: The passages.
        vectors: Shape (passages, dimension), in row order; in memory or mapped.
    """

    def __init__(self, encoder: Encoder, corpus: Corpus, vectors: Vectors) -> None:
        self._encoder = encoder
        self._scope = Scope(corpus)
        self._vectors = vectors

    @cached_property
    def _longest(self) -> float:
        """Length of the longest vector, in one pass over them."""
        blocks = range(0, len(self._vectors), BLOCK)
        return max((float(np.linalg.norm(self._vectors[s : s + BLOCK], axis=1).max()) for s in blocks), default=0.0)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Rank passages by inner product with each query."""
        allowed = [self._scope.rows(query) for query in queries]
        encoded = self._encoder.queries([query.text for query in queries])
        open_ones = [position for position, rows in enumerate(allowed) if rows is None]
        close = near(self._vectors, encoded[open_ones], k, self._longest, self._encoder.device) if open_ones else []
        found = dict(zip(open_ones, close, strict=True))
        rankings = []
        for position, query in enumerate(queries):
            rows = allowed[position]
            if rows is None:
                rows = found[position]
            scores = exact_scores(self._vectors, encoded[position], rows)
            best = best_rows(scores, k, rows)
            rankings.append(self._scope.ranking(query, rows[best], scores[best]))
        return rankings


def exact_scores(vectors: Vectors, query: NDArray, rows: Rows) -> NDArray[np.float64]:
    """Inner products of some rows with a query in float64, each summed on its own: shape (rows,)."""
    return (vectors[rows].astype(np.float64) * query.astype(np.float64)).sum(axis=1)


def near(vectors: Vectors, queries: Vectors, k: int, longest: float, device: str = "cpu") -> list[Rows]:
    """Rows that may be among the k best of each query: all whose float32 score is within rounding of the k-th best.

    With d dimensions and float32's ε, a computed inner product is off by at most d · ε · |q| · max |v|, in whatever
    order it was summed; twice that separates what can still change places from what cannot.

    Args:
        vectors: Shape (n, d).
        queries: Shape (m, d).
        k: Wanted.
        longest: Length of the longest vector.
        device: Where to multiply.

    Returns:
        Per query at least min(k, n) ascending rows.
    """
    import torch

    count, dimension = vectors.shape
    k = min(k, count)
    if not len(queries) or k <= 0:
        return [np.empty(0, dtype=np.int64) for _ in queries]
    wanted = torch.tensor(queries, device=device)
    best = torch.full((len(queries), k), -torch.inf, device=device)
    slack = 2 * dimension * EPSILON * longest * wanted.norm(dim=1, keepdim=True)
    found: list[tuple[NDArray, NDArray, NDArray]] = []
    for start in range(0, count, BLOCK):
        scores = wanted @ torch.from_numpy(vectors[start : start + BLOCK]).to(device).T
        top = scores.topk(min(k, scores.shape[1]), dim=1).values
        best = torch.cat([best, top], dim=1).topk(k, dim=1).values
        which, row = (scores >= best[:, -1:] - slack).nonzero(as_tuple=True)
        found.append((which.cpu().numpy(), row.cpu().numpy() + start, scores[which, row].cpu().numpy()))
    which, rows, scored = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # Early blocks were cut at a threshold that later blocks raised.
    kept = scored >= (best[:, -1] - slack[:, 0]).cpu().numpy()[which]
    which, rows = which[kept], rows[kept]
    order = np.lexsort((rows, which))
    return np.split(rows[order], np.searchsorted(which[order], np.arange(1, len(queries))))
