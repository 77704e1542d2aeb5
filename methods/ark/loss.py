"""InfoNCE loss over a batch in which each distinct text is encoded once.

A batch is a matrix (rows × distinct documents) of n(d), the number of times a document is a candidate of a row. The loss of a
row is `-log(exp(s(q, d⁺)/τ) / Σ n(d) exp(s(q, d)/τ))` over its candidates, of which d⁺ is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from methods.ark.config import STAGES, LossConfig
from methods.ark.data import TrainRow

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """A batch of rows with distinct texts.

    Attributes:
        queries: Distinct question texts.
        documents: Distinct chunk texts.
        query: Index of each row's question: shape (rows,).
        positive: Index of each row's positive: shape (rows,).
        counts: Number of times that each document is a candidate of each row: shape (rows, documents).
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    query: NDArray[np.int64]
    positive: NDArray[np.int64]
    counts: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.query)


def batch_of(rows: Sequence[TrainRow], texts: Mapping[str, str], config: LossConfig) -> Batch:
    """Build a batch from training rows.

    Args:
        rows: The rows, which provide in-batch negatives for each other according to their stage.
        texts: Chunk texts by id.
        config: Which texts of other rows are candidates.
    """
    queries = _numbered(row.query for row in rows)
    documents = _numbered(texts[chunk] for row in rows for chunk in (row.positive_id, *row.negative_ids))
    positive = np.array([documents[texts[row.positive_id]] for row in rows], dtype=np.int64)
    own = np.zeros((len(rows), len(documents)), dtype=np.float32)
    for position, row in enumerate(rows):
        np.add.at(own[position], [documents[texts[chunk]] for chunk in row.negative_ids], 1)
    gold = np.zeros_like(own)
    np.add.at(gold, (np.arange(len(rows)), positive), 1)
    counts = np.empty_like(own)
    for position, row in enumerate(rows):
        share = config.in_batch[STAGES.index(row.stage)]
        counts[position] = own[position] + gold[position]
        if share != "none":
            counts[position] = own[position] + gold.sum(axis=0) if share == "positives" else (own + gold).sum(axis=0)
        if config.mask_same_question:
            masked = [documents[texts[chunk]] for chunk in row.positive_ids if texts[chunk] in documents]
            counts[position, masked] = 0
            counts[position, positive[position]] = 1
    if not config.count_duplicates:
        counts = np.minimum(counts, 1)
    query = np.array([queries[row.query] for row in rows], dtype=np.int64)
    return Batch(tuple(queries), tuple(documents), query, positive, counts)


def _numbered(texts: Iterable[str]) -> dict[str, int]:
    return {text: position for position, text in enumerate(dict.fromkeys(texts))}


def info_nce(queries: Tensor, documents: Tensor, batch: Batch, temperature: float) -> Tensor:
    """Compute the mean InfoNCE loss of a batch's rows.

    Args:
        queries: Vectors of unit length: shape (unique questions, dimension).
        documents: Vectors of unit length: shape (distinct documents, dimension).
        batch: Candidates of each row.
        temperature: τ.

    Returns:
        A scalar tensor, in float32.
    """
    import torch

    device = documents.device
    query = queries.float()[torch.from_numpy(batch.query).to(device)]
    scores = query @ documents.float().T / temperature
    right = scores.gather(1, torch.from_numpy(batch.positive).to(device).unsqueeze(1)).squeeze(1)
    candidates = scores + torch.from_numpy(batch.counts).to(device).log()
    return (candidates.logsumexp(dim=1) - right).mean()
