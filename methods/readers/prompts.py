"""The instructions of readers: in the words that ship, in a template file's, or in those that a benchmark brings.

A reader that follows the benchmark (`reading: benchmark`) takes its prompt, its longest answer and its way of
shortening what is too long; passages then stand as they are, an empty line between them, and the answer is all that
the model wrote (see `extract.py`). Every method with that reader is read alike, and the run's fingerprint covers the instructions.

A reader of triples (`reading: triples`) asks as RoG does: the triples a line each, best match first, all answers as a
list of lines. What does not fit is cut from the bottom, never shuffled, and of a triple nothing is cut. Without triples
("no retrieval") the same prompt lacks the block of triples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from benchmarks.datasets.long_document import truncate_middle
from benchmarks.schema import Passage
from methods.api import FAILED, SUPPORT, Reading
from methods.models.endpoint import PER_MESSAGE, TokenCounter
from methods.models.likelihood import Span
from methods.models.weights import locate
from methods.prompts import Prompt, parse, shipped
from methods.readers.extract import Extract, Extracted, extract
from methods.work import Lengths, Work, ask, longest_reply, mean, unknown

PROMPTS = shipped("methods.readers", "passages", "closed_book", "triples", "triples_closed_book", optional=("passages",))


def numbered(passages: Sequence[Passage]) -> str:
    """Return passages as `[1] title: text`, white space collapsed, an empty line between them."""
    lines = []
    for number, passage in enumerate(passages, start=1):
        title = f"{' '.join(passage.title.split())}: " if passage.title else ""
        lines.append(f"[{number}] {title}{' '.join(passage.text.split())}")
    return "\n\n".join(lines)


FOLLOWED = "the benchmark's prompt"
TRIPLES = "triples"


class ReadingOptions(BaseModel):
    """Options of readers that prompt a language model."""

    prompt: str | None = Field(None, description="your own template file; null: the shipped one")
    closed_book_prompt: str | None = Field(None, description="prompt for questions without passages; null: the reader's own")
    reading: Literal["own", "benchmark", "benchmark_prompt", "triples"] = Field(
        "own",
        description="instructions: own (the templates above); benchmark (the benchmark's, with its maximum answer length); "
        "benchmark_prompt (its prompt with your own maximum answer length; ARK's code: 512); triples (like RoG: one "
        "triple per line, all answers as a list of lines)",
    )
    extract: Extract | None = Field(
        None,
        description="extraction of the answer from a reply: short (the short answer without surrounding text); last_line;"
        " none (the whole reply); {regex: …}; null: short if reading is own, else none",
    )

    @property
    def rule(self) -> Extract:
        """Return the rule that extracts the answer from a reply."""
        return self.extract or ("short" if self.reading == "own" else "none")

    @property
    def follows_benchmark(self) -> bool:
        """Return whether the benchmark's instructions are followed."""
        return self.reading in ("benchmark", "benchmark_prompt")

    def templates(self) -> str:
        """Return a hash of the templates, and a check that they can be used."""
        return content_hash(prompt.source for prompt in self.load())

    def load(self) -> tuple[Prompt, Prompt]:
        """Return the templates for questions with evidence and without.

        Raises:
            UserError: One of them cannot be used.
        """
        names = ("triples", "triples_closed_book") if self.reading == TRIPLES else ("passages", "closed_book")
        return PROMPTS[names[0]].load(self.prompt), PROMPTS[names[1]].load(self.closed_book_prompt)


