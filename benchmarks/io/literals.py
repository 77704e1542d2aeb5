"""Lists that a cell of a table or a field holds as text: in JSON, or as Python prints them.

NumPy prints an array without commas (`['a' 'b']`), and Python reads two quoted texts that follow each other as one. Such a text is
refused, because the answers in it would silently become a single one.
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
LIST = 'a list such as ["a", "b"] (in pandas: column.map(list), then to_json)'

_QUOTES = re.compile(r"""['"]\s*['"]""")
_ARRAY = re.compile(r"\[?\s*(?:array\(|np\.\w+\()")
_VALUES = {tokenize.STRING, tokenize.NUMBER}
_WORDS = {"...", "None", "True", "False", "nan"}
_MARKS = {"[", "]", ","}
_MINUS = re.compile(r"(?<=[\[\s])-(?=[\d.])")


def listed(text: str) -> list[Any] | None:
    """Return the list that a text writes, or None if it writes something else.

    Raises:
        ValueError: NumPy printed the list.
    """
    if printed_by_numpy(text):
        raise ValueError(NUMPY)
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value if isinstance(value, list) else None
    return None


def printed_by_numpy(text: str) -> bool:
    """Return whether a text is an array as NumPy prints it, a list of NumPy's scalars, or a list that lacks a comma."""
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
