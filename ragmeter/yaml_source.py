"""YAML that remembers its lines, so that an error can say where in the file it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from benchmarks.core.errors import UserError, first_error, in_words, nearest
from benchmarks.core.yaml import LOADER, Located, Path, line_numbers, not_yaml, require_shallow
from results.store.redaction import echoed, without_secrets


@dataclass(frozen=True)
class Source(Located):
    """Parsed YAML file with its text and line numbers.

    Attributes:
        names: Names for errors of list items that are elsewhere in the file, by path (see `ragmeter.grid`).
    """

    text: str
    names: Mapping[Path, str] = field(default_factory=dict)

    def dotted(self, path: Sequence[str | int]) -> str:
        """Format a path for errors, with the position of the item in the file."""
        name = self.names.get(tuple(path[:2]))
        return super().dotted(path) if name is None else super().dotted((name, *path[2:]))


def read(text: str, name: str) -> Source:
    """Parse a YAML document with line numbers.

    Raises:
        UserError: The text is not YAML, is nested too deeply, or a mapping has a key twice.
    """
    try:
        require_shallow(text, name)
        value, lines = _parse(text, name, LOADER)
    except yaml.YAMLError:
        # libyaml is the faster one, and its messages say less.
        try:
            value, lines = _parse(text, name, yaml.SafeLoader)
        except yaml.YAMLError as error:
            raise not_yaml(error, name) from None
    return Source(name, value, lines, text)


def _parse(text: str, name: str, loader: type[Any]) -> tuple[Any, dict[Path, int]]:
    """Return the value, and the line of every path in it."""
    reader = loader(text)
    try:
        node = reader.get_single_node()
        # First the lines: the constructor writes merged keys into the nodes.
        lines = line_numbers(node, name)
        return None if node is None else reader.construct_document(node), lines
    finally:
        reader.dispose()


def explain(error: ValidationError, model: type[BaseModel], source: Source, prefix: Path = ()) -> UserError:
    """Convert a pydantic error to a user error with the problem, file and line, and the nearest valid key."""
    first = _most_specific(error)
    path: Path = tuple(part for part in first["loc"] if not _is_tag(part))
    where = without_secrets(source.where((*prefix, *path)))
    more = len(error.errors()) - 1
    also = f" (and {more} more)" if more else ""
    if first["type"] == "extra_forbidden":
        known = _keys(model, path[:-1])
        guess = nearest(str(path[-1]), known)
        hint = f"did you mean {guess!r}?" if guess else "known keys: " + (", ".join(sorted(known)) or "none")
        return UserError(f"unknown key {echoed(path[-1])}{also}", code="unknown-key", where=where, try_this=hint)
    if first["type"] == "missing":
        hint = f"add {path[-1]}: …{_meaning(model, path)}"
        return UserError(f"key {path[-1]!r} is missing{also}", code="key-missing", where=where, try_this=hint)
    value = echoed(first.get("input"), path)
    what = f"{_last(path)}: {without_secrets(in_words(first))}, got {value}{also}"
    return UserError(what, code="not-yaml", where=where, try_this=_remedy(first, model, path, value))


def _most_specific(error: ValidationError) -> Any:
    """Return the error to report; for a mapping where a name is also allowed, the error within the mapping."""
    first = first_error(error)
    if first["type"] == "string_type" and isinstance(first.get("input"), Mapping):
        at = first["loc"][:-1]
        within = [item for item in error.errors(include_url=False) if item["loc"][: len(at)] == at and item is not first]
        return next((item for item in within if len(item["loc"]) > len(first["loc"])), first)
    return first


_PLAIN = re.compile(r"'([\w./@()=-]+)'")
"""Pattern of a text that an error can repeat as plain YAML."""
_LISTS = ("list_type", "tuple_type")
_MAPPINGS = ("model_type", "model_attributes_type", "dict_type", "mapping_type")
_BOUNDS = {
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
}


def _remedy(first: Any, model: type[BaseModel], path: Path, value: str) -> str | None:
    """Return a replacement for a wrong value; None for an unknown key."""
    kind, context = first["type"], first.get("ctx", {})
    named = next((position for position in reversed(range(len(path))) if isinstance(path[position], str)), None)
    if named is None:
        return "begin with `key: value`" if kind in _MAPPINGS else None
    key, item = str(path[named]), named < len(path) - 1
    field = _fields(model, path[:named]).get(key)
    free = field is not None and not field.is_required() and not item
    spare = f", or leave {key} out" if free else ""
    about = f" ({field.description})" if field is not None and field.description else ""
    plain = _PLAIN.fullmatch(value)
    inner = _model_in(field.annotation) if field is not None else None
    has_id = inner is not None and "id" in inner.model_fields
    entry = plain[1] if plain else "…"
    if kind in _LISTS:
        whole = "{…}" if isinstance(first.get("input"), Mapping) else f"{{id: {entry}}}" if has_id else entry
        return f"{key}: [{whole}]{spare}"
    if kind in _MAPPINGS:
        return f"{'' if item else key + ': '}{{{f'id: {entry}' if has_id else 'key: value, …'}}}{spare}"
    if kind in _BOUNDS:
        return f"{key}: {_BOUNDS[kind].format_map(context)}{about}{spare}"
    if kind == "too_short":
        return f"name at least {context.get('min_length', 1)}{about}{spare}"
    if kind == "literal_error":
        guess = nearest(str(first.get("input")), re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        return f"did you mean {guess!r}?" if guess else (spare.removeprefix(", or ") or None)
    if kind == "string_type" and has_id:
        return f"{key}: NAME, or {key}: {{id: NAME, config: {{…}}}}{spare}"
    return f"{key}: …{about}{spare}" if about or spare else None


def _last(path: Path) -> str:
    return ".".join(map(str, path)) or "the document"


def _is_tag(part: str | int) -> bool:
    """Return whether a path component is a union branch: pydantic puts the tried branch into the path, which is not a key."""
    return isinstance(part, str) and (part in {"str", "int", "float", "bool"} or part[:1].isupper() or "[" in part)


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys that a model accepts at a path."""
    return list(_fields(model, path))


def _meaning(model: type[BaseModel], path: Path) -> str:
    """Return a model's description of the key at a path in parentheses, or ""."""
    field = _fields(model, path[:-1]).get(str(path[-1]))
    return f" ({field.description})" if field is not None and field.description else ""


def _fields(model: type[BaseModel], path: Path) -> Mapping[str, Any]:
    """Return the fields of the model at a path."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if hasattr(current, "model_fields") else None
        current = _model_in(field.annotation) if field else None
        if current is None:
            return {}
    return dict(current.model_fields)


def _model_in(annotation: Any) -> Any:
    """Return the first pydantic model inside a type such as `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        result = _model_in(argument)
        if result is not None:
            return result
    return None