class Instructions:
    """The prompts of a reader.

    Args:
        options: Whose instructions.
        reading: Those of the benchmark, where it brings some.

    Attributes:
        middle: Whether a prompt that is too long loses its middle; else it loses its last passages.
        triples: Whether triples are read, a line each.
        chat: Whether the prompt may be put into a model's chat format.

    Raises:
        UserError: The benchmark's are to be followed and there are none, or a template cannot be used.
    """

    def __init__(self, options: ReadingOptions, reading: Reading | None) -> None:
        self._followed: Reading | None = None
        if options.follows_benchmark:
            if reading is None:
                raise UserError(
                    "the reader follows the benchmark's instructions, but this benchmark has none",
                    code="missing-benchmark-instructions",
                    where="reading",
                    try_this="reading: own",
                )
            self._followed = reading
            self._passages = self._closed_book = PROMPTS["passages"].check(parse(reading.prompt, FOLLOWED), FOLLOWED)
        else:
            self._passages, self._closed_book = options.load()
        self._rule = options.rule
        self._own_length = options.reading != "benchmark"
        self.triples = options.reading == TRIPLES
        self.chat = self._followed is None or self._followed.chat
        self.middle = self._followed is not None and self._followed.truncation == "middle"

    def longest(self, own: int) -> int:
        """Return longest answer in tokens: the benchmark's where it is followed in that, else one's own."""
        return own if self._followed is None or self._own_length else self._followed.max_new_tokens

    def evidence(self, passages: Sequence[Passage]) -> str:
        """Return passages as they are in the prompt."""
        if self.triples:
            return "\n".join(" ".join(passage.full_text.split()) for passage in passages)
        if self._followed is None:
            return numbered(passages)
        return "\n\n".join(passage.full_text.strip() for passage in passages)

    def filled(self, question: str, evidence: str) -> tuple[str, str]:
        """Return system and user message."""
        prompt = self._passages if evidence else self._closed_book
        return prompt.pair(question=_with_mark(question) if self.triples else question, passages=evidence)

    def answer(self, text: str, passages: Sequence[Passage], prompt: str) -> Answered:
        """Return the answer in a reply.

        Args:
            text: The reply without its thought.
            passages: Those of the context.
            prompt: Tells which of them were shown under their number.
        """
        if not self.chat and self._rule == "none":
            return Answered(text)  # what resumes after examples or code: its indentation counts
        numbers = self._followed is None and not self.triples
        return answered(text, self._rule, passages if numbers else (), prompt)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer with the notes that belong to it."""

    text: str
    notes: Mapping[str, Any] = field(default_factory=dict)


def answered(text: str, rule: Extract, passages: Sequence[Passage], prompt: str) -> Answered:
    """Extract an answer; citation marks that number a passage of the prompt become claimed support."""

    def is_shown(number: int) -> bool:
        return 1 <= number <= len(passages) and f"[{number}] " in prompt

    result: Extracted = extract(text, rule, is_shown)
    notes: dict[str, Any] = {SUPPORT: [passages[number - 1].id for number in result.cited]} if result.cited else {}
    return Answered(result.text, notes if result.failed is None else {FAILED: result.failed})


def prompt_tokens(write: Callable[[str, Sequence[Passage]], Sequence[str]], lengths: Lengths, llm: Any, limit: int | None) -> float:
    """Return mean tokens of a prompt, counted on samples by the tokenizer of the options or of a local model, where it is here.

    Args:
        write: From a question and passages to the texts of the prompt.
        lengths: Holds the samples, and how many passages are handed on.
        llm: Options of the model.
        limit: Longest prompt; None: any.
    """
    counter = _counter(getattr(llm, "tokenizer", None), getattr(llm, "local", None) or getattr(llm, "model", ""))
    written = (write(item.question, cast(Sequence[Passage], lengths.shown_passages(item))) for item in lengths.samples)
    counted = [sum(counter.counts(list(texts))) for texts in written]
    return mean([min(number, limit or number) for number in counted])


@cache
def _counter(tokenizer: str | None, model: str) -> TokenCounter:
    try:
        own = Path(locate(model)) / "tokenizer.json"
    except UserError:
        own = Path()
    return TokenCounter(tokenizer or (str(own) if own.is_file() else None))


def reading_work(config: Any, lengths: Lengths, llm: Any, limit: int | None = None, before: float = 0.0) -> Work:
    """Return the work: one call a question, with the prompt that the reader writes.

    Args:
        config: Options of a reader.
        lengths: Of the data.
        llm: Options of its model.
        limit: Longest prompt where the options name none.
        before: Tokens that are before the prompt.
    """
    if config.follows_benchmark and lengths.reading is None:
        return unknown("prompts by instructions of the benchmark, which brings none")
    instructions = Instructions(config, lengths.reading)

    def write(question: str, passages: Sequence[Passage]) -> list[str]:
        return [text for text in instructions.filled(question, instructions.evidence(passages)) if text]

    framed = PER_MESSAGE * len(write("", ()))
    most = getattr(config, "max_prompt_tokens", None) or limit
    prompt = before + framed + prompt_tokens(write, lengths, llm, most and most - framed)
    return ask(llm, lengths.questions, prompt, instructions.longest(longest_reply(llm)))


def _with_mark(question: str) -> str:
    """Return a question with its question mark, as RoG's prompts have it."""
    text = question.strip()
    return text if text.endswith("?") else f"{text}?"


def longest_prefix(count: int, fits: Callable[[int], bool]) -> int:
    """Return how many of the first of `count` things fit, given that none fit: all, or what a search by halves finds."""
    if count and fits(count):
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def without_middle(text: str, spans: Sequence[Span], limit: int) -> tuple[str, int]:
    """Return a text of which the first and the last half of a number of tokens are left.

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
    """Return the longest text without its middle with which a prompt is not too long.

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
