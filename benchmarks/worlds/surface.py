"""From facts to sentences: which template, and by which name the subject and the tail are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.draws import Draws
from benchmarks.worlds.ontology import Relation
from benchmarks.worlds.world import Entity, Fact

NO_FACT = -1
_VOWELS = frozenset("aeiou")


class Telling(BaseModel):
    """How plainly a text speaks: the knobs of difficulty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: float = Field(default=0.45, ge=0, le=1, description="share of first mentions by a shorter name instead of the full one")
    pronoun: float = Field(default=0.6, ge=0, le=1, description="share of later mentions by a pronoun")
    epithet: float = Field(default=0.5, ge=0, le=1, description="share of passages that introduce and use an epithet, where there is one")
    tail_alias: float = Field(default=0.1, ge=0, le=1, description="share of tails called by a shorter name")
    decoys: float = Field(default=0.3, ge=0, description="sentences in the words of a question that do not answer it, per fact")


class Sentence(NamedTuple):
    """A sentence, with the index of the fact it states (`NO_FACT` for none) and of its subject."""

    text: str
    fact: int
    subject: int


class Mention(NamedTuple):
    """A way to refer to a subject, by its place in the sentence."""

    subject: str
    object: str
    possessive: str


def named(text: str) -> Mention:
    """The mention by a name."""
    return Mention(text, text, text + "'s")


def state(template: str, mention: Mention, tail: str) -> str:
    """Fill a statement template (or a decoy) and begin it with a capital."""
    if tail[:1] in _VOWELS and " a {t}" in template:
        template = template.replace(" a {t}", " an {t}")
    text = template.format(h=mention.subject, o=mention.object, p=mention.possessive, t=tail)
    return text[0].upper() + text[1:]


def statements(fact: Fact) -> list[str]:
    """Every plain way to state a fact, by the full names."""
    tail = fact.tail.text if fact.tail else fact.text
    return [state(template, named(fact.head.text), tail) for template in fact.relation.says]


def tell(entity: Entity, items: Iterable[Fact | Relation], telling: Telling, draws: Draws) -> list[Sentence]:
    """A few sentences about one entity that can be understood on their own.

    The first sentence calls the entity by its name or an unambiguous shorter one; later ones may use a pronoun or
    an epithet that the first sentence introduced.

    Args:
        entity: The subject.
        items: Facts to state, and relations to skirt with a decoy sentence.
        telling: Difficulty.
        draws: The source of chance.
    """
    chance = draws.random
    plain = named(entity.text)
    shorter = [named(alias) for alias in entity.aliases]
    pronoun = Mention(*entity.pronouns)
    epithet = named(entity.epithet) if entity.epithet and chance() < telling.epithet else None
    mention, first = (draws.pick(shorter) if shorter and chance() < telling.alias else plain), True
    sentences: list[Sentence] = []
    for item in items:
        if isinstance(item, Fact):
            relation, number = item.relation, item.row
            tail = _tail(item, telling, draws)
            pool: Sequence[str] = relation.says
        else:
            relation, number, tail = item, NO_FACT, ""
            pool = relation.decoys
        if not first:
            draw = chance()
            # "The mother tongue of her" is no English: an object is called by its name.
            fit = relation.says_pronoun if number != NO_FACT else [text for text in pool if "{o}" not in text]
            if fit and draw < telling.pronoun:
                mention, pool = pronoun, fit
            elif epithet and draw < telling.pronoun + 0.2:
                mention = epithet
            else:
                mention = draws.pick(shorter) if shorter and chance() < telling.alias else plain
        elif epithet:
            # Only a subject can be followed by "called …".
            pool = [template for template in pool if template.startswith("{h} ")] or pool
            if pool[0].startswith("{h} "):
                text = f"{mention.subject}, called {epithet.subject},"
                mention = Mention(text, mention.object, mention.possessive)
            else:
                epithet = None
        first = False
        sentences.append(Sentence(state(draws.pick(pool), mention, tail), number, entity.index))
    return sentences


def _tail(fact: Fact, telling: Telling, draws: Draws) -> str:
    tail = fact.tail
    if tail is None:
        return fact.text
    aliases = tail.aliases
    if aliases and draws.random() < telling.tail_alias:
        return draws.pick(aliases)
    return tail.text
