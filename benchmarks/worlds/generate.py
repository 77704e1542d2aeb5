"""From a seed to a world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from benchmarks.draws import Draws
from benchmarks.errors import UserError
from benchmarks.worlds.names import Name, Namer
from benchmarks.worlds.ontology import Relation, relations_of
from benchmarks.worlds.seeds import split_of
from benchmarks.worlds.values import VALUES
from benchmarks.worlds.world import Entity, Fact, World, WorldConfig

# Per hundred entities.
SHARES = {
    "person": 34,
    "town": 13,
    "region": 4,
    "work": 17,
    "organisation": 10,
    "species": 5,
    "instrument": 4,
    "event": 5,
    "landmark": 4,
    "award": 2,
    "language": 2,
}
_PRONOUNS = (("she", "her", "her"), ("he", "him", "his"))
_NEUTER = ("it", "it", "its")
_TRIES = 10


def generate(seed: int, config: WorldConfig | None = None) -> World:
    """Make the world of a seed; equal seeds and configs make equal worlds on every machine.

    Args:
        seed: Decides the split as well, see `seeds.split_of`.
        config: Size and difficulty.

    Raises:
        UserError: The seed belongs to no split, or a world that is not for testing asks for unseen relations.
    """
    config = config or WorldConfig()
    split = split_of(seed)
    if config.unseen_relations and split != "test":
        raise UserError(
            f"a {split} world must not contain the relations that are held out for testing",
            where="unseen_relations",
            try_this="switch it off, or use a test seed (100,000 and above)",
        )
    entities = _entities(seed, split, config)
    facts = tuple(_facts(seed, config, entities))
    return World(seed, split, config, entities, facts)


def _entities(seed: int, split: str, config: WorldConfig) -> tuple[Entity, ...]:
    draws = Draws("entities", seed)
    namer = Namer(split, config.unseen_share, config.namesakes, draws)
    named: list[tuple[str, Name, int, int]] = []
    sizes = _community_sizes(config)
    for community, size in enumerate(sizes):
        era = draws.between(1250, 1750)
        relatives: dict[str, list[tuple[str, ...]]] = {}
        everyone: list[tuple[str, ...]] = []
        for kind in _kinds(size):
            pool = relatives.setdefault(kind, [])
            name = namer.name(kind, pool if kind == "person" or draws.chance(0.5) else everyone)
            pool.append(name.invented)
            everyone.append(name.invented)
            named.append((kind, name, _year(kind, era, draws), community))
    uses = Counter(word for _, name, _, _ in named for word in name.invented)
    initials = Counter(name.initials for _, name, _, _ in named)
    return tuple(
        Entity(
            index=index,
            id=f"e{index}",
            kind=kind,
            name=name.text,
            article=name.article,
            short=name.short if uses[name.short] == 1 else "",
            initials=name.initials if initials[name.initials] == 1 else "",
            epithet=name.epithet,
            words=name.invented,
            year=year,
            pronouns=draws.pick(_PRONOUNS) if kind == "person" else _NEUTER,
            community=community,
        )
        for index, (kind, name, year, community) in enumerate(named)
    )


def _community_sizes(config: WorldConfig) -> list[int]:
    count = max(1, round(config.entities / config.community))
    return [(config.entities * (i + 1)) // count - (config.entities * i) // count for i in range(count)]


def _kinds(size: int) -> list[str]:
    """Kinds of the entities of a community, in fixed shares and at least two of each."""
    counts = {kind: max(2, (share * size) // 100) for kind, share in SHARES.items()}
    counts["person"] += size - sum(counts.values())
    return [kind for kind, count in counts.items() for _ in range(count)]


def _year(kind: str, era: int, draws: Draws) -> int:
    if kind == "person":
        return era + draws.between(0, 110)
    if kind == "town":
        return era + draws.between(-60, 120)
    return era + draws.between(25, 160)


def _facts(seed: int, config: WorldConfig, entities: tuple[Entity, ...]) -> Iterator[Fact]:
    draws = Draws("facts", seed)
    tails = _Tails(entities, config.outside, draws)
    chance = draws.random
    index = 0
    # Capitals come first, because a capital's region follows from its being one.
    for entity in sorted(entities, key=lambda one: one.kind != "region"):
        for relation in relations_of(entity.kind, config.unseen_relations):
            flags = relation.flags
            if "total" not in flags and chance() >= config.density:
                continue
            if "unless-capital" in flags and entity.index in tails.capitals:
                continue
            if relation.to_entity:
                for tail in tails.of(entity, relation):
                    yield Fact(index, entity, relation, tail, tail.name, 0)
                    index += 1
            else:
                text, number = _value(entity, relation, draws)
                yield Fact(index, entity, relation, None, text, number)
                index += 1


def _value(entity: Entity, relation: Relation, draws: Draws) -> tuple[str, int]:
    if relation.tail == "year":
        year = entity.year if relation.source == "entity" else entity.year + draws.between(40, 90)
        return str(year), year
    if relation.tail == "number":
        number = _number(relation, draws)
        return f"{number:,} {relation.unit}", number
    return draws.pick(VALUES[relation.tail]), 0


def _number(relation: Relation, draws: Draws) -> int:
    # Spread over the orders of magnitude without logarithms, whose last digit differs between machines.
    low, high = relation.low, relation.high
    while high > 8 * low and draws.chance(0.6):
        high //= 4
    return draws.between(low, high)


class _Tails:
    """Picks the entities that facts lead to."""

    def __init__(self, entities: tuple[Entity, ...], outside: float, draws: Draws) -> None:
        self._draws = draws
        self._outside = outside
        self._all: dict[str, list[Entity]] = {}
        self._near: dict[tuple[str, int], list[Entity]] = {}
        self._taken: dict[str, set[int]] = {}
        self.capitals: set[int] = set()
        for entity in entities:
            self._all.setdefault(entity.kind, []).append(entity)
            self._near.setdefault((entity.kind, entity.community), []).append(entity)

    def of(self, head: Entity, relation: Relation) -> list[Entity]:
        wanted = self._draws.between(2, 3) if relation.many else 1
        found: list[Entity] = []
        for _ in range(wanted):
            tail = self._one(head, relation, found)
            if tail is not None:
                found.append(tail)
        return found

    def _one(self, head: Entity, relation: Relation, others: list[Entity]) -> Entity | None:
        draws, when, flags = self._draws, relation.when, relation.flags
        taken = self._taken.setdefault(relation.id, set()) if flags & {"once", "capital"} else None
        if taken is not None and "once" in flags and head.index in taken:
            return None
        near, everywhere = self._near[relation.tail, head.community], self._all[relation.tail]
        for _ in range(_TRIES):
            tail = draws.pick(everywhere if draws.random() < self._outside else near)
            if tail.index == head.index or tail in others or (taken is not None and tail.index in taken):
                continue
            if when is not None and not when[0] <= tail.year - head.year <= when[1]:
                continue
            if taken is not None:
                taken.update((tail.index, head.index) if "once" in flags else (tail.index,))
            if "capital" in flags:
                self.capitals.add(tail.index)
            return tail
        return None
