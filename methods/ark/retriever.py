"""ARK in a pipeline: dense retrieval with a tuned checkpoint."""

from __future__ import annotations

from pydantic import Field

from benchmarks.core.errors import UserError
from methods.registry import register
from methods.retrieval.dense import Dense, DenseConfig, dense_work
from methods.training.stages import card_of


def trained_by_ark(model: str) -> bool:
    """Return whether a model is a checkpoint of this method."""
    card = card_of(model)
    return card is not None and card.get("method") == "ark"


class ArkConfig(DenseConfig):
    """Options of dense retrieval; prompts, pooling and length are those that the checkpoint was saved with."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train ark` made")

    def preflight(self) -> None:
        """Check that the model is a checkpoint of ARK."""
        super().preflight()
        if not trained_by_ark(self.model):
            raise UserError(
                f"{self.model!r} is not a checkpoint of ARK",
                code="not-checkpoint-ark",
                where="ark, option model",
                try_this="a folder that `ragmeter train ark` wrote; for other encoders: dense",
            )


@register(
    "ark",
    kind="retriever",
    summary="dense retrieval with an encoder that ARK tuned",
    config=ArkConfig,
    paper="ARK: answer-centric retriever tuning with a knowledge-graph curriculum (2025)",
    work=dense_work,
)
class Ark(Dense):
    """Retriever of a tuned checkpoint.

    Args:
        config: The checkpoint, and how to search.
        services: As for `Dense`.
    """
