"""Neighbors and negatives of a million triples, against a loop over rows, in one process, taking turns.

The loop is what one writes first: dictionaries from entities to their triples, the union of two of their lists without
the triple itself, `random.choice`, and another try where a negative overlaps. It is timed over a sample of the rows;
its dictionaries are made beforehand and not counted, as our index is not, whose speed stands apart. Graphs: `even`,
where every entity is as likely, and `hubs`, where tails follow Zipf's law (the first has a third of all triples), so
that the unions of the loop are long. Seconds are the processor's, one thread; the memory is the largest that the
process took until our side was done.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from methods.gpr.sampling import SamplingConfig, TripleIndex
from perf.measuring import Bench, parser, peak_megabytes, say, timed

TRIPLES = 1_000_000
ENTITIES_SHARE, RELATIONS = 0.3, 5_000
SAMPLE = {"even": 20_000, "hubs": 200}
TARGETS = {"even": 20.0, "hubs": 1_000.0}
MOST_BYTES = 2 << 30
OPTIONS = {"default": SamplingConfig(), "same (h, r) excluded": SamplingConfig(nb_exclude_same_hr=True)}

Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


def graph(kind: str, triples: int) -> Columns:
    """Generate a graph as columns of heads, relations and tails."""
    rng = np.random.default_rng(0)
    entities = int(triples * ENTITIES_SHARE)
    tails = rng.zipf(1.5, triples) % entities if kind == "hubs" else rng.integers(0, entities, triples)
    heads, relations = rng.integers(0, entities, triples), rng.integers(0, RELATIONS, triples)
    return heads.astype(np.int32), relations.astype(np.int32), tails.astype(np.int32)


class Loop:
    """Plain sampler for comparison, which draws one row after another."""

    def __init__(self, columns: Columns) -> None:
        self.heads, _, self.tails = (column.tolist() for column in columns)
        self.of: dict[int, list[int]] = defaultdict(list)
        for row, ends in enumerate(zip(self.heads, self.tails, strict=True)):
            for entity in set(ends):
                self.of[entity].append(row)

    def draw(self, anchors: Sequence[int]) -> list[tuple[int, int, int]]:
        results = []
        for anchor in anchors:
            ends = {self.heads[anchor], self.tails[anchor]}
            around = {row for entity in ends for row in self.of[entity]}
            around.discard(anchor)
            if not around:
                continue
            neighbor = random.choice(list(around))
            negative = random.randrange(len(self.heads))
            while self.heads[negative] in ends or self.tails[negative] in ends:
                negative = random.randrange(len(self.heads))
            results.append((anchor, neighbor, negative))
        return results


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the sampling of triples against a plain loop.

    Returns:
        1 if a target was missed or something wrong was drawn, else 0.
    """
    arguments = parser(__doc__)
    arguments.add_argument("--turns", type=int, default=3)
    query = arguments.parse_args(argv)
    triples, turns = (20_000, 1) if query.quick else (TRIPLES, query.turns)
    say(f"# {triples:,} triples, {int(triples * ENTITIES_SHARE):,} entities, {RELATIONS:,} relations")
    graphs = {kind: graph(kind, triples) for kind in SAMPLE}
    bench, indexes = Bench("triple_sampling", quick=query.quick), {}
    for kind, columns in graphs.items():
        seconds, indexes[kind] = timed(partial(TripleIndex, *columns))
        bench.figure(f"{kind}, index", triples / seconds, "triples/s")
        for name, options in OPTIONS.items():
            bench.figure(f"{kind}, {name}", rows_per_s(indexes[kind], options, 0), "rows/s")
    bench.figure("memory, both graphs and indexes", peak_megabytes() / 2**10, "GiB", at_most=MOST_BYTES / 2**30)
    for kind, columns in graphs.items():
        loop = Loop(columns)
        mine, theirs = [], []
        for turn in range(turns):
            mine.append(1 / rows_per_s(indexes[kind], OPTIONS["default"], turn))
            some = np.random.default_rng(turn).integers(0, triples, SAMPLE[kind]).tolist()
            theirs.append(timed(partial(loop.draw, some))[0] / len(some))
        equal = right(indexes[kind], columns)
        bench.ratio(f"{kind}, a row against a loop", float(np.median(mine)), float(np.median(theirs)), TARGETS[kind], equal=equal)
    return bench.finish()


def rows_per_s(index: TripleIndex, options: SamplingConfig, epoch: int) -> float:
    """Measure how many rows an epoch's draws give per second."""
    seconds, drawn = timed(lambda: index.draw(epoch, 0, options))
    return len(drawn.anchor) / seconds


def right(index: TripleIndex, columns: Columns) -> bool:
    """Check that every neighbor shares an entity with its anchor and differs from it, and that every negative shares none."""
    heads, _, tails = columns
    drawn = index.draw(0, 1)

    def share(item: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (heads[item] == heads[other]) | (heads[item] == tails[other]) | (tails[item] == heads[other]) | (tails[item] == tails[other])

    near, far = share(drawn.anchor, drawn.neighbor), share(drawn.anchor, drawn.negative)
    return bool(near.all() and not far.any() and (drawn.anchor != drawn.neighbor).all())


if __name__ == "__main__":
    sys.exit(main())
