"""Find which n-grams of some texts occur in a stream of other text, and where first.

Words are numbered; a sequence's key is a polynomial of its words' random numbers modulo 2⁶⁴, so that the keys of all
sequences of a length come from one cumulative sum. A key that is met is compared word by word, and where two sequences
share a key by chance the words are renumbered, so that every match is real.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

NOWHERE = np.iinfo(np.int64).max

_BITS = 22
"""Size in bits of the prefilter table for keys."""

Keys = NDArray[np.uint64]
Places = NDArray[np.int64]


class NgramIndex:
    """Index of the n-grams of evaluation texts that records where each first occurs in a stream of training text.

    Args:
        texts: Words of each text. A text with fewer than n words forms one gram; an empty text forms none.
        n: Number of words per gram.

    Attributes:
        first: Position in the stream of each gram's first occurrence, `NOWHERE` if it has not occurred. Shape (grams,).
    """

    def __init__(self, texts: Iterable[Sequence[str]], n: int) -> None:
        self.n = n
        self._numbers: dict[str, int] = {}
        number = self._numbers.setdefault
        # Number 0 is every word that no text has.
        held, ends = array("i"), array("q", [0])
        for text in texts:
            held.extend([number(word, len(self._numbers) + 1) for word in text])
            ends.append(len(held))
        self._split_words = np.array(held, dtype=np.int32)
        lengths = np.diff(np.array(ends, dtype=np.int64))
        begins = np.cumsum(lengths) - lengths
        sizes = np.minimum(lengths, n)
        windows = np.where(lengths > 0, np.maximum(lengths - n, 0) + 1, 0)
        self._ends = np.cumsum(windows)
        within = np.arange(windows.sum()) - np.repeat(self._ends - windows, windows)
        starts, width = np.repeat(begins, windows) + within, np.repeat(sizes, windows)
        self._gram = np.empty(len(starts), dtype=np.int64)
        self._tables: list[_Table] = []
        seed = 0
        while not self._build(starts, width, seed):
            seed += 1
        self._powers = _Powers()  # as many as the stream's batches need
        self.first = np.full(sum(len(table.starts) for table in self._tables), NOWHERE)

    def _build(self, starts: Places, width: Places, seed: int) -> bool:
        """Build the key tables; False if two different grams have the same key."""
        self._random = np.random.default_rng(seed).integers(1, 1 << 64, len(self._numbers) + 1, dtype=np.uint64)
        self._powers = _Powers()
        self._tables, base = [], 0
        sums = self._sums(self._split_words)
        for size in sorted(set(width.tolist())):
            chosen = np.flatnonzero(width == size)
            keys = self._keys(sums, starts[chosen], size)
            unique, where, inverse = np.unique(keys, return_index=True, return_inverse=True)
            of_key = starts[chosen][where]
            if not _equal(self._split_words, starts[chosen], self._split_words, of_key[inverse], size).all():
                return False
            self._gram[chosen] = base + inverse
            self._tables.append(_Table(size, unique, of_key, base, self._split_words, len(self._numbers)))
            base += len(unique)
        return True

    def _sums(self, words: NDArray[np.int32]) -> Keys:
        """Return polynomial prefix sums (rolling hash) at each position."""
        terms = self._random[words] * self._powers.upto(len(words))
        return np.concatenate(([np.uint64(0)], np.cumsum(terms, dtype=np.uint64)))

    def _keys(self, sums: Keys, starts: Places, size: int) -> Keys:
        return (sums[starts + size] - sums[starts]) * self._powers.inverse(starts)

    @property
    def sizes(self) -> list[int]:
        """Return the distinct gram lengths in the index, in words."""
        return [table.size for table in self._tables]

    def numbered(self, words: Iterable[str]) -> list[int]:
        """Encode the words of a training text as the index's word numbers."""
        return list(map(self._numbers.get, words, repeat(0)))

    def meet(self, words: NDArray[np.int32], place_of: Callable[[Places], Places]) -> None:
        """Match a piece of training text and record first occurrences.

        Args:
            words: Word numbers from `numbered`, with 0 between texts. Shape (words,).
            place_of: Function that converts positions in the piece to (increasing) positions in the stream.
        """
        gaps = np.concatenate(([0], np.cumsum(words == 0)))
        sums: Keys | None = None
        for table in self._tables:
            starts = np.flatnonzero(table.begins[words[: max(0, len(words) - table.size + 1)]])
            starts = starts[gaps[starts + table.size] == gaps[starts]]
            if not len(starts):
                continue
            sums = self._sums(words) if sums is None else sums
            keys = self._keys(sums, starts, table.size)
            maybe = table.bits[keys >> np.uint64(64 - _BITS)]
            starts, keys = starts[maybe], keys[maybe]
            row = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
            known = table.keys[row] == keys
            starts, row = starts[known], row[known]
            same = _equal(words, starts, self._split_words, table.starts[row], table.size)
            grams, once = np.unique(table.base + row[same], return_index=True)
            new = self.first[grams] == NOWHERE
            self.first[grams[new]] = place_of(starts[same][once[new]])

    def counts(self) -> tuple[Places, Places, Places]:
        """Return three arrays with one entry per text: grams found, grams in total, and position of the first match (`NOWHERE`
        if none).
        """
        first = self.first[self._gram]
        met = np.concatenate(([0], np.cumsum(first != NOWHERE)))
        begins = np.concatenate(([0], self._ends[:-1])) if len(self._ends) else self._ends
        total = self._ends - begins
        earliest = np.full(len(total), NOWHERE)
        some = total > 0
        if some.any():
            earliest[some] = np.minimum.reduceat(first, begins[some])
        return met[self._ends] - met[begins], total, earliest


class _Table:
    """The grams of one length, by key."""

    def __init__(self, size: int, keys: Keys, starts: Places, base: int, words: NDArray[np.int32], vocabulary: int) -> None:
        self.size, self.keys, self.starts, self.base = size, keys, starts, base
        self.bits = np.zeros(1 << _BITS, dtype=bool)
        self.bits[keys >> np.uint64(64 - _BITS)] = True
        self.begins = np.zeros(vocabulary + 1, dtype=bool)
        self.begins[words[starts]] = True


class _Powers:
    """Cached powers of an odd base modulo 2⁶⁴, and of its inverse."""

    _BASE = 0x9E3779B97F4A7C15

    def __init__(self) -> None:
        self._powers = np.ones(1, dtype=np.uint64)
        self._inverse = np.ones(1, dtype=np.uint64)

    def upto(self, count: int) -> Keys:
        self._grow(count)
        return self._powers[:count]

    def inverse(self, exponents: Places) -> Keys:
        return self._inverse[exponents]

    def _grow(self, count: int) -> None:
        if count > len(self._powers):
            self._powers = _powers(self._BASE, count)
            self._inverse = _powers(pow(self._BASE, -1, 1 << 64), count)


def _powers(base: int, count: int) -> Keys:
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _equal(left: NDArray[np.int32], at: Places, right: NDArray[np.int32], there: Places, size: int) -> NDArray[np.bool_]:
    """Compare `size` elements of two arrays starting at each pair of positions; returns one boolean per pair."""
    same = np.ones(len(at), dtype=bool)
    for offset in range(size):
        same &= left[at + offset] == right[there + offset]
    return same
