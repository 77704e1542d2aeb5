"""The texts of a world: short articles about single entities, and long documents cut into chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.draws import Draws
from benchmarks.fingerprint import content_id
from benchmarks.schema import Passage, passage_id, sentence_id
from benchmarks.worlds.ontology import Relation, relations_of
from benchmarks.worlds.surface import NO_FACT, Sentence, Telling, tell
from benchmarks.worlds.world import Entity, Fact, World

CHUNK_WORDS = 90
"""A chunk is closed by the first segment that brings it to this many words."""
_ASPECTS = ("background", "legacy", "notes", "miscellany", "sources", "reception")


@dataclass(frozen=True, slots=True)
class Text:
    """A passage with what each of its sentences states.

    Attributes:
        passage: The passage.
        facts: Per sentence the index of the fact it states, or `surface.NO_FACT`.
        subjects: Per sentence the index of the entity it is about.
    """

    passage: Passage
    facts: tuple[int, ...]
    subjects: tuple[int, ...]


@dataclass(frozen=True)
class Library:
    """Texts that state each of their facts exactly once.

    Attributes:
        texts: In reading order.
    """

    texts: tuple[Text, ...]

    @cached_property
    def where(self) -> dict[int, tuple[int, int]]:
        """Where each fact is stated: index of the text, number of the sentence."""
        return {fact: (row, number) for row, text in enumerate(self.texts) for number, fact in enumerate(text.facts) if fact != NO_FACT}

    @cached_property
    def about(self) -> dict[int, list[int]]:
        """Indices of the texts in which an entity is the subject of a sentence."""
        found: dict[int, list[int]] = {}
        for row, text in enumerate(self.texts):
            for subject in dict.fromkeys(text.subjects):
                found.setdefault(subject, []).append(row)
        return found

    def evidence(self, facts: Iterable[Fact]) -> tuple[str, ...]:
        """Ids of the passages that state these facts, in the facts' order."""
        rows = dict.fromkeys(self.where[fact.row][0] for fact in facts)
        return tuple(self.texts[row].passage.id for row in rows)

    def supporting(self, facts: Iterable[Fact]) -> tuple[str, ...]:
        """Ids of the sentences that state these facts, in the facts' order."""
        places = (self.where[fact.row] for fact in facts)
        return tuple(dict.fromkeys(sentence_id(self.texts[row].passage.id, number) for row, number in places))


def articles(world: World, telling: Telling | None = None) -> Library:
    """One or more short passages about every entity, titled like an encyclopedia's."""
    telling = telling or Telling()
    draws = Draws("articles", world.seed)
    texts: list[Text] = []
    for entity in world.entities:
        facts = list(world.by_head.get(entity.index, ()))
        if not facts:
            continue
        draws.shuffle(facts)
        groups = _split(facts, 3, 4, draws)
        aspects = draws.sample(_ASPECTS, len(groups))
        for number, items in enumerate(_with_decoys(entity, groups, world, telling, draws)):
            title = entity.name if number == 0 else f"{entity.name} ({aspects[number % len(aspects)]})"
            texts.append(_text(title, tell(entity, items, telling, draws), None))
    return Library(tuple(texts))


def document(world: World, community: int, telling: Telling | None = None) -> Library:
    """The long document of one community: what is known about an entity is spread over distant chunks.

    Args:
        world: The world.
        community: Number of the community, below `world.communities`.
        telling: Difficulty.

    Returns:
        Chunks of about a hundred words, in reading order; each can be understood without the others.
    """
    telling = telling or Telling()
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
        segments += [tell(entity, items, telling, draws) for items in _with_decoys(entity, groups, world, telling, draws)]
    draws.shuffle(segments)
    title = document_title(world, community)
    identifier = content_id("d", "worlds", str(world.seed), str(community))
    chunks: list[list[Sentence]] = [[]]
    words = 0
    for segment in segments:
        if words >= CHUNK_WORDS:
            chunks.append([])
            words = 0
        chunks[-1] += segment
        words += sum(sentence.text.count(" ") + 1 for sentence in segment)
    return Library(tuple(_text(title, chunk, identifier) for chunk in chunks))


def document_title(world: World, community: int) -> str:
    """The title of a community's long document."""
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


def _with_decoys(entity: Entity, groups: list[list[Fact]], world: World, telling: Telling, draws: Draws) -> list[list[Fact | Relation]]:
    """Put decoys into groups that do not answer the question they sound like."""
    mixed: list[list[Fact | Relation]] = [list(group) for group in groups]
    relations = relations_of(entity.kind, world.config.unseen_relations)
    for group, items in zip(groups, mixed, strict=True):
        stated = {fact.relation.id for fact in group}
        for _ in group:
            if draws.random() < telling.decoys:
                relation = draws.pick(relations)
                if relation.decoys and relation.id not in stated:
                    stated.add(relation.id)
                    items.insert(draws.below(len(items) + 1), relation)
    return mixed


def _text(title: str, sentences: Sequence[Sentence], document_id: str | None) -> Text:
    texts, facts, subjects = zip(*sentences, strict=True)
    text = " ".join(texts)
    passage = Passage(passage_id(title, text, document_id), title, text, texts, document_id)
    return Text(passage, facts, subjects)
