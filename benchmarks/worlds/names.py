"""Generate names of two to four words, with aliases, for every kind of entity.

Each split has its own word combinations, so that names of test worlds never occur in training: a name's *class* (0 to 9,
computed from its pattern and words) belongs to one split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.core.random import Draws

# A few thousand short pronounceable words, none inside another, so that a small tokenizer trained on the worlds
# covers each with one or two tokens and an answer never occurs inside another word by accident.


SIZES = {"train": 1500, "validation": 300, "test": 600}
"""Number of words that each split introduces; every split also uses the training words."""


def read_lists(name: str) -> dict[str, tuple[str, ...]]:
    """Parse `NAME.txt` next to this file: lines of `kind: value, value`."""
    lines = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    kinds = (line.partition(": ") for line in lines if not line.startswith("#"))
    return {kind: tuple(values.split(", ")) for kind, _, values in kinds}


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ONSETS = _list("b d f g h k l m n p r s t v w z b d k l m n r s t v br dr fl gl gr kl pl st th tr")
_VOWELS = _list("a e i o u a e i o u a e i o u ei ia ou")
_INNER_CODAS = _list("l n r m s")
_CODAS = ("", "", "l", "n", "r", "s", "m", "k", "th", "x", "nd", "rn", "sk")
_REAL = frozenset(
    _list(
        """brother father mother sister under winter summer silver golden garden market master letter river water
    banter barter border dinner finger ginger hammer harbour hinder holder honest hunter kitten lantern latter
    legend lesson listen litter manner matter member mental modern mortal mother mutton number order panther
    parent parlour partner pattern person pillar planet platter plaster poster powder printer proper rather
    render sender shelter sister slander sober solar sonar stolen talent tender timber turnip under venom
    verdant victor vinyl wander wonder yonder london berlin paris milan japan brazil dublin lisbon koran stalin
    hitler osama nazi hotel motel radar laser honor motor tumor rumor human woman roman titan satan pagan
    slogan began melon lemon salon talon baron bacon wagon dragon canon felon gallon salad ballad"""
    )
)


@cache
def all_words() -> tuple[str, ...]:
    """Return all invented words: those of training, then validation, then test worlds."""
    draws = Draws("lexicon", 1)
    wanted = sum(SIZES.values())
    chosen: list[str] = []
    parts: set[str] = set()  # every piece of a chosen word that could itself be a word
    taken: set[str] = set()
    while len(chosen) < wanted:
        word = _word(draws)
        pieces = [word[a:b] for a in range(len(word)) for b in range(a + 4, len(word) + 1)]
        if not 4 <= len(word) <= 8 or word in parts or word in _REAL or not taken.isdisjoint(pieces):
            continue
        chosen.append(word)
        taken.add(word)
        parts.update(pieces)
    return tuple(word.capitalize() for word in chosen)


def introduced_by(split: str) -> range:
    """Return the positions in `all_words()` of the words that a split introduces."""
    start = 0
    for name, size in SIZES.items():
        if name == split:
            return range(start, start + size)
        start += size
    raise KeyError(split)


def training_words() -> tuple[str, ...]:
    """Return the words of training worlds; the other splits use them, too."""
    return all_words()[: SIZES["train"]]


def _word(draws: Draws) -> str:
    syllables = 3 if draws.chance(0.2) else 2
    text = ""
    for position in range(syllables):
        text += draws.pick(_ONSETS) + draws.pick(_VOWELS)
        if position == syllables - 1:
            text += draws.pick(_CODAS)
        elif draws.chance(0.3):
            text += draws.pick(_INNER_CODAS)
    return text


CLASSES = {"train": frozenset(range(7)), "validation": frozenset({7}), "test": frozenset({8, 9})}
"""Name classes of each split."""

_WEIGHTS = (1, 3, 7)  # coprime to 10, so that every word changes the class


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
_PATTERNS = read_lists("patterns")


@dataclass(frozen=True, slots=True)
class Name:
    """A generated name and its aliases.

    Attributes:
        text: The full name, without article.
        article: "the " or "".
        short: A shorter form ("Velmar" for "Port Velmar", the surname of a person), or "".
        initials: "V. Dosk", or "".
        epithet: "the Silent Heron", or "".
        invented: Its invented words.
    """

    text: str
    article: str
    short: str
    initials: str
    epithet: str
    invented: tuple[str, ...]


class Namer:
    """Generator of names that are unambiguous within one world.

    Args:
        split: Split that determines the name classes and new words.
        unseen_share: Fraction of invented words that the split introduces (no effect in training).
        namesake_share: Fraction of names that share a word with an earlier name.
        draws: Random numbers.
    """

    def __init__(self, split: str, unseen_share: float, namesake_share: float, draws: Draws) -> None:
        self._words = all_words()
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
        """Generate a new name.

        Args:
            kind: Kind of the entity.
            relatives: Invented words of earlier entities, some of which are reused.

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
    """Return the class (0 to 9) of a combination of words; each class belongs to one split.

    Args:
        pattern: Number of the name's pattern, equal for all kinds that use it.
        positions: Positions of the invented words in `all_words()`.
    """
    return (pattern + sum(w * p for w, p in zip(_WEIGHTS, positions, strict=False))) % 10


def _core(pattern: str) -> str:
    return pattern.removeprefix("the ").removesuffix("+")


@cache
def _core_number() -> dict[str, int]:
    """Number the name patterns over all kinds, so that equal words and patterns have the same class."""
    cores = dict.fromkeys(_core(pattern) for patterns in _PATTERNS.values() for pattern in patterns)
    return {core: number for number, core in enumerate(cores)}


@cache
def _places() -> dict[str, int]:
    return {word: position for position, word in enumerate(all_words())}


def _phrases(parts: Sequence[str]) -> list[str]:
    """Return all runs of two or more neighboring words."""
    return [" ".join(parts[a:b]) for a in range(len(parts)) for b in range(a + 2, len(parts) + 1)]


# Worlds for validation and test have words of their own, and a reader must copy names that it has never seen. None of
# those words is made here.


NAME = re.compile(r"[A-Z][a-z]{3,}")
"""Pattern of a capitalized word in a name."""


def out_of_vocabulary_words(known: Iterable[str], share: float, draws: Draws) -> dict[str, str]:
    """Map a random share of known words to new invented words, to test generalization to unseen names.

    Args:
        known: Words in a fixed order.
        share: Fraction to replace.
        draws: Random numbers.
    """
    every = set(all_words())
    results: dict[str, str] = {}
    for word in known:
        if draws.chance(share):
            other = draws.pick(training_words())
            made = word[: max(3, len(word) // 2)] + other[len(other) // 2 :]
            if made not in every:
                results[word] = made
    return results


def out_of_vocabulary_in(texts: Iterable[str], share: float, draws: Draws) -> dict[str, str]:
    """Map a share of the training words that occur in some texts to new invented words."""
    return out_of_vocabulary_words(sorted({word for text in texts for word in NAME.findall(text)} & _training()), share, draws)


@cache
def _training() -> frozenset[str]:
    return frozenset(training_words())


def replaced(text: str, swaps: Mapping[str, str]) -> str:
    """Replace name words in a text according to a mapping."""
    return NAME.sub(lambda match: swaps.get(match[0], match[0]), text)
