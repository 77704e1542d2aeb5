"""What pydantic has against a value, in the words of everything else that is said to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_WANTED: Mapping[str, str] = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"), "a mapping of keys"),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
    **dict.fromkeys(("string_type", "string_unicode"), "a text"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "none_required": "null",
}
"""By kind of error, what is wanted in place of what was given."""
_MUST: Mapping[str, str] = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "must be at least {min_length} characters long",
    "string_too_long": "must be at most {max_length} characters long",
    "string_pattern_mismatch": "must be of the form {pattern}",
    "too_short": "its length must be at least {min_length}, and is {actual_length}",
    "too_long": "its length must be at most {max_length}, and is {actual_length}",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
    "value_error": "{error}",
    "assertion_error": "{error}",
    "json_invalid": "this is not JSON: {error}",
    "missing": "is missing",
    "extra_forbidden": "is no known key",
}
"""By kind of error, what is said of what was given, with the words of its context."""


def in_words(error: Mapping[str, Any]) -> str:
    """What is wrong: `a list is wanted`, `must be at least 1`; a kind that is not known here keeps pydantic's words.

    Args:
        error: One of `ValidationError.errors()`.
    """
    kind, message = error["type"], str(error["msg"])
    if kind in _WANTED:
        return f"{_WANTED[kind]} is wanted"
    if kind in _MUST:
        try:
            return _MUST[kind].format_map(error.get("ctx", {}))
        except KeyError:
            return message
    return message.replace("Input should ", "must ", 1)


def first_error(error: ValidationError) -> Any:
    """The error to tell of: an unknown key where there is one, as a mistyped key is the likely cause of the others."""
    found = error.errors(include_url=False)
    return min(found, key=lambda one: one["type"] != "extra_forbidden")


def told_of(error: ValidationError) -> tuple[str, str]:
    """Where in the document the error to tell of is (`method.name`; empty: all of it), and what is wrong there."""
    first = first_error(error)
    return ".".join(map(str, first["loc"])), in_words(first)
