"""Secrets that this process sends to endpoints: API keys and values of headers.

Some services repeat a key in an error message or in a reply. Every text that an endpoint sends passes `hidden` before it
is shown, cached or stored.
"""

from __future__ import annotations

import re

HIDDEN = "***"
_SHORTEST, _SHORTEST_PLAIN = 8, 16
_used: set[str] = set()


def use(secret: str) -> str:
    """Remember a secret and return it.

    Words such as `EMPTY` or `not-needed`, which servers without keys are given, are no secrets: hiding them would change
    answers. A secret has at least 8 characters and both letters and digits, or at least 16 characters.
    """
    mixed = re.search(r"[0-9]", secret) and re.search(r"[A-Za-z]", secret)
    if len(secret) >= (_SHORTEST if mixed else _SHORTEST_PLAIN):
        _used.add(secret)
    return secret


def hidden(text: str) -> str:
    """Return a text with `***` in place of each secret in use; the longest first, since one may contain another."""
    for secret in sorted((secret for secret in _used if secret in text), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
