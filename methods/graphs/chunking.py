"""Cut documents into overlapping windows of tokens, words or sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.models import FrozenModel
from benchmarks.text import sentences
from methods.models.weights import MINILM, locate

Span = tuple[int, int]
"""Start and end of a unit, as character positions."""
TIKTOKEN = "tiktoken:"
"""Prefix of tokenizer names that refer to the package tiktoken."""
LONG_SENTENCE = 256
"""Number of words above which a "sentence" is taken for a table or list, and split at empty lines and rules."""

_WORD = re.compile(r"\S+")
_RULE = re.compile(r"\n\s*\n|\n\s*[-–—_=*]{3,}\s*\n")


class ChunkConfig(FrozenModel):
    """Chunking options; sizes are in `unit`s."""

    unit: Literal["token", "word", "sentence"] = Field("token", description="unit of size and overlap")
    size: int = Field(512, ge=1, description="units per chunk; the last may have fewer")
    overlap: int = Field(12, ge=0, description="units that a chunk shares with the previous one")
    tokenizer: str = Field(
        MINILM,
        description="tokenizer for unit: token; a folder or tokenizer.json of a model, or tiktoken:o200k_base, which the "
        "released code uses",
    )

    @model_validator(mode="after")
    def _moves_on(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError("overlap must be less than size")
        return self


CHUNKS = {
    role: ChunkConfig.model_validate(value)
    for role, value in (("kg", {}), ("score", {}), ("eval", {"unit": "word"}), ("sentence", {"unit": "sentence", "size": 1, "overlap": 0}))
}
"""ARK's chunk sizes by role; `sentence` is what the released code uses instead of `score`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a document: its index, text, and character position."""

    index: int
    text: str
    start: int
    end: int


def chunk(text: str, config: ChunkConfig) -> list[Chunk]:
    """Cut a text into overlapping windows.

    Returns:
        The chunks, without surrounding white space; none for a text without units.
    """
    spans = unit_spans(text, config.unit, config.tokenizer)
    stride = config.size - config.overlap
    chunks: list[Chunk] = []
    for first in range(0, len(spans), stride):
        window = spans[first : first + config.size]
        start, end = window[0][0], window[-1][1]
        piece = text[start:end].strip()  # a token may begin with the space before its word
        if piece:
            start += len(text[start:end]) - len(text[start:end].lstrip())
            chunks.append(Chunk(len(chunks), piece, start, start + len(piece)))
        if first + config.size >= len(spans):
            break
    return chunks


def unit_spans(text: str, unit: str, tokenizer: str = MINILM) -> list[Span]:
    """Return the character spans of a text's tokens, words or sentences, in order.

    Raises:
        UserError: The tokenizer cannot be loaded.
        MissingPackage: The tokenizer's package is not installed.
    """
    if unit == "word":
        return [match.span() for match in _WORD.finditer(text)]
    if unit == "sentence":
        return _sentence_spans(text)
    return [span for span in spans_of(tokenizer)(text) if span[1] > span[0]]


def _sentence_spans(text: str) -> list[Span]:
    spans: list[Span] = []
    at = 0
    for sentence in sentences(text):
        start = text.index(sentence, at)
        at = start + len(sentence)
        spans += _divided(text, start, at) if len(_WORD.findall(sentence)) > LONG_SENTENCE else [(start, at)]
    return spans


def _divided(text: str, start: int, end: int) -> list[Span]:
    edges = [start, *(edge for rule in _RULE.finditer(text, start, end) for edge in rule.span()), end]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if text[a:b].strip()]


@lru_cache(maxsize=4)
def spans_of(name: str) -> Callable[[str], Sequence[Span]]:
    """Return a function from a text to its token spans, for a tokenizer's name (`ChunkConfig.tokenizer`)."""
    if name.startswith(TIKTOKEN):
        return _tiktoken(name.removeprefix(TIKTOKEN))
    path = Path(locate(name))
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingPackage("tokenizers", "models", "chunks of so many tokens") from error
    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises a bare Exception
        raise UserError(
            f"the tokenizer cannot be read: {error}",
            code="unreadable-tokenizer",
            where=str(path),
            try_this="tokenizer: the folder of a model, or unit: word",
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).offsets


def _tiktoken(name: str) -> Callable[[str], Sequence[Span]]:
    try:
        import tiktoken
    except ImportError as error:
        raise MissingPackage("tiktoken", "llm", f"the tokenizer {TIKTOKEN}{name}") from error
    try:
        encoding = tiktoken.get_encoding(name)
    except Exception as error:  # unknown names as well as failed downloads
        reason = "it is fetched once from the net, which cannot be reached" if isinstance(error, OSError) else error
        raise UserError(
            f"the tokenizer {name!r} cannot be read: {reason}",
            code="unreadable-tokenizer",
            where="tokenizer",
            try_this="use a network, or TIKTOKEN_CACHE_DIR with its file; or, if it is an option, o200k_base or the folder of a model",
        ) from None

    def spans(text: str) -> list[Span]:
        starts = encoding.decode_with_offsets(encoding.encode(text, disallowed_special=()))[1]
        return list(zip(starts, [*starts[1:], len(text)], strict=True))

    return spans
