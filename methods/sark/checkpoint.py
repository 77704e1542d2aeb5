"""What a checkpoint of SARK is: a `CrossEncoder` folder of modules whose card says who trained it."""

from __future__ import annotations

from benchmarks.errors import UserError
from methods.checkpoints import card_of

METHOD = "sark"


def require_checkpoint(model: str, *, where: str) -> None:
    """Check that a model is a checkpoint of SARK.

    Args:
        model: A folder.
        where: The option that names it, for the message.

    Raises:
        UserError: It is not.
    """
    card = card_of(model)
    if card is None or card.get("method") != METHOD:
        raise UserError(
            f"{model!r} is not a checkpoint of SARK",
            where=where,
            try_this="a folder that `ragmeter train sark` wrote; for other cross-encoders: cross_encoder",
        )
