"""Sample a neighbor (a triple that shares an entity) and a negative (a triple that shares none) for each anchor triple.

All rows are sampled at once (paper, equations 1 to 3). Neighbors are sampled directly: triples are sorted by entity, so that
excluded ones form one gap. Negatives are sampled by rejection; if few triples are valid, the pool is narrowed first, so that
sampling always terminates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import RetiredOptions
from benchmarks.schema import Triple

TRIES = 16
"""Rejection attempts per row before its pool is narrowed; if half of all triples are valid, one row in 65,000 needs this."""

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


def negatives(heads: Ints, tails: Ints, anchors: Places, rng: np.random.Generator) -> tuple[Places, int | None]:
    """Sample a negative for each anchor, uniformly over all valid triples.

    Candidates are drawn from a pool and rejected if invalid, which keeps them uniform. Rows without a valid candidate are
    grouped by the entity that excludes most of the pool (head or tail) and draw from the rest of it; after at most two rounds,
    only valid triples remain. Such an entity must exclude a large part of the pool, so there are few groups.

    Args:
        heads, tails: Entity numbers of all triples.
        anchors: Positions of the anchor triples.
        rng: Random number generator.

    Returns:
        Positions of the negatives, and the index of an anchor without a valid negative (None if all have one).
    """
    search = _Search(heads, tails, anchors, rng)
    lost = search.fill(np.arange(len(anchors)), np.arange(len(heads), dtype=np.int32))
    return search.result, lost


class _Search:
    def __init__(self, heads: Ints, tails: Ints, anchors: Places, rng: np.random.Generator) -> None:
        self._heads, self._tails = heads, tails
        self._anchors = anchors
        self._rng = rng
        self._entities = int(max(heads.max(), tails.max())) + 1
        self.result = np.full(len(anchors), -1, np.int64)

    def fill(self, rows: Places, pool: Ints) -> int | None:
        """Find a valid negative for each row in a pool; returns a row for which none exists."""
        for _ in range(TRIES if len(pool) else 0):
            drawn = pool[self._rng.integers(0, len(pool), len(rows))]
            fits = ~self._shared(self._anchors[rows], drawn)
            self.result[rows[fits]] = drawn[fits]
            rows = rows[~fits]
        if len(rows) and not len(pool):
            return int(rows[0])
        return next((lost for part in self._narrowed(rows, pool) if (lost := self.fill(*part)) is not None), None)

    def _shared(self, these: Places, those: Ints) -> NDArray[np.bool_]:
        """Return for each pair whether both triples share an entity."""
        result = np.zeros(len(these), bool)
        for mine in (self._heads[these], self._tails[these]):
            result |= (mine == self._heads[those]) | (mine == self._tails[those])
        return result

    def _narrowed(self, rows: Places, pool: Ints) -> Iterator[tuple[Places, Ints]]:
        """Group rows by the entity that excludes most of the pool, and yield each group with the remaining pool."""
        if not len(rows):
            return
        heads, tails = self._heads[pool], self._tails[pool]
        touched = np.bincount(heads, minlength=self._entities) + np.bincount(tails, minlength=self._entities)
        of_rows = self._anchors[rows]
        columns = np.stack([self._heads[of_rows], self._tails[of_rows]])
        worst = columns[touched[columns].argmax(axis=0), np.arange(len(rows))]
        for key in np.unique(worst):
            yield rows[worst == key], pool[(heads != key) & (tails != key)]


Numbers = NDArray[np.int64]


class SamplingConfig(RetiredOptions):
    """Options for sampling neighbors and negatives; defaults as in the paper."""

    retired = MappingProxyType({"side_balanced": False, "neg_rel_disjoint": False})

    nb_exclude_same_hr: bool = Field(
        default=False,
        description="exclude triples with the triple's head and relation from its neighbors, because they may be as relevant; "
        "paper: allowed",
    )


class Drawn(NamedTuple):
    """Sampled training rows; values are positions of triples.

    Attributes:
        anchor: The triple of the question.
        neighbor: A triple that shares an entity with it.
        negative: A triple that shares none.
        rows: Index of each anchor among the requested ones; those without a neighbor are dropped.
        dropped: Number of dropped anchors.
    """

    anchor: Numbers
    neighbor: Numbers
    negative: Numbers
    rows: Numbers
    dropped: int


class TripleIndex:
    """Triples indexed by entity, for sampling.

    Duplicate triples count once, as the first copy. A self-loop counts once for its entity, and a triple that shares both
    entities counts once as a neighbor.

    Args:
        heads, relations, tails: Numbers of entities and of relations, one per triple.
        triples: The triples by name, for messages.

    Raises:
        UserError: There are no triples.
    """

    def __init__(
        self,
        heads: NDArray[np.integer],
        relations: NDArray[np.integer],
        tails: NDArray[np.integer],
        triples: Sequence[Triple] | None = None,
    ) -> None:
        if not len(heads):
            raise UserError("the graph has no triples", code="empty-graph", where="graph", try_this="name data whose graphs have triples")
        self._first, self._which = _copies(heads, relations, tails)
        options = (heads, relations, tails)
        self.heads, self.relations, self.tails = (np.asarray(item)[self._first].astype(np.int32) for item in options)
        self._triples = triples
        once = np.flatnonzero(self.heads != self.tails)
        count = len(self.heads)
        # One entry per triple and entity that it touches: first all heads, then the tails that are not the head too.
        self._tail_entry = np.arange(count)
        self._tail_entry[once] = count + np.arange(len(once))
        entity = np.concatenate([self.heads, self.tails[once]])
        triple = np.concatenate([np.arange(count), once])
        other = np.concatenate([self.tails, self.heads[once]])
        role = np.concatenate([self.relations, np.full(len(once), -1, np.int32)])
        self._by_other = _Order.of(entity, other, triple)
        self._by_role = _Order.of(entity, role, triple)

    def neighbor_counts(self, anchors: NDArray[np.integer], exclude_same_hr: bool = False) -> Numbers:
        """Return the number of distinct neighbors of each anchor."""
        head, tail = self._sides(self._which[anchors], SamplingConfig(nb_exclude_same_hr=exclude_same_hr))
        return (head.sizes + tail.sizes).astype(np.int64)

    def draw(self, epoch: int, seed: int, options: SamplingConfig | None = None, anchors: NDArray[np.integer] | None = None) -> Drawn:
        """Sample a neighbor and a negative for every anchor, different in each epoch.

        Args:
            epoch: Number of the epoch.
            seed: Random seed; equal seeds and epochs give equal samples.
            options: Sampling options.
            anchors: Positions of anchor triples, one per question; None for every triple once.

        Raises:
            UserError: No anchor has a neighbor, or one has no negative.
        """
        options = options or SamplingConfig()
        queries = np.arange(len(self._which)) if anchors is None else np.asarray(anchors, np.int64)
        rng = np.random.default_rng([seed, epoch])
        head, tail = self._sides(self._which[queries], options)
        rows = np.flatnonzero(head.sizes + tail.sizes)
        if len(queries) and not len(rows):
            raise UserError(
                "no triple of the graph shares an entity with another that may be its neighbor",
                code="no-neighboring-triple",
                where="graph",
                try_this="a larger or denser graph, or sampling.nb_exclude_same_hr: false",
            )
        kept = self._which[queries[rows]]
        neighbor = _either(head.of(rows), tail.of(rows), rng)
        negative, without = negatives(self.heads, self.tails, kept, rng)
        if without is not None:
            raise self._without_negative(int(kept[without]))
        positions = (queries[rows], self._first[neighbor], self._first[negative])
        return Drawn(*positions, rows, len(queries) - len(rows))

    def _sides(self, anchors: Numbers, options: SamplingConfig) -> tuple[_Gapped, _Gapped]:
        """Return the candidate neighbors by head and by tail of the anchors.

        Triples at the head exclude the anchor itself (or all with its head and relation). Triples at the tail exclude those
        that share both entities, which are counted at the head.
        """
        head = self._by_role.without(anchors, run=options.nb_exclude_same_hr)
        tail = self._by_other.without(self._tail_entry[anchors], run=True)
        loops = self.heads[anchors] == self.tails[anchors]
        return head, tail.emptied(loops)

    def _without_negative(self, anchor: int) -> UserError:
        position = int(self._first[anchor])
        named = " ".join(self._triples[position]) if self._triples is not None else f"number {position}"
        return UserError(
            f"the triple {named} has no possible negative: all {len(self.heads):,} triples share an entity with it",
            code="no-negative-triple",
            where="graph",
            try_this="a larger graph of several topics",
        )


class _Gapped(NamedTuple):
    """For each anchor, a range in a sorted order with an excluded gap."""

    triples: NDArray[np.int32]
    starts: NDArray[np.integer]
    sizes: NDArray[np.integer]
    gaps: NDArray[np.integer]
    widths: NDArray[np.integer]

    def of(self, rows: Numbers) -> _Gapped:
        return _Gapped(self.triples, *(item[rows] for item in self[1:]))

    def emptied(self, which: NDArray[np.bool_]) -> _Gapped:
        return self._replace(sizes=np.where(which, 0, self.sizes))

    def at(self, positions: Numbers, rows: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Return the triples at given positions in the anchors' ranges, not counting gaps."""
        result = self.starts[rows] + positions[rows]
        return self.triples[result + self.widths[rows] * (result >= self.gaps[rows])]


