"""Write questions about triples without a model: from sentence patterns, or from the wordings of worlds' relations.

Sentence patterns are not natural language ("What is the languages spoken of Jamaica?"), so results with them are not the
paper's. The generator's name is in every row.

For worlds, a masked triple is a statement of its relation with the hidden end asked for: "Korv was first described by Ada
Rin" becomes "By which person was Korv first described?" or "What was first described by Ada Rin?". Documents of worlds are
written from these statements. The benchmark's questions are worded differently ("Who identified Korv?"), so training
contains no template of a test question. Both use the same nouns ("town", "person") and English syntax. Relations that are
withheld from training worlds get no question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from benchmarks.worlds.world import Relation, relations
from methods.gpr.masked import MaskedTriple, Side, checked, split_words
from methods.graphs.triples import relation_text

PATTERNS: Mapping[Side, tuple[str, ...]] = {
    "tail": ("What is the {relation} of {visible}?", "Which {relation} does {visible} have?"),
    "head": ("What has {visible} as its {relation}?", "Of what is {visible} the {relation}?"),
}
"""Sentence patterns by hidden end."""


class TemplateQuestions:
    """Generator that fills sentence patterns, chosen by the triple's id."""

    name = "template-v1"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return a question per masked triple; None if the relation has no words or names an entity of the triple."""
        return [checked(filled(item), item, self.counts, "the relation has no words") for item in batch]


def filled(masked: MaskedTriple) -> str | None:
    """Fill a pattern for a masked triple; None if the relation has no words."""
    relation = " ".join(split_words(relation_text(masked.relation)))
    if not relation:
        return None
    return chosen(PATTERNS[masked.side], masked).format(relation=relation, visible=masked.visible)


def chosen(patterns: Sequence[str], masked: MaskedTriple) -> str:
    """Choose one of several patterns, deterministically by the triple."""
    return patterns[int(masked.id[1:], 16) % len(patterns)]


_PASSIVE = re.compile(r"\{x\} (is|was) (\S+(?: \S+){0,2}) (in|by|to|from|under|of|for|on|with)")
_VOWELS = frozenset("aeiou")
_MODIFIED = ("its {t}", "founder {t}", "author {t}", "mayor {t}", "seasoned {t}", "town of {o}")
"""Templates with a modifier before a name, where a question word cannot replace the name."""


class WorldsQuestions:
    """Generator for generated worlds, which turns the statements of their documents into questions."""

    name = "worlds-v1(statements)"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return a question per masked triple; None if its relation is not one of training worlds."""
        return [self._one(item) for item in batch]

    def _one(self, masked: MaskedTriple) -> str | None:
        relation = _known().get(masked.relation)
        if relation is None:
            return checked(None, masked, self.counts, "not a relation of worlds")
        if relation.held_out:
            return checked(None, masked, self.counts, "a relation withheld from training")
        patterns = wordings(relation, masked.side)
        if not patterns:
            return checked(None, masked, self.counts, "no wording of the relation fits")
        pattern = chosen(patterns, masked)
        if masked.visible[:1] in _VOWELS:
            pattern = pattern.replace(" a {x}", " an {x}")
        text = pattern.replace("{x}", masked.visible)
        return checked(text[0].upper() + text[1:], masked, self.counts)


@cache
def wordings(relation: Relation, side: Side) -> tuple[str, ...]:
    """Return all question wordings of a relation for one hidden end, with `{x}` for the other entity."""
    return tuple(dict.fromkeys(_question(text, relation, side) for text in relation.says if _fits(text, side)))


def _fits(statement: str, side: Side) -> bool:
    slot = "{t}" if side == "tail" else "{o}"
    return not any(item in statement for item in _MODIFIED if item.endswith(slot))


def _question(statement: str, relation: Relation, side: Side) -> str:
    """Turn a statement into a question for one end; the question word is moved to the front in passive sentences."""
    if side == "tail":
        word, text = _question_word(relation), statement.replace(" a {t}", " {t}")
        slots = {"t": word, "h": "{x}", "o": "{x}", "p": "{x}'s"}
    else:
        word, text = f"which {relation.head}", statement
        slots = {"t": "{x}", "h": word, "o": word, "p": f"{word}'" if word.endswith("s") else f"{word}'s"}
    text = text.format(**slots).removesuffix(".")
    passive = _PASSIVE.fullmatch(text.removesuffix(f" {word}"))
    if passive is None or not text.endswith(f" {word}"):
        return f"{text}?"
    be, rest, preposition = passive.groups()
    return f"{preposition} {word} {be} {{x}} {rest}?"


def _question_word(relation: Relation) -> str:
    """Return the question word for the tail of a relation."""
    return f"how many {relation.unit}" if relation.tail == "number" else f"which {relation.tail}"


@cache
def _known() -> dict[str, Relation]:
    return {relation.id: relation for relation in relations()}
