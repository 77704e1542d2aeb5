"""Late interaction as a reranker: each token of the query meets its best in the passage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import Services
from methods.baselines.pointwise import PointwiseConfig, PointwiseReranker
from methods.models.late_interaction import LateInteraction, LateInteractionConfig, max_sim
from methods.models.weights import weights_hash
from methods.registry import register


class LateInteractionRerankerConfig(LateInteractionConfig, PointwiseConfig):
    """Options of the encoder, and how far down it reranks."""

    def preflight(self) -> None:
        """Check the model's folder and its code."""
        self.check()


@register(
    "late_interaction",
    kind="reranker",
    summary="candidates by MaxSim over token vectors; ColBERTv2 by default, any ColBERT or PyLate checkpoint",
    config=LateInteractionRerankerConfig,
    paper="Santhanam et al. 2022, ColBERTv2 (arXiv:2112.01488)",
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model, config.revision),
)
class LateInteractionReranker(PointwiseReranker):
    """Reranker that encodes query and passages apart, a vector per token, and matches the tokens.

    Args:
        config: Options.
        services: Lends the device.
    """

    def __init__(self, config: LateInteractionRerankerConfig, services: Services) -> None:
        super().__init__(config.depth)
        self.config = config
        self.model = LateInteraction(config, services.device)

    def scores(self, query: Query, ids: Sequence[str], corpus: Corpus) -> NDArray[np.floating]:
        """Sums over the query's tokens of the largest inner product; a passage without tokens scores lowest."""
        # In an order that the passages' content decides, so that scores do not depend on that of the candidates.
        wanted = [passage.full_text for passage in corpus.get(ids)]
        texts = sorted(set(wanted))
        found = max_sim(self.model.queries([query.text])[0], self.model.passages(texts))
        empty = ~np.isfinite(found)
        found[empty] = found[~empty].min(initial=0.0) - 1
        by_text = dict(zip(texts, found.tolist(), strict=True))
        return np.array([by_text[text] for text in wanted], dtype=np.float64)
