"""Build a graph without a language model: rule-based names, related if they occur close to each other.

A name is a span of capitalized words (with function words in between), a year, or a frequent n-gram. A spaCy pipeline can
replace the rules. Two names within a window of words are related; the relation is described by the sentence of the later one.

Source: the co-occurrence graph is that of GraphRAG's fast indexing; the rules are ours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.text import sentences
from methods.graphs.chunking import Chunk
from methods.graphs.knowledge_graph import (
    DEFAULT_STRENGTH,
    UNKNOWN,
    EntityRecord,
    GraphBuilder,
    KnowledgeGraph,
    Records,
    RelationRecord,
    clean_name,
)

VERSION = 1
WINDOW = 20
"""Maximum distance in words between the starts of two related names."""
LONGEST_GRAM = 3
REPEATED = 3
"""Minimum number of occurrences for an n-gram to count as a name."""

_CAPITAL = r"(?:[A-ZÀ-ÖØ-ÞĀ-Ž](?:[\w&.-]|[’'](?!s\b))*\w\.?|[A-Z]\.|[A-Z])"
_LINK = r"(?:of the|of|the|and|for|to|in|on|de|del|della|di|da|du|la|le|van|von|der|den|al|bin|y|&)"
_SPAN = re.compile(rf"{_CAPITAL}(?:[ -](?:{_LINK} )?(?:{_CAPITAL}|\d+)(?!\w))*")
_YEAR = re.compile(r"(?<![\w.,])(?:1\d|20)\d{2}(?!\w|[.,]\d)")
_WORD = re.compile(r"\w[\w'’-]*")
_LITTLE_LIST = """
a an the this that these those he she it its his her him they them their we our us you your i my me in on at by of for to from with as and
or but if so not no is are was were be been being has have had do does did will would can could may might shall should who whom whose which
what when where why how there here than then also after before during while since until about into over under between among such some any
all each other another both more most many much few several one two three first second last new old only own same very just however although
because though thus therefore later early earlier upon out up down again once further within without against through
"""
_LITTLE = frozenset(_LITTLE_LIST.split())


class Mention(NamedTuple):
    """An occurrence of a name in a text: position in words, and sentence number."""

    name: str
    word: int
    sentence: int


class NounPhrases:
    """Rule-based extractor for any English text.

    Args:
        window: Maximum distance in words between the starts of two related names.
        pipeline: spaCy pipeline for finding names; None uses the rules.
    """

    def __init__(self, window: int = WINDOW, pipeline: str | None = None) -> None:
        self._window = window
        self._pipeline = pipeline

    @property
    def fingerprint(self) -> str:
        meta = _spacy(self._pipeline).meta if self._pipeline else {}
        return fingerprint("noun_phrases", VERSION, self._window, self._pipeline, meta.get("version"))

    def extract(self, document_id: str, chunks: Sequence[Chunk]) -> KnowledgeGraph:
        builder = GraphBuilder()
        for chunk, records in zip(chunks, self.records(chunks), strict=True):
            builder.add(chunk.index, records)
        return builder.build(document_id)

    def records(self, chunks: Sequence[Chunk]) -> list[Records]:
        """Extract entities and relations of each chunk, in order; n-gram frequencies are counted over all chunks."""
        split = [sentences(chunk.text) for chunk in chunks]
        mentioned = list(map(self._by_pipeline if self._pipeline else _by_rule, split))
        grams = _repeated(split) if self._pipeline is None else frozenset[str]()
        mentions = [_with_grams(some, text, grams) for some, text in zip(mentioned, split, strict=True)]
        return [_records(some, text, self._window) for some, text in zip(mentions, split, strict=True)]

    def names(self, text: str) -> tuple[str, ...]:
        """Return the names in a question."""
        split = sentences(text)
        mentioned = self._by_pipeline(split) if self._pipeline else _by_rule(split)
        return tuple(dict.fromkeys(mention.name for mention in mentioned))

    def _by_pipeline(self, split: Sequence[str]) -> list[Mention]:
        mentions, before = [], 0
        for number, doc in enumerate(_spacy(self._pipeline).pipe(split)):
            spans = [*doc.ents, *(doc.noun_chunks if doc.has_annotation("DEP") else ())]
            for span in sorted(spans, key=lambda span: (span.start, -span.end)):
                if name := _trimmed(span.text):
                    mentions.append(Mention(name, before + span.start, number))
            before += len(doc)
        return list(dict.fromkeys(mentions))


def _by_rule(split: Sequence[str]) -> list[Mention]:
    """Return capitalized spans and years, in order; a single word at the start of a sentence counts unless it is a function
    word.
    """
    mentions, before = [], 0
    for number, sentence in enumerate(split):
        starts = [match.start() for match in _WORD.finditer(sentence)]
        for match in sorted((*_SPAN.finditer(sentence), *_YEAR.finditer(sentence)), key=lambda match: match.start()):
            if name := _trimmed(match[0]):
                mentions.append(Mention(name, before + int(np.searchsorted(starts, match.start())), number))
        before += len(starts)
    return mentions


def _trimmed(span: str) -> str:
    """Strip function words from both ends of a span; "" if nothing is left."""
    words = span.split()
    while words and words[0].lower().strip(".,'’") in _LITTLE:
        words = words[1:]
    while words and words[-1].lower().strip(".,'’") in _LITTLE:
        words = words[:-1]
    text = " ".join(words).rstrip(".,'’") if len(words) > 1 or (words and len(words[0]) > 2) else ""
    return clean_name(re.sub(r"['’]s$", "", text))


def _split_words(sentence: str) -> list[str]:
    return [match[0].lower() for match in _WORD.finditer(sentence)]


def _grams(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield n-grams of two or more content words, with their positions."""
    for start in range(len(words)):
        for length in range(2, LONGEST_GRAM + 1):
            gram = words[start : start + length]
            if (
                len(gram) < length
                or gram[-1] in _LITTLE
                or gram[0] in _LITTLE
                or not all(len(word) > 2 and word.isalpha() for word in gram)
            ):
                break
            yield start, " ".join(gram)


