"""YAML that remembers its lines, so that an error can say where in the file it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from benchmarks.errors import UserError, nearest

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """A parsed YAML document with the line of every key and item.

    Attributes:
        name: The file, as shown in errors.
        text: The document.
        value: What it says.
        lines: 1-based line by path.
    """

    name: str
    text: str
    value: Any
    lines: dict[Path, int]

    def where(self, path: Sequence[str | int] = ()) -> str:
        """`file:line (dotted.path)` of the deepest part of a path that the file has."""
        known = tuple(path)
        while known and known not in self.lines:
            known = known[:-1]
        dotted = ".".join(map(str, path))
        line = self.lines.get(known, 1)
        return f"{self.name}:{line}" + (f" ({dotted})" if dotted else "")


def read(text: str, name: str) -> Source:
    """Parse a YAML document.

    Raises:
        UserError: It is not YAML, or a mapping has a key twice.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UserError(f"this is not YAML: {error.problem}", where=f"{name}:{line}") from None
    except yaml.YAMLError as error:
        raise UserError(f"this is not YAML: {error}", where=name) from None
    lines: dict[Path, int] = {}
    if node is not None:
        _collect(node, (), lines, name)
    return Source(name, text, value, lines)


def _collect(node: yaml.Node, path: Path, lines: dict[Path, int], name: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*path, key.value)
            line = key.start_mark.line + 1
            if child in lines:
                raise UserError(f"key {key.value!r} occurs twice", where=f"{name}:{line}", try_this="keep one of them")
            lines[child] = line
            _collect(value, child, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _collect(value, (*path, index), lines, name)


def explain(error: ValidationError, model: type[BaseModel], source: Source, prefix: Path = ()) -> UserError:
    """A pydantic error as a user's error: what, file and line, and the nearest valid key."""
    first = error.errors()[0]
    path: Path = tuple(part for part in first["loc"] if not _is_tag(part))
    where = source.where((*prefix, *path))
    more = len(error.errors()) - 1
    also = f" (and {more} more)" if more else ""
    if first["type"] == "extra_forbidden":
        known = _keys(model, path[:-1])
        guess = nearest(str(path[-1]), known)
        hint = f"did you mean {guess!r}?" if guess else "known keys: " + (", ".join(sorted(known)) or "none")
        return UserError(f"unknown key {path[-1]!r}{also}", where=where, try_this=hint)
    if first["type"] == "missing":
        return UserError(f"key {path[-1]!r} is missing{also}", where=where, try_this=f"add {path[-1]}: …")
    given = repr(first.get("input"))
    shown = given if len(given) <= 60 else given[:57] + "…"
    return UserError(f"{_last(path)}: {first['msg']}, got {shown}{also}", where=where)


def _last(path: Path) -> str:
    return ".".join(map(str, path)) or "the document"


def _is_tag(part: str | int) -> bool:
    """Pydantic puts the tried branch of a union into the path; those are types, not keys."""
    return isinstance(part, str) and (part in {"str", "int", "float", "bool"} or part[:1].isupper() or "[" in part)


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """Keys that a model accepts at a path."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        field = current.model_fields.get(part) if hasattr(current, "model_fields") else None
        current = _model_in(field.annotation) if field else None
        if current is None:
            return []
    return list(current.model_fields)


def _model_in(annotation: Any) -> Any:
    """The first pydantic model inside a type such as `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
