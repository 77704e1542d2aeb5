"""SARK in a pipeline: reranking with a checkpoint that it trained."""

from __future__ import annotations

from pydantic import Field

from methods.api import Services
from methods.baselines.rerankers import CrossEncoderReranker, CrossEncoderRerankerConfig
from methods.models.weights import weights_hash
from methods.registry import register
from methods.sark.checkpoint import require_checkpoint


class SarkConfig(CrossEncoderRerankerConfig):
    """Options of a cross-encoder; its length is the one that the checkpoint was trained with."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train sark` made")

    def preflight(self) -> None:
        """Check that the model is a checkpoint of SARK."""
        super().preflight()
        require_checkpoint(self.model, where="sark, option model")


@register(
    "sark",
    kind="reranker",
    summary="a reranker that SARK trained not to be misled by style",
    config=SarkConfig,
    paper="Zhang et al., Don't Be Misled by Style: A Style-Adaptive Reranker for Capturing Effective Knowledge in "
    "Retrieval-Augmented Generation",
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model, config.revision),
)
class Sark(CrossEncoderReranker):
    """Reranker of a trained checkpoint.

    Args:
        config: The checkpoint, and how to read.
        services: Lends the device.
    """

    def __init__(self, config: SarkConfig, services: Services) -> None:
        super().__init__(config, services)
