"""Write a world's facts as text: short articles about single entities, and long documents cut into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pydantic import Field

from benchmarks.core.fingerprint import content_id
from benchmarks.core.models import FrozenModel
from benchmarks.core.random import Draws
from benchmarks.schema import Passage, passage_id, sentence_id
from benchmarks.worlds.world import Entity, Fact, Relation, World, relations_of

NO_FACT = -1
_VOWELS = frozenset("aeiou")


class Rendering(FrozenModel):
    """Options that set how explicitly texts state facts (their difficulty)."""

    alias: float = Field(default=0.45, ge=0, le=1, description="share of first mentions by a shorter name instead of the full one")
    pronoun: float = Field(default=0.6, ge=0, le=1, description="share of later mentions by a pronoun")
    epithet: float = Field(
        default=0.5, ge=0, le=1, description="share of passages that introduce and use an epithet, if the entity has one"
    )
    tail_alias: float = Field(
        default=0.1, ge=0, le=1, description="share of a sentence's objects (tails) that are called by a shorter name"
    )
    decoys: float = Field(default=0.3, ge=0, description="decoys per fact: sentences that use the words of a question but do not answer it")
    chunk_words: int = Field(
        default=90,
        ge=1,
        description="a chunk of a long document ends with the entity that brings it to this many words; with few words and many "
        "decoys, a document has hundreds of chunks, near misses among them (long)",
    )


class Sentence(NamedTuple):
    """A sentence with the index of the fact it states (`NO_FACT` for none) and of its subject."""

    text: str
    fact: int
    subject: int


class Mention(NamedTuple):
    """Forms of a reference to an entity, for each grammatical position."""

    subject: str
    object: str
    possessive: str


def mention_by_name(text: str) -> Mention:
    """Build a mention that uses a name in every position."""
    return Mention(text, text, text + "'s")


def state(template: str, mention: Mention, tail: str) -> str:
    """Fill a sentence template with a subject and tail, and capitalize it."""
    if tail[:1] in _VOWELS and " a {t}" in template:
        template = template.replace(" a {t}", " an {t}")
    text = template.format(h=mention.subject, o=mention.object, p=mention.possessive, t=tail)
    return text[0].upper() + text[1:]


def statements(fact: Fact) -> list[str]:
    """Return all plain sentences that state a fact, with full names."""
    tail = fact.tail.text if fact.tail else fact.text
    return [state(template, mention_by_name(fact.head.text), tail) for template in fact.relation.says]


def tell(entity: Entity, items: Iterable[Fact | Relation], rendering: Rendering, draws: Draws) -> list[Sentence]:
    """Generate a short self-contained paragraph about one entity.

    The first sentence uses the entity's name or an unambiguous alias. Later ones may use a pronoun, or an epithet that the
    first sentence introduced.

    Args:
        entity: The subject.
        items: Facts to state, and relations to mention only in decoy sentences.
        rendering: Difficulty.
        draws: Random numbers.
    """
    chance = draws.random
    plain = mention_by_name(entity.text)
    shorter = [mention_by_name(alias) for alias in entity.aliases]
    pronoun = Mention(*entity.pronouns)
    epithet = mention_by_name(entity.epithet) if entity.epithet and chance() < rendering.epithet else None
    mention, first = (draws.pick(shorter) if shorter and chance() < rendering.alias else plain), True
    sentences: list[Sentence] = []
    for item in items:
        if isinstance(item, Fact):
            relation, number = item.relation, item.row
            tail = _tail(item, rendering, draws)
            pool: Sequence[str] = relation.says
        else:
            relation, number, tail = item, NO_FACT, ""
            pool = relation.decoys
        if not first:
            draw = chance()
            # "The mother tongue of her" is not English: an object is called by its name.
            fit = relation.says_pronoun if number != NO_FACT else [text for text in pool if "{o}" not in text]
            if fit and draw < rendering.pronoun:
                mention, pool = pronoun, fit
            elif epithet and draw < rendering.pronoun + 0.2:
                mention = epithet
            else:
                mention = draws.pick(shorter) if shorter and chance() < rendering.alias else plain
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


def _tail(fact: Fact, rendering: Rendering, draws: Draws) -> str:
    tail = fact.tail
    if tail is None:
        return fact.text
    aliases = tail.aliases
    if aliases and draws.random() < rendering.tail_alias:
        return draws.pick(aliases)
    return tail.text


_ASPECTS = ("background", "legacy", "notes", "miscellany", "sources", "reception")


@dataclass(frozen=True, slots=True)
class Text:
    """A generated passage, annotated with the fact and subject of each sentence.

    Attributes:
        passage: The passage.
        facts: Per sentence, the index of the fact it states, or `NO_FACT`.
        subjects: Per sentence, the index of its subject.
    """

    passage: Passage
    facts: tuple[int, ...]
    subjects: tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """Texts of a world in which each fact is stated exactly once.

    Attributes:
        texts: Texts in reading order.
    """

    texts: tuple[Text, ...]

    @cached_property
    def where(self) -> dict[int, tuple[int, int]]:
        """Return the position of each fact by its index: (index of the text, number of the sentence)."""
        return {fact: (row, number) for row, text in enumerate(self.texts) for number, fact in enumerate(text.facts) if fact != NO_FACT}

    @cached_property
    def about(self) -> dict[int, list[int]]:
        """Return the indices of texts about each entity, by entity index."""
        results: dict[int, list[int]] = {}
        for row, text in enumerate(self.texts):
            for subject in dict.fromkeys(text.subjects):
                results.setdefault(subject, []).append(row)
        return results

    def evidence(self, facts: Iterable[Fact]) -> tuple[str, ...]:
        """Return the ids of the passages that state these facts, in order."""
        rows = dict.fromkeys(self.where[fact.row][0] for fact in facts)
        return tuple(self.texts[row].passage.id for row in rows)

    def supporting(self, facts: Iterable[Fact]) -> tuple[str, ...]:
        """Return the ids of the sentences that state these facts, in order."""
        positions = (self.where[fact.row] for fact in facts)
        return tuple(dict.fromkeys(sentence_id(self.texts[row].passage.id, number) for row, number in positions))


def articles(world: World, rendering: Rendering | None = None) -> Library:
    """Generate short encyclopedia-like passages about every entity."""
    rendering = rendering or Rendering()
    draws = Draws("articles", world.seed)
    texts: list[Text] = []
    for entity in world.entities:
        facts = list(world.by_head.get(entity.index, ()))
        if not facts:
            continue
        draws.shuffle(facts)
        groups = _split(facts, 3, 4, draws)
        aspects = draws.sample(_ASPECTS, len(groups))
        for number, items in enumerate(_with_decoys(entity, groups, world, rendering, draws)):
            title = entity.name if number == 0 else f"{entity.name} ({aspects[number % len(aspects)]})"
            texts.append(_text(title, tell(entity, items, rendering, draws), None))
    return Library(tuple(texts))


def document(world: World, community: int, rendering: Rendering | None = None) -> Library:
    """Generate the long document of one community of entities, with the facts about an entity spread over distant chunks.

    Args:
        world: The world.
        community: Number of the community, below `world.communities`.
        rendering: Difficulty.

    Returns:
        Self-contained chunks of about a hundred words (`chunk_words`), in reading order.
    """
    rendering = rendering or Rendering()
    draws = Draws("document", world.seed, community)
    segments: list[list[Sentence]] = []
    for entity in world.entities:
        if entity.community != community:
            continue
        facts = list(world.by_head.get(entity.index, ()))
        if not facts:
            continue
        draws.shuffle(facts)
        groups = _split(facts, 2, 3, draws)
        segments += [tell(entity, items, rendering, draws) for items in _with_decoys(entity, groups, world, rendering, draws)]
    draws.shuffle(segments)
    title = document_title(world, community)
    identifier = content_id("d", "worlds", str(world.seed), str(community))
    chunks: list[list[Sentence]] = [[]]
    words = 0
    for segment in segments:
        if words >= rendering.chunk_words:
            chunks.append([])
            words = 0
        chunks[-1] += segment
        words += sum(sentence.text.count(" ") + 1 for sentence in segment)
    return Library(tuple(_text(title, chunk, identifier) for chunk in chunks))


def document_title(world: World, community: int) -> str:
    """Return the title of a community's long document."""
    region = next(e for e in world.entities if e.community == community and e.kind == "region")
    return f"Chronicle of {region.text}"


