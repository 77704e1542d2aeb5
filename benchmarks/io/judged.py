"""Read relevance judgments (qrels) and rankings (runs) in all common layouts.

| layout | a line or record |
| --- | --- |
| TREC | `qid 0 docid grade`, `qid Q0 docid rank score tag`; columns are separated by white space |
| BEIR | `query-id TAB corpus-id TAB score` with a header, or the same three columns without one |
| MS MARCO | qrels as TREC's; a run is `qid TAB pid TAB rank` |
| ColBERT | a run is `qid TAB pid TAB rank TAB score` |
| table with a header | CSV, TSV, JSON Lines or Parquet whose columns have one of the names in `NAMES` |
| JSON object | `{qid: {docid: number}}`, as pytrec_eval takes it and BEIR writes it; or `{qid: [docid, …]}`: in qrels these are
relevant, in a run they are in rank order |

The layout is recognized by content: the first line that is neither blank nor a comment. Byte order marks, CRLF, blank lines,
comments (lines that begin with `#`, as in trec_eval 10), gzip and members of zip archives are accepted. Ids are compared byte by
byte; white space between columns is ASCII's, so an id may hold a no-break space. Between tabs it may hold blanks, and quotes around
it are removed, as BEIR's own loader does.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.core.errors import UserError
from benchmarks.io.files import open_bytes
from benchmarks.io.records import encoding_mark, is_parquet, rows

Kind = Literal["qrels", "run"]

FORMS: Mapping[str, str] = {
    "qrels": "qid 0 docid grade (TREC); or a header with query-id, corpus-id and score (BEIR)",
    "run": "qid Q0 docid rank score tag (TREC); or qid, docid and rank (MS MARCO)",
}
"""Descriptions of the accepted file formats, for hints in errors."""
NAME_THE_SCORE = "if the third column is a score, name the columns in a header: query-id, corpus-id, score"
"""Hint for a run whose last column may be a rank or a score."""

_QUESTION, _DOCUMENT, _VALUE, _RANK = "question", "document", "value", "rank"
NAMES: Mapping[str, str] = {
    **dict.fromkeys(("query-id", "query_id", "qid", "q_id", "query", "question_id", "topic", "topic_id"), _QUESTION),
    # In PyTerrier's tables `docid` is the number of a document in the index, and `docno` its id.
    **dict.fromkeys(("corpus-id", "corpus_id", "docno", "doc_id", "docid", "document_id", "pid", "passage_id", "doc"), _DOCUMENT),
    **dict.fromkeys(("score", "relevance", "rel", "grade", "label", "judgment", "sim"), _VALUE),
    "rank": _RANK,
}
"""Accepted column names, in lower case, by what the column contains; of several for the same content, the first name here counts."""

_MS_MARCO = "an MS MARCO run: qid, docid, rank"
_WORDS = re.compile(r"[^ \t\n\r\f\v]+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_RANKED = re.compile(r"\d{1,9}")
_QUOTED = re.compile(r'\A"((?:[^"]|"")*)"\Z')
_LARGEST = 3.4028234663852886e38
"""Largest 32-bit float, the maximum score."""
_LARGEST_GRADE = 1e9


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Entry:
    """A judged or ranked document.

    Attributes:
        line: 1-based line, or row of a Parquet file.
        question, document: Ids of question and document.
        value: The grade or score; the negative rank for runs that only have ranks.
        rank: The rank column, which TREC tools ignore; None if it is absent or not an integer.
    """

    line: int
    question: str
    document: str
    value: float
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that could not be parsed.

    Attributes:
        line: 1-based line.
        code: A stable name for programs.
        what, try_this: As in `UserError`.
    """

    line: int
    code: str
    what: str
    try_this: str


@dataclass
class Reading:
    """Information about a file that is being read; complete after its last entry.

    Attributes:
        layout: Description of the detected layout; "" before the first line.
        comments: Number of comment lines (starting with `#`).
        tag: The tag of a TREC run; "" for other layouts.
    """

    layout: str = ""
    comments: int = 0
    tag: str = ""


class _Unreadable(Exception):
    def __init__(self, what: str, code: str, try_this: str) -> None:
        self.what, self.code, self.try_this = what, code, try_this
        super().__init__(what)


