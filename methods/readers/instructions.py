"""What a reader is told to do: in the words that ship, in a template file's, or in those that a benchmark brings.

A reader that follows the benchmark (`reading: benchmark`) takes its prompt, its longest answer and its way of
shortening what is too long; passages then stand as they are, an empty line between them, and the answer is all that
the model wrote. Every method with that reader is read alike, and the run's fingerprint covers the instructions.

A reader of triples (`reading: triples`) asks as RoG does: the triples a line each, best match first, all answers as a
list of lines. What does not fit is cut from the bottom, never shuffled, and of a triple nothing is cut. Without triples
("no retrieval") the same prompt lacks the block of triples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel, Field

from benchmarks.datasets.long_document import truncate_middle
from benchmarks.errors import UserError
from benchmarks.schema import Passage
from methods.api import Reading
from methods.models.encoding import Span
from methods.readers.prompting import Prompt, bare_answer, load_prompt, numbered, parse_prompt, prompt_hash

FOLLOWED = "the benchmark's prompt"
TRIPLES = "triples"


class ReadingOptions(BaseModel):
    """Options of readers that prompt a language model."""

    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")
    closed_book_prompt: str | None = Field(None, description="the same, for questions that come without a passage")
    reading: Literal["own", "benchmark", "benchmark_prompt", "triples"] = Field(
        "own",
        description="whose instructions: own, the templates above; benchmark, those that the benchmark brings, its "
        "longest answer included; benchmark_prompt, its prompt with one's own longest answer (ARK's code: 512); "
        "triples, as RoG: a triple a line, all answers as a list of lines",
    )

    @property
    def follows_benchmark(self) -> bool:
        """Whether the benchmark's instructions are followed."""
        return self.reading in ("benchmark", "benchmark_prompt")

    def templates(self) -> str:
        """A hash of the templates, and a check that they can be used."""
        shipped, closed_book = self.shipped
        load_prompt(self.prompt, shipped)
        load_prompt(self.closed_book_prompt, closed_book)
        return prompt_hash((self.prompt, shipped), (self.closed_book_prompt, closed_book))

    @property
    def shipped(self) -> tuple[str, str]:
        """The templates that ship for this reading, with evidence and without."""
        return ("triples", "triples_closed_book") if self.reading == TRIPLES else ("passages", "closed_book")


class Instructions:
    """The prompts of a reader.

    Args:
        options: Whose instructions.
        reading: Those of the benchmark, where it brings some.

    Attributes:
        middle: Whether a prompt that is too long loses its middle; else it loses its last passages.
        triples: Whether triples are read, a line each.

    Raises:
        UserError: The benchmark's are to be followed and there are none, or a template cannot be used.
    """

    def __init__(self, options: ReadingOptions, reading: Reading | None) -> None:
        self._followed: Reading | None = None
        if options.follows_benchmark:
            if reading is None:
                raise UserError(
                    "the reader follows the benchmark's instructions, and none came with the questions",
                    where="reading",
                    try_this="reading: own",
                )
            self._followed = reading
            self._passages = self._closed_book = parse_prompt(reading.prompt, FOLLOWED)
        else:
            shipped, closed_book = options.shipped
            self._passages = load_prompt(options.prompt, shipped)
            self._closed_book = load_prompt(options.closed_book_prompt, closed_book)
        self._own_length = options.reading != "benchmark"
        self.triples = options.reading == TRIPLES
        self.middle = self._followed is not None and self._followed.truncation == "middle"

    def longest(self, own: int) -> int:
        """Longest answer in tokens: the benchmark's where it is followed in that, else one's own."""
        return own if self._followed is None or self._own_length else self._followed.max_new_tokens

    def evidence(self, passages: Sequence[Passage]) -> str:
        """Passages as they stand in the prompt."""
        if self.triples:
            return "\n".join(" ".join(passage.full_text.split()) for passage in passages)
        if self._followed is None:
            return numbered(passages)
        return "\n\n".join(passage.full_text.strip() for passage in passages)

    def filled(self, question: str, evidence: str) -> tuple[str, str]:
        """System and user message."""
        prompt: Prompt = self._passages if evidence else self._closed_book
        return prompt.filled(_asked(question) if self.triples else question, evidence)

    def answer(self, reply: str) -> str:
        """The answer in a reply."""
        return bare_answer(reply) if self._followed is None and not self.triples else reply.strip()


def _asked(question: str) -> str:
    """A question with its question mark, as RoG's prompts have it."""
    text = question.strip()
    return text if text.endswith("?") else f"{text}?"


def longest_prefix(count: int, fits: Callable[[int], bool]) -> int:
    """How many of the first of `count` things fit, given that none do: a search by halves, since fewer fit better."""
    low, high = 0, count + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def without_middle(text: str, spans: Sequence[Span], limit: int) -> tuple[str, int]:
    """A text of which the first and the last half of a number of tokens are left.

    Args:
        text: The text.
        spans: Characters of each of its tokens, in order.
        limit: Tokens that may stay; of an odd limit one is not used.

    Returns:
        What is left, and of how many tokens that is made.
    """
    kept = truncate_middle(spans, max(0, limit))
    if len(kept) == len(spans):
        return text, len(spans)
    half = len(kept) // 2
    return (text[: kept[half - 1][1]] + text[kept[half][0] :] if half else ""), len(kept)


def fit_middle(text: str, spans: Sequence[Span], excess: Callable[[str], int], limit: int | None = None) -> tuple[str, int] | None:
    """The longest text without its middle with which a prompt is not too long.

    Args:
        text: What may be shortened.
        spans: Characters of its tokens.
        excess: Tokens by which the prompt with such a text is too long.
        limit: Tokens to begin with; None: all.

    Returns:
        The text and its number of tokens; None where the prompt is too long even without it.
    """
    keep = len(spans) if limit is None else min(limit, len(spans))
    while True:
        short, kept = without_middle(text, spans, keep)
        over = excess(short)
        if over <= 0:
            return short, kept
        if not kept:
            return None
        # Tokens at the seam may join or fall apart, so what is left is measured again.
        keep = max(0, kept - over)
