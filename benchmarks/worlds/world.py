"""Generate fictional worlds: entities and the facts about them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from benchmarks.core.random import Draws
from benchmarks.schema import Triple
from benchmarks.worlds.names import Name, Namer, read_lists

VALUES = read_lists("values")


# A relation is a paragraph of a text file:
#
# [person.teacher] person -> person when -60..-8    id, head kind, tail kind, options
# + {h} studied under {t}.                          ways to state it (h subject, o object, p possessive, t tail)
# ? Who instructed {h} in the craft?                ways to ask for the tail, in other words than it is stated
# = the mentor who shaped {h}                       ways to refer to the tail, for questions of two steps
# ~ A mentor shaped {o} more than any book.         sentences with the words of the question and no answer
# & Were {a} and {b} instructed by the same mentor? yes/no: equal tails
# < Who is older, {a} or {b}? | Is {a} older than {b}?   which-of-two and yes/no: the smaller value (> larger)
# ^ Whom did {t} instruct in the craft?             ways to ask for all heads
#
# The tail is a kind of entity, a list of values above, `year entity` (the entity's own year), `year life` (40 to 90
# years later), or `number LOW HIGH unit`. Options: `when A..B` (the tail's year minus the head's), `many` (two or
# three tails), `once` (each tail once), `total` (every head has one), `held-out` (only in test worlds that ask for it).


KINDS = ("person", "town", "region", "work", "organisation", "species", "instrument", "event", "landmark", "award", "language")
FILES = ("place", "person", "work", "other")
_FOLDER = Path(__file__).parent / "relations"
_HEADER = re.compile(r"\[([a-z]+)\.([a-z_]+)\] ([a-z]+) -> (.+)")
_FLAGS = ("many", "once", "total", "capital", "unless-capital", "held-out")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation type with its sentence and question templates.

    Attributes:
        id: `kind.name`, as in graph datasets.
        head: Kind of the head.
        tail: Kind of the tail entity, or the type of the value (`year`, `number`, a name in `VALUES`).
        unit: Unit printed after a number; "" otherwise.
        low, high: Range of a number.
        source: For years: `entity` or `life`.
        when: Allowed difference (tail's year minus head's year), or None.
        flags: Options without arguments.
        says, asks, phrases, decoys, inverse: Templates, see the module's docstring.
        compare: Comparison templates for numbers and years: `smaller` or `larger`, which-of-two, yes/no.
        same: Yes/no templates for equal tails.
        says_pronoun: Templates in `says` that also work with a pronoun as subject.
    """

    id: str
    head: str
    tail: str
    unit: str = ""
    low: int = 0
    high: int = 0
    source: str = ""
    when: tuple[int, int] | None = None
    flags: frozenset[str] = frozenset()
    says: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    inverse: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    compare: tuple[tuple[str, str, str], ...] = ()
    says_pronoun: tuple[str, ...] = field(default=())

    @property
    def to_entity(self) -> bool:
        """Return whether the tail is an entity rather than a value."""
        return self.tail in KINDS

    @property
    def many(self) -> bool:
        """Return whether a head may have several tails."""
        return "many" in self.flags

    @property
    def held_out(self) -> bool:
        """Return whether the relation is held out: only test worlds with unseen relations contain it."""
        return "held-out" in self.flags


@cache
def relations() -> tuple[Relation, ...]:
    """Return all relations, including held-out ones, in file order."""
    results = [relation for name in FILES for relation in _read(_FOLDER / f"{name}.txt")]
    if len({relation.id for relation in results}) != len(results):
        raise UserError("a relation is defined twice", code="duplicate-relation", where=str(_FOLDER), try_this="rename one of the two")
    return tuple(results)


@cache
def relations_of(head: str, held_out: bool) -> tuple[Relation, ...]:
    """Return the relations with this kind of head, with or without held-out ones."""
    return tuple(r for r in relations() if r.head == head and (held_out or not r.held_out))


@cache
def relation(identifier: str) -> Relation:
    """Look up a relation by id."""
    return next(r for r in relations() if r.id == identifier)


def _read(path: Path) -> list[Relation]:
    paragraphs: list[list[tuple[int, str]]] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith("["):
            paragraphs.append([])
        if line.strip() and not line.startswith("# "):
            paragraphs[-1].append((number, line))
    return [_relation(path, lines) for lines in paragraphs]


