"""Who competes in a matrix: what can be filtered by, as far as the store knows it, and the filter itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

from results.asked import overlap
from results.contestants import Contestant, key_of

ANY = "any"
UNSTATED = "unstated"
SIZES: dict[str, tuple[float, float]] = {
    "under-1b": (0, 1e9),
    "1b-10b": (1e9, 1e10),
    "10b-100b": (1e10, 1e11),
    "over-100b": (1e11, float("inf")),
}
SIZE_NAMES = {
    ANY: "Any size",
    "under-1b": "Under 1 B parameters",
    "1b-10b": "1 to 10 B",
    "10b-100b": "10 to 100 B",
    "over-100b": "100 B and more",
    UNSTATED: "Not stated",
}
WEIGHT_NAMES = {ANY: "Any weights", "open": "Open weights", "closed": "Closed weights", UNSTATED: "Not stated"}
ANY_DATA = "any data at all"
"""Stands for every item of training data."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What a contestant must meet; empty and None ask for nothing.

    Attributes:
        kinds, readers: One of these, by their keys.
        size, weights: One of `SIZE_NAMES`, `WEIGHT_NAMES`.
        untrained: Names of training data of which it must have learnt nothing.
        since, until: Its newest run is of these days or between them.
    """

    kinds: frozenset[str] = field(default_factory=frozenset)
    readers: frozenset[str] = field(default_factory=frozenset)
    size: str = ANY
    weights: str = ANY
    untrained: frozenset[str] = field(default_factory=frozenset)
    since: date | None = None
    until: date | None = None

    @property
    def active(self) -> int:
        """How many of them ask for something."""
        return sum(map(bool, (self.kinds, self.readers, self.size != ANY, self.weights != ANY, self.untrained, self.since, self.until)))

    @property
    def key(self) -> str:
        """The same text for the same filters."""
        untrained = map(key_of, self.untrained)
        lists = (",".join(sorted(one)) for one in (self.kinds, self.readers, untrained))
        return "|".join((*lists, self.size, self.weights, str(self.since), str(self.until)))

    def admits(self, row: Contestant) -> bool:
        """Whether a contestant meets all of them; controls, which do not compete, always do."""
        if row.control:
            return True
        day = row.last.date()
        return (
            (not self.kinds or any(key_of(kind) in self.kinds for kind in row.kinds))
            and (not self.readers or any(key_of(reader) in self.readers for reader in row.readers))
            and _size_is(row.parameters, self.size)
            and _weights_are(row.open_weights, self.weights)
            and not _trained(row, self.untrained)
            and (self.since is None or day >= self.since)
            and (self.until is None or day <= self.until)
        )


def _size_is(parameters: int | None, size: str) -> bool:
    if size == ANY or parameters is None:
        return size in (ANY, UNSTATED)
    return size != UNSTATED and SIZES[size][0] <= parameters < SIZES[size][1]


def _weights_are(open_weights: bool | None, wanted: str) -> bool:
    stated = {None: UNSTATED, True: "open", False: "closed"}[open_weights]
    return wanted in (ANY, stated)


def _trained(row: Contestant, untrained: frozenset[str]) -> bool:
    """Whether it was trained on any of the data, or nobody can say that it was trained on none.

    Data go by several names: mixed styles hold the questions of their base, a reference without a split all splits.
    """
    if ANY_DATA in untrained and (row.training or not row.declares):
        return True
    return any(overlap(one, other) for one in row.training for other in untrained)


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be filtered by among some contestants, names by their keys."""

    kinds: dict[str, str]
    readers: dict[str, str]
    training: dict[str, str]
    sizes_known: bool
    weights_known: bool


def choices(rows: Sequence[Contestant]) -> Choices:
    """What the store knows of these contestants that tells them apart."""
    able = [row for row in rows if not row.control]
    training = _named(able, lambda row: row.training)
    return Choices(
        _named(able, lambda row: row.kinds),
        _named(able, lambda row: row.readers),
        {key_of(ANY_DATA): ANY_DATA, **training} if training else {},
        any(row.parameters is not None for row in able),
        any(row.open_weights is not None for row in able),
    )


def _named(rows: Sequence[Contestant], of: Callable[[Contestant], Sequence[str]]) -> dict[str, str]:
    return {key_of(name): name for name in sorted({name for row in rows for name in of(row)})}


def matches(row: Contestant, words: str) -> bool:
    """Whether every word of a search is in the name, the method's id or the reader's name."""
    text = " ".join((row.name, row.any_run.method_id, *row.readers)).casefold()
    return all(word in text for word in words.casefold().split())
