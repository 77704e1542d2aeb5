"""Which word sequences of some texts occur in a stream of other texts: exact, in memory that the stream does not touch.

Words are numbered; a sequence's key is a polynomial of its words' random numbers modulo 2⁶⁴, so that the keys of all
sequences of a length come from one cumulative sum. A key that is met is compared word by word, and where two sequences
share a key by chance the words are numbered anew: what is found is what is there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

BATCH_WORDS = 1 << 17
"""Words of the stream that are looked at together."""
NOWHERE = np.iinfo(np.int64).max

_BITS = 22
"""Keys are first looked for in a table of so many bits: nearly all are not there."""

Keys = NDArray[np.uint64]
Places = NDArray[np.int64]


class NgramIndex:
    """The n-grams of some texts, and where in a stream each was first met.

    Args:
        texts: Words of each text, taken one at a time. One shorter than n is a single gram: the whole of it; one
            without words has none.
        n: Words of a gram.

    Attributes:
        first: The place of each gram's first occurrence, `NOWHERE` before it has one. Shape (grams,).
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
        self._words = np.array(held, dtype=np.int32)
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
        """Make the tables of keys; False where two different grams share one."""
        self._random = np.random.default_rng(seed).integers(1, 1 << 64, len(self._numbers) + 1, dtype=np.uint64)
        self._powers = _Powers()
        self._tables, base = [], 0
        sums = self._sums(self._words)
        for size in sorted(set(width.tolist())):
            chosen = np.flatnonzero(width == size)
            keys = self._keys(sums, starts[chosen], size)
            unique, where, inverse = np.unique(keys, return_index=True, return_inverse=True)
            of_key = starts[chosen][where]
            if not _equal(self._words, starts[chosen], self._words, of_key[inverse], size).all():
                return False
            self._gram[chosen] = base + inverse
            self._tables.append(_Table(size, unique, of_key, base, self._words, len(self._numbers)))
            base += len(unique)
        return True

    def _sums(self, words: NDArray[np.int32]) -> Keys:
        """For each place the sum of what stands before it, each word times the base to the power of its place."""
        terms = self._random[words] * self._powers.upto(len(words))
        return np.concatenate(([np.uint64(0)], np.cumsum(terms, dtype=np.uint64)))

    def _keys(self, sums: Keys, starts: Places, size: int) -> Keys:
        return (sums[starts + size] - sums[starts]) * self._powers.inverse(starts)

    @property
    def sizes(self) -> list[int]:
        """The lengths of grams that there are, in words."""
        return [table.size for table in self._tables]

    def numbered(self, words: Iterable[str]) -> list[int]:
        """The words of a text of the stream, as the index knows them."""
        return list(map(self._numbers.get, words, repeat(0)))

    def meet(self, words: NDArray[np.int32], place_of: Callable[[Places], Places]) -> None:
        """Look at a piece of the stream.

        Args:
            words: As `numbered` gives them; a 0 stands between texts. Shape (words,).
            place_of: From positions in the piece to places in the stream, which grow.
        """
        held = np.concatenate(([0], np.cumsum(words == 0)))
        sums: Keys | None = None
        for table in self._tables:
            starts = np.flatnonzero(table.begins[words[: max(0, len(words) - table.size + 1)]])
            starts = starts[held[starts + table.size] == held[starts]]
            if not len(starts):
                continue
            sums = self._sums(words) if sums is None else sums
            keys = self._keys(sums, starts, table.size)
            maybe = table.bits[keys >> np.uint64(64 - _BITS)]
            starts, keys = starts[maybe], keys[maybe]
            row = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
            known = table.keys[row] == keys
            starts, row = starts[known], row[known]
            same = _equal(words, starts, self._words, table.starts[row], table.size)
            grams, once = np.unique(table.base + row[same], return_index=True)
            new = self.first[grams] == NOWHERE
            self.first[grams[new]] = place_of(starts[same][once[new]])

    def counts(self) -> tuple[Places, Places, Places]:
        """Of each text how many of its grams were met, how many it has, and the place of the first (`NOWHERE`)."""
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
    """Powers of an odd base modulo 2⁶⁴, and of its inverse; as many as were ever needed."""

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
    """Whether two arrays say the same over so many places from each pair of places on."""
    same = np.ones(len(at), dtype=bool)
    for offset in range(size):
        same &= left[at + offset] == right[there + offset]
    return same
