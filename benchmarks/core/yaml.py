"""Parse YAML and keep the line of every key and item, for error messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from benchmarks.core.errors import UserError

Path = tuple[str | int, ...]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML loader: libyaml's, ten times faster, if PyYAML was built with it."""


@dataclass(frozen=True)
class Located:
    """A parsed YAML document with line numbers.

    Attributes:
        name: The file, as shown in errors.
        value: The parsed value.
        lines: 1-based line number by path.
    """

    name: str
    value: Any
    lines: dict[Path, int]

    def where(self, path: Sequence[str | int] = ()) -> str:
        """Return `file:line (dotted.path)` for the deepest existing part of a path."""
        known = tuple(path)
        while known and known not in self.lines:
            known = known[:-1]
        dotted = self.dotted(path)
        return f"{self.name}:{self.lines.get(known, 1)}" + (f" ({dotted})" if dotted else "")

    def dotted(self, path: Sequence[str | int]) -> str:
        """Format a path with dots, for error messages."""
        return ".".join(map(str, path))


_WRITTEN = "check the indentation, brackets and quotes there and in the line before it"


def not_yaml(error: yaml.YAMLError, name: str) -> UserError:
    """Build the error for a file that is not valid YAML, with the line if known."""
    if isinstance(error, yaml.reader.ReaderError):
        sign = error.character if isinstance(error.character, int) else ord(error.character[:1])
        message = f"this is not YAML: character {error.position + 1:,} of it is U+{sign:04X}, which no text has"
        return UserError(message, code="not-yaml", where=name, try_this="name a text file, or remove the character")
    if not isinstance(error, yaml.MarkedYAMLError):
        return UserError(f"this is not YAML: {error}", code="not-yaml", where=name, try_this=_WRITTEN)
    mark = error.problem_mark or error.context_mark
    where = f"{name}:{mark.line + 1 if mark else 1}"
    return UserError(f"this is not YAML: {error.problem}", code="not-yaml", where=where, try_this=_WRITTEN)


DEEPEST = 64
"""Maximum nesting depth of a YAML file; libyaml would crash the process at some thousand levels."""
MOST = 200_000
"""Maximum number of keys and items of a document, with those of its aliases."""


def require_shallow(text: str, name: str) -> None:
    """Refuse a document that is nested deeper than `DEEPEST`, without building it in memory.

    Raises:
        UserError: The document is nested deeper than `DEEPEST`.
        yaml.YAMLError: It is not YAML.
    """
    level = 0
    for event in yaml.parse(text, Loader=LOADER):
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > DEEPEST:
            where = f"{name}:{event.start_mark.line + 1 if event.start_mark else 1}"
            raise UserError(
                f"the file has more than {DEEPEST} nested lists and mappings", code="file-too-deep", where=where, try_this=_WRITTEN
            )


def line_numbers(node: yaml.Node | None, name: str) -> dict[Path, int]:
    """Return the 1-based line number of every key and item of a composed document, by path.

    Args:
        node: Result of `yaml.compose`; None for an empty document.
        name: The file, as shown in errors.

    Raises:
        UserError: A mapping has a key twice, or one that is not a text, aliases make the document too large, or a number is in
            base 8 or 60.
    """
    lines: dict[Path, int] = {}
    if node is not None:
        _collect(node, (), lines, name)
    return lines


_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_OTHER_BASE = re.compile(r"[-+]?0[0-9_]+$|.*:")
"""Numbers such as 010 (8) and 1:30 (90), which nobody means in an experiment."""


def _collect(node: yaml.Node, path: Path, lines: dict[Path, int], name: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if len(path) > DEEPEST or len(lines) > MOST:  # an alias may contain itself, or double with each level
        raise UserError(
            f"the file has more than {DEEPEST} levels or {MOST:,} keys and items (aliases count in full)",
            code="file-too-deep",
            where=f"{name}:{node.start_mark.line + 1}",
            try_this=_WRITTEN,
        )
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(
                    "a key must be text, and this one is a list or mapping",
                    code="key-not-text",
                    where=f"{name}:{line}",
                    try_this="quote a text that begins with a brace or bracket",
                )
            child = (*path, key.value)
            if child in lines:
                raise UserError(
                    f"key {key.value!r} occurs twice", code="duplicate-key", where=f"{name}:{line}", try_this="keep one of them"
                )
            lines[child] = line
            _collect(value, child, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _collect(value, (*path, index), lines, name)
    elif node.tag in _NUMBERS and _OTHER_BASE.match(node.value):
        raise UserError(
            f"{node.value} is a number in base {'60' if ':' in node.value else '8'} to YAML: it is read as {yaml.safe_load(node.value)}",
            code="other-number-base",
            where=f"{name}:{node.start_mark.line + 1}",
            try_this="write the number without leading zeros and colons, or put a text in quotes",
        )