def _repeated(split: Sequence[Sequence[str]]) -> frozenset[str]:
    counts = Counter(gram for chunk in split for sentence in chunk for _, gram in _grams(_split_words(sentence)))
    return frozenset(gram for gram, number in counts.items() if number >= REPEATED)


def _with_grams(mentions: list[Mention], split: Sequence[str], grams: frozenset[str]) -> list[Mention]:
    if not grams:
        return mentions
    added, before = list(mentions), 0
    for number, sentence in enumerate(split):
        words = _split_words(sentence)
        added += [Mention(clean_name(gram), before + start, number) for start, gram in _grams(words) if gram in grams]
        before += len(words)
    return sorted(dict.fromkeys(added), key=lambda mention: mention.word)


def _records(mentions: Sequence[Mention], split: Sequence[str], window: int) -> Records:
    entities = dict.fromkeys(EntityRecord(mention.name, UNKNOWN, split[mention.sentence]) for mention in mentions)
    positions = np.array([mention.word for mention in mentions], np.int64)
    relations: dict[RelationRecord, None] = {}
    for first, second in near(positions, window).tolist():
        one, other = mentions[first], mentions[second]
        if one.name != other.name:
            ends = sorted((one.name, other.name))
            relations[RelationRecord(ends[0], ends[1], split[other.sentence], DEFAULT_STRENGTH)] = None
    return Records(tuple(entities), tuple(relations))


def near(positions: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """Return all pairs of ascending positions that are at most a window apart. Shape (pairs, 2), the earlier first."""
    last = np.searchsorted(positions, positions + window, side="right")
    counts = last - np.arange(len(positions)) - 1
    first = np.repeat(np.arange(len(positions)), counts)
    within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([first, first + 1 + within], axis=1)


@lru_cache(maxsize=2)
def _spacy(name: str | None) -> Any:
    try:
        import spacy
    except ImportError as error:
        raise UserError(
            "the package 'spacy' is not installed",
            code="missing-spacy",
            where=f"pipeline: {name}",
            try_this="pip install spacy, or pipeline: null",
        ) from error
    try:
        return spacy.load(str(name))
    except OSError as error:
        raise UserError(
            f"the spaCy pipeline cannot be loaded: {error}",
            code="spacy-load-failed",
            where="pipeline",
            try_this="pipeline: null, for the rules",
        ) from None
