"""Rerankers with cross-encoders, which encode query and passage together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Services
from methods.models.cross_encoder import PRESETS, CrossEncoderConfig, CrossEncoderModel
from methods.registry import ModelMethodConfig, register
from methods.retrieval.ranking import ModelReranker, PointwiseConfig
from methods.work import Lengths, Work, encode


class CrossEncoderRerankerConfig(CrossEncoderConfig, PointwiseConfig, ModelMethodConfig):
    """Options of a cross-encoder, and the number of candidates to rerank."""


def pairs_work(config: CrossEncoderRerankerConfig, lengths: Lengths) -> Work:
    """Estimate the work: each question is scored with each of its candidates."""
    return encode(config, lengths.questions * lengths.ranked(config.depth), lengths.question + lengths.passage)


@register(
    "cross_encoder",
    kind="reranker",
    summary="any cross-encoder; ms-marco-MiniLM-L6 by default, presets for bge-reranker and mGTE",
    paper="Nogueira and Cho 2019, Passage Re-ranking with BERT (arXiv:1901.04085)",
    presets=PRESETS,
    work=pairs_work,
)
class CrossEncoderReranker(ModelReranker):
    """Reranker role: scores each candidate with a cross-encoder.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    labels: ClassVar[tuple[int, ...]] = (1,)
    """Accepted numbers of output labels of the model."""

    def __init__(self, config: CrossEncoderRerankerConfig, services: Services) -> None:
        super().__init__(config, CrossEncoderModel(config, services.device, self.labels))

    def scores_of(self, queries: Sequence[Query], ids: Sequence[Sequence[str]], corpus: Corpus) -> Sequence[NDArray[np.floating]]:
        """Score the candidates of all queries in common batches."""
        requests = [(query.text, [passage.full_text for passage in corpus.get(own)]) for query, own in zip(queries, ids, strict=True)]
        return self.model.many(requests)

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Score the candidates of one query."""
        return self.scores_of([query], [ids], corpus)[0]
