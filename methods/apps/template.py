"""Fill templates of requests: `{{question}}`, `{{id}}`, `{{turns}}`, `{{messages}}`, and `${NAME}` for environment variables.

A text that is only `{{turns}}` or `{{messages}}` becomes a list of `{role, content}`: the earlier turns, and with `{{messages}}` the
question as the last one. Within a longer text both become lines `role: text`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from benchmarks.schema import Query
from methods.models import secrets
from methods.models.revision import filled

PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
KNOWN = ("question", "id", "turns", "messages")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def placeholders(value: Any) -> set[str]:
    """Return the names of all placeholders in a template."""
    if isinstance(value, Mapping):
        return {name for inner in value.values() for name in placeholders(inner)}
    if isinstance(value, list | tuple):
        return {name for inner in value for name in placeholders(inner)}
    return set(PLACEHOLDER.findall(value)) if isinstance(value, str) else set()


def with_variables(value: Any) -> Any:
    """Replace environment variables in a template, and register their values as secrets.

    Raises:
        ValueError: A variable is not set; the message names it.
    """
    if isinstance(value, Mapping):
        return {name: with_variables(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_variables(inner) for inner in value]
    if not isinstance(value, str):
        return value
    for name in _VARIABLE.findall(value):
        secrets.use(filled(f"${{{name}}}"))
    return filled(value)


def fill(value: Any, query: Query, *, quoted: bool = False) -> Any:
    """Fill a template for a question.

    Args:
        value: A text, or a JSON value with texts.
        query: The question.
        quoted: Whether to quote values for a URL.
    """
    if isinstance(value, Mapping):
        return {name: fill(inner, query) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [fill(inner, query) for inner in value]
    if not isinstance(value, str):
        return value
    turns = [{"role": turn.role, "content": turn.text} for turn in query.turns]
    lists = {"turns": turns, "messages": [*turns, {"role": "user", "content": query.text}]}
    alone = PLACEHOLDER.fullmatch(value.strip())
    if alone and alone[1] in lists and not quoted:
        return lists[alone[1]]
    texts = {"question": query.text, "id": query.id}
    texts |= {name: "\n".join(f"{turn['role']}: {turn['content']}" for turn in items) for name, items in lists.items()}
    return PLACEHOLDER.sub(lambda match: quote(texts[match[1]], safe="") if quoted else texts[match[1]], value)
