"""Parse lists that are stored as text in a cell or field, as JSON or in Python's notation.

Arrays printed by NumPy (`['a' 'b']`) are refused: without commas, Python would join adjacent strings into one answer.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from itertools import pairwise
from typing import Any

NUMPY = "the list is written as NumPy prints it, without commas between its items"
UNREADABLE = "the list cannot be read: it is cut off, or a quote or comma is missing"
LIST = 'a list such as ["a", "b"] (in pandas: column.map(list), then to_json)'

_QUOTES = re.compile(r"""['"]\s*['"]""")
_TEXTS = re.compile(r"""\s*\[\s*(?:['"]\w|nan\s*[],])""")
_ARRAY = re.compile(r"\[?\s*(?:array\(|np\.\w+\()")
_VALUES = {tokenize.STRING, tokenize.NUMBER}
_WORDS = {"...", "None", "True", "False", "nan"}
_MARKS = {"[", "]", ","}
_MINUS = re.compile(r"(?<=[\[\s])-(?=[\d.])")


def listed(text: str) -> list[Any] | None:
    """Parse a text as a list; None if it is not one.

    Raises:
        ValueError: NumPy printed the list, it cannot be read, or texts are in a tuple, set or object instead.
    """
    if printed_by_numpy(text):
        raise ValueError(NUMPY)
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, tuple | set | dict) and any(isinstance(item, str) for item in value):
            raise ValueError(f"a {type(value).__name__} is written as text")
        return value if isinstance(value, list) else None
    if _TEXTS.match(text):
        raise ValueError(UNREADABLE)
    return None


def printed_by_numpy(text: str) -> bool:
    """Return whether a text is an array printed by NumPy, a list of NumPy scalars, or a list without commas."""
    text = text.strip()
    if _ARRAY.match(text):
        return True
    # The tokenizer takes fifty microseconds: a list of texts with commas never gets there.
    if not (text.startswith("[") and text.endswith("]")) or ("," in text and not _QUOTES.search(text)):
        return False
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(_MINUS.sub("", text)).readline) if token.string.strip()]
    except (tokenize.TokenError, SyntaxError):
        return False
    values = [token.type in _VALUES or token.string in _WORDS for token in tokens]
    if not all(value or token.string in _MARKS for value, token in zip(values, tokens, strict=True)):
        return False
    return any(left and right for left, right in pairwise(values))
