"""A question's graph as numbers: what is connected to what, and which name each node and edge has.

Entities that differ in capitals alone are one node, as in the graphs of G-Retriever and GRAG.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.graphs import Triples
from methods.baselines.ranking import Rows

Places = NDArray[np.int64]


@dataclass(frozen=True)
class QuestionGraph:
    """A directed multigraph.

    Attributes:
        heads, tails: The nodes that each edge leads from and to, shape (edges,); nodes are numbered from 0 in the
            order in which the edges name them, heads first.
        nodes: The name of each node: its number among `Names.nodes`, shape (nodes,).
        relations: The name of each edge: its number among the relations, shape (edges,).
    """

    heads: Places
    tails: Places
    nodes: Places
    relations: Places

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.heads)

    def only(self, edges: NDArray[Any]) -> QuestionGraph:
        """The same nodes with some of the edges."""
        return QuestionGraph(self.heads[edges], self.tails[edges], self.nodes, self.relations[edges])


class Names:
    """The names in a corpus of triples.

    Args:
        triples: The triples.
    """

    def __init__(self, triples: Triples) -> None:
        self._triples = triples

    @cached_property
    def _lowered(self) -> pa.DictionaryArray:
        return pc.utf8_lower(self._triples.entities).dictionary_encode()

    @property
    def nodes(self) -> pa.Array:
        """Every distinct entity in lower case."""
        return self._lowered.dictionary

    @property
    def relations(self) -> pa.Array:
        """Every relation, as it is."""
        return self._triples.relations

    @cached_property
    def _node_of_entity(self) -> NDArray[np.int32]:
        return self._lowered.indices.to_numpy()

    def graph(self, rows: Rows) -> QuestionGraph:
        """The graph of some triples, an edge for each."""
        table = self._triples.table[rows]
        ends = self._node_of_entity[np.stack([table["head"], table["tail"]], axis=1)]
        names, firsts, places = np.unique(ends, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        heads, tails = np.argsort(order)[places.reshape(ends.shape)].T
        return QuestionGraph(heads, tails, names[order].astype(np.int64), table["relation"].astype(np.int64))
