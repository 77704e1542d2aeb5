"""Presets: named sets of options, in YAML files next to the method that they are for.

`{over: NAME, key: value}` stands for the options that NAME names with others laid over them; it may stand anywhere in a
file. Names that begin with `_` only serve other entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.core.yaml import LOADER

LLM_KINDS = frozenset({"model", "local", "scripted"})
"""Keys that determine the kind of an `llm:` block (endpoint, local weights or script)."""


PARTS = frozenset({"retriever", "reader", "judge", "teacher"})
"""Keys that name a part; its options are in `options` (retriever) or `NAME_options`."""


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two option mappings recursively; `above` wins. An `llm:` of another kind (`LLM_KINDS`) is replaced as a whole, and so
    are the options of a part (`PARTS`) if `above` names another one.
    """
    replaced = {key for key in PARTS & below.keys() & above.keys() if above[key] != below[key]}
    merged = {key: value for key, value in below.items() if _part_of(key) not in replaced}
    for key, value in above.items():
        there = merged.get(key)
        if not isinstance(value, Mapping) or not isinstance(there, Mapping):
            merged[key] = value
            continue
        kind, other = LLM_KINDS & value.keys(), LLM_KINDS & there.keys()
        if key == "llm" and kind and other and kind != other:
            there = {name: there[name] for name in ("temperature", "max_tokens") if name in there}
        merged[key] = laid_over(there, value)
    return merged


def _part_of(key: str) -> str:
    """Return the key that names the part that a key's options are for."""
    return "retriever" if key == "options" else key.removesuffix("_options")


def read_presets(path: Path | Sequence[Path], **known: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read presets from YAML, with every `over:` resolved, as a mapping from preset name to options.

    Args:
        path: The file, or several that may name each other's entries.
        known: Further options that entries may be laid over, by name.
    """
    entries: dict[str, Any] = {}
    for file in [path] if isinstance(path, Path) else path:
        entries |= yaml.load(file.read_text(encoding="utf-8"), LOADER)

    def resolved(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        own = {key: resolved(item) for key, item in value.items() if key != "over"}
        if "over" not in value:
            return own
        return laid_over(resolved(entries[value["over"]] if value["over"] in entries else known[value["over"]]), own)

    return {name: resolved(options) for name, options in entries.items() if not name.startswith("_")}
