"""What a checkpoint of towers over triples says of itself."""

from __future__ import annotations

from pathlib import Path

from benchmarks.errors import UserError
from methods.checkpoints import card_of
from methods.knowledge.linearise import LineariseConfig


def require_checkpoint(model: str, method: str, *, where: str) -> None:
    """Check that a model is a checkpoint that a training of ours made.

    Args:
        model: A folder.
        method: The training's id.
        where: The option that names it, for the message.

    Raises:
        UserError: It is not.
    """
    card = card_of(model)
    if card is None or card.get("method") != method:
        raise UserError(
            f"{model!r} is not a checkpoint of {method}",
            where=where,
            try_this=f"a folder that `ragmeter train {method}` wrote; for other encoders: two_tower",
        )


def linearise_of(model: str) -> LineariseConfig:
    """How triples were written when a checkpoint was trained.

    Raises:
        UserError: Its card does not say.
    """
    card = card_of(model)
    try:
        assert card is not None
        return LineariseConfig.model_validate(card["config"]["linearise"])
    except (AssertionError, KeyError, TypeError, ValueError):
        raise UserError(
            "the card of this checkpoint does not say how triples were written",
            where=str(Path(model)),
            try_this="linearise: {rel: last, underscores: keep}, or as it was pretrained",
        ) from None
