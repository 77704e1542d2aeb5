"""Options of datasets, methods, judges and trainings: as --config and --set give them, and what a config class takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from benchmarks.core.errors import UserError
from ragmeter import yaml_source
from results.store.redaction import echoed


def data_apart(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those of the command's subject and those of its dataset (`data.KEY` or below `data:`)."""
    of_data = options.get("data", {})
    if not isinstance(of_data, Mapping):
        raise UserError(
            "the dataset's options are data.KEY=VALUE", code="bad-data-option", where="--set data", try_this="--set data.path=FILE"
        )
    return {key: value for key, value in options.items() if key != "data"}, dict(of_data)


def given_options(config: Path | None, settings: Sequence[str] | None) -> dict[str, Any]:
    """Merge the options of `--config FILE.yaml` and `--set key.key=value` (which takes precedence); values are parsed as YAML."""
    options: Any = {}
    if config is not None:
        try:
            options = yaml_source.read(config.read_text("utf-8-sig"), str(config)).value
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"this file cannot be read: {error}", code="unreadable-file", where=f"--config {config}") from None
        if not isinstance(options, Mapping):
            raise UserError(
                "a file of options is a mapping of keys",
                code="options-not-mapping",
                where=f"{config}:1",
                try_this="key: value, a line each",
            )
    options = dict(options)
    for (*parents, last), value in path_settings(settings):
        inner = options
        for parent in parents:
            inner[parent] = dict(inner[parent]) if isinstance(inner.get(parent), Mapping) else {}
            inner = inner[parent]
        inner[last] = value
    return options


def path_settings(settings: Sequence[str] | None) -> list[tuple[list[str], Any]]:
    """Parse `--set key.key=value` options into (path, value) pairs; values are parsed as YAML."""
    results: list[tuple[list[str], Any]] = []
    for setting in settings or ():
        path, mark, text = setting.partition("=")
        if not mark or not path.strip():
            raise UserError(f"{echoed(setting)} sets nothing", code="option-sets-nothing", where="--set", try_this="--set key=value")
        try:
            value = yaml.safe_load(text) if text else ""
        except yaml.YAMLError:
            value = text
        results.append((path.strip().split("."), value))
    return results


FILES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".gz")


def named_data(reference: str, options: Mapping[str, Any], *, skip_bad: bool = False) -> tuple[str, dict[str, Any]]:
    """Return data reference and options for a command's argument, which may also be a file or folder of questions.

    Args:
        reference: A data reference, or a file or folder of questions.
        options: The dataset's options.
        skip_bad: Whether to skip unreadable records.
    """
    from benchmarks.registry import DATASETS

    more = {"skip_bad": True} if skip_bad else {}
    path = Path(reference).expanduser()
    if path.is_file() or path.suffix.lower() in FILES or (path.is_dir() and ("/" in reference or reference not in DATASETS)):
        return "files", {"path": reference, **options, **more}
    return reference, {**options, **more}


def option_rows(config: type[BaseModel], *, nested: bool = False) -> list[dict[str, Any]]:
    """Describe the options of a config class as rows (name, type, default, description); `nested`: include nested classes, with
    dotted names.
    """
    from pydantic_core import to_jsonable_python

    described = config.model_json_schema().get("properties", {})
    rows: list[dict[str, Any]] = []
    for name, field in config.model_fields.items():
        inner = {row["name"]: row for model in _models_in(field.annotation) for row in option_rows(model, nested=True)} if nested else {}
        if inner:
            rows += [row | {"name": f"{name}.{row['name']}"} for row in inner.values()]
            continue
        default = None if field.is_required() else to_jsonable_python(field.get_default(call_default_factory=True))
        description = described[name].get("description", "")
        rows.append({"name": name, "type": _type(described[name]), "default": default, "description": description})
    return rows


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the config classes of a type such as `Model | Other`; none if it may be something other than a config."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    if hasattr(annotation, "__metadata__"):
        return _models_in(annotation.__origin__)
    parts = [_models_in(part) for part in get_args(annotation)]
    return [model for part in parts for model in part] if all(parts) else []


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " | ".join(map(str, field["enum"]))
    if "anyOf" in field:
        return " | ".join(_type(option) for option in field["anyOf"])
    return str(field.get("type", field.get("const", "object")))
