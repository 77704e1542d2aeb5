"""Prompt formats of models that support only the format they were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchmarks.schema import Passage
from methods.models import pocket
from methods.models.weights import POCKET


class OwnFormat(Protocol):
    """Protocol of a model's own prompt format; prompts have no beginning-of-sequence token."""

    EOS: str
    QUESTION: str
    PARAPHRASE: str

    def document(self, text: str) -> str:
        """Format a passage (its first line is the title) as the model's input."""

    def numbered(self, blocks: Sequence[str]) -> str:
        """Join passages, or their placeholders, with numbers."""

    def asking(self, question: str) -> str:
        """Return the end of a prompt that asks the question."""

    def answer_prompt(self, question: str, passages: Sequence[Passage] = ()) -> str:
        """Return the prompt for answering a question from passages."""

    def question_prompt(self, answer: str, passages: Sequence[Passage]) -> str:
        """Return the prompt for generating a question with this answer from passages."""


def own_format(model: str, template: str = "auto") -> OwnFormat | None:
    """Return the format of a model that supports only one; None for other models.

    Args:
        model: Folder, hub id or name of the model.
        template: `auto` decides by the model; a format's name selects it for any model; other values give None.
    """
    return pocket if template == POCKET or (template == "auto" and model == POCKET) else None
