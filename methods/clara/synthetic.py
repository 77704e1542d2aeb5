"""What a document of a world can be asked, and how else it can be told: the targets of pretraining, without a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import NamedTuple

from benchmarks.core.random import Draws
from benchmarks.registry import DataReference
from benchmarks.schema import Passage
from benchmarks.worlds.dataset import WorldsConfig
from benchmarks.worlds.questions import answer_of, paraphrases
from benchmarks.worlds.text import NO_FACT, Mention, Text, articles, document, named, state
from benchmarks.worlds.world import SPLITS, Entity, Fact, Relation, World, generate, require_split
from methods.clara.config import ScpDataConfig, Type
from methods.clara.rows import Pair, ScpRow

PRONOUNS = 0.6
"""Share of later mentions in a retelling by a pronoun, where one fits."""
_INVERSE = "Who "


class Said(NamedTuple):
    """A sentence of a document.

    Attributes:
        text: The sentence.
        subject: The entity that it is about.
        fact: What it states; None for a sentence that only sounds like a statement.
    """

    text: str
    subject: Entity
    fact: Fact | None


def facts_of(said: Iterable[Said]) -> list[Fact]:
    """The facts that sentences state, in order."""
    return [one.fact for one in said if one.fact is not None]


# -- questions --


def simple_pairs(facts: Sequence[Fact], text: str, draws: Draws) -> list[Pair]:
    """A question for each fact; facts of one head and one relation are asked for together.

    Args:
        facts: What the document states.
        text: The document: answers are worded as there.
        draws: Which of the ways to ask is taken.
    """
    groups: dict[tuple[int, str], list[Fact]] = {}
    for fact in facts:
        groups.setdefault((fact.head.index, fact.relation.id), []).append(fact)
    return [Pair(draws.pick(paraphrases(group[0])), _joined([stated(fact, text) for fact in group])) for group in groups.values()]


def complex_pairs(facts: Sequence[Fact], text: str, draws: Draws) -> list[Pair]:
    """Questions that need two facts of the document each: neighbouring ones, and all that chain.

    Args:
        facts: What the document states.
        text: The document: answers are worded as there.
        draws: The source of chance.
    """
    plain = [fact for fact in facts if not fact.relation.many]
    found: list[Pair] = []
    for one, two in permutations(plain, 2):
        if (chained := _chained(one, two, text, draws)) is not None:
            found.append(chained)
    makers: tuple[Callable[[Fact, Fact, str, Draws], Pair | None], ...] = (_described, _compared)
    for one, two in pairwise(plain):
        ways = [(maker, *order) for maker in makers for order in ((one, two), (two, one))]
        made = [pair for maker, first, second in ways if (pair := maker(first, second, text, draws)) is not None]
        found.append(draws.pick([*made, _both(one, two, text, draws)]))
    return list({pair.question: pair for pair in found}.values())


def stated(fact: Fact, text: str) -> str:
    """A fact's answer in the words of a document: the first accepted form that stands there, as questions have it."""
    answer, accepted = answer_of(fact)
    return next((form for form in (answer, *accepted) if form in text), answer)


def _chained(first: Fact, second: Fact, text: str, draws: Draws) -> Pair | None:
    """What the second fact says of the tail of the first, which the question only describes."""
    if first.tail is None or first.tail is not second.head or not first.relation.phrases:
        return None
    if second.tail is first.head:
        return None
    phrase = draws.pick(first.relation.phrases).format(h=first.head.text)
    return Pair(draws.pick(second.relation.asks).format(h=phrase), stated(second, text))


def _described(first: Fact, second: Fact, text: str, draws: Draws) -> Pair | None:
    """What the second fact says of someone whom the question only describes, by the first fact."""
    ways = [way for way in first.relation.inverse if way.startswith(_INVERSE)]
    if first.head is not second.head or first.tail is None or not ways:
        return None
    phrase = "the person who " + draws.pick(ways).removeprefix(_INVERSE).format(t=first.tail.text).rstrip("?")
    return Pair(draws.pick(second.relation.asks).format(h=phrase), stated(second, text))


