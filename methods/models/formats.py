"""Prompts of models that were trained on one format only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.schema import Passage
from methods.models.pocket import answer_prompt
from methods.models.weights import POCKET


def own_format(model: str) -> Callable[[str, Sequence[Passage]], str] | None:
    """Return how a model that knows one format only is asked a question over passages; None for any other model."""
    return answer_prompt if model == POCKET else None
