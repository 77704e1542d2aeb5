"""Detect the encoding of a text file: byte order mark, else UTF-8, else cp1252 (Windows), which is reported.

Text in another alphabet (Cyrillic, Greek, Chinese) is refused: as cp1252 it would be rows of accented letters, which no language has.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.core.errors import UserError
from benchmarks.io.files import open_bytes, refuse_foreign

UTF8, WINDOWS = "utf-8", "cp1252"
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BEYOND_ASCII = bytes(range(0x80, 0x100))
_ROWS = re.compile(rb"[\x80-\xff]{4,}")


@dataclass(frozen=True, slots=True)
class Encoding:
    """Encoding of a file.

    Attributes:
        name: Python's name of the encoding.
        mixed: Numbers of lines that are not UTF-8, although other non-ASCII lines are.
    """

    name: str
    mixed: tuple[int, ...] = ()

    @property
    def notice(self) -> str:
        """Return a note on the encoding for readers of results; "" for UTF-8."""
        return "" if self.name.startswith(UTF8) else f"it is not UTF-8 and was read as {self.name}"


def encoding_of(path: Path, *, page: bool = False) -> Encoding:
    """Detect the encoding of a file, plain or gzip.

    Args:
        path: The file, or a member of an archive.
        page: Whether it may be a web page.

    Raises:
        UserError: The file cannot be read, is not text, or is neither UTF-8 nor plausible as cp1252.
    """
    with open_bytes(path) as source:
        head = source.read(1024)
        for mark, name in _MARKS.items():
            if head.startswith(mark):
                return Encoding(name)
        if not page:
            refuse_foreign(head, path)
        source.seek(0)
        good, bad, odd = 0, [], None
        signs = in_rows = 0
        for number, line in enumerate(source, 1):
            if line.isascii():
                continue
            try:
                line.decode(UTF8)
                good += 1
            except UnicodeDecodeError:
                bad.append(number)
                odd = odd or _undefined(line, number)
                signs += len(line) - len(line.translate(None, _BEYOND_ASCII))
                in_rows += sum(len(row) for row in _ROWS.findall(line) if len(set(row)) > 3)
    if bad and good:
        return Encoding(UTF8, tuple(bad))
    if odd is not None:
        raise UserError(
            f"byte 0x{odd[1]:02x} is neither UTF-8 nor cp1252",
            code="unknown-encoding",
            where=f"{path}, line {odd[0]}",
            try_this="save the file as UTF-8",
        )
    if 2 * in_rows > signs:
        raise UserError(
            "this is neither UTF-8 nor text in cp1252",
            code="unknown-encoding",
            where=f"{path}, line {bad[0]}",
            try_this="save the file as UTF-8, for example: iconv -f cp1251 -t utf-8 (Russian), -f gb18030 (Chinese)",
        )
    return Encoding(WINDOWS if bad else UTF8)


def _undefined(line: bytes, number: int) -> tuple[int, int] | None:
    try:
        line.decode(WINDOWS)
    except UnicodeDecodeError as error:
        return number, line[error.start]
    return None


def read_text(path: Path, *, page: bool = False) -> tuple[str, Encoding]:
    """Return a file's text and its encoding; line endings are preserved.

    Raises:
        UserError: As in `encoding_of`, or its lines are encoded in different ways.
    """
    encoding = encoding_of(path, page=page)
    if encoding.mixed:
        raise UserError(
            f"{len(encoding.mixed):,} lines are not UTF-8, although others are",
            code="mixed-encodings",
            where=f"{path}, line {encoding.mixed[0]}",
            try_this="save the file as UTF-8",
        )
    with open_bytes(path) as source:
        raw = source.read()
    try:
        return raw.decode(encoding.name), encoding
    except UnicodeDecodeError as error:
        raise UserError(
            f"this file is cut off or damaged: {error.reason} at byte {error.start}", code="not-utf8", where=str(path)
        ) from error
