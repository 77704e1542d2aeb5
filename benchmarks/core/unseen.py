"""Remove control characters from untrusted texts (submissions, model replies), which could alter the terminal or other text."""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control characters that move the cursor, color or clear the screen, reverse text direction, or have no width. The joiners
U+200C and U+200D are kept, because Indic scripts and Persian need them.
"""


def printable(text: str) -> str:
    """Return a text without control characters that could affect how other text is displayed."""
    return UNSEEN.sub("", text)
