"""InfoNCE over a batch whose texts are encoded once each.

A batch is a table: rows × unique documents, with how often each document stands as a candidate of each row. The loss
of a row is `-log(exp(s(q, d⁺)/τ) / Σ n(d) exp(s(q, d)/τ))` over its candidates, of which d⁺ is one.
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
    """Rows with their texts, each text once.

    Attributes:
        queries: Unique texts of questions.
        documents: Unique texts of chunks.
        query: The question of each row: shape (rows,).
        positive: Column of each row's positive: shape (rows,).
        counts: How often a document is a candidate of a row: shape (rows, documents).
    """

    queries: tuple[str, ...]
    documents: tuple[str, ...]
    query: NDArray[np.int64]
    positive: NDArray[np.int64]
    counts: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.query)


def batch_of(rows: Sequence[TrainRow], texts: Mapping[str, str], config: LossConfig) -> Batch:
    """Lay rows out as a batch.

    Args:
        rows: The rows; all of them are contrasted with each other as their stage says.
        texts: Chunk texts by id.
        config: Which documents of other rows are candidates.
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
    """Return the mean loss of a batch's rows.

    Args:
        queries: Vectors of unit length: shape (unique questions, dimension).
        documents: Likewise: shape (unique documents, dimension).
        batch: Which are candidates of which.
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
