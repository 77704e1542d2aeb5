"""Parse untrusted model replies in linear time: text between tags, and JSON that needs repair.

A model in a loop may write 100,000 brackets or 10,000 opening tags, and replies are parsed on the event loop that all calls
share.
"""

from __future__ import annotations

import re
from typing import Any

from benchmarks.core.errors import MissingPackage

LONGEST = 200_000
"""Maximum characters of a text to repair; repairing takes about a microsecond per character."""
DEEPEST = 64
"""Maximum nesting depth to repair; requested JSON has at most four levels."""
_BRACKET = re.compile(r"[{\[(}\])]")


def between(text: str, opening: str, closing: str) -> re.Match[str] | None:
    """Find the first text between two tags; a tag matches in any case.

    The pattern `opening(.*?)closing` takes quadratic time if a tag is opened again and again and never closed.

    Returns:
        A match whose group 1 is the text between the tags; None if there is no such pair.
    """
    first = re.search(re.escape(opening), text, re.IGNORECASE)
    if first is None or not re.compile(re.escape(closing), re.IGNORECASE).search(text, first.end()):
        return None
    pattern = re.compile(f"{re.escape(opening)}(.*?){re.escape(closing)}", re.DOTALL | re.IGNORECASE)
    return pattern.match(text, first.start())


def mended(text: str, purpose: str) -> Any:
    """Parse text that is almost JSON, repairing it if necessary.

    Args:
        text: Text that starts with the first bracket.
        purpose: Purpose of the parsing, for the message if the package is missing.

    Returns:
        The value; a list of values if several follow one another.

    Raises:
        ValueError: The text is too long, nested too deeply, or cannot be repaired.
        MissingPackage: The package that repairs JSON is not installed.
    """
    try:
        import json_repair
    except ImportError as error:
        raise MissingPackage("json-repair", "llm", purpose) from error
    if len(text) > LONGEST:
        raise ValueError(f"the JSON is longer than {LONGEST:,} characters")
    if _depth(text) > DEEPEST:
        raise ValueError(f"the JSON is nested deeper than {DEEPEST} levels")
    return json_repair.loads(text)


def _depth(text: str) -> int:
    """Return the maximum nesting depth of brackets, including those in strings."""
    level = deepest = 0
    for bracket in _BRACKET.findall(text):
        level = level + 1 if bracket in "{[(" else max(0, level - 1)
        deepest = max(deepest, level)
    return deepest
