"""Store question graphs: thousands of triples per question, shared among questions, and read from disk on demand.

Each distinct triple is stored once, as a row of four numbers that refer to two vocabularies. A question's graph is a list of
row numbers. `GraphWriter` writes the files graph by graph, and `Graphs.open` maps them into memory. A question only holds small
views (`Graph`, `TripleIds`).
"""

from __future__ import annotations

import math
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint, framed, framed_hash
from benchmarks.corpus import SCHEMA, Corpus, IdIndex, mapped, table_of
from benchmarks.schema import Passage, Triple, TupleView, triple_id

Rows = NDArray[np.int32]
T = TypeVar("T")

ROW = np.dtype([("head", "<i4"), ("relation", "<i4"), ("tail", "<i4"), ("id", "<u8")])
"""Binary layout of a triple: positions of head, relation and tail in the vocabularies, and the number that its hexadecimal id
encodes.
"""

# The files of a folder that `GraphWriter` fills.
TRIPLES_FILE, ENTITIES_FILE, RELATIONS_FILE = "triples.npy", "entities.arrow", "relations.arrow"
ROWS_FILE, OFFSETS_FILE, CORPUS_FILE = "rows.npy", "offsets.npy", "corpus.arrow"
IDS_FILE = "ids"


def triple_passage(triple: Triple) -> Passage:
    """Convert a triple to a passage: its id, and as text its parts joined by spaces."""
    return Passage(triple_id(triple), "", " ".join(triple))


class Triples(Sequence[Triple]):
    """Lazy sequence of distinct triples.

    Args:
        table: Array with one `ROW` per triple.
        entities: Names of heads and tails, by number.
        relations: Names of relations, by number.
    """

    def __init__(self, table: NDArray[Any], entities: pa.Array, relations: pa.Array) -> None:
        self.table = table
        self.entities = entities
        self.relations = relations

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row):  # type: ignore[no-untyped-def]  # int or slice, as in Sequence
        chosen = np.arange(len(self))[row]
        return self.take(chosen) if isinstance(row, slice) else self.take(chosen[None])[0]

    def take(self, rows: NDArray[Any]) -> list[Triple]:
        """Return the triples at these row numbers, in order."""
        part = self.table[rows]
        names = ((self.entities, "head"), (self.relations, "relation"), (self.entities, "tail"))
        return list(zip(*(texts.take(pa.array(part[name])).to_pylist() for texts, name in names), strict=True))

    def ids(self, rows: NDArray[Any]) -> list[str]:
        """Return the ids (`schema.triple_id`) of the triples at these row numbers, in order."""
        digits = self.table["id"][rows].astype(">u8").tobytes().hex()
        return [f"t{digits[start : start + 16]}" for start in range(0, len(digits), 16)]


class _Rows(TupleView[T]):
    """Base of lazy sequences over some rows of `Triples`.

    Attributes:
        triples: The triples.
        rows: Distinct row numbers.
    """

    __slots__ = ("rows", "triples")

    def __init__(self, triples: Triples, rows: Rows) -> None:
        self.triples = triples
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {len(self.triples)} triples)"


class Graph(_Rows[Triple]):
    """A question's graph: its distinct triples, in order of first occurrence in the record."""

    __slots__ = ()

    def _some(self, positions: slice) -> list[Triple]:
        return self.triples.take(self.rows[positions])

    @property
    def ids(self) -> TripleIds:
        """Return the ids of the graph's triples, lazily."""
        return TripleIds(self.triples, self.rows)


class TripleIds(_Rows[str]):
    """Lazy sequence of the ids of a graph's triples: the candidates of its question."""

    __slots__ = ()

    def _some(self, positions: slice) -> list[str]:
        return self.triples.ids(self.rows[positions])


class Paths(NamedTuple):
    """Shortest paths between topic entities and answers.

    Attributes:
        triples: Distinct triples on any of the paths, in the order of the graph.
        hops: Length of the shortest path to any answer, in triples; 0 if there is no path.
    """

    triples: list[Triple]
    hops: int