def _relation(path: Path, lines: list[tuple[int, str]]) -> Relation:
    number, header = lines[0]
    match = _HEADER.fullmatch(header)
    if match is None or match[1] not in KINDS or match[3] != match[1]:
        raise UserError(
            "this is not a relation header", code="not-relation-header", where=f"{path}:{number}", try_this="[kind.name] kind -> tail"
        )
    templates: dict[str, list[str]] = {mark: [] for mark in "+?=~&^<>"}
    for number, line in lines[1:]:
        if line[:1] not in templates or line[1:2] != " ":
            raise UserError(
                "this line does not start with a mark",
                code="line-without-mark",
                where=f"{path}:{number}",
                try_this="start it with one of + ? = ~ & ^ < >",
            )
        templates[line[0]].append(line[2:].strip())
    says = tuple(templates["+"])
    compare = [
        (side, *(part.strip() for part in text.split("|")))
        for mark, side in (("<", "smaller"), (">", "larger"))
        for text in templates[mark]
    ]
    options = _options(match[4], where=f"{path}:{lines[0][0]}")
    return Relation(
        id=f"{match[1]}.{match[2]}",
        head=match[1],
        says=says,
        asks=tuple(templates["?"]),
        phrases=tuple(templates["="]),
        decoys=tuple(templates["~"]),
        inverse=tuple(templates["^"]),
        same=tuple(templates["&"]),
        compare=tuple(compare),  # type: ignore[arg-type]
        says_pronoun=tuple(text for text in says if text.startswith(("{h} ", "{p} "))),
        **options,  # type: ignore[arg-type]
    )


def _options(text: str, where: str) -> dict[str, object]:
    words = text.split()
    results: dict[str, object] = {"tail": words[0], "flags": frozenset(w for w in words[1:] if w in _FLAGS)}
    if words[0] == "year":
        results["source"] = words[1]
    elif words[0] == "number":
        results.update(low=int(words[1]), high=int(words[2]), unit=" ".join(w for w in words[3:] if w not in _FLAGS))
    elif words[0] not in KINDS and words[0] not in VALUES:
        raise UserError(
            f"unknown kind of tail {words[0]!r}", code="unknown-tail-kind", where=where, try_this="use a kind, a value list, year or number"
        )
    if "when" in words:
        low, high = words[words.index("when") + 1].split("..")
        results["when"] = (int(low), int(high))
    return results


TRAIN = range(10_000)
VALIDATION = range(10_000, 20_000)
TEST = range(100_000, 2**31)
SPLITS = {"train": TRAIN, "validation": VALIDATION, "test": TEST}


def split_of(seed: int) -> str:
    """Return the split of a world's seed: `train`, `validation` or `test`.

    Raises:
        UserError: The seed is outside all three ranges.
    """
    for split, seeds in SPLITS.items():
        if seed in seeds:
            return split
    raise UserError(f"{seed} is not a valid seed for a world", code="bad-world-seed", where="seed", try_this=_ranges())


def require_training_seed(seed: int) -> int:
    """Return the seed unchanged after checking that it belongs to a training world.

    Raises:
        UserError: The seed belongs to a validation or test world.
    """
    split = split_of(seed)
    if split != "train":
        raise UserError(
            f"seed {seed} makes a {split} world, which must not be trained on", code="seed-of-other-split", where="seed", try_this=_ranges()
        )
    return seed


def require_split(seed: int, split: str) -> int:
    """Return the seed unchanged after checking that it belongs to a split.

    Raises:
        UserError: The seed belongs to another split.
    """
    if split_of(seed) != split:
        raise UserError(
            f"seed {seed} makes a {split_of(seed)} world, not a {split} world", code="seed-of-other-split", where="seed", try_this=_ranges()
        )
    return seed


def _ranges() -> str:
    return "train seeds are below 10,000, validation seeds 10,000 to 19,999, test seeds 100,000 and above"


