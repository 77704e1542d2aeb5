"""SKP over triples: one encoder that `ragmeter train skp` pretrained on a graph's text, as both towers."""

from __future__ import annotations

from pydantic import Field

from methods.api import Services
from methods.baselines.graph.checkpoint import linearise_of, require_checkpoint
from methods.baselines.graph.towers import TripleRetriever, TripleSearchConfig
from methods.baselines.graph.two_tower import POOLINGS, Pooling
from methods.knowledge.linearise import LineariseConfig
from methods.models.encoder import Encoder, EncoderConfig
from methods.models.weights import weights_hash
from methods.registry import register


class SkpConfig(TripleSearchConfig):
    """Options of SKP; the length is that which the checkpoint was saved with."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train skp` made")
    pooling: Pooling | None = Field(
        None, description="the vector of a text: its first token's, or the tokens' mean; null: as saved, the first"
    )
    linearise: LineariseConfig | None = Field(None, description="how triples are written; null: as they were in pretraining")

    @property
    def encoder(self) -> EncoderConfig:
        """Both towers as one encoder."""
        pooling = POOLINGS[self.pooling] if self.pooling else None
        return EncoderConfig.model_validate(
            {
                "model": self.model,
                "pooling": pooling,
                "query_prompt": "",
                "passage_prompt": "",
                "normalise": self.similarity == "cosine",
                "batch_size": self.batch_size,
                "dtype": self.dtype,
            }
        )

    def preflight(self) -> None:
        """Check that the model is a checkpoint of SKP."""
        require_checkpoint(self.model, "skp", where="skp, option model")


@register(
    "skp",
    kind="retriever",
    summary="triples by one encoder pretrained on a graph's text: hidden words and copies with them",
    config=SkpConfig,
    paper="Dong et al. 2023, Bridging the KB-Text Gap: Leveraging Structured Knowledge-aware Pre-training for KBQA",
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model),
)
class Skp(TripleRetriever):
    """Retriever of a pretrained encoder.

    Args:
        config: The checkpoint, and how to search.
        services: Lends the device, and a folder where vectors are kept.
    """

    def __init__(self, config: SkpConfig, services: Services) -> None:
        encoder = Encoder(config.encoder, services.device, services.folder("embeddings"))
        super().__init__(encoder, config.linearise or linearise_of(config.model), config.scope, "skp")
