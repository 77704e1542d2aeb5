"""Evaluate paths in a JSON document: `data.answer`, `choices[0].message.content`, `docs[].text`.

A step is a key, a position (`[0]`, from the end `[-1]`), a key in quotes (`["a.b"]`), or `[]` for every item of a list. `$`
alone is the whole document. A `?` at the end makes the path optional. An error names the step that failed and what was found
instead; JMESPath is not used, because it returns null for every mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STEP = re.compile(r"""\.?([^.\[\]"'?]+)|\[(-?\d+)\]|\[(?:"([^"]+)"|'([^']+)')\]|(\[\])""")
EVERY = object()
"""Marker of the step `[]`."""


class Missing(ValueError):
    """Raised if a document lacks a path; the message says what was found instead."""


def shape(value: Any) -> str:
    """Describe a JSON value briefly, for messages."""
    if isinstance(value, Mapping):
        keys = list(map(str, value))
        shown = ", ".join(keys[:8]) + (" …" if len(keys) > 8 else "")
        return f"an object with the keys {shown}" if keys else "an empty object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    names = {str: "a text", bool: "a truth value", int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), f"a Python {type(value).__name__}")


@dataclass(frozen=True)
class Path:
    """A parsed path.

    Attributes:
        text: The path as written.
        steps: Keys, positions and `EVERY`.
        optional: Whether it may be missing.
    """

    text: str
    steps: tuple[Any, ...]
    optional: bool

    @classmethod
    def of(cls, text: str) -> Path:
        """Parse a path.

        Raises:
            ValueError: The path is malformed.
        """
        body = text.strip()
        optional = body.endswith("?")
        body = body.removesuffix("?").removeprefix("$")
        steps: list[Any] = []
        at = 0
        while at < len(body):
            match = _STEP.match(body, at)
            if match is None:
                raise ValueError(f"{text!r} is not a path (examples: data.answer, choices[0].message.content, docs[].text)")
            plain, position, double, single, every = match.groups()
            steps.append(EVERY if every else int(position) if position is not None else plain or double or single)
            at = match.end()
        if not steps and not text.strip().startswith("$"):
            raise ValueError("a path must not be empty ($ is the whole reply)")
        return cls(text, tuple(steps), optional)

    @property
    def split(self) -> tuple[Path, Path | None]:
        """Split at the last `[]` into the path of the list and the path within its items (None without `[]`)."""
        if EVERY not in self.steps:
            return self, None
        last = len(self.steps) - 1 - self.steps[::-1].index(EVERY)
        return Path(self.text, self.steps[:last], self.optional), Path(self.text, self.steps[last + 1 :], self.optional)

    def find(self, document: Any) -> list[Any]:
        """Return the values at the path: one, or with `[]` any number. A null counts as missing.

        Raises:
            Missing: The document lacks a required path.
        """
        values, seen = [document], "the reply"
        for step in self.steps:
            inner: list[Any] = []
            for value in values:
                if step is EVERY:
                    inside = isinstance(value, list | tuple)
                    inner += list(value) if inside else []
                elif isinstance(step, int):
                    inside = isinstance(value, list | tuple) and -len(value) <= step < len(value)
                    inner += [value[step]] if inside else []
                else:
                    inside = isinstance(value, Mapping) and step in value
                    inner += [value[step]] if inside else []
                if not inside and not self.optional:
                    raise Missing(f"{self.text!r} finds nothing: {seen} is {shape(value)}")
            values, seen = inner, "a list's item" if step is EVERY else repr(step)
        present = [value for value in values if value is not None]
        if len(present) < len(values) and not self.optional:
            raise Missing(f"{self.text!r} finds nothing: {seen} is null")
        return present