class _Order(NamedTuple):
    """Entries sorted by entity and a second key, so that equal ones form runs.

    Attributes:
        triples: The triple of each sorted entry.
        position, run, run_length, start, length: For each unsorted entry: its sorted position, and start and length of its run
            and of its entity's range.
    """

    triples: NDArray[np.int32]
    position: NDArray[np.int32]
    run: NDArray[np.int32]
    run_length: NDArray[np.int32]
    start: NDArray[np.int32]
    length: NDArray[np.int32]

    @classmethod
    def of(cls, entity: NDArray[np.integer], second: NDArray[np.integer], triple: NDArray[np.integer]) -> _Order:
        order = np.lexsort((second, entity))
        new_entity = _changes(entity[order])
        new_run = new_entity | _changes(second[order])
        position = np.empty(len(order), np.int32)
        position[order] = np.arange(len(order))
        runs = [column[position] for column in (*_stretches(new_run), *_stretches(new_entity))]
        return cls(triple[order].astype(np.int32), position, *runs)

    def without(self, entries: Numbers, *, run: bool) -> _Gapped:
        """Return the ranges of entries' entities, without the entries' runs or without only the entries."""
        gaps = self.run[entries] if run else self.position[entries]
        widths = self.run_length[entries] if run else np.ones(len(entries), np.int32)
        return _Gapped(self.triples, self.start[entries], self.length[entries] - widths, gaps, widths)


