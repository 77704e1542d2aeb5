"""Which gold strings an answer is held against, and every answer beside each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import Question
from judges.api import Batch, Parameter, Scores

GOLDS = Parameter("golds", str, "all", ("all", "first"), "the best of all accepted answers, or the first alone", quiet=True)
"""`first` is how CLaRa's and ARK's released code reads several answers."""


def accepted(question: Question, golds: str) -> tuple[str, ...]:
    """The strings that an answer may equal: every accepted one, or the first answer alone."""
    return question.golds if golds == "all" else question.answers[:1]


def references(question: Question, golds: str) -> tuple[str, ...]:
    """The texts that an answer may resemble.

    Those of `accepted`; of a set of answers all of them as one text, a line each in the dataset's order; none where the
    question cannot be answered.
    """
    if not question.answerable:
        return ()
    if question.answer_set and golds == "all":
        return ("\n".join(question.answers),)
    return accepted(question, golds)


@dataclass(frozen=True)
class Pairs:
    """Every answer of a batch beside each of its references, flat.

    Attributes:
        size: Number of questions.
        rows: Which question each pair belongs to. Shape (pairs,).
        answers, references: One text a pair each.
    """

    size: int
    rows: NDArray[np.int64]
    answers: list[str]
    references: list[str]

    def best(self, values: Scores) -> Scores:
        """The highest value of each question's pairs, NaN where it has none but NaN.

        Args:
            values: Shape (pairs,), NaN where a reference is no good.
        """
        found = np.full(self.size, np.nan)
        np.fmax.at(found, self.rows, values)
        return found

    @cached_property
    def asked(self) -> NDArray[np.bool_]:
        """Which questions have a pair at all. Shape (questions,)."""
        return np.bincount(self.rows, minlength=self.size) > 0


def pairs(batch: Batch, golds: str, usable: Callable[[str], bool] = bool) -> Pairs:
    """The pairs of a batch, made once for all metrics that ask for the same.

    Args:
        batch: Questions and predictions.
        golds: `all` or `first`.
        usable: Which references count.
    """

    def make() -> Pairs:
        texts: list[Sequence[str]] = [list(filter(usable, references(each, golds))) for each in batch.questions]
        rows = np.repeat(np.arange(len(batch)), np.fromiter(map(len, texts), np.int64, len(batch)))
        return Pairs(len(batch), rows, [batch.answers[row] for row in rows.tolist()], [text for row in texts for text in row])

    return batch.once(("pairs", golds, usable), make)
