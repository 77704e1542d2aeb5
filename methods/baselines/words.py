"""Tokenization for BM25: normalize texts and split them into words of any script.

Texts and queries are normalized first (full-width letters, decomposed accents, curly quotes, zero-width spaces). A word is two
or more letters or digits. In scripts without spaces (Chinese, kana, Thai, Lao, Khmer, Burmese) and in Korean, which attaches
particles, every pair of neighboring characters is a word. C++, C# and .NET keep their signs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import NamedTuple

_HAN_KANA = "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters and kana."""
_UNSPACED = (
    _HAN_KANA
    + "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    + "\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf"  # Lao
    + "\u1000-\u103f\u1050-\u109d"  # Burmese
    + "\u1780-\u17d3"  # Khmer
    + "\u1100-\u11ff\uac00-\ud7a3"  # Korean
)
"""Characters of scripts that are split into pairs."""
_MARKS = "\u0300-\u036f" + "".join(
    f"{chr(block + first)}-{chr(block + last)}"
    for block in range(0x900, 0xE00, 0x80)
    for first, last in ((0x00, 0x03), (0x3A, 0x4F), (0x51, 0x57), (0x62, 0x63))
)
"""Combining accents and Indic vowel signs, which belong to words but not to `\\w`."""


_ONE, _LETTER = f"[{_UNSPACED}]", rf"[^\W{_UNSPACED}]"
_REST = rf"(?:[{_MARKS}]+{_LETTER}*)*"
_PAIRS = "{one}{{2}}|(?<!{one}){one}(?!{one})"
_NAMES = r"(?<!\w)[^\W\d_](?:\+\+|#)(?![^\W\d_])|(?<![\w.])\.[^\W\d_]{2,}(?!\w)"
# A word is what the group finds ahead; behind it the pattern passes one character, or all letters of the word.
WORDS = rf"(?=({_LETTER}(?:{_LETTER}+|(?=[{_MARKS}])){_REST}|{_PAIRS.format(one=_ONE)}|{_NAMES}))(?:\.?{_LETTER}+{_REST}|{_ONE})"
"""Pattern of a word in a text normalized by `one_form`."""
BM25S = rf"(?=({_PAIRS.format(one=f'[{_HAN_KANA}]')}|[^\W{_HAN_KANA}]{{2,}}))(?:[{_HAN_KANA}]|[^\W{_HAN_KANA}]+)"
"""Pattern of a word in bm25s; for Chinese and kana, pairs of characters."""

_OPTIONAL = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\ufe00-\ufe0f]")
"""Characters to remove: optional Hebrew and Arabic vowel points, Arabic tatweel, and variation selectors."""
_QUOTES = str.maketrans("‘’‚‛“”„‟′″", "''''\"\"\"\"'\"")


def one_form(text: str) -> str:
    """Normalize a text: compatibility characters, case, quotes, and invisible characters. ASCII texts are returned unchanged."""
    if text.isascii():
        return text
    shown = "".join([character for character in text if unicodedata.category(character) != "Cf"])
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", shown).casefold())
    return _OPTIONAL.sub("", folded.replace("i\u0307", "i")).translate(_QUOTES)


STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with",
    )
)
"""English stopwords of bm25s, equal to Lucene's."""


class Tokenized(NamedTuple):
    """Word numbers of each text, and the number of each word; the input of `bm25s` for building an index."""

    ids: list[list[int]]
    vocab: dict[str, int]


def numbered(texts: Iterable[str], pattern: str, stopwords: frozenset[str], stems: Callable[[list[str]], list[str]] | None) -> Tokenized:
    """Tokenize texts into numbered lower-case words, as `bm25s.tokenize` does.

    Args:
        texts: The texts.
        pattern: Pattern of a word.
        stopwords: Words to leave out.
        stems: Function that stems words; None for no stemming.
    """
    split = re.compile(pattern).findall
    words: dict[str, int] = {}
    ids = [[words.setdefault(word, len(words)) for word in split(text.lower()) if word not in stopwords] for text in texts]
    if stems is None:
        return Tokenized(ids, words)
    vocabulary: dict[str, int] = {}
    numbers = [vocabulary.setdefault(stem, len(vocabulary)) for stem in stems(list(words))]
    return Tokenized([[numbers[word] for word in text] for text in ids], vocabulary)
