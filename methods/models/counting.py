"""Count tokens of conversations and texts, and estimate what calls cost before they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import fingerprint

CHARACTERS_PER_TOKEN = 4
"""Approximate characters per token of English text in current tokenizers; stated next to every estimate that uses it."""
PER_MESSAGE = 4
"""Approximate tokens that a chat template adds per message."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated calls, tokens and cost of requests.

    Attributes:
        calls: Number of calls to send.
        cached: Number of conversations that the cache answers.
        prompt_tokens: Prompt tokens of the calls to send.
        completion_tokens: Maximum completion tokens.
        usd: Maximum cost in dollars, by the configured prices.
        counted_by: How tokens were counted.
        cache_known: Whether the cache was checked; otherwise it may answer some of the calls.
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
            f"{self.completion_tokens:,} completion tokens ({self.counted_by}), "
            f"{price(self.usd, self.prompt_tokens + self.completion_tokens, 'at most ')}"
        )


def price(usd: float, tokens: int, bound: str = "") -> str:
    """Describe what tokens cost; `bound` precedes the dollars."""
    if not usd:
        return "no price configured" if tokens else "at no cost"
    return f"{bound}${usd:,.4f}" if usd >= 0.0001 else "less than $0.0001"


class Counter(Protocol):
    """Interface of a token counter with a `name`; counters with equal `fingerprint` give equal counts."""

    name: str

    @property
    def fingerprint(self) -> str: ...

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return the number of tokens of a conversation, including its template."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character spans of a text's tokens, in order."""
        ...

    @property
    def begin(self) -> int:
        """Return the number of special tokens before a text."""
        ...

    def first(self, text: str, tokens: int, special: bool = True) -> str:
        """Return the first tokens of a text, decoded by the tokenizer even if nothing is cut; optionally without special tokens."""
        ...

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...


class TokenCounter:
    """Counter of a conversation's tokens with a tokenizer file.

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
            raise UserError(
                f"the tokenizer cannot be read: {error}",
                code="unreadable-tokenizer",
                where=str(path),
                try_this="tokenizer: FOLDER of a model",
            ) from None
        self.name = str(path)

    def count(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Return the number of tokens of a conversation, including its template."""
        texts = [message["content"] for message in messages]
        return PER_MESSAGE * len(texts) + sum(self.counts(texts))

    @property
    def fingerprint(self) -> str:
        """Return a hash that is equal for counters that count alike."""
        return fingerprint(self._tokenizer.to_str() if self._tokenizer is not None else self.name)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character spans of a text's tokens, in order."""
        if self._tokenizer is None:
            return [(start, min(start + CHARACTERS_PER_TOKEN, len(text))) for start in range(0, len(text), CHARACTERS_PER_TOKEN)]
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    @property
    def begin(self) -> int:
        """Return the number of special tokens that the tokenizer puts before a text."""
        return 0 if self._tokenizer is None else self._tokenizer.encode("a").special_tokens_mask.count(1)

    def first(self, text: str, tokens: int, special: bool = True) -> str:
        """Return the first tokens of a text as text, optionally without special tokens."""
        if self._tokenizer is None:
            return text[: tokens * CHARACTERS_PER_TOKEN]
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        if special:
            return str(self._tokenizer.decoder.decode(encoded.tokens[:tokens]))
        return str(self._tokenizer.decode(encoded.ids[:tokens], skip_special_tokens=True))

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        if self._tokenizer is None:
            return [-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts]
        return [len(item.ids) for item in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