def shortest_paths(graph: Sequence[Triple], topics: Iterable[str], answers: Iterable[str]) -> Paths:
    """Find the triples of a question's graph that lie on a shortest path between a topic entity and an answer.

    A path follows triples from head to tail, either from the topic to the answer or the reverse. For each pair, the shorter
    direction counts (both if equally long). All parallel triples count.

    Args:
        graph: Its triples.
        topics, answers: Entity names; names outside the graph are ignored.

    Source:
        SubgraphRAG (Li et al., 2025): the weak supervision of its retriever.
    """
    onward: dict[str, list[tuple[str, int]]] = defaultdict(list)
    backward: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for number, (head, _, tail) in enumerate(graph):
        onward[head].append((tail, number))
        backward[tail].append((head, number))
    wanted = [answer for answer in answers if answer in onward or answer in backward]
    numbers: set[int] = set()
    nearest = math.inf
    for topic in topics:
        distances = [
            (_distances(topic, ahead, wanted), backward_edges) for ahead, backward_edges in ((onward, backward), (backward, onward))
        ]
        for answer in wanted:
            lengths = [reached.get(answer, math.inf) for reached, _ in distances]
            for length, (reached, backward_edges) in zip(lengths, distances, strict=True):
                if 0 < length == min(lengths) < math.inf:
                    nearest = min(nearest, length)
                    numbers.update(_back(answer, reached, backward_edges))
    return Paths([graph[number] for number in sorted(numbers)], int(nearest) if numbers else 0)


Neighbors = Mapping[str, Sequence[tuple[str, int]]]
"""Adjacency list: per entity its neighbors, each with the position of the connecting triple."""


def _distances(start: str, neighbors: Neighbors, wanted: Sequence[str]) -> dict[str, int]:
    """Return the number of steps from an entity to all entities reached until the wanted ones are."""
    reached, missing, layer = {start: 0}, set(wanted) - {start}, [start]
    while layer and missing:
        ahead = {other for entity in layer for other, _ in neighbors.get(entity, ()) if other not in reached}
        reached.update(dict.fromkeys(ahead, reached[layer[0]] + 1))
        missing -= ahead
        layer = list(ahead)
    return reached


def _back(end: str, reached: Mapping[str, int], backward_edges: Neighbors) -> Iterator[int]:
    """Yield the triples of all shortest paths that end at an entity, walking backward."""
    layer = {end}
    while layer:
        steps = [
            (other, number)
            for at in layer
            for other, number in backward_edges.get(at, ())
            if reached.get(other, math.inf) == reached[at] - 1
        ]
        yield from (number for _, number in steps)
        layer = {other for other, _ in steps}


class Graphs(Mapping[str, Graph]):
    """Mapping from question id to the question's graph.

    Args:
        triples: Distinct triples of all graphs.
        rows: Row numbers of all graphs, concatenated.
        offsets: Start of each graph in `rows`, followed by the end of the last one.
        ids: Question id of each graph.
    """

    def __init__(self, triples: Triples, rows: Rows, offsets: NDArray[Any], ids: Sequence[str]) -> None:
        self.triples = triples
        self._rows = rows
        self.positions = dict(zip(ids, pairwise(offsets.tolist()), strict=True))

    @classmethod
    def open(cls, folder: Path, triples: Triples, ids: Sequence[str]) -> Graphs:
        """Memory-map the graphs that a `GraphWriter` wrote.

        Args:
            folder: Folder of the files.
            triples: Triples of the corpus in the same folder (`TripleCorpus.mapped`).
            ids: Question ids, in the order in which the graphs were written.
        """
        return cls(triples, _numbers(folder / ROWS_FILE), np.load(folder / OFFSETS_FILE), ids)

    def __getitem__(self, question: str) -> Graph:
        start, end = self.positions[question]
        return Graph(self.triples, self._rows[start:end])

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)


