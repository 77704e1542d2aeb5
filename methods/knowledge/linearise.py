"""The text of a triple: head, what the relation is called, tail, joined by single spaces.

The paper's figures show the last part of a dotted relation with its underscores (`Jamaica languages_spoken Jamaican
English`); that is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.graphs import Triples
from benchmarks.schema import Triple

RelationText = Literal["last", "full"]
Underscores = Literal["keep", "space"]


class LineariseConfig(BaseModel):
    """How triples are written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rel: RelationText = Field(default="last", description="of a dotted relation: its last part (paper), or all of it")
    underscores: Underscores = Field(default="keep", description="in relations: kept (paper), or written as spaces")


def relation_text(relation: str, rel: RelationText = "last", underscores: Underscores = "keep") -> str:
    """What a relation is called; one without dots is its own last part.

    Args:
        relation: As the graph names it (`location.country.languages_spoken`).
        rel, underscores: As in `LineariseConfig`.
    """
    parts = [part for part in relation.split(".") if part.strip()]
    text = parts[-1] if rel == "last" and parts else relation
    return " ".join(text.replace("_", " ").split()) if underscores == "space" else text


def linearise(triple: Triple, rel: RelationText = "last", underscores: Underscores = "keep") -> str:
    """The text of one triple.

    Args:
        triple: Head, relation, tail.
        rel, underscores: As in `LineariseConfig`.
    """
    head, relation, tail = triple
    return f"{head} {relation_text(relation, rel, underscores)} {tail}"


def linearised(triples: Triples, rows: NDArray[np.integer] | None = None, config: LineariseConfig | None = None) -> list[str]:
    """The texts of many triples at once; every relation is worked out a single time.

    Args:
        triples: Where the rows are.
        rows: Which ones, in which order; None: all.
        config: How they are written.

    Returns:
        One text per row, what `linearise` gives.
    """
    config = config or LineariseConfig()
    table = triples.table if rows is None else triples.table[rows]
    relations = _renamed(triples.relations.to_pylist(), config)
    columns = ((triples.entities, "head"), (relations, "relation"), (triples.entities, "tail"))
    # Large strings: a million texts may pass the two gigabytes that 32-bit offsets reach.
    parts = [texts.cast(pa.large_string()).take(pa.array(table[name])) for texts, name in columns]
    joined: pa.Array = pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))
    return joined.to_pylist()


def _renamed(relations: Sequence[str], config: LineariseConfig) -> pa.Array:
    return pa.array([relation_text(one, config.rel, config.underscores) for one in relations], pa.string())
