"""The passages that a question is asked over: its evidence among passages that look like it and do not answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from benchmarks.draws import Draws
from benchmarks.worlds.documents import Library
from benchmarks.worlds.questions import Asked
from benchmarks.worlds.surface import NO_FACT
from benchmarks.worlds.world import Entity, World


class Distractors:
    """Finds *relevant but insufficient* passages: about the same subject, or the same relation of a namesake.

    Args:
        world: The world.
        library: The texts to choose from.
    """

    def __init__(self, world: World, library: Library) -> None:
        self._world = world
        self._library = library

    @cached_property
    def _namesakes(self) -> dict[str, list[Entity]]:
        found: dict[str, list[Entity]] = {}
        for entity in self._world.entities:
            for word in entity.words:
                found.setdefault(word, []).append(entity)
        return found

    @cached_property
    def _stating(self) -> dict[str, list[int]]:
        """Texts by the relations that they state."""
        found: dict[str, list[int]] = {}
        for row, text in enumerate(self._library.texts):
            for fact in text.facts:
                if fact != NO_FACT:
                    found.setdefault(self._world.facts[fact].relation.id, []).append(row)
        return found

    def choose(self, asked: Asked, size: int, draws: Draws) -> list[int]:
        """Candidates of a question in random order: all of its evidence, filled up with distractors.

        Args:
            asked: The question.
            size: How many candidates; more where the evidence alone is larger.
            draws: The source of chance.

        Returns:
            Indices of texts, none twice. No text but the evidence states any of the question's facts.
        """
        where = self._library.where
        chosen = dict.fromkeys(where[fact.row][0] for fact in asked.facts)
        evidence = len(chosen)
        room = max(0, size - evidence)
        # A share of each sort, so that no sort gives the evidence away; what is left over goes to the next.
        for rows, share in (
            (self._same_subject(asked), 0.4),
            (self._same_relation_of_namesake(asked), 0.4),
            (self._same_relation(asked, draws, size), 0.7),
            (self._anything(draws), 1.0),
        ):
            limit = evidence + max(1, round(room * share))
            for row in rows:
                if len(chosen) >= min(limit, evidence + room):
                    break
                chosen.setdefault(row)
        ordered = list(chosen)
        draws.shuffle(ordered)
        return ordered

    def _subjects(self, asked: Asked) -> list[Entity]:
        """What the question names, then what its facts are about, then what they lead to; each once."""
        heads = (fact.head for fact in asked.facts)
        tails = (fact.tail for fact in asked.facts if fact.tail is not None)
        return list({entity.index: entity for entity in (*asked.topics, *heads, *tails)}.values())

    def _same_subject(self, asked: Asked) -> Iterator[int]:
        for entity in self._subjects(asked):
            yield from self._library.about.get(entity.index, ())

    def _same_relation_of_namesake(self, asked: Asked) -> Iterator[int]:
        for entity in self._subjects(asked):
            for word in entity.words:
                for other in self._namesakes[word]:
                    if other is not entity:
                        yield from self._matching(other, asked.relations)

    def _matching(self, entity: Entity, relations: Iterable[str]) -> Iterator[int]:
        wanted = set(relations)
        for fact in self._world.by_head.get(entity.index, ()):
            if fact.relation.id in wanted and fact.row in self._library.where:
                yield self._library.where[fact.row][0]
        yield from self._library.about.get(entity.index, ())[:1]

    def _same_relation(self, asked: Asked, draws: Draws, size: int) -> Iterator[int]:
        for relation in dict.fromkeys(asked.relations):
            rows = self._stating.get(relation, [])
            for _ in range(min(size, len(rows))):
                yield draws.pick(rows)

    def _anything(self, draws: Draws) -> Iterator[int]:
        texts = len(self._library.texts)
        for _ in range(50 * texts):
            yield draws.below(texts)