def _compared(one: Fact, two: Fact, text: str, draws: Draws) -> Pair | None:
    """Which of two entities has the smaller or larger value."""
    if one.relation is not two.relation or one.head is two.head or not one.relation.compare:
        return None
    if one.number == two.number:
        return None
    side, which, _ = draws.pick(one.relation.compare)
    chosen = (min if side == "smaller" else max)(one, two, key=_number)
    return Pair(which.format(a=one.head.text, b=two.head.text), chosen.head.name)


def _both(one: Fact, two: Fact, text: str, draws: Draws) -> Pair:
    """Two facts in one sentence; the answers in that order."""
    first, second = (draws.pick(paraphrases(fact)) for fact in (one, two))
    if not second.startswith(two.head.text):
        second = second[0].lower() + second[1:]
    return Pair(f"{first.rstrip('?')}, and {second}", f"{stated(one, text)} and {stated(two, text)}")


def _number(fact: Fact) -> int:
    return fact.number


def _joined(answers: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(answers))


# -- retellings --


def retold(sentences: Sequence[Said], draws: Draws) -> list[str]:
    """The sentences of a document told otherwise: other words and another order, every fact and name kept.

    Sentences about one entity stay together. Those that state nothing stay as they are, where they are.

    Args:
        sentences: The document's.
        draws: The source of chance.
    """
    told: list[str] = []
    for group in _runs(sentences):
        told += _retold(group, draws)
    return told


def _runs(sentences: Sequence[Said]) -> list[list[Said]]:
    """Neighbouring sentences about one entity."""
    runs: list[list[Said]] = []
    for one in sentences:
        if runs and runs[-1][-1].subject is one.subject:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _retold(group: Sequence[Said], draws: Draws) -> list[str]:
    entity = group[0].subject
    introduced = bool(entity.epithet) and entity.epithet in group[0].text
    places = [place for place, one in enumerate(group) if one.fact is not None and not (introduced and place == 0)]
    moved = [group[place] for place in places]
    draws.shuffle(moved)
    order = dict(zip(places, moved, strict=True))
    plain, pronoun = named(entity.text), Mention(*entity.pronouns)
    told = []
    for place, one in enumerate(group):
        one = order.get(place, one)
        if one.fact is None:
            told.append(one.text)
        elif introduced and place == 0:
            told.append(_introducing(one, one.fact, draws))
        else:
            later = place > 0 and draws.chance(PRONOUNS)
            told.append(_reworded(one, one.fact, pronoun if later else plain, later, draws) or _named(one, plain))
    return told


def _introducing(one: Said, fact: Fact, draws: Draws) -> str:
    """The first sentence about an entity with a second name, which has to be given there."""
    entity = one.subject
    mention = Mention(f"{entity.text}, called {entity.epithet},", entity.text, entity.text + "'s")
    fit = [way for way in _others(one, fact) if way.startswith("{h} ")]
    return state(draws.pick(fit), mention, _tail(one, fact)) if fit else one.text


def _reworded(one: Said, fact: Fact, mention: Mention, by_pronoun: bool, draws: Draws) -> str | None:
    ways = [way for way in _others(one, fact) if not by_pronoun or way in fact.relation.says_pronoun]
    return state(draws.pick(ways), mention, _tail(one, fact)) if ways else None


def _named(one: Said, mention: Mention) -> str:
    """A sentence that no other template can take, by the full name."""
    assert one.fact is not None
    ways = _others(one, one.fact) or list(one.fact.relation.says)
    return state(ways[0], mention, _tail(one, one.fact))


def _others(one: Said, fact: Fact) -> list[str]:
    """The ways to state a fact that its sentence did not take."""
    return [way for way in fact.relation.says if not _pattern(way, _tail(one, fact), fact.relation).fullmatch(one.text)]