def _either(head: _Gapped, tail: _Gapped, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw one triple per anchor from its two ranges, at least one of which is not empty."""
    positions = rng.integers(0, head.sizes + tail.sizes)
    at_head = positions < head.sizes
    positions -= np.where(at_head, 0, head.sizes)
    result = np.empty(len(positions), np.int32)
    result[at_head], result[~at_head] = head.at(positions, at_head), tail.at(positions, ~at_head)
    return result


def _changes(values: NDArray[np.integer]) -> NDArray[np.bool_]:
    return np.append(True, values[1:] != values[:-1])


def _stretches(begins: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return start and length of each entry's range; `begins` marks the first entry of each range."""
    starts = np.flatnonzero(begins).astype(np.int32)
    lengths = np.diff(np.append(starts, len(begins))).astype(np.int32)
    return np.repeat(starts, lengths), np.repeat(lengths, lengths)


def _copies(heads: NDArray[np.integer], relations: NDArray[np.integer], tails: NDArray[np.integer]) -> tuple[Numbers, Numbers]:
    """Return the positions of distinct triples (first copies), and the index of each triple's first copy."""
    order = np.lexsort((tails, relations, heads))
    new = _changes(heads[order]) | _changes(relations[order]) | _changes(tails[order])
    # The sort is stable: the first of equal triples is the one that stands first.
    firsts = np.empty(len(order), np.int64)
    firsts[order] = np.repeat(order[new], np.diff(np.append(np.flatnonzero(new), len(order))))
    first = np.sort(order[new])
    return first, np.searchsorted(first, firsts)
