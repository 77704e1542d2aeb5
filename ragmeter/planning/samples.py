"""Data of which only a part is here: a plan of them is a plan of the part, and not of what a paper did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.registry import Benchmark, DataReference, DatasetConfig
from benchmarks.whereabouts import LOCAL, whereabouts
from ragmeter.planning.shape import Shape
from ragmeter.planning.stated import base_of, stated_questions

NEARLY_ALL = 0.9
"""A file that holds so large a share of what is stated is no sample: versions of data differ by a few records."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Data of which fewer records are here than are stated.

    Attributes:
        reference: The data.
        here: Records (questions, or training rows) that a local file holds.
        stated: As many are stated by the card, or else by the paper.
    """

    reference: str
    here: int
    stated: int

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"data": self.reference, "here": self.here, "stated": self.stated}


def whole_of(reference: DataReference, config: DatasetConfig, benchmark: Benchmark, held: int) -> int | None:
    """How many records the whole has that a local file holds a sample of; None where it is no sample.

    Args:
        reference, config: The data.
        benchmark: What was read of them.
        held: Records that the file holds.
    """
    if getattr(config, "first", None) is not None or getattr(config, "documents", None) is not None:
        return None
    source, given = base_of(reference, config) or (reference, config)
    options = given.model_dump(exclude_unset=True)
    splits = (source.split or "").split("+")
    places = (whereabouts(DataReference(source.name, source.subset, one), options) for one in splits)
    if all(place.state != LOCAL for place in places):
        return None
    # A layout of the file may have a number of its own.
    said = benchmark.extra["expected"] if "expected" in benchmark.extra else stated_questions(source)
    return said if said is not None and held < NEARLY_ALL * said else None


def samples(shapes: Iterable[Shape]) -> list[Sample]:
    """Those of some data that are samples, each once."""
    found = [Sample(str(one.reference), one.questions or 0, one.whole_number) for one in shapes if one.whole_number is not None]
    return list(dict.fromkeys(found))