def _pattern(way: str, tail: str, relation: Relation) -> re.Pattern[str]:
    """What a template's sentences look like, whatever the subject is called."""
    parts = re.split(r"(\{[hopt]\})", way)
    made = "".join(re.escape(tail) if part == "{t}" else ".+?" if part[:1] == "{" else re.escape(part) for part in parts)
    return re.compile(made.replace(r"\ a\ " + re.escape(tail), r"\ an?\ " + re.escape(tail)), re.IGNORECASE)


def _tail(one: Said, fact: Fact) -> str:
    """A fact's tail as its sentence has it."""
    if fact.tail is None:
        return fact.text
    forms = sorted({fact.tail.text, *fact.tail.aliases}, key=len, reverse=True)
    low = one.text.casefold()
    return next((form for form in forms if form.casefold() in low), fact.tail.text)


# -- Rows of pretraining from worlds: questions about every document and a retelling of it, without any model --
# They have the form and the types of what a language model synthesises (`synthesis`), and their truth is known.


_WORLDS = {"long": 2}
"""Worlds of a subset where the options do not say; one for the others."""


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A document of a world, with what each sentence says."""

    passage: Passage
    sentences: tuple[Said, ...]


def documents(reference: DataReference, config: WorldsConfig) -> Iterator[WorldDocument]:
    """The documents of worlds: chunks of long ones for `worlds/long`, articles for the other subsets.

    Args:
        reference: Subset and one split, set.
        config: Options of worlds: seeds, size, how plainly they speak.

    Raises:
        UserError: A seed is of another split.
    """
    split = reference.split or "train"
    first = SPLITS[split].start if config.seed is None else config.seed
    count = config.worlds or _WORLDS.get(reference.subset or "", 1)
    for seed in range(first, first + count):
        world = generate(require_split(seed, split), config.world_config)
        for text in _texts(world, reference.subset == "long", config):
            yield WorldDocument(text.passage, _said(text, world))


def rows_about(one: WorldDocument, types: tuple[Type, ...], seed: int = 0) -> list[ScpRow]:
    """The rows about a document: one for each type that it gives anything for.

    Args:
        one: The document.
        types: The types wanted.
        seed: Of how it is asked and retold.
    """
    text, identifier = one.passage.full_text, one.passage.id
    rows = []
    for kind in types:
        draws = Draws("clara pretraining", kind, seed, identifier)
        facts = facts_of(one.sentences)
        if kind == "paraphrase":
            told = " ".join(retold(one.sentences, draws))
            rows.append(ScpRow("paraphrase", text, (), (told,), f"{identifier}/{kind}"))
            continue
        pairs = (simple_pairs if kind == "simple" else complex_pairs)(facts, text, draws)
        if pairs:
            questions, answers = zip(*pairs, strict=True)
            rows.append(ScpRow("qa", text, questions, answers, f"{identifier}/{kind}"))
    return rows


def world_rows(reference: DataReference, config: WorldsConfig, data: ScpDataConfig) -> list[ScpRow]:
    """The rows of worlds.

    Args:
        reference: Subset and one split, set.
        config: Options of worlds.
        data: Which rows, of how many documents.

    Raises:
        UserError: A seed is of another split.
    """
    if not data.types:
        return []
    every = list(documents(reference, config))
    if data.documents is not None and data.documents < len(every):
        chosen = set(Draws("clara documents", data.seed).sample(range(len(every)), data.documents))
        every = [one for place, one in enumerate(every) if place in chosen]
    return [row for one in every for row in rows_about(one, data.types, data.seed)]


def _texts(world: World, long: bool, config: WorldsConfig) -> Iterator[Text]:
    if not long:
        yield from articles(world, config.telling).texts
        return
    for community in range(world.communities):
        yield from document(world, community, config.telling).texts


def _said(text: Text, world: World) -> tuple[Said, ...]:
    lines = zip(text.passage.sentences, text.subjects, text.facts, strict=True)
    return tuple(
        Said(sentence, world.entities[subject], None if fact == NO_FACT else world.facts[fact]) for sentence, subject, fact in lines
    )
