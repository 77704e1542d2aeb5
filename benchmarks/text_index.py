"""Find the passages whose text stands in another text, or that another text is a part of.

Systems cut documents into chunks of their own and name them as they like. Texts are compared by content: letters and digits in
lower case, without punctuation, markup and line breaks. Two texts match if

- they have equal words, with or without the passage's title; or
- at least `SHARE` of the runs of `RUN` words of the shorter one are in the longer one, and the shorter one has at least
  `LEAST` words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.schema import Passage

RUN = 5
"""Words per run in comparisons."""
SHARE = 0.8
"""Minimum share of the shorter text's runs that the longer one contains."""
LEAST = 8
"""Minimum words of a text that is found inside another one; shorter texts must be equal."""
MOST = 10
"""Maximum passages per context, those with the most common runs."""
LARGEST = 50_000_000
"""Words of the largest searched corpus, 600 MB as an index."""

# Scripts without spaces: each character is a word.
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def words(text: str) -> list[str]:
    """Split a text into normalized words."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _runs(tokens: Sequence[str]) -> NDArray[np.uint64]:
    """Hash each run of `RUN` words, in order."""
    if len(tokens) < RUN:
        return np.empty(0, np.uint64)
    codes = np.fromiter((hash(token) & 0xFFFFFFFFFFFFFFFF for token in tokens), np.uint64, len(tokens))
    count = len(tokens) - RUN + 1
    with np.errstate(over="ignore"):
        total = np.zeros(count, np.uint64)
        for place in range(RUN):
            total = total * _MULTIPLIER + codes[place : place + count]
            total ^= total >> np.uint64(29)
    return total


def outside(text: str, name: str = "") -> Passage:
    """Make a passage from a text that is in no corpus; its id is a hash of its content."""
    return Passage(content_id("x", text), name, text)


class TextIndex:
    """Index that finds the corpus passages which match a text; the module explains when texts match.

    Args:
        passages: The passages of the corpus.

    Raises:
        UserError: The corpus has more than `LARGEST` words.
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._ids: list[str] = []
        self._equal: dict[tuple[str, ...], list[str]] = {}
        lengths, hashes, total = [], [], 0
        for passage in passages:
            title, text = words(passage.title), words(passage.text)
            for whole in {tuple(text), (*title, *text)} - {()}:
                if len(whole) < LEAST + len(title):
                    self._equal.setdefault(whole, []).append(passage.id)
            self._ids.append(passage.id)
            own = np.unique(_runs(text)) if len(text) >= LEAST else np.empty(0, np.uint64)
            hashes.append(own)
            lengths.append(own.size)
            total += own.size
            if total > LARGEST:
                raise UserError(
                    f"contexts cannot be matched by content: the corpus has more than {LARGEST:,} words",
                    code="corpus-too-large-to-match",
                    where="contexts",
                    try_this="return the ids of passages of the corpus as evidence, or as the ids of contexts",
                )
        self._lengths = np.array(lengths, np.int64)
        every = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        rows = np.repeat(np.arange(len(lengths), dtype=np.int32), self._lengths)
        order = np.argsort(every, kind="stable")
        self._hashes, self._rows = every[order], rows[order]

    def find(self, text: str) -> tuple[str, ...]:
        """Return the ids of the passages that match a text, in the order in which they occur in it; the module explains when
        texts match.
        """
        tokens = words(text)
        equal = self._equal.get(tuple(tokens), [])
        if len(tokens) < LEAST:
            return tuple(equal)
        runs, first = np.unique(_runs(tokens), return_index=True)
        begins, ends = np.searchsorted(self._hashes, runs), np.searchsorted(self._hashes, runs, side="right")
        counts = ends - begins
        met = np.flatnonzero(counts)
        if not met.size:
            return tuple(equal)
        rows = np.concatenate([self._rows[begins[run] : ends[run]] for run in met])
        starts = np.repeat(first[met], counts[met])
        texts, inverse, shared = np.unique(rows, return_inverse=True, return_counts=True)
        place = np.full(texts.size, len(tokens))
        np.minimum.at(place, inverse, starts)
        enough = np.flatnonzero(shared >= SHARE * np.minimum(self._lengths[texts], runs.size) - 1e-9)
        best = enough[np.argsort(-shared[enough], kind="stable")][:MOST]
        ordered = best[np.argsort(place[best], kind="stable")]
        return tuple(dict.fromkeys([*equal, *(self._ids[texts[at]] for at in ordered)]))
