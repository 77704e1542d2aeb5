"""A JSON schema of experiment files for editors: their keys, and the names that are registered when it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.core.plugins import load_file

SCHEMA = "experiment.schema.json"
_FILLED = {"type": "string", "pattern": r"\$"}
"""Schema of a grid placeholder, which may become any value."""


def schema_text(folder: Path) -> str:
    """Render the JSON schema of experiment files, for editors.

    Args:
        folder: Folder of experiments; the Python files that they list under `plugins` are loaded, so that the schema knows
            their methods.
    """
    for path in sorted(folder.glob("*.y*ml")) if folder.is_dir() else ():
        for plugin in _plugins(path):
            load_file(path.parent / plugin, where=f"{path}, plugins")
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def _plugins(path: Path) -> list[str]:
    import yaml

    try:
        value = yaml.safe_load(path.read_text("utf-8-sig"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return []  # `ragmeter run` says what is wrong with it
    names = value.get("plugins") if isinstance(value, Mapping) and {"name", "methods"} <= set(value) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def schema() -> dict[str, Any]:
    """Build the JSON schema of experiment files."""
    from benchmarks.registry import DATASETS
    from judges.judge import JUDGES
    from judges.metric import METRICS
    from methods.registry import METHODS
    from methods.training import TRAININGS
    from ragmeter.experiment import ExperimentSpec

    value = ExperimentSpec.model_json_schema()
    value = {"$schema": "https://json-schema.org/draft/2020-12/schema", **value, "title": "ragmeter experiment"}
    parts: dict[str, Any] = value["$defs"]
    for part in parts.values():
        part["properties"] = {name: kind if name == "grid" else _or_filled(kind) for name, kind in part["properties"].items()}
    of_kind = {kind: [entry.id for entry in METHODS if entry.kind == kind] for kind in ("reader", "reranker", "compressor")}
    data = [name for entry in DATASETS for name in (entry.id, *(f"{entry.id}/{subset}" for subset in entry.subsets))]
    _name(parts["BenchmarkSpec"], data, r"([/:].*)?")
    _name(parts["MethodSpec"], [entry.id for entry in METHODS])
    _name(parts["ComponentSpec"], [name for names in of_kind.values() for name in names])
    _name(parts["TrainingSpec"], [entry.id for entry in TRAININGS])
    _name(parts["JudgeSpec"], [entry.id for entry in JUDGES])
    rows = parts["MethodSpec"]["properties"]
    for key, names in (("reader", of_kind["reader"]), ("compressor", of_kind["compressor"])):
        _only(rows[key], names)
    _only(_list(rows["rerankers"])["items"], of_kind["reranker"])
    _only(value["properties"]["judges"]["items"], [entry.id for entry in JUDGES])
    _list(value["properties"]["metrics"])["items"] = _one_of([entry.id for entry in METRICS], r"(@\d+)?(\(.*\))?(#v\d+)?")
    return value


def _or_filled(kind: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: kind[name] for name in ("description", "default", "title") if name in kind}
    inner = {name: item for name, item in kind.items() if name not in kept}
    return {**kept, "anyOf": [*inner["anyOf"], _FILLED] if set(inner) == {"anyOf"} else [inner, _FILLED]}


def _one_of(names: Iterable[str], more: str = "") -> dict[str, Any]:
    """Return the schema of several names that editors offer, possibly with a suffix."""
    known = sorted(names)
    choices: list[dict[str, Any]] = [{"enum": known}]
    if more:
        choices.append({"type": "string", "pattern": f"^({'|'.join(map(re.escape, known))}){more}$"})
    return {"anyOf": [*choices, _FILLED]}


def _name(part: dict[str, Any], names: Iterable[str], more: str = "") -> None:
    part["properties"]["id"] = {"description": part["properties"]["id"].get("description", ""), **_one_of(names, more)}


def _only(kind: dict[str, Any], names: Iterable[str]) -> None:
    """Restrict the plain texts among several choices to names."""
    kind["anyOf"] = [item for item in kind["anyOf"] if item not in ({"type": "string"}, _FILLED)] + _one_of(names)["anyOf"]


def _list(kind: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a schema for a list."""
    part: dict[str, Any] = next(item for item in (kind, *kind.get("anyOf", ())) if item.get("type") == "array")
    return part
