"""Prompts of models that were trained on one format only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchmarks.schema import Passage
from methods.models import pocket
from methods.models.weights import POCKET


class OwnFormat(Protocol):
    """The one format that a model knows; prompts have no beginning-of-sequence token."""

    EOS: str
    QUESTION: str
    PARAPHRASE: str

    def document(self, text: str) -> str:
        """Return a passage, whose title is its first line, as the model reads passages."""

    def numbered(self, blocks: Sequence[str]) -> str:
        """Return passages, or what stands for them, behind their numbers."""

    def asking(self, question: str) -> str:
        """Return the end of a prompt that asks for an answer."""

    def answer_prompt(self, question: str, passages: Sequence[Passage] = ()) -> str:
        """Return the prompt for an answer."""

    def question_prompt(self, answer: str, passages: Sequence[Passage]) -> str:
        """Return the prompt for a question that this answer answers."""


def own_format(model: str, template: str = "auto") -> OwnFormat | None:
    """Return the format of a model that knows one only, None for any other model.

    Args:
        model: Its folder, hub id or name.
        template: The format's name asks for it whatever the model, `auto` leaves it to the model; else there is none.
    """
    return pocket if template == POCKET or (template == "auto" and model == POCKET) else None
