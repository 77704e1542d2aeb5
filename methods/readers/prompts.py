"""Build the prompts of readers: the shipped instructions, a user's template, or a benchmark's official instructions.

With `reading: benchmark`, a reader uses the benchmark's prompt, maximum answer length and truncation. Passages are inserted
unchanged, separated by empty lines, and the whole reply is the answer. The instructions are part of the run's fingerprint.

With `reading: triples`, the prompt is RoG's: one triple per line, best first, and all answers requested as a list of lines.
Triples that do not fit are dropped from the end. Without triples ("no retrieval"), the block of triples is omitted.
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
from methods.models.counting import PER_MESSAGE, TokenCounter
from methods.models.likelihood import Span
from methods.models.reply import READING
from methods.models.weights import locate
from methods.prompts import Prompt, parse, shipped
from methods.readers.extract import Extract, Extracted, extract
from methods.work import Lengths, Work, ask, longest_reply, mean, unknown

PROMPTS = shipped("methods.readers", "passages", "closed_book", "triples", "triples_closed_book", optional=("passages",))


def numbered(passages: Sequence[Passage]) -> str:
    """Format passages as `[1] title: text` with collapsed white space, separated by empty lines."""
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
        """Return the rule for extracting the answer from a reply."""
        return self.extract or ("short" if self.reading == "own" else "none")

    @property
    def follows_benchmark(self) -> bool:
        """Return whether the benchmark's instructions are used."""
        return self.reading in ("benchmark", "benchmark_prompt")

    def templates(self) -> str:
        """Return a hash of the templates, after checking that they are valid, and of how replies are read."""
        return content_hash([*(prompt.source for prompt in self.load()), str(READING)])

    def load(self) -> tuple[Prompt, Prompt]:
        """Load the templates for questions with and without evidence.

        Raises:
            UserError: A template is invalid.
        """
        names = ("triples", "triples_closed_book") if self.reading == TRIPLES else ("passages", "closed_book")
        return PROMPTS[names[0]].load(self.prompt), PROMPTS[names[1]].load(self.closed_book_prompt)


class Instructions:
    """Prompts of a reader.

    Args:
        options: Options that select the instructions.
        reading: The benchmark's instructions, if it has any.

    Attributes:
        middle: Whether to remove the middle of a prompt that is too long; otherwise its last passages are dropped.
        triples: Whether the evidence consists of triples, one per line.
        chat: Whether the prompt may be put into a model's chat format.

    Raises:
        UserError: The benchmark's instructions are requested but do not exist, or a template is invalid.
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
        """Return the maximum answer length in tokens: the benchmark's if it is used, else `own`."""
        return own if self._followed is None or self._own_length else self._followed.max_new_tokens

    def evidence(self, passages: Sequence[Passage]) -> str:
        """Format passages as they appear in the prompt."""
        if self.triples:
            return "\n".join(" ".join(passage.full_text.split()) for passage in passages)
        if self._followed is None:
            return numbered(passages)
        return "\n\n".join(passage.full_text.strip() for passage in passages)

    def filled(self, question: str, evidence: str) -> tuple[str, str]:
        """Return the filled system and user message."""
        prompt = self._passages if evidence else self._closed_book
        return prompt.pair(question=_with_mark(question) if self.triples else question, passages=evidence)

    def answer(self, text: str, passages: Sequence[Passage], prompt: str) -> Answered:
        """Extract the answer from a reply.

        Args:
            text: The reply without its reasoning.
            passages: Passages of the context.
            prompt: The prompt, which shows which passage numbers occurred in it.
        """
        if not self.chat and self._rule == "none":
            return Answered(text)  # what resumes after examples or code: its indentation counts
        numbers = self._followed is None and not self.triples
        return answered(text, self._rule, passages if numbers else (), prompt)


@dataclass(frozen=True, slots=True)
class Answered:
    """An extracted answer with its notes."""

    text: str
    notes: Mapping[str, Any] = field(default_factory=dict)


def answered(text: str, rule: Extract, passages: Sequence[Passage], prompt: str) -> Answered:
    """Extract an answer; citation marks that refer to passages of the prompt become reported support."""

    def is_shown(number: int) -> bool:
        return 1 <= number <= len(passages) and f"[{number}] " in prompt

    result: Extracted = extract(text, rule, is_shown)
    notes: dict[str, Any] = {SUPPORT: [passages[number - 1].id for number in result.cited]} if result.cited else {}
    return Answered(result.text, notes if result.failed is None else {FAILED: result.failed})


def prompt_tokens(write: Callable[[str, Sequence[Passage]], Sequence[str]], lengths: Lengths, llm: Any, limit: int | None) -> float:
    """Return the mean prompt length in tokens over sample questions, counted with the configured or local tokenizer if
    available.

    Args:
        write: Function from a question and passages to the texts of the prompt.
        lengths: Statistics of the data, with sample questions and number of passages.
        llm: Options of the model.
        limit: Maximum prompt length; None for no limit.
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
    """Estimate the work of a reader: one call per question with its prompt.

    Args:
        config: Options of a reader.
        lengths: Statistics of the data.
        llm: Options of its model.
        limit: Maximum prompt length if the options set none.
        before: Tokens before the prompt.
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
    """Add a missing question mark, as in RoG's prompts."""
    text = question.strip()
    return text if text.endswith("?") else f"{text}?"


def longest_prefix(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest n ≤ `count` for which `fits(n)` holds, by binary search."""
    if count and fits(count):
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def without_middle(text: str, spans: Sequence[Span], limit: int) -> tuple[str, int]:
    """Remove the middle of a text so that half of the token limit remains at each end.

    Args:
        text: The text.
        spans: Character span of each token, in order.
        limit: Maximum tokens; an odd limit is rounded down.

    Returns:
        The shortened text, and its number of tokens.
    """
    kept = truncate_middle(spans, max(0, limit))
    if len(kept) == len(spans):
        return text, len(spans)
    half = len(kept) // 2
    return (text[: kept[half - 1][1]] + text[kept[half][0] :] if half else ""), len(kept)


def fit_middle(text: str, spans: Sequence[Span], excess: Callable[[str], int], limit: int | None = None) -> tuple[str, int] | None:
    """Remove as little as possible of a text's middle so that the prompt fits.

    Args:
        text: Text to shorten.
        spans: Character spans of its tokens.
        excess: Function from a shortened text to the number of tokens by which the prompt is too long.
        limit: Initial token limit; None for all tokens.

    Returns:
        The text and its number of tokens; None if the prompt is too long even without the text.
    """
    keep = len(spans) if limit is None else min(limit, len(spans))
    while True:
        short, kept = without_middle(text, spans, keep)
        over = excess(short)
        if over <= 0:
            return short, kept
        if not kept:
            return None
        # Tokens at the cut may merge or split, so the shortened text is tokenized again.
        keep = max(0, kept - over)
