"""Stream records with their positions from files of any size: JSON Lines, JSON arrays, Parquet rows, tab-separated lines.

Files may be plain, gzip-compressed or in a zip archive, and are never held in memory as a whole. A record that cannot be parsed
is yielded as an error in its position if reading can continue after it.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.io.files import open_bytes, refuse_foreign

PIECE = 1 << 20
"""Bytes of a JSON array read at a time; more for a longer record."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_ENDS = ("\n", "", "\r\n")
_MARK = "\ufeff"
_MARKS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


class _Decoder(json.JSONDecoder):
    """JSON decoder that also detects duplicate keys, NaN and infinity.

    Raw control characters inside strings (a NUL, a tab) do not make a record unreadable.

    Attributes:
        faults: Descriptions of problems found since the last reset.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        faults, constants = self.faults, list[str]()

        def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            value = dict(pairs)
            if len(value) != len(pairs):
                key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
                faults.append(f"key {key!r} stands twice in one object")
            if constants:
                odd = next((repr(key) for key, item in pairs if isinstance(item, float) and not isfinite(item)), "a list")
                faults.append(f"field {odd} is {constants[-1]}, which is not a value of JSON: write null")
                constants.clear()
            return value

        def constant(name: str) -> float:
            constants.append(name)
            return float(name)

        super().__init__(object_pairs_hook=made, parse_constant=constant, strict=False)

    def line(self, text: str) -> Any:
        """Parse a line that must be a single JSON value."""
        self.faults.clear()
        try:
            value, end = self.scan_once(text, 0)  # type: ignore[attr-defined]  # typeshed lacks it
        except StopIteration:
            return self.decode(text)
        return value if text[end:] in _ENDS else self._again(text)

    def _again(self, text: str) -> Any:
        self.faults.clear()
        return self.decode(text)

    def fault(self) -> str | None:
        """Return the first problem of the last value, and reset."""
        if not self.faults:
            return None
        first = self.faults[0]
        self.faults.clear()
        return first


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Item:
    """A record of a file, or the error found in its place.

    Attributes:
        value: Parsed value; None on an error.
        line: 1-based line of its start, or of the error.
        number: 1-based position in the array; None in JSON Lines.
        problem: Description of the error, None without one.
        column: 1-based column of the error, None if unknown.
    """

    value: Any
    line: int
    number: int | None
    problem: str | None = None
    column: int | None = None

    @property
    def position(self) -> str:
        """Return the position for messages, such as `line 3` or `line 1, column 812, record 7`."""
        column = f", column {self.column}" if self.column is not None else ""
        return f"line {self.line}{column}" + (f", record {self.number}" if self.number is not None else "")


def stream_json(path: Path, *, whole: bool = False, recoded: bytes | None = None) -> Iterator[Item]:
    """Yield the records of a JSON Lines file or JSON array in order, in constant memory.

    Format and compression are detected from the content, not from the file's name.

    Args:
        path: The file, or a member of an archive (`files.open_bytes`).
        whole: Whether the file may be a single value over several lines, which is then held in memory.
        recoded: The file's content converted to UTF-8, if it has another encoding.

    Raises:
        UserError: The file cannot be opened, is empty, is not UTF-8 text, its compression is damaged, or an array is malformed
            in a way that prevents parsing the rest.
    """
    with open_bytes(path) if recoded is None else io.BytesIO(recoded) as source:
        head = source.read(PIECE)
        skip = _check_head(head, path)
        source.seek(0)
        source.read(skip)
        first = head[skip:].lstrip()[:1]
        if first == b"[":
            yield from _array(source, path)
        elif whole and not _complete(head[skip:].lstrip().partition(b"\n")[0]):
            yield from _one(source)
        else:
            yield from _lines(source)


def encoding_mark(head: bytes, path: Path) -> int:
    """Return the number of bytes of a UTF-8 byte order mark to skip.

    Raises:
        UserError: The mark belongs to another encoding.
    """
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            raise UserError(f"this file is {name}, not UTF-8", code="not-utf8", where=str(path), try_this=f"iconv -f {name} -t UTF-8")
    refuse_foreign(head, path)
    return len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0


def _check_head(head: bytes, path: Path) -> int:
    """Return the length of a byte order mark to skip."""
    skip = encoding_mark(head, path)
    if not head[skip:].strip():
        raise UserError("this file is empty", code="empty-file", where=f"{path}, line 1", try_this="fetch it again")
    return skip


def _complete(line: bytes) -> bool:
    """Return whether a line is a complete JSON value."""
    try:
        _Decoder().decode(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _one(source: BinaryIO) -> Iterator[Item]:
    decoder = _Decoder()
    try:
        value = decoder.decode(source.read().decode("utf-8", "surrogateescape"))
    except json.JSONDecodeError as error:
        yield Item(None, error.lineno, None, f"this is not JSON: {error.msg}", error.colno)
    except (ValueError, RecursionError) as error:
        yield Item(None, 1, None, f"this is not JSON that can be read: {error}")
    else:
        problem = decoder.fault() or _not_characters(value)
        yield Item(value, 1, None) if problem is None else Item(None, 1, None, problem)


def _lines(source: Iterable[bytes]) -> Iterator[Item]:
    # Iterating bytes splits at \n alone, so U+2028 and its like stay inside their strings; \r is JSON white space.
    decoder = _Decoder()
    for line, raw in enumerate(source, 1):
        try:
            text = raw.decode("utf-8")
            if text[0] == _MARK:  # in the middle of files that were joined
                text = text[1:]
            value = decoder.line(text)
            problem = decoder.fault() if decoder.faults else None
            # Looking for two letters first takes a tenth of the expression's time.
            if problem is None and ("\\ud" in text or "\\uD" in text) and _SURROGATE_ESCAPE.search(text):
                problem = _not_characters(value)
            if problem:
                yield Item(None, line, None, problem)
                continue
        except UnicodeDecodeError as error:
            byte = raw[error.start]
            yield Item(None, line, None, f"byte 0x{byte:02x} is not UTF-8", error.start + 1)
        except json.JSONDecodeError as error:
            if not text.strip():
                yield Item(None, line, None, "the line is empty")
            else:
                cut = "" if raw.endswith(b"\n") else " (it is the last line and ends without a line break: cut off?)"
                yield Item(None, line, None, f"this is not JSON: {error.msg}{cut}", error.pos + 1)
        except (ValueError, RecursionError) as error:
            yield Item(None, line, None, f"this is not JSON that can be read: {error}")
        else:
            yield Item(value, line, None)


def _not_characters(value: Any) -> str | None:
    """Describe strings in a value that cannot be encoded as UTF-8; None if there are none."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        if 0xDC80 <= code <= 0xDCFF:
            return f"byte 0x{code - 0xDC00:02x} is not UTF-8"
        return f"\\u{code:04x} is half of a surrogate pair, not a character"
    return None


