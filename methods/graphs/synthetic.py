"""Rule-based extractor for generated worlds, which knows their sentence patterns but none of their facts.

It replaces a language model for tests and demos. It only sees the text, so it resolves pronouns, short names and epithets by
itself.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from benchmarks.core.fingerprint import fingerprint
from benchmarks.text import sentences
from benchmarks.worlds.text import mention_by_name, state
from benchmarks.worlds.world import VALUES, Relation, relations
from methods.graphs.chunking import Chunk
from methods.graphs.knowledge_graph import EntityRecord, GraphBuilder, KnowledgeGraph, Records, RelationRecord, clean_name

VERSION = 1
UNRESOLVED = "malformed: statement about nobody known"
STRENGTH = 8.0
"""Strength assigned to every relation, since worlds state facts unambiguously."""

_NAME = r"(?:[Tt]he )?[A-Z][\w.]*(?: (?:(?:of|to|for|and|the) )?[A-Z][\w.]*)*"
_SLOTS = {"h": f"(?P<head>{_NAME})", "o": f"(?P<head>{_NAME}|her|him|it)", "p": rf"(?P<head>{_NAME}'s|[Hh]er|[Hh]is|[Ii]ts)"}
_PRONOUN = re.compile(r"she|he|it|her|him|his|its", re.IGNORECASE)
_CALLED = re.compile(rf"(?P<name>{_NAME}), called (?P<epithet>the [A-Z]\w* [A-Z]\w*),")


class _Pattern(NamedTuple):
    """Sentence pattern of a statement, with a group `head` and, for facts, `tail`."""

    relation: Relation
    template: str
    sentence: re.Pattern[str]
    literal: str
    states: bool


class _Fact(NamedTuple):
    """A stated fact; head and tail as in the text, with pronouns and epithets resolved."""

    chunk: int
    pattern: _Pattern
    head: str
    tail: str


class WorldsExtractor:
    """Extractor for documents of generated worlds."""

    @property
    def fingerprint(self) -> str:
        return fingerprint("worlds", VERSION)

    def extract(self, document_id: str, chunks: Sequence[Chunk]) -> KnowledgeGraph:
        builder = GraphBuilder()
        records, lost = self._records(chunks)
        for chunk, of_chunk in records.items():
            builder.add(chunk, of_chunk)
        if lost:
            builder.count(UNRESOLVED, lost)
        return builder.build(document_id)

    def records(self, chunks: Sequence[Chunk]) -> list[Records]:
        """Extract the facts of each chunk, in order."""
        records, _ = self._records(chunks)
        return [records.get(chunk.index, Records()) for chunk in chunks]

    @staticmethod
    def _records(chunks: Sequence[Chunk]) -> tuple[dict[int, Records], int]:
        kinds = _kinds(sentence for chunk in chunks for sentence in sentences(chunk.text))
        read_facts, lost = _read(chunks, kinds)
        names = _Names(read_facts, kinds)
        by_chunk: dict[int, list[_Fact]] = defaultdict(list)
        for fact in read_facts:
            by_chunk[fact.chunk].append(fact)
        return {chunk: _records(facts, names) for chunk, facts in by_chunk.items()}, lost


class _Names:
    """Full names of the entities in a document."""

    def __init__(self, facts: Iterable[_Fact], kinds: Mapping[str, Counter[str]]) -> None:
        self._kinds = kinds
        mentioned = Counter(name for fact in facts for name in _entities(fact))
        self._articles = {_bare(name) for name in mentioned if name.startswith("the ")}
        self._by_word: dict[str, set[str]] = defaultdict(set)
        for name in {_bare(name) for name in mentioned}:
            words = name.split(" ")
            if len(words) > 1 and not words[0].endswith("."):
                for word in words:
                    self._by_word[word].add(name)

    def full(self, name: str, kind: str) -> str:
        """Return a name as spelled in the world's knowledge graph."""
        bare = _bare(name)
        words = bare.split(" ")
        if len(words) == 1 or words[0].endswith("."):
            candidates = [item for item in self._by_word[words[-1]] if self._means(words, item, kind)]
            bare = candidates[0] if len(candidates) == 1 else bare
        return f"The {bare}" if kind == "work" and name.startswith("The ") else bare

    def text(self, full: str) -> str:
        """Return a name with its article, for running text."""
        return f"the {full}" if full in self._articles and not full.startswith("The ") else full

    def _means(self, shorter: Sequence[str], full: str, kind: str) -> bool:
        words = full.split(" ")
        known = self._kinds.get(full)
        if known and kind not in known:
            return False
        if len(shorter) == 1:
            return True
        return len(words) == len(shorter) and all(word.startswith(short[:-1]) for short, word in zip(shorter[:-1], words[:-1], strict=True))


