"""Rerankers that read query and passage together: cross-encoders."""

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
    """Options of a cross-encoder and of the depth of reranking."""


def pairs_work(config: CrossEncoderRerankerConfig, lengths: Lengths) -> Work:
    """Return the work: every question with each of its candidates."""
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
    """Reranker that reads query and passage together.

    Args:
        config: Options.
        services: Services, of which it uses the device.
    """

    labels: ClassVar[tuple[int, ...]] = (1,)
    """Allowed numbers of labels of the model."""

    def __init__(self, config: CrossEncoderRerankerConfig, services: Services) -> None:
        super().__init__(config, CrossEncoderModel(config, services.device, self.labels))

    def scores_of(self, queries: Sequence[Query], ids: Sequence[Sequence[str]], corpus: Corpus) -> Sequence[NDArray[np.floating]]:
        """Return the model's scores, with the pairs of all queries in common batches."""
        requests = [(query.text, [passage.full_text for passage in corpus.get(own)]) for query, own in zip(queries, ids, strict=True)]
        return self.model.many(requests)

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Return the model's scores."""
        return self.scores_of([query], [ids], corpus)[0]
