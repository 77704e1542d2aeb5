"""Read prediction files record by record, each with its line: JSON Lines, and files that are one JSON value.

Everything else becomes a finding. A format (`results.formats.evaluators`, `results.formats.predictions`) makes rows of records.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any, BinaryIO

from benchmarks.schema import Question
from results.offered import LIMITS, Limits
from results.submission import Findings, shown
from results.submission.rows import DECODER, Bad, PredictionRow, RowReader, check_value, lines, prediction_of, too_deep, wrong

Record = tuple[int, Any]
"""A line number and the JSON value that begins there."""
Make = Callable[[Any], Mapping[str, Any] | None]
"""Function from a record to a row of a submission; None for a record that is not about a question."""
Unwrap = Callable[[Any], list[Any] | None]
"""Function from a file's single JSON object to its records; None if the object is itself a record."""
_LENIENT = json.JSONDecoder(strict=False)
"""JSON decoder for tools that write NaN or duplicate keys; only known fields are used."""


def rows_of(
    records: Iterable[Record], make: Callable[[Any], Mapping[str, Any]], findings: Findings, limits: Limits
) -> Iterator[PredictionRow]:
    """Convert each record of a file to a prediction row; a record that is not one becomes a finding."""
    for line, value in records:
        try:
            check_value(value, limits)
            yield PredictionRow(line, prediction_of(make(value), limits))
        except Bad as bad:
            note(bad, line, findings)


def note(bad: Bad, line: int, findings: Findings) -> None:
    """Add a refused record to the findings."""
    findings.add(bad.code, bad.what, bad.detail, line=line, try_this=bad.try_this)


def lenient_decoder(findings: Findings) -> json.JSONDecoder:
    """Return a JSON decoder as lenient as Python's `json` (the last of repeated keys wins), or a strict one if `findings.strict` is set."""
    if findings.strict:
        return DECODER

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            findings.lenient("duplicate_key", "a key occurs twice; the script takes the last")
        return result

    return json.JSONDecoder(object_pairs_hook=pairs)


class Document:
    """File that is a single JSON value, decoded member by member, so that problems can be reported with their line."""

    def __init__(self, source: BinaryIO, findings: Findings, limits: Limits) -> None:
        self._limits = limits
        parts: list[str] = []
        for line in lines(source, findings, replace(limits, line_bytes=limits.file_bytes), limits.file_bytes):
            parts += [""] * (line.number - 1 - len(parts))
            parts.append(line.text)
        self.text = "\n".join(parts)
        self._ends = list(accumulate(len(part) + 1 for part in parts))

    def line(self, at: int) -> int:
        """Return the 1-based line number of a character offset."""
        return bisect_right(self._ends, at) + 1

    def members(self, at: int = 0, decoder: json.JSONDecoder = DECODER) -> Iterator[tuple[str, Any, int, int]]:
        """Yield (key, value, key offset, value offset) for each member of the JSON object at an offset.

        Raises:
            At: There is no object at the offset, or it is incomplete.
        """
        begun, (at, more) = at, self._opened(at, "{}")
        while more:
            key, end = self._value(at, DECODER)
            if not isinstance(key, str):
                raise self._broken(at, "a key is a text in quotes")
            start = self._mark(end, ":")
            value, end = self._value(start, decoder)
            yield key, value, at, start
            at, more = self._next(end, "}")
        if not begun:
            self._ended(at + 1)

    def elements(self, decoder: json.JSONDecoder = DECODER) -> Iterator[Record]:
        """Yield (line number, value) for each element of the JSON array that the file consists of.

        Raises:
            At: The file is not an array, or is incomplete.
        """
        at, more = self._opened(0, "[]")
        while more:
            value, end = self._value(at, decoder)
            yield self.line(at), value
            at, more = self._next(end, "]")
        self._ended(at + 1)

    def _ended(self, at: int) -> None:
        at = self._blank(at)
        if at < len(self.text):
            raise self._broken(at, "the file should end")

    def _opened(self, at: int, brackets: str) -> tuple[int, bool]:
        at = self._mark(at, brackets[0])
        return at, self.text[at : at + 1] != brackets[1]

    def _next(self, end: int, closing: str) -> tuple[int, bool]:
        at = self._blank(end)
        if self.text[at : at + 1] == closing:
            return at, False
        return self._mark(at, ","), True

    def _mark(self, at: int, wanted: str) -> int:
        at = self._blank(at)
        if self.text[at : at + 1] != wanted:
            raise self._broken(at, f"{wanted!r} is expected")
        return self._blank(at + 1)

    def _blank(self, at: int) -> int:
        while self.text[at : at + 1] in (" ", "\t", "\n", "\r"):
            at += 1
        return at

    def _value(self, at: int, decoder: json.JSONDecoder) -> tuple[Any, int]:
        try:
            return decoder.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            raise self._broken(error.pos, error.msg) from None
        except ValueError as error:
            raise self._broken(at, str(error)) from None
        except RecursionError:
            raise At(self.line(at), too_deep(self._limits)) from None
        except Bad as bad:
            raise At(self.line(at), bad) from None

    def _broken(self, at: int, what: str) -> At:
        here = shown(self.text[at : at + 20]) if at < len(self.text) else "the end of the file"
        return At(self.line(at), Bad("not_json", "the file is not valid JSON", f"{what}, here is {here}"))


