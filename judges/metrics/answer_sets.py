"""Scores of an answer that must name a whole set, against `Question.answers` with `answer_set=True`.

The maximum over the golds, right where any of them suffices, would call one name out of five complete. Here the
prediction is compared with all of them, in any order and with any separators: punctuation is gone after
normalisation, and "and" between items is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from benchmarks.schema import Question
from benchmarks.text import covers, overlap_scores

Wordings = list[list[str]]
"""The accepted wordings of one answer, each as tokens."""

_LINK = "and"


def wanted_answers(question: Question, normalise: Callable[[str], str]) -> list[Wordings]:
    """The answers to be named, each with its wordings; what normalises to nothing, or the same, is left out."""
    groups: dict[str, Wordings] = {}
    for answer in question.answers:
        normal = dict.fromkeys(normalise(text) for text in (answer, *question.aliases.get(answer, ())))
        wordings = [text.split() for text in normal if text]
        if wordings:
            groups.setdefault(" ".join(wordings[0]), wordings)
    return list(groups.values())


def set_em(words: Sequence[str], groups: Sequence[Wordings]) -> float:
    """1 if the prediction is every answer once, in some wording and order, perhaps joined by "and"; else 0."""
    starts: dict[str, list[tuple[int, list[str]]]] = {}
    for number, wordings in enumerate(groups):
        for wording in wordings:
            starts.setdefault(wording[0], []).append((number, wording))
    # Lay answers end to end along the words; the set of answers used so far is a bit mask.
    complete = (1 << len(groups)) - 1
    seen: set[tuple[int, int]] = set()
    open_ends = [(0, 0)]
    while open_ends:
        end = open_ends.pop()
        if end in seen:
            continue
        seen.add(end)
        at, used = end
        if at == len(words):
            if used == complete:
                return 1.0
            continue
        if words[at] == _LINK:
            open_ends.append((at + 1, used))
        for number, wording in starts.get(words[at], ()):
            if not used >> number & 1 and list(words[at : at + len(wording)]) == wording:
                open_ends.append((at + len(wording), used | 1 << number))
    return 0.0


def set_precision_recall_f1(words: Sequence[str], groups: Sequence[Wordings]) -> tuple[float, float, float]:
    """Token overlap, as multisets, between the prediction and all answers together.

    Each answer stands in the wording of which the largest share occurs in the prediction; of those in the one with
    the most tokens in common, of those in the shortest.
    A complete answer by `set_em` has the value 1 in all three.
    """
    if set_em(words, groups):
        return 1.0, 1.0, 1.0
    predicted = Counter(words)

    def fit(wording: list[str]) -> tuple[float, int, int]:
        same = (Counter(wording) & predicted).total()
        return same / len(wording), same, -len(wording)

    wanted: Counter[str] = Counter()
    for wordings in groups:
        best: list[str] = max(wordings, key=fit)
        wanted.update(best)
    if predicted[_LINK] > wanted[_LINK]:
        predicted[_LINK] = wanted[_LINK]
    same = (predicted & wanted).total()
    return overlap_scores(same, predicted.total(), wanted.total())


def set_cover(prediction: str, groups: Sequence[Wordings], match: str) -> float:
    """1 if the normalised prediction contains every answer in some wording, else 0."""
    named = (any(covers(prediction, " ".join(wording), match) for wording in wordings) for wordings in groups)
    return float(all(named))
