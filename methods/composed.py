"""Base class of parts that search with other indexes, whose cost, notes and preparation are also theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.schema import Query
from methods.api import RERANKER_TRUNCATED, TRUNCATED, Usage


class Composed:
    """An index, or a whole method, that searches with other indexes.

    Args:
        indexes: These indexes, in batch or single form.
    """

    def __init__(self, *indexes: Any) -> None:
        self._indexes = indexes

    @property
    def usage(self) -> Usage | None:
        """Return the cost of building the indexes; None if none of them reports any."""
        known = [usage for index in self._indexes if (usage := getattr(index, "usage", None)) is not None]
        return sum(known, Usage()) if known else None

    @property
    def notes(self) -> Mapping[str, Any]:
        """Return the notes of all indexes."""
        return merged(*(getattr(index, "notes", {}) for index in self._indexes))

    def build_for(self, queries: Sequence[Query]) -> None:
        """Build what the indexes need for these queries (see `Index`)."""
        for index in self._indexes:
            if (build_for := getattr(index, "build_for", None)) is not None:
                build_for(queries)


def merged(*notes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the notes of several parts; of two truncations, the one that loses the larger share is kept."""
    results: dict[str, Any] = {}
    for key, value in (item for part in notes for item in part.items()):
        if key not in (TRUNCATED, RERANKER_TRUNCATED) or _share(value) >= _share(results.get(key)):
            results[key] = value
    return results


def _share(truncation: Any) -> float:
    """Return the share of text that a truncation loses; 0 if a part of a plug-in does not state it."""
    return float(truncation.get("share", 0)) if isinstance(truncation, Mapping) else 0.0
