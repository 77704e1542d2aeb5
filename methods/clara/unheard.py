"""Lessons about names that nobody has heard (ours): worlds to train on have none, worlds to be asked about do.

A word of the train worlds is one token, an unheard one is spelt in pieces, in documents, questions and answers alike.
The pocket model was trained to copy such pieces (`methods.models.pocket.tasks`); memory must keep them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from benchmarks.draws import Draws
from benchmarks.worlds.lexicon import training_words
from benchmarks.worlds.unheard import NAME, replaced, unheard_words
from methods.clara.lessons import Exchange, Lesson
from methods.clara.rows import JointRow


def in_lessons(lessons: Sequence[Lesson], share: float, seed: int) -> list[Lesson]:
    """Lessons with a share of the names replaced, in each by a draw of its own.

    Args:
        lessons: Of worlds; text without words of train worlds stays as it is.
        share: Of the words of names.
        seed: Of the draws.
    """
    if not share:
        return list(lessons)
    return [_lesson(one, share, Draws("clara unheard", seed, place)) for place, one in enumerate(lessons)]


def in_rows(rows: Sequence[JointRow], share: float, seed: int) -> list[JointRow]:
    """Questions with a share of the names replaced, in all by one draw: documents that several share stay the same."""
    if not share:
        return list(rows)
    swaps = unheard_words(training_words(), share, Draws("clara unheard", seed, "rows"))
    return [
        replace(
            row,
            question=replaced(row.question, swaps),
            answer=replaced(row.answer, swaps),
            documents=_all(row.documents, swaps),
            golds=_all(row.golds, swaps),
        )
        for row in rows
    ]


def _lesson(lesson: Lesson, share: float, draws: Draws) -> Lesson:
    texts = [*lesson.documents, *(one.prompt.question for one in lesson.exchanges)]
    known = sorted({word for text in texts for word in NAME.findall(text)} & _known())
    swaps = unheard_words(known, share, draws)
    exchanges = (
        Exchange(replace(one.prompt, question=replaced(one.prompt.question, swaps)), replaced(one.target, swaps))
        for one in lesson.exchanges
    )
    return Lesson(_all(lesson.documents, swaps), tuple(exchanges))


def _all(texts: Iterable[str], swaps: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(replaced(text, swaps) for text in texts)


@cache
def _known() -> frozenset[str]:
    return frozenset(training_words())
