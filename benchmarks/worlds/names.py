"""Names of two to four words for every kind of entity, and the other names they go by.

Which combinations of words a world may use depends on its split, so that no name of a held-out world was ever
seen in training: a name's *class* (a number below 10 computed from its pattern and words) belongs to one split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.draws import Draws
from benchmarks.worlds.lexicon import introduced_by, words

CLASSES = {"train": frozenset(range(7)), "validation": frozenset({7}), "test": frozenset({8, 9})}
"""The name classes of each split."""

_WEIGHTS = (1, 3, 7)  # coprime to 10, so that every word changes the class


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NOUNS = _list(
    "Lantern Orchard Mirror Harbour Ladder Sparrow Winter Compass Window Garden Thimble Feather Anvil Bridge Cradle "
    "Ember Ferry Glove Hollow Island Kettle Letter Meadow Needle Oath Pilgrim Quarry Ribbon Shadow Tower Umbrella "
    "Voyage Well Candle Door Engine"
)
_ADJECTIVES = _list(
    "Silent Amber Patient Crooked Gentle Iron Merry Pale Restless Scarlet Thirsty Velvet Wandering Quiet Golden Bitter "
    "Clever Distant Early Faithful Humble Lonely Modest Narrow Proud Rusty Sleepy Tall Upright Weary"
)
_CREATURES = _list(
    "Heron Badger Fox Otter Raven Falcon Hare Lynx Owl Stag Swan Wolf Beetle Crane Dove Eagle Goose Hound Ibex "
    "Jackdaw Kestrel Lark Moth Newt Osprey Pike Quail Robin Salmon Thrush"
)

# * is an invented word, ~ a common noun, a leading lower-case "the" an article that is not part of the name; names
# whose pattern ends in + have a short form: the surname of a person, else the first invented word.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "person": ("* *+", "* *+", "* *+", "* *+", "* * *+"),
    "town": ("Port *+", "* Wells+", "Upper *+", "* Bay+", "Saint * Haven+", "* Bridge+", "New *+", "* *", "* Heath+"),
    "region": ("the Duchy of *+", "the * Isles+", "the Kingdom of *+", "the * Republic+", "Lower *+", "the March of *+"),
    "work": (
        "The ~ of *",
        "* and the ~",
        "A ~ for *",
        "The ~ in *",
        "Songs of * *",
        "The * ~",
        "The ~ of * *",
        "~ Without *",
        "Farewell to *",
        "The Last ~ of *",
    ),
    "organisation": (
        "the University of *+",
        "* and Sons+",
        "the * Institute+",
        "the Guild of *+",
        "the * Society+",
        "* * Press",
        "the * Academy+",
        "* Brothers+",
        "the College of * *",
        "the * Foundry+",
    ),
    "species": ("the * Finch", "the Greater * Moth", "the * Thistle", "the * Trout", "the Lesser * Fern", "the * Adder"),
    "instrument": ("the * Lute", "the * Double Harp", "the * Zither", "the * Viol", "the Great * Horn"),
    "event": ("the Battle of *", "the * Festival", "the Great * Fair", "the Congress of *", "the * Regatta", "the Siege of * *"),
    "landmark": ("Mount *", "Lake *", "the River *", "the * Gorge", "Cape *", "the Forest of *"),
    "award": ("the * Medal", "the * Prize", "the Order of *", "the * * Ribbon", "the * Laurel"),
    "language": ("Old *", "High *", "Southern *", "Coastal *", "Middle *"),
}


@dataclass(frozen=True, slots=True)
class Name:
    """A name as generated.

    Attributes:
        text: The full name, without article.
        article: "the " or "".
        short: A shorter form ("Velmar" for "Port Velmar", the surname of a person), or "".
        initials: "V. Dosk", or "".
        epithet: "the Silent Heron", or "".
        invented: The invented words in it.
    """

    text: str
    article: str
    short: str
    initials: str
    epithet: str
    invented: tuple[str, ...]


class Namer:
    """Draws names that are unambiguous within one world.

    Args:
        split: Whose name classes and unseen words to use.
        unseen_share: Share of invented words taken from those that the split introduces (no effect in training).
        namesake_share: Share of names that share a word with an earlier entity's.
        draws: The source of chance.
    """

    def __init__(self, split: str, unseen_share: float, namesake_share: float, draws: Draws) -> None:
        self._words = words()
        self._place = _places()
        self._classes = CLASSES[split]
        self._seen = introduced_by("train")
        self._unseen = introduced_by(split) if split != "train" else range(0)
        self._unseen_share = unseen_share
        self._namesake_share = namesake_share
        self._draws = draws
        self._names: set[str] = set()
        self._phrases: set[str] = set()
        self._epithets: set[str] = set()

    def name(self, kind: str, relatives: Sequence[tuple[str, ...]]) -> Name:
        """Draw a new name.

        Args:
            kind: Kind of the entity.
            relatives: Invented words of earlier entities, of which some are taken up again.

        Raises:
            RuntimeError: The words are exhausted; worlds are limited in size so that this does not happen.
        """
        for _ in range(2000):
            drawn = self._draw(kind, relatives)
            if drawn is not None:
                return drawn
        raise RuntimeError(f"no new name of kind {kind} is left")

    def _draw(self, kind: str, relatives: Sequence[tuple[str, ...]]) -> Name | None:
        draws = self._draws
        pattern = draws.pick(_PATTERNS[kind])
        article = "the " if pattern.startswith("the ") else ""
        core = _core(pattern)
        parts = core.split(" ")
        slots = pattern.count("*")
        positions = [self._position() for _ in range(slots)]
        if relatives and draws.chance(self._namesake_share):
            # People share surnames (the last word); other names take up any word.
            kept = draws.pick(draws.pick(relatives))
            positions[-1] = self._place[kept]
        if name_class(_core_number()[core], positions) not in self._classes:
            return None
        invented = tuple(self._words[position] for position in positions)
        fill = iter(invented)
        filled = [next(fill) if part == "*" else draws.pick(_NOUNS) if part == "~" else part for part in parts]
        text = " ".join(filled)
        pieces = _phrases(filled)
        if text in self._phrases or not self._names.isdisjoint(pieces):
            return None
        self._names.add(text)
        self._phrases.update(pieces)
        person = kind == "person"
        short = (invented[-1] if person else invented[0]) if pattern.endswith("+") else ""
        initials = " ".join([*(f"{word[0]}." for word in invented[:-1]), invented[-1]]) if person else ""
        return Name(text, article, short, initials, self._epithet(kind), invented)

    def _position(self) -> int:
        pool = self._unseen if self._unseen and self._draws.chance(self._unseen_share) else self._seen
        return pool[self._draws.below(len(pool))]

    def _epithet(self, kind: str) -> str:
        draws = self._draws
        if kind == "person" and draws.chance(0.3):
            epithet = f"the {draws.pick(_ADJECTIVES)} {draws.pick(_CREATURES)}"
        elif kind in ("town", "region") and draws.chance(0.3):
            epithet = f"the {draws.pick(_ADJECTIVES)} {draws.pick(_NOUNS)}"
        else:
            return ""
        if epithet in self._epithets:
            return ""
        self._epithets.add(epithet)
        return epithet


def name_class(pattern: int, positions: Sequence[int]) -> int:
    """The class of a combination of words: a number below 10, each of which belongs to one split.

    Args:
        pattern: Number of the name's pattern, the same for all kinds that have it.
        positions: Places of the invented words in the lexicon.
    """
    return (pattern + sum(w * p for w, p in zip(_WEIGHTS, positions, strict=False))) % 10


def _core(pattern: str) -> str:
    return pattern.removeprefix("the ").removesuffix("+")


@cache
def _core_number() -> dict[str, int]:
    """Patterns numbered over all kinds: two names of equal words and pattern have one class, whatever they name."""
    cores = dict.fromkeys(_core(pattern) for patterns in _PATTERNS.values() for pattern in patterns)
    return {core: number for number, core in enumerate(cores)}


@cache
def _places() -> dict[str, int]:
    return {word: position for position, word in enumerate(words())}


def _phrases(parts: Sequence[str]) -> list[str]:
    """Every run of two or more neighbouring words."""
    return [" ".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 2, len(parts) + 1)]
