"""Record what a system returned besides its answer: texts shown to its model, statements, searches.

All of it is optional. None as `contexts` means that the system did not say what it showed; an empty tuple means that it
showed nothing. The same layout is used in submissions, in the store and by the methods `http` and `function`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Shown:
    """A context text that the system under test passed to its model.

    Attributes:
        text: As the model read it; "" if the system only named it.
        id, url: The system's own names of it, "" if it has none.
        score: Of the system's search, None if it did not say.
        matched: Ids of the corpus passages that ragmeter found in it (`results.contexts`); None before it looked.
    """

    text: str
    id: str = ""
    url: str = ""
    score: float | None = None
    matched: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set as a JSON object."""
        known = {"id": self.id, "url": self.url}
        return {
            "text": self.text,
            **{name: value for name, value in known.items() if value},
            **({} if self.score is None else {"score": self.score}),
            **({} if self.matched is None else {"matched": list(self.matched)}),
        }


@dataclass(frozen=True, slots=True)
class Statement:
    """A part of the answer with its citations: ids or urls of contexts, or their 0-based positions."""

    text: str
    cites: tuple[str | int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the statement as a JSON object."""
        return {"text": self.text, "cites": list(self.cites)}


@dataclass(frozen=True, slots=True)
class Search:
    """A search that a system made: its query, the ids of its results (`found` in JSON), and which of them it used."""

    query: str
    results: tuple[str, ...] = ()
    used: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the search as a JSON object."""
        return {"query": self.query, "found": list(self.results), "used": list(self.used)}


class Malformed(ValueError):
    """Raised if a field's value has the wrong form; carries the field, the expected form and the value."""

    def __init__(self, name: str, wanted: str, value: Any) -> None:
        self.name, self.wanted, self.value = name, wanted, value
        super().__init__(f"{name} must be {wanted}")


T = TypeVar("T")


def _items(name: str, value: Any, keys: Sequence[str], make: Callable[[str, Mapping[str, Any]], T]) -> tuple[T, ...]:
    """Parse a list of objects with `make`; each object needs a text under the first key."""
    if not isinstance(value, list | tuple):
        raise Malformed(name, "a list", value)
    results = []
    for number, item in enumerate(value):
        place = f"{name}[{number}]"
        if not isinstance(item, Mapping):
            raise Malformed(place, f"an object with the keys {', '.join(keys)}", item)
        if unknown := [key for key in item if key not in keys]:
            raise Malformed(place, f"an object with the keys {', '.join(keys)}", unknown[0])
        if not isinstance(item.get(keys[0]), str):
            raise Malformed(f"{place}.{keys[0]}", "a text", item.get(keys[0]))
        results.append(make(place, item))
    return tuple(results)


def _names(place: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise Malformed(place, "a list of ids", value)
    return tuple(value)


def _optional_text(place: str, value: Any) -> str:
    if not isinstance(value, str | None):
        raise Malformed(place, "a text", value)
    return value or ""


def _finite(place: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Malformed(place, "a finite number", value)
    return float(value)


def _shown(place: str, item: Mapping[str, Any]) -> Shown:
    score, matched = item.get("score"), item.get("matched")
    return Shown(
        item["text"],
        _optional_text(f"{place}.id", item.get("id")),
        _optional_text(f"{place}.url", item.get("url")),
        None if score is None else _finite(f"{place}.score", score),
        None if matched is None else _names(f"{place}.matched", matched),
    )


def _statement(place: str, item: Mapping[str, Any]) -> Statement:
    cites = item.get("cites", [])
    if not isinstance(cites, list | tuple) or not all(isinstance(cite, str) or type(cite) is int for cite in cites):
        raise Malformed(f"{place}.cites", "a list of ids or urls of contexts, or of their 0-based positions", cites)
    return Statement(item["text"], tuple(cites))


def _search(place: str, item: Mapping[str, Any]) -> Search:
    return Search(item["query"], *(_names(f"{place}.{name}", item.get(name, [])) for name in ("found", "used")))


RECORD = ("contexts", "statements", "searches", "confidence")
"""Optional fields of a prediction that describe how a system obtained its answer."""


def read_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the fields in `RECORD` from a JSON object into arguments of `Prediction`; null fields are omitted.

    Raises:
        Malformed: A field has another form.
    """
    fields: dict[str, Any] = {}
    if row.get("contexts") is not None:
        fields["contexts"] = _items("contexts", row["contexts"], Shown.__slots__, _shown)
    if row.get("statements") is not None:
        fields["statements"] = _items("statements", row["statements"], Statement.__slots__, _statement)
    if row.get("searches") is not None:
        fields["searches"] = _items("searches", row["searches"], ("query", "found", "used"), _search)
    if row.get("confidence") is not None:
        fields["confidence"] = _finite("confidence", row["confidence"])
    return fields
