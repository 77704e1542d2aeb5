"""Write questions about triples without a model: from sentence patterns, or from the wordings of worlds' relations.

Sentence patterns are not natural language ("What is the languages spoken of Jamaica?"), so results with them are not the
paper's. The generator's name is in every row.

For worlds, a masked triple is a statement of its relation with the hidden end asked for: "Korv was first described by Ada
Rin" becomes "By which person was Korv first described?" or "What was first described by Ada Rin?". Documents of worlds are
written from these statements. The benchmark's questions have other words on purpose ("Who identified Korv?"), so with
`statements`, the default, training shows no template of a test question. Both share names of kinds ("town", "person") and
the syntax of English.

Two further phrasings exist for comparison. `descriptions` ("Who is the naturalist who discovered Korv?") have the words of
two-step questions in other sentences. `questions` are the templates of the benchmark's questions about other entities, so
a result no longer shows how well different wordings are matched. Relations withheld from training worlds never have a
question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

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


Phrasing = Literal["statements", "descriptions", "questions"]
_PASSIVE = re.compile(r"\{x\} (is|was) (\S+(?: \S+){0,2}) (in|by|to|from|under|of|for|on|with)")
_VOWELS = frozenset("aeiou")
_MODIFIED = ("its {t}", "founder {t}", "author {t}", "mayor {t}", "seasoned {t}", "town of {o}")
"""Templates with a modifier before a name, where a question word cannot replace the name."""


class WorldsQuestions:
    """Generator for generated worlds, which uses the wording of their relations.

    Args:
        phrasings: Kinds of templates to use.
    """

    def __init__(self, phrasings: Sequence[Phrasing] = ("statements",)) -> None:
        self._phrasings = tuple(phrasings)
        self.counts: Counter[str] = Counter()
        self.name = f"worlds-v1({'+'.join(self._phrasings)})"

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return a question per masked triple; None if its relation is not one of training worlds."""
        return [self._one(item) for item in batch]

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
    """Return all question wordings of a relation for one hidden end, with `{x}` for the other entity."""
    makers = {"statements": _from_statements, "descriptions": _from_descriptions, "questions": _from_questions}
    return tuple(dict.fromkeys(text for name in phrasings for text in makers[name](relation, side)))


def _from_statements(relation: Relation, side: Side) -> list[str]:
    return [_question(text, relation, side) for text in relation.says if _fits(text, side)]


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


def _from_descriptions(relation: Relation, side: Side) -> list[str]:
    if side == "head":
        return [f"{{x}} is {text.format(h=f'which {relation.head}')}?" for text in relation.phrases]
    word = "who" if relation.tail == "person" else "what"
    texts = [f"{word} is {text.format(h='{x}')}?" for text in relation.phrases]
    # "What is the capital of …?" is a question of the benchmark as it stands.
    queries = {text.casefold() for text in _from_questions(relation, side)}
    return [text for text in texts if text.casefold() not in queries]


def _from_questions(relation: Relation, side: Side) -> list[str]:
    texts = relation.asks if side == "tail" else relation.inverse
    return [text.replace("{h}", "{x}").replace("{t}", "{x}") for text in texts]


@cache
def _known() -> dict[str, Relation]:
    return {relation.id: relation for relation in relations()}
