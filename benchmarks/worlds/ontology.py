"""What kinds of things there are and how they relate, read from `relations/*.txt`.

A relation is a paragraph of a text file:

    [person.teacher] person -> person when -60..-8    id, head kind, tail kind, options
    + {h} studied under {t}.                          ways to state it (h subject, o object, p possessive, t tail)
    ? Who instructed {h} in the craft?                ways to ask for the tail, in other words than it is stated
    = the mentor who shaped {h}                       ways to refer to the tail, for questions of two steps
    ~ A mentor shaped {o} more than any book.         sentences with the words of the question and no answer
    & Were {a} and {b} instructed by the same mentor? yes/no: equal tails
    < Who is older, {a} or {b}? | Is {a} older than {b}?   which-of-two and yes/no: the smaller value (> larger)
    ^ Whom did {t} instruct in the craft?             ways to ask for all heads

The tail is a kind of entity, a list of `values.py`, `year entity` (the entity's own year), `year life` (40 to 90
years later), or `number LOW HIGH unit`. Options: `when A..B` (the tail's year minus the head's), `many` (two or
three tails), `once` (each tail once), `total` (every head has one), `held-out` (only in test worlds that ask for it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.errors import UserError
from benchmarks.worlds.values import VALUES

KINDS = ("person", "town", "region", "work", "organisation", "species", "instrument", "event", "landmark", "award", "language")
FILES = ("place", "person", "work", "other")
_FOLDER = Path(__file__).parent / "relations"
_HEADER = re.compile(r"\[([a-z]+)\.([a-z_]+)\] ([a-z]+) -> (.+)")
_FLAGS = ("many", "once", "total", "capital", "unless-capital", "held-out")


@dataclass(frozen=True, slots=True)
class Relation:
    """A type of fact.

    Attributes:
        id: `kind.name`, as in graph datasets.
        head: Kind of the head.
        tail: Kind of the tail, or what sort of value it is (`year`, `number`, a name in `VALUES`).
        unit: What a number counts, printed behind it; "" otherwise.
        low, high: Range of a number.
        source: For years: `entity` or `life`.
        when: Allowed difference (tail's year minus head's year), or None.
        flags: Options without arguments.
        says, asks, phrases, decoys, inverse: Templates, see the module's docstring.
        compare: For numbers and years: `smaller` or `larger`, which-of-two templates, yes/no templates.
        same: Yes/no templates for equal tails.
        says_pronoun: Those of `says` that still read well when the subject is a pronoun.
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
        """Whether the tail is an entity rather than a value."""
        return self.tail in KINDS

    @property
    def many(self) -> bool:
        """Whether a head may have several tails."""
        return "many" in self.flags

    @property
    def held_out(self) -> bool:
        """Whether only test worlds that ask for unseen relations contain it."""
        return "held-out" in self.flags


@cache
def relations() -> tuple[Relation, ...]:
    """All relations, held-out ones included, in the order of the files."""
    found = [relation for name in FILES for relation in _read(_FOLDER / f"{name}.txt")]
    if len({relation.id for relation in found}) != len(found):
        raise UserError("a relation is defined twice", where=str(_FOLDER), try_this="rename one of the two")
    return tuple(found)


@cache
def relations_of(head: str, held_out: bool) -> tuple[Relation, ...]:
    """The relations whose head is of this kind, with or without those held out."""
    return tuple(r for r in relations() if r.head == head and (held_out or not r.held_out))


@cache
def relation(identifier: str) -> Relation:
    """The relation with this id."""
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
        raise UserError("this is not a relation header", where=f"{path}:{number}", try_this="[kind.name] kind -> tail")
    templates: dict[str, list[str]] = {mark: [] for mark in "+?=~&^<>"}
    for number, line in lines[1:]:
        if line[:1] not in templates or line[1:2] != " ":
            raise UserError("this line has no mark", where=f"{path}:{number}", try_this="start it with one of + ? = ~ & ^ < >")
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
    found: dict[str, object] = {"tail": words[0], "flags": frozenset(w for w in words[1:] if w in _FLAGS)}
    if words[0] == "year":
        found["source"] = words[1]
    elif words[0] == "number":
        found.update(low=int(words[1]), high=int(words[2]), unit=" ".join(w for w in words[3:] if w not in _FLAGS))
    elif words[0] not in KINDS and words[0] not in VALUES:
        raise UserError(f"unknown kind of tail {words[0]!r}", where=where, try_this="use a kind, a value list, year or number")
    if "when" in words:
        low, high = words[words.index("when") + 1].split("..")
        found["when"] = (int(low), int(high))
    return found