Parse = Callable[[str], tuple[str, str, str, str | None]]
"""Function that splits a line into question, document, value and rank, as written."""


def entries(lines: Iterable[tuple[int, str]], kind: Kind, reading: Reading) -> Iterator[Entry | Fault]:
    """Yield the entries of a text; a line that cannot be parsed is yielded as a `Fault`.

    Args:
        lines: Numbered lines, without a byte order mark.
        kind: Whether to parse qrels or a run.
        reading: Object that receives the layout and the number of comments.
    """
    parse: Parse | None = None
    numbered = iter(lines)
    for number, line in numbered:
        stripped = line.strip(" \t\r\n\f\v")
        if not stripped:
            continue
        if stripped.startswith("#"):
            reading.comments += 1
            continue
        if parse is None and stripped[0] in "{[" and not _has_columns(stripped):
            yield from _json(number, line, numbered, kind, reading)
            return
        try:
            if parse is None:
                parse, header = _layout(stripped, kind, reading)
                if header:
                    continue
            yield _entry(number, *parse(line), kind, reading)
        except _Unreadable as error:
            yield Fault(number, error.code, f"{error.what}{_of(reading)}", error.try_this)
            if parse is None:
                return


def _of(reading: Reading) -> str:
    return f" (read as {reading.layout})" if reading.layout else ""


def _has_columns(line: str) -> bool:
    """Return whether a line that begins with a bracket has columns instead of JSON."""
    with suppress(ValueError, RecursionError):
        json.loads(line)
        return False
    words = _WORDS.findall(line)
    value = {3: 2, 4: 3}.get(len(words), 4 if len(words) >= 6 else None)
    numbers = [line.rsplit("\t", 1)[-1].strip()] if "\t" in line else []
    numbers += [words[value]] if value is not None else []
    return any(_NUMBER.fullmatch(number) for number in numbers)


def _layout(line: str, kind: Kind, reading: Reading) -> tuple[Parse, bool]:
    """Return the parser of a file's lines, and whether the first line is a header."""
    delimiter = "\t" if "\t" in line else None
    if delimiter is None and len(_WORDS.findall(line)) < 3:
        delimiter = next((sign for sign in ",;" if line.count(sign) > 1), None)
    columns = _split(line, delimiter)
    names = [column.strip().lower() for column in columns]
    if any(name in NAMES for name in names) and not any(_NUMBER.fullmatch(name) for name in names):
        reading.layout = f"{'BEIR' if 'corpus-id' in names else 'a table'} with the columns {', '.join(names)}"
        return _by_name(names, delimiter, kind), True
    count = len(_WORDS.findall(line))
    # An id between two tabs may hold blanks, so three columns by tabs go before more by white space, but not TREC's own.
    three = len(columns) == 3 and _NUMBER.fullmatch(columns[2].strip()) is not None and not re.match(r"[qQ]?0\s", columns[1])
    # Ids with blanks: more words than columns between tabs.
    tabs = "\t" if count > len(columns) and _NUMBER.fullmatch({4: columns[3:], 6: columns[4:]}.get(len(columns), [""])[0].strip()) else None
    if kind == "qrels" and (count == 4 or (tabs and len(columns) == 4)) and not three:
        reading.layout = "TREC qrels: qid 0 docid grade"
        return partial(_trec_qrels, delimiter=tabs), False
    if kind == "run" and count >= 6 and not three:
        reading.layout = "a TREC run: qid Q0 docid rank score tag"
        return partial(_trec_run, delimiter=tabs if len(columns) == 6 else None, reading=reading), False
    if three or count == 3:
        delimiter = delimiter if three else None
        if kind == "qrels":
            reading.layout = "BEIR without a header: qid, docid, grade"
            return lambda text: (*_exactly(text, delimiter, 3), None), False
        ranked = _RANKED.fullmatch(_split(line, delimiter)[2].strip()) is not None
        reading.layout = _MS_MARCO if ranked else "a run without ranks: qid, docid, score"
        return (lambda text: _of_rank(text, delimiter)) if ranked else (lambda text: (*_exactly(text, delimiter, 3), None)), False
    # The passage may be number 0: then the score must show that these are not qrels.
    ranks = kind == "run" and len(columns) == 4 and columns[2] in ("0", "1") and _NUMBER.fullmatch(columns[3].strip())
    if ranks and (not re.fullmatch("[qQ]?0", columns[1]) or "." in columns[3]):
        reading.layout = "a run of ColBERT: qid, pid, rank, score"
        return partial(_colbert_run, delimiter=delimiter), False
    what = f"a line has {count} columns, which no layout of {'a run' if kind == 'run' else 'qrels'} has"
    if kind == "qrels" and count >= 6:
        what = "this is a line of a TREC run (6 columns), not of qrels; a run is named first"
    elif kind == "run" and count == 4 and _NUMBER.fullmatch(_WORDS.findall(line)[3]):
        what = "this is a line of TREC qrels (4 columns), not of a run"
    raise _Unreadable(what, "not_trec", FORMS[kind])