class _Window:
    """The part of a JSON array's text in memory, and its position in the file."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.json = _Decoder()
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self.text = ""
        self.at = 0
        self.began = 0
        """Start of the last value; `at` is its end."""
        self.run_command = False
        self.suspicious = False
        """True once bytes that are not UTF-8 were found; from then on every record is checked."""
        self._line, self._counted, self._line_start = 1, 0, 0

    def more(self) -> None:
        """Drop the parsed part and read more, at least twice the rest."""
        self.locate(self.at)
        self.text, self._counted = self.text[self.at :], 0
        self._line_start -= self.at
        self.at = 0
        raw = self._source.read(max(PIECE, len(self.text)))
        self.run_command = not raw
        try:
            self.text += self._decoder.decode(raw, self.run_command)
        except UnicodeDecodeError:
            self._decoder.errors = "surrogateescape"
            self.suspicious = True
            self.text += self._decoder.decode(raw, self.run_command)

    def locate(self, position: int) -> tuple[int, int]:
        """Return the 1-based line and column of a position; positions must not decrease between calls."""
        self._line += self.text.count("\n", self._counted, position)
        newline = self.text.rfind("\n", self._counted, position)
        if newline >= 0:
            self._line_start = newline + 1
        self._counted = max(self._counted, position)
        return self._line, position - self._line_start + 1

    def skip_space(self) -> str:
        """Skip white space and return the next character, "" at the end of the file."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches the empty string
            if self.at < len(self.text):
                return self.text[self.at]
            if self.run_command:
                return ""
            self.more()


