"""A triple with one end hidden, and what a text must be to be a question for the hidden end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from benchmarks.schema import Triple, triple_id

Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("head", "tail")

MASK = "[MASK]"
"""Stands where an entity is hidden."""
FEWEST_WORDS = 3

ACCEPTED, RETRIED, DROPPED = "accepted", "retried", "dropped: "
"""Counts of a generator; behind the last stands the reason."""

_WORDS = re.compile(r"[^\W_]+")
_MASKED = re.compile(r"[\[<(]\s*mask\w*\s*[\])>]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MaskedTriple:
    """A triple of which one end is asked for.

    Attributes:
        triple: Head, relation, tail.
        side: The end that is hidden.
    """

    triple: Triple
    side: Side

    @property
    def id(self) -> str:
        """The triple's id."""
        return triple_id(self.triple)

    @property
    def relation(self) -> str:
        """The relation, as the graph names it."""
        return self.triple[1]

    @property
    def hidden(self) -> str:
        """The entity that is the answer."""
        return self.triple[0 if self.side == "head" else 2]

    @property
    def visible(self) -> str:
        """The entity that the question names."""
        return self.triple[2 if self.side == "head" else 0]

    def __str__(self) -> str:
        head, relation, tail = self.triple
        return f"({MASK}, {relation}, {tail})" if self.side == "head" else f"({head}, {relation}, {MASK})"


class QuestionGenerator(Protocol):
    """Turns masked triples into questions.

    Attributes:
        name: Says in every row who wrote it, with what decides what is written.
        counts: What happened so far: `accepted`, `retried`, and `dropped: ` with a reason.
    """

    @property
    def name(self) -> str: ...

    @property
    def counts(self) -> Counter[str]: ...

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """A question for each, or None where none could be made."""
        ...


def words(text: str) -> list[str]:
    """The words of a text without letter case, punctuation and underscores."""
    return _WORDS.findall(text.casefold())


def names(text: str, entity: str) -> bool:
    """Whether an entity stands in a text, word for word; one without any word, character for character."""
    wanted = words(entity)
    if not wanted:
        return entity.strip() in text
    return f" {' '.join(wanted)} " in f" {' '.join(words(text))} "


def unaskable(masked: MaskedTriple) -> str | None:
    """Why no question can be asked, whoever writes it: whoever names the one end names the other."""
    return "one entity names the other" if names(masked.visible, masked.hidden) else None


def fault(question: str, masked: MaskedTriple) -> str | None:
    """Why a text is no question for the hidden entity, or None."""
    if MASK in question or _MASKED.search(question):
        return "contains the mask"
    if names(question, masked.hidden):
        return "names the answer"
    if len(question.split()) < FEWEST_WORDS:
        return f"fewer than {FEWEST_WORDS} words"
    if "." in masked.relation and masked.relation.casefold() in question.casefold():
        return "contains the relation's identifier"
    return None


def checked(question: str | None, masked: MaskedTriple, counts: Counter[str], why: str = "") -> str | None:
    """What a generator without a second try returns: the question, if it is one; counted either way.

    Args:
        question: What was made, None for nothing.
        masked: What it was made for.
        counts: Of the generator.
        why: Why nothing was made.
    """
    reason = why if question is None else unaskable(masked) or fault(question, masked)
    counts[ACCEPTED if reason is None else DROPPED + reason] += 1
    return question if reason is None else None
