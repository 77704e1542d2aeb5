"""Questions without a model for the relations of worlds, in natural language.

Each masked triple is a statement of its relation with the hidden end asked for: "Korv was first described by Ada Rin"
becomes "By which person was Korv first described?" or "What was first described by Ada Rin?". These statements are what
the documents of worlds are written from; the questions of the benchmark have templates of their own, with other words
on purpose ("Who identified Korv?"), so that with `statements`, the default, no template of a test question is seen in
training. What is shared with test questions are names of kinds ("town", "person") and the syntax of English.

Two further phrasings exist for comparison. `descriptions` ("Who is the naturalist who discovered Korv?") have the words
that questions of two steps are made of, within another sentence. `questions` are the very templates of the benchmark's
questions, about other entities: with them a result no longer says how well wordings are bridged.

Relations that are withheld from training worlds have no question here, whatever the phrasing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Literal

from benchmarks.worlds.ontology import Relation, relations
from methods.gpr.masked import MaskedTriple, Side, checked
from methods.gpr.questions_templates import chosen

Phrasing = Literal["statements", "descriptions", "questions"]

_PASSIVE = re.compile(r"\{x\} (is|was) (\S+(?: \S+){0,2}) (in|by|to|from|under|of|for|on|with)")
_VOWELS = frozenset("aeiou")
_MODIFIED = ("its {t}", "founder {t}", "author {t}", "mayor {t}", "seasoned {t}", "town of {o}")
"""Where a name follows a word that says what it is, no question word can stand in its place."""


class WorldsQuestions:
    """Asks in the words in which relations are stated.

    Args:
        phrasings: What questions are made from; one with several has the more wordings.
    """

    def __init__(self, phrasings: Sequence[Phrasing] = ("statements",)) -> None:
        self._phrasings = tuple(phrasings)
        self.counts: Counter[str] = Counter()
        self.name = f"worlds-v1({'+'.join(self._phrasings)})"

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """A question for each, or None where the relation is not one of training worlds."""
        return [self._one(one) for one in batch]

    def _one(self, masked: MaskedTriple) -> str | None:
        relation = _known().get(masked.relation)
        if relation is None:
            return checked(None, masked, self.counts, "not a relation of worlds")
        if relation.held_out:
            return checked(None, masked, self.counts, "a relation withheld from training")
        patterns = wordings(relation, masked.side, self._phrasings)
        if not patterns:
            return checked(None, masked, self.counts, "no wording of the relation fits")
        pattern = chosen(patterns, masked)
        if masked.visible[:1] in _VOWELS:
            pattern = pattern.replace(" a {x}", " an {x}")
        text = pattern.replace("{x}", masked.visible)
        return checked(text[0].upper() + text[1:], masked, self.counts)


@cache
def wordings(relation: Relation, side: Side, phrasings: tuple[Phrasing, ...]) -> tuple[str, ...]:
    """The questions that a relation has for one end, with `{x}` where the other end's name goes."""
    makers = {"statements": _from_statements, "descriptions": _from_descriptions, "questions": _from_questions}
    return tuple(dict.fromkeys(text for name in phrasings for text in makers[name](relation, side)))


def _from_statements(relation: Relation, side: Side) -> list[str]:
    return [_asked(text, relation, side) for text in relation.says if _fits(text, side)]


def _fits(statement: str, side: Side) -> bool:
    slot = "{t}" if side == "tail" else "{o}"
    return not any(one in statement for one in _MODIFIED if one.endswith(slot))


def _asked(statement: str, relation: Relation, side: Side) -> str:
    """A statement with one end asked for; the question word goes to the front where a passive allows it."""
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
    """What asks for the tail of a relation."""
    return f"how many {relation.unit}" if relation.tail == "number" else f"which {relation.tail}"


def _from_descriptions(relation: Relation, side: Side) -> list[str]:
    if side == "head":
        return [f"{{x}} is {text.format(h=f'which {relation.head}')}?" for text in relation.phrases]
    word = "who" if relation.tail == "person" else "what"
    texts = [f"{word} is {text.format(h='{x}')}?" for text in relation.phrases]
    # "What is the capital of …?" is a question of the benchmark as it stands.
    asked = {text.casefold() for text in _from_questions(relation, side)}
    return [text for text in texts if text.casefold() not in asked]


def _from_questions(relation: Relation, side: Side) -> list[str]:
    texts = relation.asks if side == "tail" else relation.inverse
    return [text.replace("{h}", "{x}").replace("{t}", "{x}") for text in texts]


@cache
def _known() -> dict[str, Relation]:
    return {relation.id: relation for relation in relations()}
