"""Lay single values over an experiment file: `ragmeter run FILE --set KEY=VALUE`.

A key is a path with dots. An item of a list is named by its `name` or `id`, or by its position from 0:
`--set methods.bm25.config.k1=2 --set trainings.0.config.train.epochs=1`. A name may contain dots:
`--set endpoints.gpt-4.1.base_url=URL`. The experiment is stored with these values, so that `ragmeter run --resume` continues
with them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from benchmarks.core.errors import unknown_name
from ragmeter.yaml_source import Source

Override = tuple[Sequence[str], Any]
"""A path, and its value."""


def laid_over(source: Source, settings: Sequence[Override], profile: str | None) -> Source:
    """Apply `--set` values to an experiment file.

    Args:
        source: The experiment file.
        settings: (Path, value) pairs.
        profile: Name of the applied profile; a key that the profile replaces is changed in the profile.

    Raises:
        UserError: A path names a missing list item.
    """
    if not settings:
        return source
    value = copy.deepcopy(dict(source.value))
    chosen = (value.get("profiles") or {}).get(profile) if profile else None
    for path, wanted in settings:
        _set(chosen if isinstance(chosen, MutableMapping) and path[0] in chosen else value, path, wanted)
    return replace(source, value=value, text=yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


def _set(inner: Any, path: Sequence[str], wanted: Any) -> None:
    rest = list(path)
    while True:
        name, rest = _first(inner, rest)
        key = _key(inner, name, path)
        if not rest:
            inner[key] = wanted
            return
        item = inner[key] if isinstance(inner, list) else inner.get(key)
        if isinstance(inner, list) and isinstance(item, str):
            item = {"id": item}
        inner[key] = item if isinstance(item, list | MutableMapping) else {}
        inner = inner[key]


def _first(inner: Any, path: list[str]) -> tuple[str, list[str]]:
    """Split a path behind the longest beginning that is a name in `inner`, because names such as `gpt-4.1` contain dots."""
    names = set(map(_name, inner)) if isinstance(inner, list) else set(inner)
    length = next((length for length in range(len(path), 1, -1) if ".".join(path[:length]) in names), 1)
    return ".".join(path[:length]), path[length:]


def _key(inner: Any, name: str, path: Sequence[str]) -> Any:
    """Return the key of a mapping, or the position of a list's item."""
    if not isinstance(inner, list):
        return name
    names = [_name(item) for item in inner]
    if name in names:
        return names.index(name)
    if name.isdigit() and int(name) < len(inner):
        return int(name)
    raise unknown_name("item", name, names, where=f"--set {'.'.join(path)}")


def _name(item: Any) -> str:
    return str(item.get("name") or item.get("id")) if isinstance(item, Mapping) else str(item)
