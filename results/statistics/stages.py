"""Attribute a pipeline's losses to its stages by replacing stages with an oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from results.statistics.core import Clusters, Difference, Estimate
from results.statistics.intervals import differences, estimate, estimates


@dataclass(frozen=True, slots=True)
class StageLosses:
    """Losses of a RAG pipeline by stage, measured by replacing one stage after another with an oracle.

    The parts sum up: retrieval + reranking + compression + reading = ceiling - normal. A part is negative if the oracle does
    worse.

    Attributes:
        normal: Score of the pipeline as it is.
        retrieval: Gain from adding the evidence that retrieval missed to the passages.
        reranking: Further gain from removing all other passages.
        compression: Further gain from reading the evidence uncompressed; None if it was not measured, and then included in
            `reading`.
        reading: Remaining loss, which is the reader's.
        closed_book: Score without any passage: the reader's own knowledge.
        evidence_gain: Normal minus closed book: the benefit of retrieval.
    """

    normal: Estimate
    retrieval: Difference
    reranking: Difference
    compression: Difference | None
    reading: Estimate
    closed_book: Estimate
    evidence_gain: Difference

    @property
    def shares(self) -> dict[str, float]:
        """Return each stage's share of the total loss; NaN if nothing is lost."""
        losses = {"retrieval": self.retrieval.value, "reranking": self.reranking.value}
        if self.compression is not None:
            losses["compression"] = self.compression.value
        losses["reading"] = self.reading.value
        total = sum(losses.values())
        return {stage: loss / total if total else math.nan for stage, loss in losses.items()}


def stage_losses(
    normal: ArrayLike,
    *,
    gold_in_noise: ArrayLike,
    gold_only: ArrayLike,
    closed_book: ArrayLike,
    gold_uncompressed: ArrayLike | None = None,
    ceiling: float = 1.0,
    clusters: Clusters = None,
) -> StageLosses:
    """Split a RAG pipeline's loss into retrieval, reranking, compression and reading.

    All scores must be from the same reader on the same questions. A question without a score in one of them is left out of all,
    so that the parts sum to the total.

    Args:
        normal: Shape (questions,), scores of the pipeline as it is; NaN is unscorable.
        gold_in_noise: Scores with missing evidence added to the retrieved passages, then reranked and compressed as usual.
        gold_only: Scores with only the evidence, compressed as usual.
        closed_book: Scores without passages.
        gold_uncompressed: Scores with only the evidence, uncompressed; None for a pipeline without a compressor.
        ceiling: The attainable maximum of the metric.
        clusters: As in `estimates`.

    Raises:
        ValueError: Arrays differ in shape.
    """
    options = [normal, gold_in_noise, gold_only, closed_book]
    if gold_uncompressed is not None:
        options.append(gold_uncompressed)
    arrays = [np.asarray(scores, np.float64) for scores in options]
    if len({scores.shape for scores in arrays}) > 1 or arrays[0].ndim != 1:
        raise ValueError(f"all runs must be of the same questions, got {[scores.shape for scores in arrays]}")
    runs = np.stack(arrays)
    runs[:, np.isnan(runs).any(axis=0)] = np.nan
    usual, noisy, clean, without = runs[:4]
    full = runs[-1] if gold_uncompressed is not None else clean
    result = differences(np.stack([noisy, clean, full, usual]), np.stack([usual, noisy, clean, without]), clusters=clusters)
    retrieval, reranking, compression, gain = result
    score, blind = estimates(np.stack([usual, without]), clusters=clusters)
    reading = estimate(ceiling - full, clusters=clusters)
    return StageLosses(score, retrieval, reranking, compression if gold_uncompressed is not None else None, reading, blind, gain)
