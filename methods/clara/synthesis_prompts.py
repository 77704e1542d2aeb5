"""The prompts of the synthesis, what is put into them, and the JSON that replies must be.

    simple, complex             document                     → Questions     (the paper's Figures 9 and 10)
    answer                      document, question           → Answer        (Figure 11)
    check_answer                document, question, answer   → Judgment      (Figure 12)
    more_simple, more_complex   document, pairs so far       → Supplement    (Figures 13 and 14)
    paraphrase                  document                     → Rephrasing    (Figure 15)
    check_paraphrase            document, paraphrase         → Preserved     (Figure 16)

The tasks are the paper's, the wording is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import BaseModel, field_validator, model_validator

from benchmarks.core.fingerprint import content_hash
from methods.clara.rows import Pair
from methods.prompts import Messages, shipped

ABSENT = "Not contained in the document."
"""The answer where a document holds none."""
PROMPTS = shipped(
    "methods.clara", *("simple", "complex", "answer", "check_answer", "more_simple", "more_complex", "paraphrase", "check_paraphrase")
)
NONE_YET = "(none yet)"
_TAG = re.compile(r"<(/?\s*(?:document|questions?|answer|text)\s*)>", re.IGNORECASE)


class Questions(BaseModel):
    """Questions about a document."""

    questions: list[str]


class Supplement(BaseModel):
    """What the questions so far do not cover."""

    count: int
    questions: list[str]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.count == 0) != (not self.questions):
            raise ValueError(f"count is {self.count}, and there are {len(self.questions)} questions")
        return self


class Answer(BaseModel):
    """The answer to one question."""

    answer: str

    @field_validator("answer")
    @classmethod
    def _says_something(cls, text: str) -> str:
        return _message(text)


class Judgment(BaseModel):
    """Whether a pair is supported."""

    judgment: Literal["Correct", "Incorrect"]


class Rephrasing(BaseModel):
    """A document in other words."""

    paraphrase: str

    @field_validator("paraphrase")
    @classmethod
    def _says_something(cls, text: str) -> str:
        return _message(text)


class Preserved(BaseModel):
    """Whether a paraphrase says the same."""

    judgment: Literal["Yes", "No"]


def _message(text: str) -> str:
    flat = " ".join(text.split())
    if not flat:
        raise ValueError("it is blank")
    return flat


REPLIES: Mapping[str, type[BaseModel]] = {
    "simple": Questions,
    "complex": Questions,
    "answer": Answer,
    "check_answer": Judgment,
    "more_simple": Supplement,
    "more_complex": Supplement,
    "paraphrase": Rephrasing,
    "check_paraphrase": Preserved,
}
"""The reply that each prompt asks for."""


class Prompts:
    """All templates.

    Args:
        folder: Of templates of one's own; one that it lacks is taken as it ships.

    Raises:
        UserError: A template cannot be read, or its placeholders are not those that its name has.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._prompts = {name: template.load_from(folder) for name, template in PROMPTS.items()}

    @property
    def hash(self) -> str:
        """Of all texts, so that another prompt makes other rows."""
        return content_hash([self._prompts[name].hash for name in sorted(self._prompts)])

    def messages(self, name: str, **values: str) -> Messages:
        """A conversation; what is put in can neither end its tags nor be read as a placeholder."""
        shown = {key: _TAG.sub(r"‹\1›", value) for key, value in values.items()}
        return self._prompts[name].messages(**shown)


def shown_pairs(pairs: Sequence[Pair]) -> str:
    """Pairs as the prompts of the coverage loop show them."""
    lines = [f"{number}. {pair.question} -> {pair.answer}" for number, pair in enumerate(pairs, 1)]
    return "\n".join(lines) or NONE_YET


def read_pairs(shown: str) -> list[Pair]:
    """The pairs that `shown_pairs` showed."""
    results = (re.fullmatch(r"\d+\. (.*?) -> (.*)", line) for line in shown.split("\n"))
    return [Pair(match[1], match[2]) for match in results if match is not None]