def _kinds(texts: Iterable[str]) -> dict[str, Counter[str]]:
    """Count the kinds that unambiguous sentences assign to each name."""
    results: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in texts:
        readings = [reading for reading in _readings(_CALLED.sub(r"\g<name>", sentence)) if reading[0].states]
        if len({(reading[0].relation.head, reading[0].relation.tail) for reading in readings}) == 1:
            pattern, head, tail = readings[0]
            if not _PRONOUN.fullmatch(head):
                results[_bare(head)][pattern.relation.head] += 1
            if pattern.relation.to_entity:
                results[_bare(tail)][pattern.relation.tail] += 1
    return results


def _read(chunks: Sequence[Chunk], kinds: Mapping[str, Counter[str]]) -> tuple[list[_Fact], int]:
    """Return the facts stated in each chunk, and the number of facts about entities without a name."""
    facts: list[_Fact] = []
    epithets: dict[str, str] = {}
    subject: str | None = None
    lost = 0
    for chunk in chunks:
        for sentence in sentences(chunk.text):
            called = _CALLED.match(sentence)
            if called:
                epithets[called["epithet"].lower()] = called["name"]
                sentence = _CALLED.sub(r"\g<name>", sentence, count=1)
            readings = _readings(sentence)
            if not readings:
                continue
            pattern, head, tail = max(readings, key=lambda item: _agreement(item, kinds))
            if not _PRONOUN.fullmatch(head):
                subject = epithets.get(head.lower(), head)
            if pattern.states and subject is None:
                lost += 1
            elif pattern.states and subject is not None:
                facts.append(_Fact(chunk.index, pattern, subject, tail))
    return facts, lost


def _agreement(reading: tuple[_Pattern, str, str], kinds: Mapping[str, Counter[str]]) -> tuple[int, int, int]:
    """Return the sort key of a reading: plain values first, then known names, then the more literal reading."""
    pattern, head, tail = reading
    ends = [(head, pattern.relation.head)] + [(tail, pattern.relation.tail)] * pattern.relation.to_entity
    fits = sum(1 if kind in known else -1 for name, kind in ends if (known := kinds.get(_bare(name))))
    return (not pattern.relation.to_entity, fits, len(pattern.literal))


def _readings(sentence: str) -> list[tuple[_Pattern, str, str]]:
    """Return all patterns that match a sentence, with head and tail."""
    results = []
    for pattern in _patterns():
        if pattern.literal in sentence and (match := pattern.sentence.fullmatch(sentence)):
            groups = match.groupdict()
            head = groups["head"].removesuffix("'s")
            results.append((pattern, head, groups.get("tail") or ""))
    return results


@cache
def _patterns() -> tuple[_Pattern, ...]:
    return tuple(
        _pattern(relation, template, states)
        for relation in relations()
        for states, templates in ((True, relation.says), (False, relation.decoys))
        for template in templates
    )


def _pattern(relation: Relation, template: str, states: bool) -> _Pattern:
    slots = {**_SLOTS, "t": f"(?P<tail>{_tail(relation)})"}
    parts = re.split(r"\{([hopt])\}", template)
    parts[0] = parts[0][:1].upper() + parts[0][1:]
    source = "".join(slots[part] if position % 2 else re.escape(part) for position, part in enumerate(parts))
    source = source.replace(r"\ a\ (?P<tail>", r"\ an?\ (?P<tail>")
    # "a" may have become "an", so that it does not belong to what must be there.
    literal = max((part.removesuffix(" a ") for part in parts[::2]), key=len)
    return _Pattern(relation, template, re.compile(source), literal, states)


def _tail(relation: Relation) -> str:
    if relation.to_entity:
        return _NAME
    if relation.tail == "year":
        return r"\d{3,4}"
    if relation.tail == "number":
        return rf"[\d,]+ {re.escape(relation.unit)}"
    return "|".join(map(re.escape, VALUES[relation.tail]))


def _records(facts: Iterable[_Fact], names: _Names) -> Records:
    entities: list[EntityRecord] = []
    records: list[RelationRecord] = []
    for fact in facts:
        relation = fact.pattern.relation
        head = names.full(fact.head, relation.head)
        tail = names.full(fact.tail, relation.tail) if relation.to_entity else fact.tail
        text = state(fact.pattern.template, mention_by_name(names.text(head)), names.text(tail))
        ends = clean_name(head), clean_name(tail)
        if ends[0] == ends[1]:
            continue
        kinds = relation.head.upper(), relation.tail.upper()
        entities += [EntityRecord(name, kind, text) for name, kind in zip(ends, kinds, strict=True)]
        records.append(RelationRecord(*ends, text, STRENGTH))
    return Records(tuple(entities), tuple(records))


def _entities(fact: _Fact) -> list[str]:
    return [fact.head, fact.tail] if fact.pattern.relation.to_entity else [fact.head]


def _bare(name: str) -> str:
    """Return a name without an article."""
    return re.sub(r"^[Tt]he ", "", name)
