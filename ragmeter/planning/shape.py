"""What a plan knows of a benchmark: how many questions, and a few of them with their passages for the lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.errors import UserError
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage
from methods.api import Reading
from methods.models.tokens import CHARACTERS_PER_TOKEN

SEARCHED = 100
"""Passages shown of a corpus that has no candidates, and triples of a graph."""
Origin = Literal["counted", "sampled", "stated", "unknown"]


@dataclass(frozen=True)
class Asked:
    """A question as a method meets it.

    Attributes:
        question: Its text.
        passages: Those that it may use; of a corpus, or of a graph's triples, the first ones.
        answer: An answer to it.
        candidates: How many it may use.
    """

    question: str
    passages: tuple[Passage, ...]
    answer: str
    candidates: int


@dataclass(frozen=True)
class Shape:
    """What a benchmark is like in a setting.

    Attributes:
        reference: The data.
        questions: How many; None: unknown.
        origin: counted: the data are here; sampled: some of what is generated was made; stated: by card and typical
            lengths; unknown: nothing is known of lengths.
        asked: Questions that lengths are taken from.
        corpus: Passages of the corpus, at most; None: unknown.
        passage: Mean tokens of one of them.
        whole: Whether all of the corpus is searched, for want of candidates.
        reading: How its authors have it read.
        benchmark: What was read: all of it where it was counted, a few questions where it was sampled.
        absent: Why they are not here, where they are not: each file.
        whole_number: How many are stated of them, where a local file holds only a sample.
    """

    reference: DataReference
    questions: int | None
    origin: Origin
    asked: tuple[Asked, ...] = ()
    corpus: int | None = None
    passage: float = 0.0
    whole: bool = False
    reading: Reading | None = None
    benchmark: Benchmark | None = None
    absent: tuple[UserError, ...] = ()
    whole_number: int | None = None

    @property
    def question(self) -> float:
        """Mean tokens of a question."""
        return mean([tokens(one.question) for one in self.asked])

    @property
    def answer(self) -> float:
        """Mean tokens of an answer."""
        return mean([tokens(one.answer) for one in self.asked])

    @property
    def candidates(self) -> float:
        """Mean number of passages that a question may use; of a corpus without candidates all."""
        return float(self.corpus or 0) if self.whole else mean([one.candidates for one in self.asked])

    @property
    def document(self) -> float:
        """Mean tokens of all passages that a question may use."""
        shown = [tokens(passage.full_text) for one in self.asked for passage in one.passages]
        return mean(shown) * mean([one.candidates for one in self.asked])


def tokens(text: str) -> int:
    """Tokens of a text, as estimates count them."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0
