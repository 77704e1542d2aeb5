"""Rerankers that score each candidate by itself: cross-encoders."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Ranking, Services
from methods.models.cross_encoder import PRESETS, CrossEncoderConfig, CrossEncoderModel
from methods.models.weights import weights_hash
from methods.registry import MethodConfig, register


class CrossEncoderRerankerConfig(CrossEncoderConfig, MethodConfig):
    """Options of a cross-encoder, and how far down it reranks."""

    depth: int | None = Field(
        None, ge=1, description="candidates to rerank, the rest following in their order; null: all. SARK: 50"
    )

    def preflight(self) -> None:
        """Check the model's folder and its code."""
        self.check()


@register(
    "cross_encoder",
    kind="reranker",
    summary="any cross-encoder; ms-marco-MiniLM-L6 by default, presets for bge-reranker and mGTE",
    config=CrossEncoderRerankerConfig,
    paper="Nogueira and Cho 2019, Passage Re-ranking with BERT (arXiv:1901.04085)",
    presets=PRESETS,
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model, config.revision),
)
class CrossEncoderReranker:
    """Reranker that reads query and passage together.

    Args:
        config: Options.
        services: Lends the device.
    """

    def __init__(self, config: CrossEncoderRerankerConfig, services: Services) -> None:
        self.config = config
        self.model = CrossEncoderModel(config, services.device)

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        """Order candidates by the model's score; equal scores keep the order they came in."""
        return [self._rerank(query, ranking, corpus) for query, ranking in zip(queries, rankings, strict=True)]

    def _rerank(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
        ids = ranking.ids[: self.config.depth]
        scores = self.model.scores(query.text, [passage.full_text for passage in corpus.get(ids)])
        order = sorted(range(len(ids)), key=lambda place: -scores[place])
        rest = ranking.ids[len(ids) :]
        # What was not read stands below what was; only the order of scores means anything.
        floor = float(scores.min()) if len(ids) else 0.0
        below = [floor - place for place in range(1, len(rest) + 1)]
        ranked = tuple(float(scores[place]) for place in order)
        return Ranking(query.id, (*(ids[place] for place in order), *rest), (*ranked, *below))
