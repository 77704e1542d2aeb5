"""Which chunks support the answer to a question: three scores, normalised per question, weighted and added up.

S_f: how likely the scorer finds the answer behind question and chunk. S_b: how likely the question behind answer and
chunk. S_v: the retriever's own cosine. All are means per token of log-likelihoods, or cosines, over the chunks of one
document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from methods.ark.config import ScoreConfig

Scores = NDArray[np.float64]
"""Shape (chunks,): a question's scores."""
SHORT = 10
"""Tokens below which a chunk is short."""


@dataclass(frozen=True, slots=True)
class AlignmentRow:
    """A chunk's scores for a question: raw, normalised (None where a term was left out), the total and its rank."""

    question_id: str
    chunk_id: str
    s_f: float | None
    s_b: float | None
    s_v: float | None
    n_f: float | None
    n_b: float | None
    n_v: float | None
    total: float
    rank: int


def formed(with_chunk: Scores, without: float, form: str) -> Scores:
    """S_f from mean log-likelihoods.

    Args:
        with_chunk: Of the answer behind question and each chunk.
        without: Of the answer behind the question alone.
        form: As `ForwardConfig.form`.
    """
    if form == "logp":
        return with_chunk
    if form == "logp_diff":
        return with_chunk - without
    return np.exp(with_chunk) - np.exp(without)


def normalised(scores: Scores, how: Literal["minmax", "zscore", "none"]) -> Scores:
    """Scores of one question on a common scale; scores that are all equal become 0.5 (minmax) or 0 (zscore)."""
    if how == "none":
        return scores
    if how == "minmax":
        low, width = scores.min(), np.ptp(scores)
        return (scores - low) / width if width > 0 else np.full_like(scores, 0.5)
    # Of equal scores the deviation need not come out as zero: their mean is rounded.
    return (scores - scores.mean()) / scores.std() if np.ptp(scores) > 0 else np.zeros_like(scores)


def aligned(
    question_id: str, chunk_ids: Sequence[str], raw: Mapping[str, Scores], config: ScoreConfig, tokens: Sequence[int] | None = None
) -> list[AlignmentRow]:
    """Rank the chunks of a document by how well they support an answer.

    Args:
        question_id: The question.
        chunk_ids: In the document's order.
        raw: Scores by term (`f`, `b`, `v`); terms of weight 0 are not looked at and may be missing.
        config: Normalisation and weights.
        tokens: Length of each chunk, where short ones are to be penalised.

    Returns:
        Rows in the document's order; equal totals are ranked by place in the document.
    """
    weights = {"f": config.f.weight, "b": config.b.weight, "v": config.v.weight}
    terms = {name: raw[name] for name, weight in weights.items() if weight > 0}
    scaled = {name: normalised(scores, config.normalise) for name, scores in terms.items()}
    total = np.sum([weights[name] * scores for name, scores in scaled.items()], axis=0)
    if tokens is not None:
        total = total * np.minimum(1.0, np.asarray(tokens) / SHORT)
    ranks = np.empty(len(total), dtype=np.int64)
    ranks[np.argsort(-total, kind="stable")] = np.arange(len(total))

    def values(scores: Mapping[str, Scores], place: int) -> Iterator[float | None]:
        return (float(scores[name][place]) if name in scores else None for name in "fbv")

    rows = []
    for place, chunk in enumerate(chunk_ids):
        (s_f, s_b, s_v), (n_f, n_b, n_v) = values(terms, place), values(scaled, place)
        numbers = (s_f, s_b, s_v, n_f, n_b, n_v)
        rows.append(AlignmentRow(question_id, chunk, *numbers, total=float(total[place]), rank=int(ranks[place])))
    return rows


def positives(rows: Sequence[AlignmentRow], count: int) -> list[str]:
    """Ids of the best chunks, best first."""
    return [row.chunk_id for row in sorted(rows, key=lambda row: row.rank)[:count]]


def row_of(fields: Mapping[str, Any]) -> AlignmentRow:
    """A row from its JSON."""
    return AlignmentRow(**fields)