class TripleCorpus(Corpus):
    """Corpus whose passages are triples (see `triple_passage`).

    Args:
        table: Arrow table, as in `Corpus`.
        triples: The triples of the same rows.
        position: Folder of the `GraphWriter` from which both are memory-mapped; None if they are in memory.
    """

    def __init__(self, table: pa.Table, triples: Triples, position: Path | None = None) -> None:
        super().__init__(table)
        self.triples = triples
        self.position = position

    def restricted(self, identifiers: Collection[str]) -> TripleCorpus:
        """Return the whole corpus, because graphs refer to its row numbers; only triples that questions need are encoded."""
        return self

    @classmethod
    def mapped(cls, folder: Path) -> TripleCorpus:
        """Memory-map the corpus that a `GraphWriter` wrote."""
        triples = Triples(_numbers(folder / TRIPLES_FILE), _texts(folder / ENTITIES_FILE), _texts(folder / RELATIONS_FILE))
        return cls(mapped(folder / CORPUS_FILE), triples, folder)

    @classmethod
    def open(cls, path: Path) -> Corpus:
        """Open a graph that `save` or a `GraphWriter` wrote; any other path is opened by `Corpus.open`."""
        if not (path / TRIPLES_FILE).exists():
            return Corpus.open(path)
        corpus = cls.mapped(path)
        # Only a `GraphWriter` writes the index of ids.
        return corpus if list(path.glob(f"{IDS_FILE}.*")) else cls(corpus._table, corpus.triples)

    def save(self, path: Path) -> None:
        """Write the corpus and its triples as a folder, atomically."""
        with made_once(path) as folder:
            if folder is not None:
                super().save(folder / CORPUS_FILE)
                np.save(folder / TRIPLES_FILE, np.asarray(self.triples.table))
                _keep(folder / ENTITIES_FILE, self.triples.entities.to_pylist())
                _keep(folder / RELATIONS_FILE, self.triples.relations.to_pylist())

    @classmethod
    def of_triples(cls, triples: Iterable[Triple]) -> TripleCorpus:
        """Build a corpus in memory from triples; duplicates are dropped."""
        once = list(dict.fromkeys(triples))
        entities, relations = Numbered(), Numbered()
        table = np.empty(len(once), ROW)
        for row, (head, relation, tail) in enumerate(once):
            table[row] = entities[head], relations[relation], entities[tail], int(triple_id(once[row])[1:], 16)
        stored = Triples(table, pa.array(list(entities), pa.string()), pa.array(list(relations), pa.string()))
        return cls(table_of([triple_passage(triple) for triple in once]), stored)

    @cached_property
    def _index(self) -> IdIndex:
        if self.position is None:
            return IdIndex.of(self.triples.table["id"], self._id)
        return IdIndex.open(self.position / IDS_FILE, self._id)

    def rows_of(self, candidates: Sequence[str]) -> NDArray[Any]:
        """Return the row numbers of candidate ids; constant time if `candidates` is a view of this corpus.

        Raises:
            KeyError: An id is not in the corpus.
        """
        if isinstance(candidates, TripleIds) and candidates.triples is self.triples:
            return candidates.rows
        return np.array([self.row(identifier) for identifier in candidates], dtype=np.int32)


