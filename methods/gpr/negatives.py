"""Triples that have nothing in common with given ones, drawn uniformly among all that have not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

TRIES = 16
"""Draws of a row before its pool is narrowed; where every second triple fits, one row in 65,000 gets there."""

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


def negatives(heads: Ints, tails: Ints, relations: Ints | None, anchors: Places, rng: np.random.Generator) -> tuple[Places, int | None]:
    """Draw one for each anchor.

    Candidates are drawn from a pool and kept where they fit, which leaves them uniform over all that fit. Rows that
    found none are taken together by what excludes most of the pool for them (head, tail or relation), and draw from
    the rest of it; after three times at most the rest is what fits. Something must exclude a large part of the pool for
    a row to get there, so there are few such groups however many rows there are.

    Args:
        heads, tails, relations: Of all triples; `relations` only where a negative must have another one.
        anchors: Places of triples.
        rng: The source of chance.

    Returns:
        Places of triples, and where among the anchors one stands that no triple fits, if there is one.
    """
    search = _Search(heads, tails, relations, anchors, rng)
    lost = search.fill(np.arange(len(anchors)), np.arange(len(heads), dtype=np.int32))
    return search.found, lost


class _Search:
    def __init__(self, heads: Ints, tails: Ints, relations: Ints | None, anchors: Places, rng: np.random.Generator) -> None:
        self._heads, self._tails, self._relations = heads, tails, relations
        self._anchors = anchors
        self._rng = rng
        self._entities = int(max(heads.max(), tails.max())) + 1
        self.found = np.full(len(anchors), -1, np.int64)

    def fill(self, rows: Places, pool: Ints) -> int | None:
        """Find what fits some rows in a pool; returns a row that nothing fits."""
        for _ in range(TRIES if len(pool) else 0):
            drawn = pool[self._rng.integers(0, len(pool), len(rows))]
            fits = ~self._shared(self._anchors[rows], drawn)
            self.found[rows[fits]] = drawn[fits]
            rows = rows[~fits]
        if len(rows) and not len(pool):
            return int(rows[0])
        return next((lost for part in self._narrowed(rows, pool) if (lost := self.fill(*part)) is not None), None)

    def _shared(self, these: Places, those: Ints) -> NDArray[np.bool_]:
        """Whether two triples have something in common, pair by pair."""
        found = np.zeros(len(these), bool)
        for mine in (self._heads[these], self._tails[these]):
            found |= (mine == self._heads[those]) | (mine == self._tails[those])
        if self._relations is not None:
            found |= self._relations[these] == self._relations[those]
        return found

    def _narrowed(self, rows: Places, pool: Ints) -> Iterator[tuple[Places, Ints]]:
        """Rows by what excludes most of the pool for them, each group with what it leaves."""
        if not len(rows):
            return
        heads, tails = self._heads[pool], self._tails[pool]
        touched = np.bincount(heads, minlength=self._entities) + np.bincount(tails, minlength=self._entities)
        of_rows = self._anchors[rows]
        keys, weights = [self._heads[of_rows], self._tails[of_rows]], touched
        if self._relations is not None:
            # Relations are counted behind the entities.
            keys.append(self._relations[of_rows] + self._entities)
            weights = np.append(touched, np.bincount(self._relations[pool], minlength=self._relations.max() + 1))
        columns = np.stack(keys)
        worst = columns[weights[columns].argmax(axis=0), np.arange(len(rows))]
        for key in np.unique(worst):
            if key < self._entities:
                rest = (heads != key) & (tails != key)
            else:
                rest = self._relations[pool] != key - self._entities  # type: ignore[index]
            yield rows[worst == key], pool[rest]
