"""Rows that are too long for a prompt are found before the first step, not at whatever step would meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from benchmarks.errors import UserError
from methods.clara.lessons import Lesson
from methods.clara.prompting import Prompt, answer
from methods.clara.rows import JointRow

Item = TypeVar("Item")
_SLACK = 16
"""Tokens that may come of two texts touching."""


def fits(generator: Any) -> Callable[[Prompt, str], bool]:
    """Whether a prompt with its reply fits, which is counted only where it is not certain.

    A text has at most as many tokens as bytes, so most rows need not be tokenised.

    Args:
        generator: Counts tokens, and knows how many fit.
    """

    @lru_cache(64)
    def frame(prompt: Prompt) -> int:
        return int(generator.length(prompt))

    def decide(prompt: Prompt, target: str) -> bool:
        texts = (prompt.question, *prompt.texts, target)
        bound = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + _SLACK * len(texts)
        empty = replace(prompt, question="", texts=("",) * len(prompt.texts))
        return frame(empty) + bound <= generator.room or generator.length(prompt, target) <= generator.room

    return decide


def fitting_lessons(lessons: Sequence[Lesson], generator: Any, skip: bool) -> list[Lesson]:
    """Lessons without what is too long; a lesson with nothing left to ask is left out.

    Args:
        lessons: As they would be taught.
        generator: See `fits`.
        skip: Whether what is too long is left out; otherwise it is refused.

    Raises:
        UserError: Something is too long and is not to be left out, or nothing is left.
    """
    decide = fits(generator)
    every = [(one.prompt, one.target) for lesson in lessons for one in lesson.exchanges]
    _require(every, decide, generator, skip)
    kept = (replace(lesson, exchanges=tuple(one for one in lesson.exchanges if decide(one.prompt, one.target))) for lesson in lessons)
    return _some([lesson for lesson in kept if lesson.exchanges])


def fitting_rows(rows: Sequence[JointRow], generator: Any, k: int, skip: bool) -> list[JointRow]:
    """Rows of joint training without those that are too long, answered from at most k documents.

    Raises:
        UserError: As `fitting_lessons`.
    """
    decide = fits(generator)

    def asked(row: JointRow) -> tuple[Prompt, str]:
        return answer(row.question, min(k, len(row.documents))), row.answer

    _require([asked(row) for row in rows], decide, generator, skip)
    return _some([row for row in rows if decide(*asked(row))])


def held_out_that_fit(
    lessons: Sequence[Lesson], questions: Sequence[JointRow], generator: Any, k: int | None, longest: int
) -> tuple[list[Lesson], list[JointRow]]:
    """Held-out rows without what is too long: a curve must not end a training.

    Args:
        lessons: As they would be taught.
        questions: To be answered, from at most k documents (None: from all of them).
        generator: See `fits`.
        k: Documents that are chosen.
        longest: Tokens that an answer may take.
    """
    decide = fits(generator)

    def answered(row: JointRow) -> bool:
        count = len(row.documents) if k is None else min(k, len(row.documents))
        prompt = answer(row.question, count)
        return decide(prompt, row.answer) and generator.length(prompt) + longest <= generator.room

    kept = [lesson for lesson in lessons if all(decide(one.prompt, one.target) for one in lesson.exchanges)]
    return kept, [row for row in questions if answered(row)]


def _require(every: Iterable[tuple[Prompt, str]], decide: Callable[[Prompt, str], bool], generator: Any, skip: bool) -> None:
    if skip:
        return
    long = [(prompt, target) for prompt, target in every if not decide(prompt, target)]
    if long:
        prompt, target = long[0]
        raise UserError(
            f"{len(long):,} prompts are too long with their replies; the first, of kind {prompt.kind}, takes "
            f"{generator.length(prompt, target):,} tokens where {generator.room:,} fit",
            where=(prompt.question or target)[:80],
            try_this="a higher model.max_prompt, or skip_long=true, which leaves them out",
        )


def _some(kept: list[Item]) -> list[Item]:
    if not kept:
        raise UserError("no row fits the longest prompt", where="model.max_prompt", try_this="a higher one")
    return kept
