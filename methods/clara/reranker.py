"""CLaRa as a reranker: candidates by the cosine of their memory with the question's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Services
from methods.baselines.pointwise import PointwiseConfig, PointwiseReranker
from methods.clara.documents import Documents
from methods.clara.retriever import QueryOptions, Questions
from methods.clara.store import cosines
from methods.clara.use import PAPER, loaded
from methods.models.weights import weights_hash
from methods.registry import register


class ClaraRerankerConfig(QueryOptions, PointwiseConfig):
    """Options of the reranker."""


@register(
    "clara_reranker",
    kind="reranker",
    summary="candidates by the cosine of compressed question and passage",
    config=ClaraRerankerConfig,
    paper=PAPER,
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model),
)
class ClaraReranker(PointwiseReranker):
    """Reranker in compressed space.

    Args:
        config: The checkpoint.
        services: Lends the device, and the folder of stores.
    """

    def __init__(self, config: ClaraRerankerConfig, services: Services) -> None:
        super().__init__(config.depth)
        model = loaded(config, services.device)
        self._documents = Documents(model, config, services)
        self._questions = Questions(model, config)

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Cosines within [-1, 1]."""
        if not ids:
            return np.empty(0)
        (question,) = self._questions.memory([query])
        return cosines(question, self._documents.of(corpus, ids))
