"""Which models are checkpoints of ARK."""

from __future__ import annotations

from methods.checkpoints import card_of


def trained_by_ark(model: str) -> bool:
    """Whether a model is a checkpoint of this method."""
    card = card_of(model)
    return card is not None and card.get("method") == "ark"
