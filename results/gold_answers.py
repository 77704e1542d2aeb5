"""Which accepted answers are worth looking for in a text, and where they stand there; for pages that mark them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from benchmarks.answer_places import answer_places
from benchmarks.text import is_abstention, normalise

_VERDICTS = frozenset(("yes", "no", "true", "false"))
_MOST = 300
"""Golds of one question that are looked for: some graph questions accept a thousand."""


def sought(golds: Iterable[str]) -> tuple[str, ...]:
    """The golds whose place in a text says something, each once.

    Left out are yes and no, true and false, what stands for no answer at all, and golds of which normalisation leaves a
    single character or nothing: those stand everywhere without meaning the answer.
    """
    found = (gold for gold in golds if len(normal := normalise(gold)) > 1 and normal not in _VERDICTS and not is_abstention(gold))
    return tuple(dict.fromkeys(found))[:_MOST]


@lru_cache(maxsize=512)
def places(text: str, golds: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Where a text holds one of these answers, by the rule of the metric has_answer; kept, because methods return the
    same passages.

    Args:
        text: What is looked through, all of it.
        golds: As `sought` gives them.
    """
    return tuple(answer_places(text, golds))
