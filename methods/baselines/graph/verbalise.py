"""A triple in natural words, for what matches words: head, what the relation's name says, tail."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.graphs import Triples
from benchmarks.schema import Triple

_BETWEEN_WORDS = re.compile(r"[._\s]+")


def relation_words(relation: str) -> str:
    """The words of a relation's name: `people.person.place_of_birth` is "people person place of birth"."""
    return _BETWEEN_WORDS.sub(" ", relation).strip()


def verbalise(triple: Triple) -> str:
    """The text of one triple: entities as they are, of the relation the words."""
    head, relation, tail = triple
    return f"{head} {relation_words(relation)} {tail}"


def verbalised(triples: Triples, rows: NDArray[np.integer] | None = None) -> list[str]:
    """The texts of many triples at once; every relation is worked out a single time.

    Args:
        triples: Where the rows are.
        rows: Which ones, in which order; None: all.

    Returns:
        One text per row, what `verbalise` gives.
    """
    table = triples.table if rows is None else triples.table[rows]
    relations = pa.array([relation_words(relation) for relation in triples.relations.to_pylist()], pa.string())
    columns = ((triples.entities, "head"), (relations, "relation"), (triples.entities, "tail"))
    # Large strings: a million texts may pass the two gigabytes that 32-bit offsets reach.
    parts = [names.cast(pa.large_string()).take(pa.array(table[column])) for names, column in columns]
    joined: pa.Array = pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))
    return joined.to_pylist()
