"""A world: its entities and the facts about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.schema import Triple
from benchmarks.worlds.ontology import Relation


class WorldConfig(BaseModel):
    """How large and how hard a world is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entities: int = Field(default=440, ge=60, le=4000, description="entities of all kinds together")
    community: int = Field(default=110, ge=60, description="entities that mostly relate to each other; each fills one long document")
    density: float = Field(default=0.6, gt=0.0, le=1.0, description="share of the possible facts of an entity that hold")
    outside: float = Field(default=0.12, ge=0.0, le=1.0, description="share of facts that lead to another community")
    unseen_share: float = Field(default=0.2, ge=0.0, le=1.0, description="share of invented words never used in training (held-out worlds)")
    namesakes: float = Field(default=0.3, ge=0.0, le=0.9, description="share of entities that share a word with another")
    unseen_relations: bool = Field(default=False, description="include the relations held out from training (test worlds only)")


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that facts are about.

    Attributes:
        index: Its place in `World.entities`.
        id: `e` and its place, as graph datasets number entities.
        kind: One of `ontology.KINDS`.
        name: Unique in the world, and not part of another's name.
        article: "the " where running text needs one before the name.
        short: A shorter form that means nobody else in the world, or "".
        initials: `V. Dosk` where that means nobody else, or "".
        epithet: An unrelated second name (`the Silent Heron`), only used where it is introduced; or "".
        words: The invented words in the name.
        year: When it began: birth, publication, foundation …
        pronouns: Subject, object, possessive.
        community: Number of the community it belongs to.
    """

    index: int
    id: str
    kind: str
    name: str
    article: str
    short: str
    initials: str
    epithet: str
    words: tuple[str, ...]
    year: int
    pronouns: tuple[str, str, str]
    community: int

    @property
    def text(self) -> str:
        """The name as running text has it, with its article."""
        return self.article + self.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Shorter names that are as unambiguous as the full one."""
        return tuple(dict.fromkeys(alias for alias in (self.initials, self.short) if alias))


class Fact(NamedTuple):
    """One thing that is true.

    Attributes:
        row: Its place in `World.facts`.
        head: The entity it is about.
        relation: What it says.
        tail: The entity it leads to, or None for a plain value.
        text: The tail as written: an entity's name, a year, a number with its unit, a word.
        number: The value of years and numbers, else 0.
    """

    row: int
    head: Entity
    relation: Relation
    tail: Entity | None
    text: str
    number: int

    @property
    def triple(self) -> Triple:
        """Head, relation and tail by name."""
        return (self.head.name, self.relation.id, self.text)


@dataclass(frozen=True)
class World:
    """Everything that is true in one fictional world.

    Attributes:
        seed: What it was made from.
        split: Whether it is for training, validation or testing.
        config: How it was made.
        entities: By index.
        facts: By index, grouped by head.
    """

    seed: int
    split: str
    config: WorldConfig
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]

    def graph(self) -> tuple[Triple, ...]:
        """The knowledge graph, by names: one triple per fact, in the facts' order."""
        return self.triples

    @cached_property
    def triples(self) -> tuple[Triple, ...]:
        """What `graph` returns, made once."""
        return tuple(fact.triple for fact in self.facts)

    @cached_property
    def by_head(self) -> dict[int, list[Fact]]:
        """Facts by the index of their head."""
        return _grouped((fact.head.index, fact) for fact in self.facts)

    @cached_property
    def by_tail(self) -> dict[int, list[Fact]]:
        """Facts by the index of the entity they lead to."""
        return _grouped((fact.tail.index, fact) for fact in self.facts if fact.tail is not None)

    @cached_property
    def by_name(self) -> dict[str, Entity]:
        """Entities by name."""
        return {entity.name: entity for entity in self.entities}

    @cached_property
    def communities(self) -> int:
        """Number of communities."""
        return 1 + max(entity.community for entity in self.entities)

    def about(self, head: Entity, relation: Relation) -> list[Fact]:
        """The facts of one relation about one entity."""
        return [fact for fact in self.by_head.get(head.index, ()) if fact.relation is relation]

    def leading_to(self, tail: Entity, relation: Relation) -> list[Fact]:
        """The facts of one relation that lead to one entity."""
        return [fact for fact in self.by_tail.get(tail.index, ()) if fact.relation is relation]


def _grouped(pairs: Iterable[tuple[int, Fact]]) -> dict[int, list[Fact]]:
    groups: dict[int, list[Fact]] = defaultdict(list)
    for key, fact in pairs:
        groups[key].append(fact)
    return dict(groups)
