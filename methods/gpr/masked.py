"""Triples with one hidden entity, and what a valid question about one is."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal, Protocol

from benchmarks.schema import Triple, triple_id

Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("head", "tail")
MASK = "[MASK]"
"""Placeholder of the hidden entity."""
FEWEST_WORDS = 3
ACCEPTED, RETRIED, DROPPED = "accepted", "retried", "dropped: "
"""Keys of a generator's counts; the last is a prefix followed by the reason."""
_WORDS = re.compile(r"[^\W_]+")
_MASKED = re.compile(r"[\[<(]\s*mask\w*\s*[\])>]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MaskedTriple:
    """A triple with one hidden entity, which the question asks for.

    Attributes:
        triple: Head, relation, tail.
        side: The hidden end: head or tail.
    """

    triple: Triple
    side: Side

    @property
    def id(self) -> str:
        """Return the triple's id."""
        return triple_id(self.triple)

    @property
    def relation(self) -> str:
        """Return the relation's name in the graph."""
        return self.triple[1]

    @property
    def hidden(self) -> str:
        """Return the hidden entity, which is the answer."""
        return self.triple[0 if self.side == "head" else 2]

    @property
    def visible(self) -> str:
        """Return the other entity, which the question names."""
        return self.triple[2 if self.side == "head" else 0]

    def __str__(self) -> str:
        head, relation, tail = self.triple
        return f"({MASK}, {relation}, {tail})" if self.side == "head" else f"({head}, {relation}, {MASK})"


class QuestionGenerator(Protocol):
    """Protocol of generators from masked triples to questions (None if none could be generated).

    An implementation has `generate(batch)`, or the asynchronous `generate_one(masked)` if it calls a model.

    Attributes:
        name: Identity stored with each question: the generator and everything that determines its output.
        counts: Outcomes so far: `accepted`, `retried`, and `dropped: ` with a reason.
    """

    @property
    def name(self) -> str: ...

    @property
    def counts(self) -> Counter[str]: ...


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words, without punctuation and underscores."""
    return _WORDS.findall(text.casefold())


def names(text: str, entity: str) -> bool:
    """Return whether a text mentions an entity, compared by words (by characters if the entity has no words)."""
    wanted = split_words(entity)
    if not wanted:
        return entity.strip() in text
    return f" {' '.join(wanted)} " in f" {' '.join(split_words(text))} "


def unaskable(masked: MaskedTriple) -> str | None:
    """Return why no question is possible about a masked triple, for example because both ends have the same name; None if one
    is.
    """
    return "one entity names the other" if names(masked.visible, masked.hidden) else None


def fault(question: str, masked: MaskedTriple) -> str | None:
    """Return why a text is not a valid question for the hidden entity; None if it is."""
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
    """Validate a generated question and count the outcome; returns None if it is invalid.

    Args:
        question: The question, or None.
        masked: The masked triple.
        counts: Counts of the generator.
        why: Reason why there is no question.
    """
    reason = why if question is None else unaskable(masked) or fault(question, masked)
    counts[ACCEPTED if reason is None else DROPPED + reason] += 1
    return question if reason is None else None