def _split(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return _WORDS.findall(line)
    line = line.rstrip("\r\n")
    if delimiter == "\t":
        columns = line.split("\t")
        return columns if '"' not in line else [_QUOTED.sub(lambda match: match[1].replace('""', '"'), column) for column in columns]
    return next(csv.reader([line], delimiter=delimiter), [])


def _exactly(line: str, delimiter: str | None, count: int) -> tuple[str, str, str]:
    columns = _split(line, delimiter)
    if len(columns) != count:
        raise _Unreadable(f"a line has {len(columns)} columns, not {count}", "not_trec", "the same columns in every line")
    question, document, value = columns
    return question, document, value.strip()


def _of_rank(line: str, delimiter: str | None) -> tuple[str, str, str, str | None]:
    question, document, rank = _exactly(line, delimiter, 3)
    if not _RANKED.fullmatch(rank):
        raise _Unreadable(f"the rank {rank!r} is not a whole number", "not_trec_number", NAME_THE_SCORE)
    return question, document, f"-{rank}", rank


def _colbert_run(line: str, delimiter: str | None) -> tuple[str, str, str, str | None]:
    columns = _split(line, delimiter)
    if len(columns) != 4 or not _RANKED.fullmatch(columns[2]):
        raise _Unreadable("a line has not the columns qid, pid, rank, score", "not_trec", "the same columns in every line")
    return columns[0], columns[1], columns[3].strip(), columns[2]


def _trec_qrels(line: str, delimiter: str | None) -> tuple[str, str, str, str | None]:
    columns = _split(line, delimiter)
    if len(columns) != 4:
        raise _Unreadable(f"a line has {len(columns)} columns, not 4", "not_trec", FORMS["qrels"])
    return columns[0], columns[2], columns[3].strip(), None


def _trec_run(line: str, delimiter: str | None, reading: Reading) -> tuple[str, str, str, str | None]:
    columns = _split(line, delimiter)
    if len(columns) < 6 or (delimiter and len(columns) > 6):
        raise _Unreadable(f"a line has {len(columns)} columns, not 6", "not_trec", FORMS["run"])
    tag = " ".join(columns[5:])
    reading.tag = reading.tag or tag
    if tag != reading.tag:
        raise _Unreadable(f"the tag {tag!r} differs from the tag {reading.tag!r} of earlier lines", "two_runs", "one file per run")
    return columns[0], columns[2], columns[4].strip(), columns[3].strip()


def _by_name(names: Sequence[str], delimiter: str | None, kind: Kind) -> Parse:
    at = _columns(names, kind)

    def parse(line: str) -> tuple[str, str, str, str | None]:
        columns = _split(line, delimiter)
        if len(columns) != len(names):
            raise _Unreadable(
                f"a line has {len(columns)} columns, its header {len(names)}", "not_trec", f"the columns {', '.join(names)} in every line"
            )
        rank = columns[at[_RANK]].strip() if _RANK in at else None
        value = columns[at[_VALUE]].strip() if _VALUE in at else f"-{rank}"
        # Where spreadsheets separate columns by semicolons, they write decimal commas.
        value = value.replace(",", ".") if delimiter == ";" else value
        return columns[at[_QUESTION]], columns[at[_DOCUMENT]], value, rank

    return parse


def _columns(names: Iterable[str], kind: Kind) -> dict[str, int]:
    """Return the positions of columns by role."""
    positions: dict[str, int] = {}
    for place, name in enumerate(names):
        positions.setdefault(name.strip().lower(), place)
    at: dict[str, int] = {}
    for name, meaning in NAMES.items():
        if name in positions:
            at.setdefault(meaning, positions[name])
    lacking = [what for what in (_QUESTION, _DOCUMENT) if what not in at]
    if _VALUE not in at and (kind == "qrels" or _RANK not in at):
        lacking.append("grade" if kind == "qrels" else "score")
    if lacking:
        what = f"no column holds the {' or the '.join(lacking)}: the columns are {', '.join(names)}"
        raise _Unreadable(what, "not_trec", "name the columns query-id, corpus-id and score")
    return at


def _entry(line: int, question: str, document: str, value: str, rank: str | None, kind: Kind, reading: Reading) -> Entry:
    largest, what = (_LARGEST_GRADE, "grade") if kind == "qrels" else (_LARGEST, "score")
    if not _NUMBER.fullmatch(value) or not abs(number := float(value)) <= largest:
        raise _Unreadable(f"the {what} {value!r} is not a finite number", "not_trec_number", FORMS[kind])
    if not question or not document:
        raise _Unreadable("a line has no question id or no document id", "not_trec", FORMS[kind])
    return Entry(line, question, document, number, int(rank) if rank is not None and _RANKED.fullmatch(rank) else None)


def _json(number: int, line: str, rest: Iterator[tuple[int, str]], kind: Kind, reading: Reading) -> Iterator[Entry | Fault]:
    """Yield the entries of a JSON file: an object of objects, an array of rows, or JSON Lines."""
    first: Any = None
    with suppress(ValueError, RecursionError):
        first = json.loads(line)
    by_question = isinstance(first, dict) and not any(name.lower() in NAMES for name in first)
    if not isinstance(first, dict) or all(isinstance(value, (dict, list) if by_question else dict) for value in first.values()):
        text = "\n".join((line.rstrip("\n"), *(other.rstrip("\n") for _, other in rest)))
        yield from _whole(text, number, kind, reading)
        return
    reading.layout = f"JSON Lines with the fields {', '.join(first)}"
    yield from _row(first, number, kind, reading)
    for place, text in rest:
        if text.strip():
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                yield Fault(place, "not_json", f"this is not JSON: {error}", "one object per line")
            else:
                yield from _row(value, place, kind, reading)


def _whole(text: str, number: int, kind: Kind, reading: Reading) -> Iterator[Entry | Fault]:
    reading.layout = "a JSON array of rows" if text.lstrip().startswith("[") else "a JSON object {qid: {docid: number}}"
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        at = number + error.lineno - 1 if isinstance(error, json.JSONDecodeError) else number
        yield Fault(at, "not_json", f"this is not JSON: {error}", FORMS[kind])
        return
    if isinstance(value, list):
        for row in value:
            yield from _row(row, number, kind, reading)
        return
    for question, documents in value.items():
        if isinstance(documents, list):
            reading.layout = "a JSON object {qid: [docid, …]}" + " in rank order" * (kind == "run")
            # An item may be a document with its score.
            pairs = [item if isinstance(item, list) and len(item) == 2 else (item, None) for item in documents]
            graded = [(item, (1 if kind == "qrels" else -rank) if score is None else score) for rank, (item, score) in enumerate(pairs, 1)]
        elif isinstance(documents, dict):
            graded = list(documents.items())
        else:
            yield Fault(number, "not_trec", f"question {question!r} has no object of documents{_of(reading)}", "{qid: {docid: number}}")
            continue
        for document, grade in graded:
            yield from _checked(number, question, document, grade, None, kind, reading)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return result


def _row(row: Any, line: int, kind: Kind, reading: Reading) -> Iterator[Entry | Fault]:
    if not isinstance(row, dict):
        yield Fault(line, "not_trec", f"a row is not an object{_of(reading)}", "one object per line")
        return
    try:
        names = list(row)
        at = {meaning: names[place] for meaning, place in _columns(names, kind).items()}
    except _Unreadable as error:
        yield Fault(line, error.code, f"{error.what}{_of(reading)}", error.try_this)
        return
    rank = row[at[_RANK]] if _RANK in at else None
    value = row[at[_VALUE]] if _VALUE in at else -rank if type(rank) is int else None
    yield from _checked(line, row[at[_QUESTION]], row[at[_DOCUMENT]], value, rank, kind, reading)


def _checked(line: int, question: Any, document: Any, value: Any, rank: Any, kind: Kind, reading: Reading) -> Iterator[Entry | Fault]:
    ids = [str(item) if type(item) is int else item for item in (question, document)]
    number = value if type(value) in (int, float) and math.isfinite(value) else value if isinstance(value, str) else None
    try:
        if not all(isinstance(item, str) for item in ids):
            raise _Unreadable("an id is neither a text nor a whole number", "not_trec", FORMS[kind])
        if number is None:
            what = "grade" if kind == "qrels" else "score"
            raise _Unreadable(f"the {what} {value!r} is not a finite number", "not_trec_number", FORMS[kind])
        text = number if isinstance(number, str) else repr(float(number))
        yield _entry(line, ids[0], ids[1], text, None if rank is None else str(rank), kind, reading)
    except _Unreadable as error:
        yield Fault(line, error.code, f"{error.what}{_of(reading)}", error.try_this)


@dataclass(frozen=True)
class Table:
    """All entries of a qrels or run file, by question.

    Attributes:
        path: The file.
        values: Grade or score by question and document, in the file's order.
        reading: Detected layout and skipped lines.
    """

    path: Path
    values: Mapping[str, Mapping[str, float]]
    reading: Reading = field(compare=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on how the file was read, for display below a table."""
        comments = self.reading.comments
        return (f"{self.path.name}: {comments} lines that begin with # were skipped as comments",) if comments else ()


def read_table(path: Path, kind: Kind) -> Table:
    """Read a qrels or run file completely.

    Raises:
        UserError: The file or a line cannot be parsed; the message has the line and the detected layout.
    """
    reading = Reading()
    values: dict[str, dict[str, float]] = {}
    items = _of_parquet(path, kind, reading) if is_parquet(path) else entries(text_lines(path), kind, reading)
    for item in items:
        if isinstance(item, Fault):
            raise UserError(item.what, code="bad-line", where=f"{path}:{item.line}", try_this=item.try_this)
        documents = values.setdefault(item.question, {})
        if item.document in documents:
            what = f"document {item.document!r} is listed twice for question {item.question!r}"
            raise UserError(what, code="unknown-layout", where=f"{path}:{item.line}", try_this="keep one of the lines")
        documents[item.document] = item.value
    if not values:
        raise UserError("the file has no data lines", code="no-data-line", where=str(path), try_this=FORMS[kind])
    problem = not_ranks(((question, list(documents.values())) for question, documents in values.items()), reading)
    if problem is not None:
        raise UserError(problem, code="rank-column-mismatch", where=str(path), try_this=NAME_THE_SCORE)
    return Table(path, values, reading)


def not_ranks(values: Iterable[tuple[str, Sequence[float]]], reading: Reading) -> str | None:
    """Describe why the last of three columns, read as a rank, is probably a score: a run with whole scores has the same layout.

    Args:
        values: The negative ranks of each question, in the file's order.
        reading: The detected layout.
    """
    if reading.layout != _MS_MARCO:
        return None
    several = []
    for question, rising in values:
        if (first := int(-max(rising))) > 1:
            return f"the third column was read as a rank, and question {question!r} has none below {first}"
        several += [rising] if len(rising) > 1 else []
    if several and all(list(rising) == sorted(set(rising)) for rising in several):
        return "the third column was read as a rank, and falls from line to line in every question"
    return None


def _of_parquet(path: Path, kind: Kind, reading: Reading) -> Iterator[Entry | Fault]:
    for number, row in enumerate(rows(path), 1):
        reading.layout = reading.layout or f"Parquet with the columns {', '.join(row)}"
        yield from _row(row, number, kind, reading)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a text file, plain or gzip, without a byte order mark.

    Raises:
        UserError: The file cannot be read or is not UTF-8, or a line contains a NUL byte.
    """
    with open_bytes(path) as source:
        skip = encoding_mark(source.read(4), path)
        source.seek(0)
        source.read(skip)
        for number, raw in enumerate(source, 1):
            if b"\0" in raw:
                raise UserError(
                    "a line contains a NUL byte", code="nul-byte", where=f"{path}:{number}", try_this="save the file as UTF-8 text"
                )
            # Files that were joined have byte order marks in the middle.
            yield number, raw.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
