"""Two towers that nothing was trained on: what GPR's inference gives before any pretraining.

Both towers are copies of one encoder. First-token vectors of a language model that was never trained to compare texts
all lie close together, so `pooling: first`, which is GPR's own, is weak by construction; `mean` is the fairer row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from methods.api import Services
from methods.baselines.graph.towers import TripleRetriever, TripleSearchConfig
from methods.knowledge.linearise import LineariseConfig
from methods.models.encoder import Encoder, EncoderConfig
from methods.registry import register

Pooling = Literal["first", "mean"]
POOLINGS: dict[Pooling, Any] = {"first": "cls", "mean": "mean"}
"""As `EncoderConfig` calls them."""


class TwoTowerConfig(TripleSearchConfig):
    """Options of untrained towers."""

    model: str = Field("distilbert-base-uncased", description="folder or hub id of an encoder; minilm is there without the hub")
    revision: str | None = Field(None, description="revision of a hub id")
    pooling: Pooling = Field("first", description="the vector of a text: its first token's (paper), or the tokens' mean")
    max_length: int = Field(64, ge=8, description="longest text in tokens")
    linearise: LineariseConfig = LineariseConfig.model_validate({})

    @property
    def encoder(self) -> EncoderConfig:
        """Both towers as one encoder."""
        return EncoderConfig.model_validate(
            {
                "model": self.model,
                "revision": self.revision,
                "pooling": POOLINGS[self.pooling],
                "max_length": self.max_length,
                "query_prompt": "",
                "passage_prompt": "",
                "normalise": self.similarity == "cosine",
                "batch_size": self.batch_size,
                "dtype": self.dtype,
            }
        )

    def preflight(self) -> None:
        """Check the encoder."""
        self.encoder.check()


@register(
    "two_tower",
    kind="retriever",
    summary="triples by an encoder that was not trained on any graph; weak with first-token vectors, by construction",
    config=TwoTowerConfig,
    paper="Wang et al. 2025, GPR: Empowering Generation with Graph-Pretrained Retriever (baseline Two Tower)",
    presets={"mean": {"pooling": "mean"}, "minilm": {"model": "minilm", "pooling": "mean"}},
    extra="models",
    checkpoint_hash=lambda config: config.encoder.weights(),
)
class TwoTower(TripleRetriever):
    """Retriever of untrained towers.

    Args:
        config: The encoder, and how to search.
        services: Lends the device, and a folder where vectors are kept.
    """

    def __init__(self, config: TwoTowerConfig, services: Services) -> None:
        encoder = Encoder(config.encoder, services.device, services.folder("embeddings"))
        super().__init__(encoder, config.linearise, config.scope, "two_tower")