class At(Exception):
    """Raised if the rest of a file cannot be read; holds the line and the problem."""

    def __init__(self, line: int, bad: Bad) -> None:
        self.line, self.bad = line, bad
        super().__init__(bad.what)


def whole(read: Callable[[Document, Findings, Limits], Iterator[PredictionRow]]) -> RowReader:
    """Make a row reader from a function that reads a file which is a single JSON value."""

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        document = Document(source, findings, limits)
        try:
            # An empty file, and what is not text, is a finding already.
            if document.text:
                yield from read(document, findings, limits)
        except At as end:
            note(end.bad, end.line, findings)

    return rows


def field_of(record: Any, name: str, kind: Any, wanted: str) -> Any:
    """Return a field of a record, with its type checked.

    Raises:
        Bad: The record is not an object, lacks the field, or the field has another type.
    """
    if not isinstance(record, dict):
        raise wrong("a row", "an object", record)
    if name not in record:
        raise Bad("missing_field", f"a row lacks {name!r}")
    if not isinstance(record[name], kind) or (kind is int and isinstance(record[name], bool)):
        raise wrong(name, wanted, record[name])
    return record[name]


def row_of(
    identifier: str, answer: Any, notes: Mapping[str, Any] | None = None, evidence: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Build a prediction row, as a JSON object, from an id, an answer and optional notes and evidence."""
    return {"question_id": identifier, "answer": answer, "notes": dict(notes or {}), "evidence": list(evidence)}


_QUESTION_IDS = ("id", "_id", "question_id", "qid", "query_id")
QUESTION_TEXTS = ("question", "user_input", "query", "input")


class Questions:
    """Finds the question that a record belongs to, by id or by text; questions with equal text are assigned in order.

    White space and the Unicode form of texts may differ.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self._known = {name: question.text for question in questions for name in (question.id, question.query_id)}
        self._by_text: dict[str, list[str]] = {}
        for question in questions:
            self._by_text.setdefault(_form(question.text), []).append(question.id)
        self._met: Counter[str] = Counter()

    def of(self, record: Any) -> str:
        """Return the id of the question that a record belongs to.

        Raises:
            Bad: The record has neither a known id nor a known question text.
        """
        if not isinstance(record, dict):
            raise wrong("a row", "an object", record)
        identifier = next((str(record[name]) for name in _QUESTION_IDS if isinstance(record.get(name), str | int)), None)
        text = next((_form(record[name]) for name in QUESTION_TEXTS if isinstance(record.get(name), str)), None)
        if identifier is not None and identifier in self._known:
            known = self._known[identifier].strip().split("\n")
            # Sets of one collection share their ids; choices may stand below a question.
            if text is not None and text not in (_form("\n".join(known[:count])) for count in range(len(known), 0, -1)):
                what = "a row's question text does not match the question with its id"
                raise Bad(
                    "other_question", what, f"{shown(text, 60)}, id {shown(identifier)}", "score it against the data that it was made on"
                )
            return identifier
        if text is None and identifier is None:
            raise Bad(
                "missing_field",
                "a row names no question",
                ", ".join(map(str, record))[:120],
                f"one of {', '.join((*_QUESTION_IDS, *QUESTION_TEXTS))}",
            )
        ids = self._by_text.get(text or "")
        if not ids:
            hint = "questions are matched by id, or else by their whole text"
            raise Bad("extra", "a row is for no question of the benchmark", shown(text or identifier or ""), hint)
        number = self._met[text or ""] = self._met[text or ""] + 1
        return ids[min(number, len(ids)) - 1]


def _form(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def each_record(start: Callable[[], Make], unwrap: Unwrap | None = None) -> RowReader:
    """Make a row reader for records in JSON Lines, in a JSON array, in a JSON object (`unwrap`), or in a CSV with a header.

    Args:
        start: Called once per file; returns the function that converts one record to a row.
        unwrap: Extracts the records from a file that is one JSON object.
    """

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        document = Document(source, findings, limits)
        make = start()
        try:
            for line, value in _records(document, unwrap, findings):
                try:
                    row = make(value)
                except Bad as bad:
                    note(bad, line, findings)
                    continue
                if row is None:
                    findings.add("left_out", "a record repeats a question in another form and is left out", line=line, severity="note")
                else:
                    yield from rows_of([(line, row)], lambda made: made, findings, limits)
        except At as end:
            note(end.bad, end.line, findings)

    return rows


def _records(document: Document, unwrap: Unwrap | None, findings: Findings) -> Iterator[Record]:
    text = document.text
    begins = text.lstrip()[:1]
    if begins == "[":
        yield from document.elements(_LENIENT)
    elif begins != "{":
        yield from _table(text, findings)
    else:
        with suppress(ValueError, RecursionError):
            value = _LENIENT.decode(text)
            inner = unwrap(value) if unwrap is not None else None
            yield from ((1, item) for item in (_wrapped(value) if inner is None else inner))
            return
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield number, _LENIENT.decode(line)
                except (ValueError, RecursionError) as error:
                    note(Bad("not_json", "a line is not JSON", shown(str(error), 120)), number, findings)


def _wrapped(value: Mapping[str, Any]) -> list[Any]:
    """Return the records of an object: its only list of objects, all of its values, or the object itself."""
    if _names_question(value):
        return [value]
    lists = [item for item in value.values() if isinstance(item, list) and item and all(map(_names_question, item))]
    if len(lists) == 1:
        return lists[0]
    return list(value.values()) if value and all(map(_names_question, value.values())) else [value]


def _names_question(value: Any) -> bool:
    return isinstance(value, dict) and any(name in value for name in (*_QUESTION_IDS, *QUESTION_TEXTS))


_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"sep=(.)\r?\n")
"""First line that Excel writes into a CSV."""
_CELL = 32_767
"""Characters at which Excel cuts the text of a cell."""


def _table(text: str, findings: Findings) -> Iterator[Record]:
    if not text.strip():
        return
    csv.field_size_limit(LIMITS.file_bytes)  # the contexts of a row are longer than the module expects
    stated = _SEPARATOR.match(text)
    head = 0 if stated is None else 1
    text = text if stated is None else text[stated.end() :]
    try:
        names, delimiter = _header(text) if stated is None else _header(text, stated[1])
    except csv.Error as error:
        raise At(head + 1, Bad("not_csv", "the file is neither JSON nor a CSV with a header", str(error))) from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    twice = next((name for name, count in Counter(filter(None, names)).items() if count > 1), None)
    if twice is not None:
        raise At(head + 1, Bad("not_csv", "the header names a column twice", shown(twice), "keep one of the columns"))
    lines = text.count("\n") + 1
    try:
        next(reader)
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            # Excel leaves out empty cells at the end of a row; the last line of a file may be cut off.
            if reader.line_num < lines and len(row) < len(names):
                findings.listed("short_row", line=head + reader.line_num)
                row += [""] * (len(names) - len(row))
            if _CELL in map(len, row):
                findings.listed("cut_cell", line=head + reader.line_num)
            if len(row) != len(names):
                what = "a line has more or fewer fields than the header"
                detail = f"{len(row)} fields, the header has {len(names)}, separated by {delimiter!r}"
                raise At(head + reader.line_num, Bad("not_csv", what, detail, f"quote a field that holds {delimiter!r}"))
            yield head + reader.line_num, {name: value for name, value in zip(names, row, strict=True) if name}
    except csv.Error as error:
        raise At(head + reader.line_num, Bad("not_csv", "the file is neither JSON nor a CSV with a header", str(error))) from None


def _header(text: str, delimiters: str = _DELIMITERS) -> tuple[list[str], str]:
    """Return the columns of a CSV, in lower case, and its delimiter: the one whose header names a question, else a comma.

    Raises:
        csv.Error: A column is too long.
    """
    headers = []
    for delimiter in delimiters:
        row = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
        headers.append(([name.strip().lower() for name in row], delimiter))
    named = [header for header in headers if set(header[0]).intersection((*_QUESTION_IDS, *QUESTION_TEXTS))]
    return max(named, key=lambda header: len(header[0])) if named else headers[0]
