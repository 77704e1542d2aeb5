"""Read CSV and TSV tables with the line on which each record begins.

The delimiter (comma, semicolon, tab or bar) is detected: it splits the first lines into equal numbers of fields. Excel's first
line `sep=;` overrides this. Fields may be quoted and contain line breaks. A bad line is yielded as an error, and reading
continues.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.io.encodings import Encoding, encoding_of
from benchmarks.io.files import open_bytes
from benchmarks.io.records import Item

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_NONE = "\x1f"
"""Delimiter for tables with a single column, a character that no text contains."""
_MARK = "\ufeff"
_LOOKED = 50
_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV or TSV table whose header has been read.

    Attributes:
        path: The file.
        encoding: Its encoding.
        delimiter: Field separator.
        names: Column names.
        first: Number of lines before the header.
        quoting: How fields are quoted, as arguments of `csv.reader`.
    """

    path: Path
    encoding: Encoding
    delimiter: str
    names: tuple[str, ...]
    first: int
    quoting: Mapping[str, Any]

    @property
    def layout(self) -> str:
        """Describe delimiter and encoding, for messages."""
        if self.delimiter == _NONE:
            return "a table with one column" + (f", encoded as {self.encoding.name}" if self.encoding.notice else "")
        between = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        return f"a table with {between} between columns" + (f", encoded as {self.encoding.name}" if self.encoding.notice else "")

    def items(self, *, padded: bool = False) -> Iterator[Item]:
        """Yield each row as a mapping from column to text (`Item.value`), or the row's error.

        Args:
            padded: Whether a row may lack its last fields, which are empty then: Excel leaves out empty ones.
        """
        mixed = frozenset(self.encoding.mixed)
        with _open_text(self.path, self.encoding) as text:
            # Files that were joined have byte order marks in the middle.
            lines = (line.removeprefix(_MARK) for line in islice(text, self.first, None))
            reader = csv.reader(lines, delimiter=self.delimiter, **self.quoting)
            next(reader)
            while True:
                line = self.first + reader.line_num + 1
                try:
                    row = next(reader)
                except StopIteration:
                    return
                except UnicodeError as error:
                    yield Item(None, line, None, f"this is not valid {self.encoding.name}, the file may be cut off: {error}")
                    return
                except csv.Error as error:
                    cut = "a quote that opens here is not closed" if "end of data" in str(error) else f"the quotes are wrong: {error}"
                    yield Item(None, line, None, cut)
                    continue
                last = self.first + reader.line_num
                if padded and row:
                    row += [""] * (len(self.names) - len(row))
                problem = self._problem(row, line, last, mixed)
                if problem is not None:
                    yield Item(None, line, None, problem)
                elif any(row):
                    yield Item(dict(zip(self.names, row, strict=False)), line, None)

    def _problem(self, row: Sequence[str], line: int, last: int, mixed: frozenset[int]) -> str | None:
        count, wanted = len(row), len(self.names)
        if tuple(name.strip() for name in row[:wanted]) == self.names and not any(row[wanted:]):
            return "the row repeats the header: these are several tables, one after the other"
        if count and count != wanted and any(row[wanted:] or [count < wanted]):
            why = "a field that holds the delimiter must be quoted" if last == line else f"is the quote closed that opens in line {line}?"
            return f"the row has {count} fields, the header {wanted}: {why}"
        if mixed and not mixed.isdisjoint(range(line, last + 1)):
            return "the line is not UTF-8, although others are"
        return "the row holds a NUL character" if any("\0" in field for field in row) else None


@contextmanager
def _open_text(path: Path, encoding: Encoding) -> Iterator[io.TextIOWrapper]:
    with open_bytes(path) as source, io.TextIOWrapper(source, encoding.name, "surrogateescape", newline="") as text:
        yield text


def open_table(path: Path, delimiter: str | None = None) -> Table:
    """Open a table and read its header.

    Args:
        path: A file, gzip or not, or a member of an archive.
        delimiter: Field separator; None detects it.

    Raises:
        UserError: The file cannot be read, is empty or is not text, or a column name is missing or repeated.
    """
    encoding = encoding_of(path)
    csv.field_size_limit(_LARGEST)  # Python's default refuses fields of 128 KiB
    try:
        with _open_text(path, encoding) as text:
            lines = list(islice(text, _LOOKED))
    except UnicodeError as error:
        what = f"this file is not valid {encoding.name}: {error}"
        raise UserError(what, code="unreadable-file", where=str(path), try_this="fetch or save it again; it may be cut off") from None
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise UserError("this file is empty", code="empty-file", where=f"{path}, line 1", try_this="fetch it again")
    if lines[first].lower().startswith("sep=") and len(lines[first].strip()) == 5:
        delimiter, first = delimiter or lines[first].strip()[4], first + 1
    delimiter = delimiter or _delimiter(lines[first:])
    if delimiter == "|" and "-" in (rule := "".join(lines[first + 1 : first + 2])) and not rule.strip("|:- \t\r\n"):
        what = "this is a table in Markdown"
        raise UserError(what, code="markdown-table", where=f"{path}, line {first + 2}", try_this="save it as CSV")
    quoting = _quoting(path, encoding, first, delimiter, lines)
    try:
        header = next(csv.reader(lines[first:], delimiter=delimiter, **quoting), [])
    except csv.Error as error:
        what = f"the first line is not a table header: {error}"
        hint = "name a file with records in JSON .json or .jsonl" if lines[first].lstrip()[:1] in ("{", "[") else "correct its quotes"
        raise UserError(what, code="bad-header", where=f"{path}, line {first + 1}", try_this=hint) from None
    while header and not header[-1].strip():
        header.pop()
    names = [name.strip() for name in header]
    for position, name in enumerate(names):
        if position and (not name or name in names[:position]):
            raise UserError(
                f"two columns are called {name!r}" if name else f"column {position + 1} has no name",
                code="bad-header",
                where=f"{path}, line {first + 1}",
                try_this="give every column a name of its own in the first line",
            )
    return Table(path, encoding, delimiter, tuple(names), first, quoting)


def _quoting(path: Path, encoding: Encoding, first: int, delimiter: str, lines: Sequence[str]) -> dict[str, Any]:
    """Return how the fields of a table are quoted.

    A table with tabs is not quoted if every line has the fields of the header, but fails, or runs into the next, when its quotes are
    read. A quote may follow a delimiter and a space.
    """
    if delimiter == "\t":
        with _open_text(path, encoding) as text, suppress(UnicodeError):
            try:
                rows = sum(1 for row in csv.reader(islice(text, first, None), delimiter=delimiter, strict=True) if row)
            except csv.Error:
                rows = 0
            text.seek(0)
            tabs = [line.count(delimiter) for line in islice(text, first, None) if line.strip()]
            if rows < len(tabs) and set(tabs) == {lines[first].count(delimiter)}:
                return {"quoting": csv.QUOTE_NONE}
    return {"strict": True, "skipinitialspace": any(f'{delimiter} "' in line for line in lines)}


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that gives most of the first rows as many fields as the header."""
    best, chosen = (0.0, 0), _NONE
    for delimiter in DELIMITERS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:
            continue
        columns = len(rows[0]) if rows else 0
        if columns > 1:
            score = (sum(len(row) == columns for row in rows) / len(rows), columns)
            best, chosen = max((best, chosen), (score, delimiter))
    return chosen
