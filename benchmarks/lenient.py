"""Compare answers leniently: texts that differ only in form are equal; texts that differ in a word, number or unit are not.

Form is: Unicode normalization (NFKC) and case, HTML entities, zero-width and other invisible characters, every kind of space,
quotation mark, apostrophe and dash, other punctuation of any script, thousands separators, digits of other scripts, "&" and
"and", "%" and "percent", English articles before a word, and whether words are written together, apart or with a hyphen
("well-known", "well known"). A yes/no gold also matches an answer that begins with it, followed by punctuation, and never
states the opposite ("Yes, both are.").

Not form, and therefore different: number words ("three"), ordinals ("second" for "2nd"), another order of words ("July 4" for
"4 July"), accents ("Beyonce"), further words ("北京市"), and what the official rules drop although it counts: the point of
"1.5", the minus of "-5", the plus of "C++" and the last word of "vitamin A".
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_QUOTES = "'\"`´‘’‚‛“”„‟′″‴‵‶‷ʹʺʻʼʽˈ«»‹›「」『』﹁﹂＂＇｀"
_DASHES = "‐‑‒–—―−﹘﹣－⁃"
_SPACED = re.compile(r"(?<=\d)[\u00a0\u202f\u2009](?=\d{3}(?!\d))")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_BARE_MARK = re.compile("(?:^| )[\u0300-\u036f]+")
"""An accent without a letter, which NFKC makes of an accent typed as an apostrophe."""
_MINUS = re.compile(r"(?<!\w)(?<!\d )-(?=\d)")
_LEADING_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
_POINT = re.compile(r"\.(?!\d)|(?<=[^\W\d])\.")
_PERCENT = re.compile(r"(?<=\d)\s*(?:%|percent\b|per cent\b)")
_SUFFIX = re.compile(r"(?<=\w)(\+{1,2}|#)(?!\w)")
_ARTICLES = frozenset(("a", "an", "the"))
_APART = re.compile(r" (?!\d)|(?<!\d) ")
_VERDICT = re.compile(r"\W*(yes|no)\s*(?:[^\w\s]|$)")
_OPPOSITE = {"yes": re.compile(r"\bno\b"), "no": re.compile(r"\byes\b")}

# Signs that are kept, under characters that NFKC never leaves in a text.
_KEPT = {"-": "－", "+": "＋", "#": "＃"}


class _Characters(dict[int, str]):
    """Translation table: each character maps to itself, nothing, a space, or the ASCII digit of the same value."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)
        if character in (".", *_KEPT.values()):
            result = character
        elif kind == "Nd":
            result = str(unicodedata.decimal(character))
        elif character.isspace() or kind[0] in "PSZ":
            result = " "
        elif kind in ("Cf", "Cc", "Cs") or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            result = ""
        else:
            result = character
        self[code] = result
        return result


_CHARACTERS = _Characters()
_SPELLINGS = str.maketrans({**dict.fromkeys(_QUOTES), **dict.fromkeys(_DASHES, "-")})


@lru_cache(maxsize=1 << 15)
def _visible(text: str) -> str:
    """Normalize entities, invisible characters, quotes, dashes and letters, and fold case."""
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if not text.isascii():
        text = "".join([character for character in text if unicodedata.category(character) != "Cf"])
    text = _SPACED.sub("", text).translate(_SPELLINGS)
    if text.isascii():
        return _GROUPED.sub("", text.lower())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _GROUPED.sub("", _BARE_MARK.sub("", folded.translate(_SPELLINGS).replace("i\u0307", "i")))


def lenient(text: str) -> str:
    """Normalize a text under the lenient rules; returns its words, separated by single spaces."""
    visible = _MINUS.sub(_KEPT["-"], _visible(text))
    visible = _PERCENT.sub("", _LEADING_POINT.sub("0.", visible))
    visible = _SUFFIX.sub(lambda sign: "".join(_KEPT[mark] for mark in sign[1]), visible)
    words = _POINT.sub("", visible.replace("&", " and ")).translate(_CHARACTERS).split()
    # An article is before its noun: the last word is none ("vitamin A", "The The").
    return " ".join([word for position, word in enumerate(words) if word not in _ARTICLES or position == len(words) - 1])


def same_but_form(answer: str, normal: str, gold: str) -> bool:
    """Return whether an answer differs from a gold only in form.

    Args:
        answer: The original answer.
        normal, gold: Answer and gold, normalized by `lenient`.
    """
    if normal == gold or (normal and _APART.sub("", normal) == _APART.sub("", gold)):
        return True
    return gold in _OPPOSITE and _verdict(answer) == gold


def _verdict(answer: str) -> str | None:
    """Return the yes or no that an answer begins with, if punctuation follows and the answer never states the opposite."""
    visible = _visible(answer)
    result = _VERDICT.match(visible)
    if result is None or _OPPOSITE[result[1]].search(visible):
        return None
    return result[1]