class WorldConfig(FrozenModel):
    """Size and difficulty of a world."""

    entities: int = Field(default=440, ge=22, le=4000, description="number of entities of all kinds together")
    community: int = Field(
        default=110,
        ge=22,
        description="number of entities in a community; they mostly relate to each other, and each community fills one long document",
    )
    density: float = Field(default=0.6, gt=0.0, le=1.0, description="share of the possible facts of an entity that hold")
    outside: float = Field(default=0.12, ge=0.0, le=1.0, description="share of facts that lead to another community")
    unseen_share: float = Field(default=0.2, ge=0.0, le=1.0, description="share of invented words never used in training (held-out worlds)")
    namesakes: float = Field(default=0.3, ge=0.0, le=0.9, description="share of entities that share a word with another")
    unseen_relations: bool = Field(default=False, description="include the relations held out from training (test worlds only)")


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a world, with its names and attributes.

    Attributes:
        index: Its position in `World.entities`.
        id: `e` followed by its index, as in graph datasets.
        kind: One of `ontology.KINDS`.
        name: Name, unique in the world and not contained in another name.
        article: "the " if the name needs an article in running text, else "".
        short: Unambiguous shorter form, or "".
        initials: Unambiguous form with initials such as `V. Dosk`, or "".
        epithet: Second name such as `the Silent Heron`, only used where a text introduces it; or "".
        words: The invented words in the name.
        year: Year of birth, publication, foundation …
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
        """Return the name with its article, for running text."""
        return self.article + self.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return the unambiguous shorter names."""
        return tuple(dict.fromkeys(alias for alias in (self.initials, self.short) if alias))


class Fact(NamedTuple):
    """A true statement about an entity.

    Attributes:
        row: Its position in `World.facts`.
        head: The entity it is about.
        relation: The relation type.
        tail: The tail entity, or None for a literal value.
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
        """Return the fact as a triple of names."""
        return (self.head.name, self.relation.id, self.text)


@dataclass(frozen=True)
class World:
    """A fictional world: entities and facts.

    Attributes:
        seed: The seed.
        split: `train`, `validation` or `test`.
        config: Size and difficulty.
        entities: Entities by index.
        facts: Facts by index, grouped by head.
    """

    seed: int
    split: str
    config: WorldConfig
    entities: tuple[Entity, ...]
    facts: tuple[Fact, ...]

    def graph(self) -> tuple[Triple, ...]:
        """Return the knowledge graph as named triples, one per fact, in order."""
        return self.triples

    @cached_property
    def triples(self) -> tuple[Triple, ...]:
        """Return `graph()`, cached."""
        return tuple(fact.triple for fact in self.facts)

    @cached_property
    def by_head(self) -> dict[int, list[Fact]]:
        """Return the facts by index of their head entity."""
        return _grouped((fact.head.index, fact) for fact in self.facts)

    @cached_property
    def by_tail(self) -> dict[int, list[Fact]]:
        """Return the facts by index of their tail entity."""
        return _grouped((fact.tail.index, fact) for fact in self.facts if fact.tail is not None)

    @cached_property
    def by_name(self) -> dict[str, Entity]:
        """Return the entities by name."""
        return {entity.name: entity for entity in self.entities}

    @cached_property
    def communities(self) -> int:
        """Return the number of communities of related entities."""
        return 1 + max(entity.community for entity in self.entities)

    def about(self, head: Entity, relation: Relation) -> list[Fact]:
        """Return the facts with this head and relation."""
        return [fact for fact in self.by_head.get(head.index, ()) if fact.relation is relation]

    def leading_to(self, tail: Entity, relation: Relation) -> list[Fact]:
        """Return the facts with this tail and relation."""
        return [fact for fact in self.by_tail.get(tail.index, ()) if fact.relation is relation]


def _grouped(pairs: Iterable[tuple[int, Fact]]) -> dict[int, list[Fact]]:
    groups: dict[int, list[Fact]] = defaultdict(list)
    for key, fact in pairs:
        groups[key].append(fact)
    return dict(groups)


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
    """Generate the world of a seed; equal seeds and configurations give equal worlds on every machine.

    Args:
        seed: Random seed, which also determines the split (`split_of`).
        config: Size and difficulty.

    Raises:
        UserError: The seed belongs to no split, or unseen relations are requested for a world that is not a test world.
    """
    config = config or WorldConfig()
    split = split_of(seed)
    if config.unseen_relations and split != "test":
        raise UserError(
            f"a {split} world must not contain the relations that are held out for testing",
            code="held-out-relation",
            where="unseen_relations",
            try_this="set it to false, or use a test seed (100,000 and above)",
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
    """Return the kinds of a community's entities, in fixed shares and at least two of each."""
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
    for entity in sorted(entities, key=lambda item: item.kind != "region"):
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
    """Chooses the tail entities of facts."""

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
        results: list[Entity] = []
        for _ in range(wanted):
            tail = self._one(head, relation, results)
            if tail is not None:
                results.append(tail)
        return results

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
