"""Stored JSON as lines of a table: one a leaf, by its dotted key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST = 200


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """A JSON value's leaves by dotted key; null, and objects and lists that are empty, are left out."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for place, item in enumerate(value):
            yield from flat(item, f"{key}[{place}]")
    elif value is not None and value != []:
        yield key, value


def shown(value: Any) -> str:
    """A setting's value as text: texts as they are, all else as JSON, cut where it would fill the page."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
