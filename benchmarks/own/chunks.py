"""Cut a document into passages by words, tokens or headings, or keep it whole.

Passages keep their position in the document, so that gold spans work with any passage size.
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
        start, end: Character positions; `end` is exclusive.
        headings: The headings above it, outermost first.
    """

    start: int
    end: int
    headings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chunker:
    """Rule for cutting documents into passages.

    Attributes:
        kind: Cut by words, by tokens, at headings (long sections also by words), or not at all.
        size: Maximum words or tokens per passage.
        overlap: Words or tokens shared with the previous passage.
        tokenizer: A `tokenizer.json`, or the folder that holds it.
    """

    kind: Kind = "words"
    size: int = 256
    overlap: int = 0
    tokenizer: str | None = None

    @property
    def identity(self) -> str:
        """Return a text for fingerprints; chunkers with the same identity produce the same passages."""
        if self.kind == "whole":
            return self.kind
        name = f"{self.kind}({self.size}" + (f", overlap {self.overlap}" if self.overlap else "")
        return name + (f", tokenizer {file_sha256(self._file)[:12]})" if self.kind == "tokens" else ")")

    def cut(self, text: str) -> list[Chunk]:
        """Cut a text into chunks. Chunks without words are dropped; without overlap, the chunks together are the text."""
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
    """Compile a pattern that matches up to `number` words with trailing white space; it never splits a word."""
    return re.compile(rf"\s*+(?:\S++\s*+){{1,{number}}}")


def windows(text: str, words: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Cut a text into windows of words and return their character spans; white space is preserved.

    Args:
        text: The text.
        words: Words per window; the last may have fewer.
        overlap: Words shared by neighboring windows; less than `words`.

    Returns:
        Start and end of each window; none for a text without words. Without overlap, the windows together are the text.
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
