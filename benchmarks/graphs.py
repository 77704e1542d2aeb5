"""Question graphs: thousands of triples a question, shared among questions, read from disk as they are asked for.

A triple is a row of four numbers over two vocabularies, each distinct triple once; a question's graph is a list of row
numbers. `graph_writer` makes the files from graphs that come one after another, `Graphs.open` maps them into memory,
and what a question holds (`Graph`, `TripleIds`) are views of a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.corpus import Corpus, mapped, table_of
from benchmarks.id_index import IdIndex
from benchmarks.schema import Passage, Triple, triple_id
from benchmarks.views import TupleView

Rows = NDArray[np.int32]
T = TypeVar("T")

ROW = np.dtype([("head", "<i4"), ("relation", "<i4"), ("tail", "<i4"), ("id", "<u8")])
"""A triple on disk: three places in the vocabularies, and the number that its id spells in hexadecimal."""

# The files of a folder that `graph_writer` fills.
TRIPLES_FILE, ENTITIES_FILE, RELATIONS_FILE = "triples.npy", "entities.arrow", "relations.arrow"
ROWS_FILE, OFFSETS_FILE, CORPUS_FILE = "rows.npy", "offsets.npy", "corpus.arrow"
IDS_FILE = "ids"


def triple_passage(triple: Triple) -> Passage:
    """A triple as a corpus holds it: under its id, with its parts joined by spaces as text."""
    return Passage(triple_id(triple), "", " ".join(triple))


class Triples(Sequence[Triple]):
    """Distinct triples by row.

    Args:
        table: One `ROW` per triple.
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
        """The triples of some rows, in their order."""
        part = self.table[rows]
        names = ((self.entities, "head"), (self.relations, "relation"), (self.entities, "tail"))
        return list(zip(*(texts.take(pa.array(part[name])).to_pylist() for texts, name in names), strict=True))

    def ids(self, rows: NDArray[Any]) -> list[str]:
        """The ids (`schema.triple_id`) of the triples of some rows, in their order."""
        digits = self.table["id"][rows].astype(">u8").tobytes().hex()
        return [f"t{digits[start : start + 16]}" for start in range(0, len(digits), 16)]


class _Rows(TupleView[T]):
    """Some rows of `Triples`, seen as something.

    Attributes:
        triples: What the rows are of.
        rows: Their numbers, each once.
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
    """A question's graph: its triples, each once, in the order in which its record first names them."""

    __slots__ = ()

    def _some(self, places: slice) -> list[Triple]:
        return self.triples.take(self.rows[places])

    @property
    def ids(self) -> TripleIds:
        """The ids of its triples."""
        return TripleIds(self.triples, self.rows)


class TripleIds(_Rows[str]):
    """The ids of a graph's triples: the candidates of its question."""

    __slots__ = ()

    def _some(self, places: slice) -> list[str]:
        return self.triples.ids(self.rows[places])


class Graphs(Mapping[str, Graph]):
    """The graphs of a file's questions.

    Args:
        triples: The distinct triples of all of them.
        rows: Row numbers, graph after graph.
        offsets: Where in `rows` each graph begins, and behind the last one where it ends.
        ids: The question of each graph.
    """

    def __init__(self, triples: Triples, rows: Rows, offsets: NDArray[Any], ids: Sequence[str]) -> None:
        self.triples = triples
        self._rows = rows
        self.places = dict(zip(ids, pairwise(offsets.tolist()), strict=True))

    @classmethod
    def open(cls, folder: Path, triples: Triples, ids: Sequence[str]) -> Graphs:
        """Map what `graph_writer.GraphWriter` wrote; the rows stay on disk until they are read.

        Args:
            folder: Where it was written.
            triples: Those of its corpus (`TripleCorpus.mapped`).
            ids: The questions, in the order in which their graphs were added.
        """
        return cls(triples, _numbers(folder / ROWS_FILE), np.load(folder / OFFSETS_FILE), ids)

    def __getitem__(self, question: str) -> Graph:
        start, end = self.places[question]
        return Graph(self.triples, self._rows[start:end])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class TripleCorpus(Corpus):
    """A corpus whose passages are triples, row by row (`triple_passage`).

    Args:
        table: As `Corpus` has it.
        triples: The same rows as triples.
        place: The folder of a `graph_writer.GraphWriter` that both are mapped from; None: they are in memory.
    """

    def __init__(self, table: pa.Table, triples: Triples, place: Path | None = None) -> None:
        super().__init__(table)
        self.triples = triples
        self.place = place

    @classmethod
    def mapped(cls, folder: Path) -> TripleCorpus:
        """The corpus that `graph_writer.GraphWriter` wrote; its passages and the index of their ids stay on disk."""
        triples = Triples(_numbers(folder / TRIPLES_FILE), _texts(folder / ENTITIES_FILE), _texts(folder / RELATIONS_FILE))
        return cls(mapped(folder / CORPUS_FILE), triples, folder)

    @classmethod
    def of_triples(cls, triples: Iterable[Triple]) -> TripleCorpus:
        """Collect triples in memory, in their order, each once."""
        once = list(dict.fromkeys(triples))
        entities, relations = Numbered(), Numbered()
        table = np.empty(len(once), ROW)
        for row, (head, relation, tail) in enumerate(once):
            table[row] = entities[head], relations[relation], entities[tail], int(triple_id(once[row])[1:], 16)
        held = Triples(table, pa.array(list(entities), pa.string()), pa.array(list(relations), pa.string()))
        return cls(table_of([triple_passage(triple) for triple in once]), held)

    @cached_property
    def _index(self) -> IdIndex:
        if self.place is None:
            return IdIndex.of(self.triples.table["id"], self._id)
        return IdIndex.open(self.place / IDS_FILE, self._id)

    def rows_of(self, candidates: Sequence[str]) -> NDArray[Any]:
        """The rows of a query's candidates; at once where they are a view of this corpus.

        Raises:
            KeyError: One is not in the corpus.
        """
        if isinstance(candidates, TripleIds) and candidates.triples is self.triples:
            return candidates.rows
        return np.array([self.row(identifier) for identifier in candidates], dtype=np.int32)


class Numbered(dict[str, int]):
    """Texts numbered in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


def _texts(path: Path) -> pa.Array:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0).column(0)


def _numbers(path: Path) -> NDArray[Any]:
    # As a plain array: every operation on a `memmap` pays for its being a subclass.
    return np.asarray(np.load(path, mmap_mode="r"))