class Numbered(dict[str, int]):
    """Vocabulary: assigns consecutive numbers to texts on first lookup."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


def _texts(path: Path) -> pa.Array:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0).column(0)


def _numbers(path: Path) -> NDArray[Any]:
    # As a plain array: every operation on a `memmap` pays for its being a subclass.
    return np.asarray(np.load(path, mmap_mode="r"))


# Graphs are numbered over growing vocabularies and spooled to disk as they come; at the end each distinct triple gets its
# row. What is held is the vocabularies and, at the end, eight bytes for each distinct triple.


Packed = NDArray[np.uint64]

BATCH = 1 << 16
"""Number of triples converted to text at a time."""
CHUNK = 1 << 20
"""Minimum number of triples sorted at a time."""
SPOOL_FILE = "spool.part"


@contextmanager
def made_once(folder: Path) -> Iterator[Path | None]:
    """Context manager that fills a folder atomically if it does not exist yet.

    Yields:
        Temporary folder to write to; None if the folder already exists.
    """
    if folder.exists():
        yield None
        return
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        if not folder.exists():
            os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def united(corpora: Sequence[Corpus]) -> Corpus:
    """Merge corpora into one, each passage once; merging only triple corpora gives a triple corpus.

    Triple corpora on disk are merged on disk, next to the first one; later calls reuse the result.
    """
    parts = [corpus for corpus in corpora if isinstance(corpus, TripleCorpus)]
    if len(parts) < len(corpora):
        return Corpus.of(passage for corpus in corpora for passage in corpus)
    first_position = parts[0].position
    if first_position is None:
        return TripleCorpus.of_triples(triple for part in parts for triple in part.triples)
    folder = first_position.with_name(f"union-{fingerprint([part.fingerprint for part in parts])}")
    with made_once(folder) as position:
        if position is not None:
            with GraphWriter(position) as writer:
                for part in parts:
                    for start in range(0, len(part), BATCH):
                        writer.add(part.triples[start : start + BATCH])
    return TripleCorpus.mapped(folder)


class GraphWriter:
    """Writer of question graphs, one at a time; memory holds the vocabularies, and finally the distinct triples.

    Use it as a context: leaving it without an error completes the files.

    Args:
        folder: Existing output folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entities, self._relations = Numbered(), Numbered()
        self._lengths: list[int] = []
        self._spool = open(folder / SPOOL_FILE, "wb")  # noqa: SIM115  # closed on leaving the context

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._spool.close()
        if kind is None:
            self._finish()
        (self._folder / SPOOL_FILE).unlink()

    def add(self, graph: Iterable[Triple]) -> None:
        """Append a question's graph, which must not contain duplicates."""
        columns = tuple(zip(*graph, strict=True)) or ((), (), ())
        numbers = np.empty((len(columns[0]), 3), "<i4")
        for position, known in enumerate((self._entities, self._relations, self._entities)):
            numbers[:, position] = [known[text] for text in columns[position]]
        numbers.tofile(self._spool)
        self._lengths.append(len(numbers))

    def _finish(self) -> None:
        entities, relations = _keep(self._folder / ENTITIES_FILE, self._entities), _keep(self._folder / RELATIONS_FILE, self._relations)
        packing = _Packing(len(entities), len(relations))
        del self._entities, self._relations
        total = sum(self._lengths)
        spool = np.fromfile if total == 0 else np.memmap
        numbers = np.reshape(spool(self._folder / SPOOL_FILE, "<i4"), (total, 3))
        distinct = _distinct(packing.pack(part) for part in _chunks(numbers))
        rows = np.lib.format.open_memmap(self._folder / ROWS_FILE, "w+", "<i4", (total,))
        for start in range(0, total, CHUNK):
            rows[start : start + CHUNK] = np.searchsorted(distinct, packing.pack(numbers[start : start + CHUNK]))
        np.save(self._folder / OFFSETS_FILE, np.cumsum([0, *self._lengths]))
        table = np.lib.format.open_memmap(self._folder / TRIPLES_FILE, "w+", ROW, (len(distinct),))
        packing.unpack(distinct, table)
        self._describe(Triples(table, entities, relations))

    def _describe(self, triples: Triples) -> None:
        """Compute the triples' ids, and write the triples as a corpus."""
        with pa.OSFile(str(self._folder / CORPUS_FILE), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            for start in range(0, len(triples), BATCH):
                part = triples[start : start + BATCH]
                # `triple_id` of each, every name framed once: four times faster than one after another.
                frame = {name: framed(name) for name in {name for triple in part for name in triple}}
                hashes = b"".join([framed_hash(frame[h] + frame[r] + frame[t]) for h, r, t in part])
                triples.table["id"][start : start + BATCH] = np.frombuffer(hashes, ">u8")
                ids = triples.ids(np.arange(start, start + len(part)))
                writer.write_batch(_batch(ids, part))
        # The number that an id spells is its key.
        IdIndex.of(triples.table["id"], str).save(self._folder / IDS_FILE)


class _Packing:
    """Packs three numbers into 64 bits, preserving the order."""

    def __init__(self, entities: int, relations: int) -> None:
        self._entity, self._relation = entities.bit_length(), relations.bit_length()
        if 2 * self._entity + self._relation > 64:
            raise UserError(
                f"graphs over {entities:,} entities and {relations:,} relations are too large for one split",
                code="graphs-too-large",
                try_this="divide the file, and join the parts' retrieval results",
            )

    def pack(self, numbers: NDArray[Any]) -> Packed:
        head, relation, tail = numbers.T.astype(np.uint64)
        return (head << np.uint64(self._relation + self._entity)) | (relation << np.uint64(self._entity)) | tail

    def unpack(self, packed: Packed, table: NDArray[Any]) -> None:
        table["head"] = packed >> np.uint64(self._relation + self._entity)
        table["relation"] = (packed >> np.uint64(self._entity)) & np.uint64((1 << self._relation) - 1)
        table["tail"] = packed & np.uint64((1 << self._entity) - 1)


def _chunks(numbers: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK))


def _distinct(parts: Iterable[Packed]) -> Packed:
    """Return the sorted distinct values of an array given in parts."""
    results = np.empty(0, np.uint64)
    waiting: list[Packed] = []
    for part in parts:
        waiting.append(_once(part))
        # Joining only what has grown as large as what is known keeps the sorting linear in the number of parts.
        if sum(map(len, waiting)) >= len(results):
            results, waiting = _once(np.concatenate([results, *waiting])), []
    return _once(np.concatenate([results, *waiting]))


def _once(values: Packed) -> Packed:
    # numpy's own `unique` hashes, and is many times slower on integers.
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _batch(ids: Sequence[str], triples: Sequence[Triple]) -> pa.RecordBatch:
    texts = [" ".join(triple) for triple in triples]
    columns = {"id": ids, "title": [""] * len(ids), "text": texts, "sentences": [[]] * len(ids)}
    return pa.record_batch({**columns, "document_id": [None] * len(ids)}, schema=SCHEMA)


def _keep(path: Path, texts: Iterable[str]) -> pa.Array:
    """Write texts as a single batch, so that the mapped file has one array."""
    batch = pa.record_batch({"text": pa.array(list(texts), pa.string())})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return batch.column(0)
