"""Where in a text an accepted answer stands: the places behind `has_answer`, for whoever marks or quotes them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from benchmarks.text import ASCII_WORD, dpr_word, normalise

_RUNS = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")


def answer_places(text: str, golds: Iterable[str], *, most: int = 200) -> list[tuple[int, int]]:
    """Where the tokens of any gold occur consecutively in a text, by the rule of `has_answer`.

    Args:
        text: Any text.
        golds: Accepted strings; one without tokens occurs nowhere.
        most: So many occurrences of each gold are looked for.

    Returns:
        First character and the one after the last of each place, in order; places that overlap are one.
    """
    lowered = text.lower()
    wanted = {normal for gold in golds if (normal := normalise(gold, "dpr")) and _possible(lowered, normal)}
    if not wanted:
        return []
    tokens, starts, ends = _tokens(text)
    padded = f" {' '.join(tokens).lower()} "
    found = sorted(place for gold in wanted for place in _token_places(padded, f" {gold} ", most))
    merged: list[tuple[int, int]] = []
    for first, last in found:
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return [(starts[first], ends[last - 1]) for first, last in merged]


def _possible(lowered: str, gold: str) -> bool:
    """Whether the plain words of a normal form are in a text at all: most texts are done with by this, and cutting one
    into tokens takes a hundred times as long."""
    return all(word in lowered for word in gold.split() if word.isascii() and word.isalnum())


def _token_places(padded: str, gold: str, most: int) -> list[tuple[int, int]]:
    """First token and the one after the last of each occurrence; both texts have a space before each of their tokens
    and one at the end."""
    found: list[tuple[int, int]] = []
    length, token, seen = gold.count(" ") - 1, 0, 0
    at = padded.find(gold)
    while at >= 0 and len(found) < most:
        token += padded.count(" ", seen, at)
        seen = at
        found.append((token, token + length))
        at = padded.find(gold, at + 1)
    return found


def _tokens(text: str) -> tuple[list[str], list[int], list[int]]:
    """The tokens of the dpr rules, not lower-cased; where each starts in the text as it is, and where it ends."""
    if text.isascii():
        found = list(ASCII_WORD.finditer(text))
        return [match[0] for match in found], [match.start() for match in found], [match.end() for match in found]
    normal, origins = _decomposed(text)
    found = list(dpr_word().finditer(normal))
    return ([match[0] for match in found], [origins[match.start()] for match in found], [origins[match.end() - 1] + 1 for match in found])


def _decomposed(text: str) -> tuple[str, list[int]]:
    """The NFD form, and for each of its characters the place of the one that it comes from."""
    parts: list[str] = []
    origins: list[int] = []
    for run in _RUNS.finditer(text):
        piece = run[0]
        # Marks change places within what follows one letter alone, so runs can be decomposed one by one.
        if unicodedata.is_normalized("NFD", piece):
            parts.append(piece)
            origins.extend(range(run.start(), run.end()))
            continue
        parts.append(unicodedata.normalize("NFD", piece))
        for place, character in enumerate(piece, run.start()):
            origins += [place] * len(unicodedata.normalize("NFD", character))
    return "".join(parts), origins
