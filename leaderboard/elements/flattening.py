"""Stored JSON as lines of a table: one a leaf, by its dotted key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST = 200
_PLACE = re.compile(r"(?:/|[A-Za-z]:[\\/])[^\s\"']+")
_PARTS = 3
"""Of a folder's path so many are shown: readers of a board need not know how its server's disk is laid out."""


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
    """A setting as text: texts as they are but for where folders lie, all else as JSON, cut where it is long."""
    text = _placed(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _placed(text: str) -> str:
    """A path on this disk by its last parts."""
    if not _PLACE.fullmatch(text):
        return text
    parts = [part for part in re.split(r"[/\\]", text) if part]
    return text if len(parts) <= _PARTS else "…/" + "/".join(parts[-_PARTS:])
