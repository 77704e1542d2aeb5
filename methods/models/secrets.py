"""Mask secrets (API keys and header values) in texts from endpoints.

Some services repeat a key in an error message or a reply, possibly in another encoding. Every text from an endpoint passes
through `hidden` before it is shown, cached or stored.
"""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

HIDDEN = "***"
_SHORTEST, _SHORTEST_PLAIN = 8, 16
_used: dict[str, re.Pattern[str] | None] = {}
"""Registered secrets, some with a pattern that also matches them with other characters in between."""


def use(secret: str) -> str:
    """Register a secret for masking, and return it.

    A text counts as secret if it has at least 8 characters with both letters and digits, or at least 16 characters.
    Placeholders such as `EMPTY` are not masked, because that would change answers.
    """
    mixed = re.search(r"[0-9]", secret) and re.search(r"[A-Za-z]", secret)
    if secret not in _used and len(secret) >= (_SHORTEST if mixed else _SHORTEST_PLAIN):
        apart = r"[\W_]{0,3}".join(map(re.escape, secret))
        _used[secret] = re.compile(apart, re.IGNORECASE) if mixed and len(secret) >= _SHORTEST_PLAIN else None
        for form in _encoded(secret):
            _used.setdefault(form, None)
    return secret


def _encoded(secret: str) -> set[str]:
    """Return a secret's forms in URLs, JSON, hexadecimal and base64 (at any offset)."""
    raw = secret.encode("utf-8", "replace")
    forms = {quote(secret, safe=""), json.dumps(secret)[1:-1], json.dumps(secret)[1:-1].replace("/", "\\/"), raw.hex()}
    forms.add("".join(f"%{byte:02x}" for byte in raw))
    forms |= {raw.hex().upper(), *(re.sub("%..", lambda code: code[0].upper(), form) for form in forms)}
    forms |= {re.sub("%..", lambda code: code[0].lower(), form) for form in forms}
    for before in range(3):
        # The first and last letters also depend on what stands around the secret.
        whole = raw[: len(raw) - (len(raw) + before) % 3]
        text = base64.b64encode(b"\0" * before + whole).decode()[(0, 2, 3)[before] :]
        forms |= {text, text.replace("+", "-").replace("/", "_")}
    return {form for form in forms if len(form) >= _SHORTEST}


def hidden(text: str) -> str:
    """Replace each registered secret in a text with `***`, longest first."""
    for secret in sorted((secret for secret in _used if secret in text), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _used.values():
        if pattern is not None:
            text = pattern.sub(HIDDEN, text)
    return text