def _split(facts: Sequence[Fact], low: int, high: int, draws: Draws) -> list[list[Fact]]:
    groups: list[list[Fact]] = []
    start = 0
    while start < len(facts):
        size = draws.between(low, high)
        groups.append(list(facts[start : start + size]))
        start += size
    return groups


def _with_decoys(entity: Entity, groups: list[list[Fact]], world: World, rendering: Rendering, draws: Draws) -> list[list[Fact | Relation]]:
    """Add decoys to groups of facts, where they do not accidentally answer the question they resemble."""
    mixed: list[list[Fact | Relation]] = [list(group) for group in groups]
    relations = relations_of(entity.kind, world.config.unseen_relations)
    for group, items in zip(groups, mixed, strict=True):
        known_relations = {fact.relation.id for fact in group}
        for _ in group:
            if draws.random() < rendering.decoys:
                relation = draws.pick(relations)
                if relation.decoys and relation.id not in known_relations:
                    known_relations.add(relation.id)
                    items.insert(draws.below(len(items) + 1), relation)
    return mixed


def _text(title: str, sentences: Sequence[Sentence], document_id: str | None) -> Text:
    texts, facts, subjects = zip(*sentences, strict=True)
    text = " ".join(texts)
    passage = Passage(passage_id(title, text, document_id), title, text, texts, document_id)
    return Text(passage, facts, subjects)
