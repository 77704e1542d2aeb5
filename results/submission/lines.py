"""Lines of a stream of any size and shape, a chunk at a time: what is too long is skipped, not held."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from results.submission.findings import Findings
from results.submission.limits import MIB, Limits

_FOREIGN = {
    codecs.BOM_UTF32_LE: ("UTF-32", "iconv -f UTF-32 -t UTF-8"),
    codecs.BOM_UTF32_BE: ("UTF-32", "iconv -f UTF-32 -t UTF-8"),
    codecs.BOM_UTF16_LE: ("UTF-16", "iconv -f UTF-16 -t UTF-8"),
    codecs.BOM_UTF16_BE: ("UTF-16", "iconv -f UTF-16 -t UTF-8"),
    b"\x1f\x8b": ("gzip-compressed", "gunzip it; a bundle (.zip) is what may be packed"),
    b"BZh": ("bzip2-compressed", "unpack it; a bundle (.zip) is what may be packed"),
    b"\xfd7zXZ": ("xz-compressed", "unpack it; a bundle (.zip) is what may be packed"),
    b"PK\x03\x04": ("a zip archive", "give it the ending .zip if it is a bundle, or unpack it"),
    b"\x80\x02": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"\x80\x03": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"\x80\x04": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"\x80\x05": ("a Python pickle", "write JSON Lines: nothing is ever unpickled here"),
    b"PAR1": ("Parquet", "write JSON Lines"),
    b"\x93NUMPY": ("a NumPy file", "write JSON Lines"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is no longer than allowed, decoded, without its end; `number` is 1-based."""

    number: int
    text: str


def lines(source: BinaryIO, findings: Findings, limits: Limits, most: int) -> Iterator[Line]:
    """Yield the lines of a stream that hold something; everything else becomes a finding.

    At most one chunk and one line are held. A byte order mark of UTF-8 is skipped and noted. Behind `most` lines,
    empty ones included, reading stops.
    """
    held: list[bytes] = []
    size = total = 0
    number, skipping = 1, False
    while chunk := source.read(limits.chunk_bytes):
        if total == 0:
            chunk, refused = _head(source, chunk, findings)
            if refused:
                return
        total += len(chunk)
        if total > limits.file_bytes:
            findings.add(
                "file_too_long",
                f"the file is longer than {limits.file_bytes // MIB} MiB; reading stopped there",
                line=number,
                try_this="shorten prompts and notes, or leave them out",
            )
            return
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            if not skipping and size + len(end) <= limits.line_bytes:
                yield from _decoded(number, b"".join([*held, end]), findings)
            elif not skipping:
                _too_long(number, findings, limits)
            held, size, skipping = [], 0, False
            number += 1
            if number > most:
                _too_many(number, most, findings)
                return
        if skipping:
            continue
        if size + len(rest) > limits.line_bytes:
            _too_long(number, findings, limits)
            held, size, skipping = [], 0, True
        elif rest:
            held.append(rest)
            size += len(rest)
    if held:
        yield from _decoded(number, b"".join(held), findings)
    if total == 0:
        findings.add("empty", "the file is empty")


def _too_many(number: int, most: int, findings: Findings) -> None:
    findings.add(
        "too_many_rows",
        f"the file has more than {most} lines; reading stopped there",
        line=number,
        try_this="one row a question, of the split and limit that the card names",
    )


def _head(source: BinaryIO, chunk: bytes, findings: Findings) -> tuple[bytes, bool]:
    """The first chunk without its byte order mark, and whether the file is something else altogether."""
    while len(chunk) < 8 and (more := source.read(8 - len(chunk))):
        chunk += more
    for mark, (name, remedy) in _FOREIGN.items():
        if chunk.startswith(mark):
            findings.add("not_text", f"this is {name}, not a UTF-8 text", line=1, try_this=remedy)
            return b"", True
    if chunk.startswith(codecs.BOM_UTF8):
        findings.add("bom", "the file begins with a byte order mark, which is skipped", line=1, severity="note")
        chunk = chunk[len(codecs.BOM_UTF8) :]
    return chunk, False


def _too_long(number: int, findings: Findings, limits: Limits) -> None:
    findings.add(
        "line_too_long",
        f"a line is longer than {limits.line_bytes // MIB} MiB and was skipped",
        line=number,
        try_this="shorten the prompt or the notes; one JSON object a line",
    )


def _decoded(number: int, raw: bytes, findings: Findings) -> Iterator[Line]:
    if not raw.strip():
        return
    if b"\0" in raw:
        detail = f"column {raw.index(0) + 1}"
        findings.add("nul", "a line holds a NUL byte", detail, line=number, try_this="save the file as UTF-8 text")
        return
    try:
        yield Line(number, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        detail = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
        findings.add("not_utf8", "a line is not UTF-8", detail, line=number, try_this="save the file as UTF-8")
