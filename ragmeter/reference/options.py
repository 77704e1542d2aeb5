"""Options of a config class as a table: name, type, default, what they mean, and what the presets make of them."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ragmeter.reference.writing import code, codes, table

OF_PAPERS = ("paper", "released")
"""Presets that have a column each: what the paper says, and what the released code does."""

LONGEST_ROW = 8
"""Values of a preset that a row of a table holds; longer presets are folded."""

_WORDS = {str: "text", int: "whole number", float: "number", bool: "true / false", type(None): "null", Any: "anything"}
_BOUNDS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: That of one within another has dots.
        field: How it is declared.
        above: The default of the part that it stands in, None where that part has none.
    """

    name: str
    field: FieldInfo
    above: BaseModel | None = None

    @property
    def type(self) -> str:
        """Type and bounds, in words."""
        bounds = (
            f"{sign} {_number(getattr(mark, name))}"
            for mark in self.field.metadata
            for kind, (name, sign) in _BOUNDS.items()
            if isinstance(mark, kind)
        )
        return ", ".join((words(self.field.annotation), *bounds))

    @property
    def default(self) -> str:
        """As an experiment file writes it, or that there is none."""
        given = self.given
        return "*required*" if given is ... else code(value(given))

    @property
    def given(self) -> Any:
        """The default, `...` where there is none."""
        if self.above is not None:
            return getattr(self.above, self.name.rpartition(".")[2])
        return ... if self.field.is_required() else self.field.get_default(call_default_factory=True)


def options_of(config: type[BaseModel], prefix: str = "", above: BaseModel | None = None) -> Iterator[Option]:
    """The options of a class, and of the classes within it, in their order."""
    for name, field in config.model_fields.items():
        option = Option(prefix + name, field, above)
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            yield option
            continue
        if field.description:
            yield option
        default = option.given
        yield from options_of(inner, f"{prefix}{name}.", default if isinstance(default, inner) else None)


def option_table(config: type[BaseModel], presets: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The table of a class's options; with a column each for the presets of `OF_PAPERS` that there are."""
    columns = [name for name in OF_PAPERS if name in (presets or {})]
    set_by = [_flat((presets or {})[name]) for name in columns]
    found = list(options_of(config))
    parts = {o.name.rpartition(".")[0] for o in found}
    rows = [
        (
            code(o.name),
            o.type,
            "" if o.name in parts else o.default,
            *("" if o.name in parts else _set_by(values, o.name) for values in set_by),
            o.field.description or "",
        )
        for o in found
    ]
    return table(("option", "type", "default", *columns, "meaning"), rows) or "It has no options."


def preset_table(presets: Mapping[str, Mapping[str, Any]]) -> str:
    """The presets that have no column of their own, with what they set: a table of short ones, long ones folded."""
    rest = {name: values for name, values in presets.items() if name not in OF_PAPERS}
    flat = {name: _flat(values) for name, values in rest.items()}
    rows = [
        (code(name), codes(f"{key}: {value(one)}" for key, one in values.items()))
        for name, values in flat.items()
        if len(values) <= LONGEST_ROW
    ]
    long = [_folded(name, rest[name]) for name, values in flat.items() if len(values) > LONGEST_ROW]
    return "\n\n".join(filter(None, (table(("preset", "sets"), rows), *long)))


def _folded(name: str, values: Mapping[str, Any]) -> str:
    text = yaml.safe_dump(json.loads(json.dumps(values, default=str)), sort_keys=False, default_flow_style=None)
    return "\n".join([f'??? note "preset {name}"', "    ```yaml", *(f"    {line}" for line in text.splitlines()), "    ```"])


def value(given: Any) -> str:
    """A value as an experiment file writes it."""
    if isinstance(given, BaseModel):
        given = given.model_dump(mode="json")
    text = given if isinstance(given, str) and given else json.dumps(given, default=str, ensure_ascii=False)
    return " ".join(text.split())


def words(annotation: Any) -> str:
    """A type in words: `Literal["a", "b"] | None` is "`a`, `b` or null"."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return codes(map(value, inside))
    if origin in (Union, types.UnionType):
        *first, last = [words(one) for one in inside]
        return f"{', '.join(first)} or {last}"
    if origin in (list, tuple, set, frozenset) or annotation in (list, tuple):
        kinds = list(dict.fromkeys(words(one) for one in inside if one is not Ellipsis))
        return f"list of {' and '.join(map(_several, kinds))}" if kinds else "list"
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if annotation in _WORDS:
        return _WORDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    if hasattr(annotation, "__metadata__"):
        return words(annotation.__origin__)
    return "mapping" if annotation is dict else str(getattr(annotation, "__name__", annotation))


def _number(bound: float) -> str:
    power = int(bound).bit_length() - 1
    return f"2^{power}" if power > 16 and bound == 2**power else f"{bound:,}"


def _several(kind: str) -> str:
    """More than one of a kind of value: `texts`, `texts or mappings`."""
    return re.sub(r"\b(text|whole number|number|mapping)\b(?! number)", r"\1s", kind)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in values.items():
        found |= _flat(one, f"{prefix}{key}.") if isinstance(one, Mapping) and one else {prefix + key: one}
    return found


def _set_by(values: Mapping[str, Any], name: str) -> str:
    """What a preset says of an option, or of keys within it where the option takes a mapping."""
    if name in values:
        return code(value(values[name]))
    return codes(f"{key[len(name) + 1 :]}: {value(one)}" for key, one in values.items() if key.startswith(f"{name}."))
