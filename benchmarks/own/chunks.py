"""Cut a document into passages: every so many words or tokens, at its headings, or not at all.

Passages keep their place in the document, so that gold evidence given as a span of it holds for every size of passages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import file_sha256

Kind = Literal["words", "tokens", "headings", "whole"]
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*?)[ \t#]*$")
_FENCE = re.compile(r"[ \t]*(```|~~~)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document.

    Attributes:
        start, end: Its place: characters `start` up to and without `end`.
        headings: The headings that it stands below, outermost first.
    """

    start: int
    end: int
    headings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chunker:
    """Rule by which documents are cut into passages.

    Attributes:
        kind: By words, by tokens of a tokenizer, at headings (and by words where a section is longer), or whole.
        size: Words or tokens of a passage, at most.
        overlap: How many of them a passage repeats of the one before it.
        tokenizer: A `tokenizer.json`, or the folder that holds it.
    """

    kind: Kind = "words"
    size: int = 256
    overlap: int = 0
    tokenizer: str | None = None

    @property
    def identity(self) -> str:
        """Return the identity for fingerprints; equal rules give equal passages."""
        if self.kind == "whole":
            return self.kind
        name = f"{self.kind}({self.size}" + (f", overlap {self.overlap}" if self.overlap else "")
        return name + (f", tokenizer {file_sha256(self._file)[:12]})" if self.kind == "tokens" else ")")

    def cut(self, text: str) -> list[Chunk]:
        """Cut a text; pieces without a word are left out, and without overlap the pieces put together are the text."""
        if self.kind == "headings":
            pieces = [piece for section in _sections(text) for piece in self._parts(text, section)]
        elif self.kind == "tokens":
            pieces = [Chunk(*span) for span in _token_windows(self._tokens(text), len(text), self.size, self.overlap)]
        elif self.kind == "words":
            pieces = [Chunk(*span) for span in windows(text, self.size, self.overlap)]
        else:
            pieces = [Chunk(0, len(text))]
        return [piece for piece in pieces if not text[piece.start : piece.end].isspace()] if text else []

    def _parts(self, text: str, section: Chunk) -> Iterator[Chunk]:
        for start, end in windows(text[section.start : section.end], self.size, self.overlap):
            yield Chunk(section.start + start, section.start + end, section.headings)

    @property
    def _file(self) -> Path:
        path = Path(self.tokenizer or "").expanduser()
        file = path / "tokenizer.json" if path.is_dir() else path
        if self.tokenizer is None or not file.is_file():
            raise UserError(
                "chunks of tokens need a tokenizer" if self.tokenizer is None else "there is no such tokenizer",
                code="missing-tokenizer",
                where=f"tokenizer: {self.tokenizer}",
                try_this="name the model's tokenizer.json, or the folder that holds it; or chunker: words",
            )
        return file

    @cached_property
    def _tokens(self) -> Callable[[str], list[tuple[int, int]]]:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingPackage("tokenizers", "models", "chunks of tokens") from error
        loaded: Any = Tokenizer.from_file(str(self._file))
        loaded.no_truncation()
        loaded.no_padding()
        return lambda text: [(start, end) for start, end in loaded.encode(text, add_special_tokens=False).offsets if end > start]


def words_pattern(number: int) -> re.Pattern[str]:
    """Return the pattern of up to so many words with the white space behind them; possessive, so that no word is divided."""
    return re.compile(rf"\s*+(?:\S++\s*+){{1,{number}}}")


def windows(text: str, words: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Cut a text into windows of words, white space kept as it is.

    Args:
        text: The text.
        words: Words of a window; the last may have fewer.
        overlap: Words that a window shares with the next, below `words`.

    Returns:
        Beginning and end of each window; none for a text without a word. Without overlap they join to the text.
    """
    shared = words_pattern(overlap) if overlap else None
    results = []
    for piece in words_pattern(words - overlap).finditer(text):
        following = shared.match(text, piece.end()) if shared else None
        end = following.end() if following else piece.end()
        results.append((piece.start(), end))
        if end == len(text):
            break
    return results


def _token_windows(tokens: list[tuple[int, int]], length: int, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    for first in range(0, len(tokens), size - overlap):
        last = first + size
        end = length if last >= len(tokens) else tokens[last][0]
        yield tokens[first][0] if first else 0, end
        if end == length:
            return


def _sections(text: str) -> Iterator[Chunk]:
    """Yield the sections of a Markdown text; a heading begins one."""
    position, start = 0, 0
    levels: dict[int, str] = {}
    fence = None
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        heading = None if fence else _HEADING.match(line.rstrip("\r\n"))
        if heading:
            if position > start:
                yield Chunk(start, position, tuple(levels.values()))
            start = position
            levels = {level: name for level, name in levels.items() if level < len(heading[1])} | {len(heading[1]): heading[2]}
        position += len(line)
    if position > start:
        yield Chunk(start, position, tuple(levels.values()))
