"""What a checkpoint that ragmeter trained says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import CHECKPOINT_CARD
from methods.kept import read_json
from methods.models.weights import locate


def card_of(model: str) -> Mapping[str, Any] | None:
    """The card in a model's folder (`ragmeter.json`); None where it has none.

    Raises:
        UserError: There is no such folder, or the card is damaged.
    """
    path = Path(locate(model)) / CHECKPOINT_CARD
    if not path.is_file():
        return None
    card = read_json(path)
    return card if isinstance(card, dict) else None