def _array(source: BinaryIO, path: Path) -> Iterator[Item]:
    window = _Window(source)
    window.skip_space()
    window.at += 1
    number = 0
    closed = window.skip_space() == "]"
    window.at += closed
    while not closed:
        number += 1
        window.skip_space()
        line, _ = window.locate(window.at)
        try:
            value = _value(window)
        except json.JSONDecodeError as error:
            yield _fault(window, error, number, path)
            return
        escaped = _SURROGATE_ESCAPE.search(window.text, window.began, window.at)
        problem = window.json.fault() or (_not_characters(value) if window.suspicious or escaped else None)
        yield Item(value, line, number) if problem is None else Item(None, line, number, problem)
        following = window.skip_space()
        if following not in (",", "]"):
            fault = json.JSONDecodeError("Expecting ',' delimiter", window.text, window.at)
            yield _fault(window, fault, number + 1, path)
            return
        window.at += 1
        closed = following == "]"
    if window.skip_space():
        line, column = window.locate(window.at)
        raise UserError(
            "there is text after the end of the array",
            code="text-after-array",
            where=f"{path}, line {line}, column {column}",
            try_this="a file contains one array, or one record per line",
        )


def _value(window: _Window) -> Any:
    """Parse the value at the window's position and advance."""
    while True:
        window.json.faults.clear()
        try:
            value, end = window.json.raw_decode(window.text, window.at)
        except RecursionError as error:
            raise json.JSONDecodeError("nested too deeply", window.text, window.at) from error
        except json.JSONDecodeError as error:
            if window.run_command or _certain(error, len(window.text)):
                raise
        except ValueError as error:  # an integer of more digits than Python reads
            raise json.JSONDecodeError(str(error), window.text, window.at) from error
        else:
            window.began, window.at = window.at, end
            return value
        window.more()


def _certain(error: json.JSONDecodeError, length: int) -> bool:
    """Return whether an error would remain if more text followed."""
    return error.pos < length - 16 and not error.msg.startswith("Unterminated string")


def _fault(window: _Window, error: json.JSONDecodeError, number: int, path: Path) -> Item:
    """Return the error of a truncated last record of an array.

    Raises:
        UserError: The array is malformed before its end.
    """
    length = len(window.text.rstrip())
    cut = window.run_command and (
        error.pos >= length or error.msg.startswith("Unterminated string") or (error.pos > length - 8 and window.text[length - 1] != "]")
    )
    line, column = window.locate(error.pos)
    if cut:
        problem = "the file is cut off here: this record and all that should follow are missing"
        return Item(None, line, number, problem, column)
    raise UserError(
        f"this is not JSON: {error.msg}",
        code="not-json",
        where=f"{path}, line {line}, column {column}, record {number}",
        try_this="repair the file: records after an error in an array are unreliable, so skip_bad does not help here",
    )


MAGIC = b"PAR1"
BATCH_ROWS = 256
"""Maximum number of Parquet rows converted to Python objects at a time."""
BATCH_BYTES = 1 << 20
"""Encoded bytes converted to Python objects at a time; graph triples grow more than tenfold."""

_PLAIN = {"Value", "List", "LargeList", "Sequence", "ClassLabel"}
"""Feature types of `datasets` whose stored values are the values themselves."""


