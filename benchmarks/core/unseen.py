"""Characters that change what is shown of other texts; submissions and replies may hold them."""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, color or clear the screen (ESC, C0 and C1 codes), turn the direction of text, or have no
width. Joiners (U+200C, U+200D) stay: scripts of India and Persian need them."""


def printable(text: str) -> str:
    """Return a text without the characters that can change what is shown of other texts."""
    return UNSEEN.sub("", text)
