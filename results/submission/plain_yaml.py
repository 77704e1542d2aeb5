"""YAML reduced to what a card needs: mappings, lists and text, read without making anything else.

Aliases, anchors, tags, several documents and deep nesting are refused while the text is scanned, before a single
value exists. Every scalar stays the text that was written (`version: 1.10` is "1.10", `no` is "no"); the card's types
say what is a number.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from benchmarks.errors import UserError
from benchmarks.located import Located, line_numbers, not_yaml
from results.submission.limits import LIMITS

_NULL = {"", "~", "null", "Null", "NULL"}
# Characters that move the cursor or turn the direction of text: nothing that a card says needs them.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def read(raw: bytes, name: str, *, size: int = LIMITS.card_bytes, depth: int = LIMITS.card_depth) -> Located:
    """Parse a document.

    Raises:
        UserError: It is too long or too deep, not UTF-8, not YAML, or uses what a card does not need.
    """
    if len(raw) > size:
        raise UserError(f"the card is longer than {size // 1024} KiB", where=name, try_this="shorten it")
    text = _decoded(raw, name)
    try:
        _scan(text, name, depth)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise not_yaml(error, name) from None
    value = _value(node, name) if node is not None else None
    return Located(name, value, line_numbers(node, name))


def _decoded(raw: bytes, name: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UserError(f"byte 0x{raw[error.start]:02x} is not UTF-8", where=f"{name}:{line}", try_this="save the card as UTF-8") from None
    return text.replace("\r\n", "\n")


def _scan(text: str, name: str, depth: int) -> None:
    """Refuse by events, which hold one value at a time."""
    level = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise UserError("a card is one YAML document", where=f"{name}:{line}", try_this="remove the second one")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise UserError(
                "a card has no aliases or anchors (& and *)", where=f"{name}:{line}", try_this="write the value out, or quote the text"
            )
        if tag := getattr(event, "tag", None):
            raise UserError(
                f"a card has no tags, here {tag[:40]!r}", where=f"{name}:{line}", try_this="remove it: nothing in a card is constructed"
            )
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if level > depth:
            raise UserError(f"the card is nested deeper than {depth} levels", where=f"{name}:{line}")


def _value(node: yaml.Node, name: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UserError("a key is a word", where=f"{name}:{key.start_mark.line + 1}")
            _check_visible(key, name)
            found[key.value] = _value(child, name)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, name) for child in node.value]
    assert isinstance(node, yaml.ScalarNode)  # aliases were refused, so there is nothing else
    _check_visible(node, name)
    return None if node.style is None and node.value in _NULL else node.value


def _check_visible(node: yaml.ScalarNode, name: str) -> None:
    # Here and not in the text: an escape in quotes makes any character.
    hidden = _UNSEEN.search(node.value)
    if hidden:
        raise UserError(
            f"the card holds the invisible character U+{ord(hidden[0]):04X}",
            where=f"{name}:{node.start_mark.line + 1}",
            try_this="remove it",
        )
