"""Estimates before anything is spent: tokens of conversations, and what asking them would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import MissingPackage, UserError
from benchmarks.fingerprint import fingerprint

CHARACTERS_PER_TOKEN = 4
"""English text by the tokenizers of current models, roughly; stated beside every estimate made with it."""
PER_MESSAGE = 4
"""Tokens that chat templates add to a message, roughly."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What asking would take.

    Attributes:
        calls: Calls to send.
        cached: Conversations that the cache answers.
        prompt_tokens: Of the calls to send.
        completion_tokens: At most.
        usd: At most, by the configured prices.
        counted_by: How tokens were counted.
        cache_known: Whether the cache was looked into; otherwise it may answer some of the calls.
    """

    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    counted_by: str
    cache_known: bool = True

    def __str__(self) -> str:
        cache = f"{self.cached:,} more are cached" if self.cache_known else "fewer where replies are cached"
        return (
            f"{self.calls:,} calls ({cache}), {self.prompt_tokens:,} prompt tokens and at most "
            f"{self.completion_tokens:,} completion tokens ({self.counted_by}), {self._price()}"
        )

    def _price(self) -> str:
        if not self.usd:
            return "no price configured" if self.prompt_tokens or self.completion_tokens else "at no cost"
        return f"at most ${self.usd:,.4f}" if self.usd >= 0.0001 else "less than $0.0001"


class TokenCounter:
    """Counts a conversation's tokens.

    Args:
        tokenizer: A `tokenizer.json` or a folder with one; None counts characters / 4.

    Raises:
        UserError: The file cannot be read.
        MissingPackage: The package `tokenizers` is not installed.
    """

    def __init__(self, tokenizer: str | None = None) -> None:
        self._tokenizer: Any = None
        self.name = f"characters / {CHARACTERS_PER_TOKEN}"
        if tokenizer is None:
            return
        path = Path(tokenizer).expanduser()
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingPackage("tokenizers", "models", "counting tokens") from error
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises a bare Exception
            raise UserError(f"the tokenizer cannot be read: {error}", where=str(path), try_this="tokenizer: FOLDER of a model") from None
        self.name = str(path)

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Tokens of a conversation, its template included."""
        texts = [message["content"] for message in messages]
        return PER_MESSAGE * len(texts) + sum(self.counts(texts))

    @property
    def fingerprint(self) -> str:
        """Equal for counters that count alike."""
        return fingerprint(self._tokenizer.to_str() if self._tokenizer is not None else self.name)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The characters of each token of a text, in order."""
        if self._tokenizer is None:
            return [(start, min(start + CHARACTERS_PER_TOKEN, len(text))) for start in range(0, len(text), CHARACTERS_PER_TOKEN)]
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of texts."""
        if self._tokenizer is None:
            return [-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts]
        return [len(one.ids) for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