def is_parquet(path: Path) -> bool:
    """Return whether a file is Parquet, judged by its first bytes.

    Raises:
        UserError: The file cannot be read.
    """
    with open_bytes(path) as source:
        return source.read(len(MAGIC)) == MAGIC


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file as dicts, in order.

    If the schema names a `datasets` feature that stores an encoded value (`Json` stores text), `datasets` decodes the rows.

    Args:
        path: The file, or a member of an archive (`files.open_bytes`).

    Raises:
        UserError: The file is cut off or damaged.
        MissingPackage: Decoding requires `datasets`, which is not installed.
    """
    import pyarrow.parquet as pq

    with _damaged_parquet(path), open_bytes(path) as source, pq.ParquetFile(source, pre_buffer=False) as file:
        decode = decoder_of(file.schema_arrow)
        for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
            for row in batch.to_pylist():
                yield decode(row) if decode else row


def parquet_schema(path: Path) -> Any:
    """Return the Arrow schema of a Parquet file.

    Raises:
        UserError: The file is cut off or damaged.
    """
    import pyarrow.parquet as pq

    with _damaged_parquet(path), open_bytes(path) as source, pq.ParquetFile(source, pre_buffer=False) as file:
        return file.schema_arrow


@contextmanager
def _damaged_parquet(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"this Parquet file is damaged or cut off: {str(error).splitlines()[0]}",
            code="damaged-parquet",
            where=str(path),
            try_this="fetch it again",
        ) from error


def _batch_rows(metadata: Any) -> int:
    """Return the number of rows per batch, based on their mean size."""
    encoded = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return max(1, min(BATCH_ROWS, BATCH_BYTES * int(metadata.num_rows) // max(1, encoded)))


def decoder_of(schema: Any) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Return the function with which `datasets` decodes a stored row; None if no decoding is needed."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    if metadata is None or _types(json.loads(metadata)) <= _PLAIN:
        return None
    try:
        from datasets import Features
    except ImportError as error:
        raise MissingPackage("datasets", "hub", "a file with decoded columns") from error
    decode: Callable[[dict[str, Any]], dict[str, Any]] = Features.from_arrow_schema(schema).decode_example
    return decode


def _types(metadata: Any) -> set[str]:
    """Return all feature types named in a schema's metadata."""
    if isinstance(metadata, dict):
        own = {metadata["_type"]} if isinstance(metadata.get("_type"), str) else set()
        return own.union(*map(_types, metadata.values()))
    if isinstance(metadata, list):
        return set().union(*map(_types, metadata))
    return set()


# Quoted, with quotes inside doubled; or plain, where a quote that is not the first character is one like any other.
_FIELD = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^\t"][^\t]*|))(?=\t|\Z)')


def numbered_lines(path: Path, skip: int = 0) -> Iterator[tuple[int, bytes]]:
    r"""Yield the lines of a file with their 1-based numbers. Lines end only at \\n, which is included.

    Args:
        path: A file, gzip or not, or a member of an archive.
        skip: Number of lines to skip at the beginning.

    Raises:
        UserError: The file cannot be read or is empty.
    """
    with open_bytes(path) as source:
        empty = True
        for number, raw in enumerate(islice(source, skip, None), skip + 1):
            if empty:
                refuse_foreign(raw, path)
            empty = False
            yield number, raw.removeprefix(codecs.BOM_UTF8)  # in the middle of files that were joined, too
        if empty and not skip:
            raise UserError("this file is empty", code="empty-file", where=f"{path}, line 1", try_this="fetch it again")


def stream_tabs(path: Path, names: Sequence[str]) -> Iterator[Item]:
    """Yield the tab-separated fields of each line in DPR's format (`Item.value`, a list of strings), or the line's error.

    A field that contains a double quote is quoted, with the quote doubled. Lines are parsed independently, so an unclosed quote
    only affects its own line.

    Args:
        path: A file, gzip or not, or a member of an archive.
        names: Names of the fields.

    Raises:
        UserError: The file cannot be read or is empty.
    """
    for number, raw in numbered_lines(path):
        try:
            yield Item(fields(raw, names), number, None)
        except ValueError as error:
            yield Item(None, number, None, f"{error}{cut_off(raw)}")


def cut_off(raw: bytes) -> str:
    """Return a hint to append to a line's error if the line is truncated, else ""."""
    return "" if raw.endswith(b"\n") else " (it is the last line and ends without a line break: cut off?)"


def fields(raw: bytes, names: Sequence[str]) -> list[str]:
    """Parse the tab-separated fields of one line.

    Raises:
        ValueError: The line is empty, not UTF-8, has an unclosed quote, or has a wrong number of fields.
    """
    results = _fields(raw)
    if len(results) != len(names):
        raise ValueError(f"the line has {len(results)} tab-separated fields, not {len(names)} ({', '.join(names)})")
    return results


def _fields(raw: bytes) -> list[str]:
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte 0x{raw[error.start]:02x} (column {error.start + 1}) is not UTF-8") from error
    line = line.removesuffix("\n").removesuffix("\r")
    if not line.strip():
        raise ValueError("the line is empty")
    if '"' not in line:
        return line.split("\t")
    result, at = [], 0
    while at <= len(line):
        match = _FIELD.match(line, at)
        if match is None:
            raise ValueError(f"the quote that opens column {at + 1} does not close before the next tab or line end")
        quoted, plain = match.groups()
        result.append(plain if quoted is None else quoted.replace('""', '"'))
        at = match.end() + 1
    return result
