"""Names that no training has heard: made of the beginning of one train word and the end of another.

Worlds for validation and test have words of their own, and a reader must copy names that it has never seen. None of
those words is made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from benchmarks.draws import Draws
from benchmarks.worlds.lexicon import training_words, words

NAME = re.compile(r"[A-Z][a-z]{3,}")
"""What a word of a name looks like in a text."""


def unheard_words(known: Iterable[str], share: float, draws: Draws) -> dict[str, str]:
    """Unheard words in the place of a share of known ones.

    Args:
        known: Words, in an order of their own.
        share: Of them that is replaced.
        draws: The source of chance.
    """
    every = set(words())
    found: dict[str, str] = {}
    for word in known:
        if draws.chance(share):
            other = draws.pick(training_words())
            made = word[: max(3, len(word) // 2)] + other[len(other) // 2 :]
            if made not in every:
                found[word] = made
    return found


def replaced(text: str, swaps: Mapping[str, str]) -> str:
    """A text with words of names replaced."""
    return NAME.sub(lambda match: swaps.get(match[0], match[0]), text)
