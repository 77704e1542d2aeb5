"""Parse questions from users' records through a field mapping; every error names file, line and field."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.own.fields import Fields, Missing, passage_text, values
from benchmarks.records import QUESTION_CHARS, Record
from benchmarks.schema import Turn

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_PLACEHOLDERS = (
    *("nan", "none", "null", "<na>", "n/a"),
    *("#n/a", "#name?", "#value!", "#ref!", "#div/0!", "#num!", "#null!", "#nv", "#wert!", "#bezug!"),
)
"""Words for a missing value, and a spreadsheet's for a formula that failed: a text that begins with = or - is one."""
_TRUTH = ("true", "false", "wahr", "falsch", "vrai", "faux", "verdadero", "vero", "falso")
"""Truth values as spreadsheets write them, in several languages."""
_MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\d[ T]00:00:00")
_ROLES = {**dict.fromkeys(("user", "human"), "user"), **dict.fromkeys(("assistant", "ai", "bot", "model"), "assistant"), "system": ""}
"""Roles by the speakers' names in users' data; system messages are not turns."""
_SPAN = {
    "document": ("document", "document_id", "doc_id", "doc", "file", "source"),
    "start": ("start", "start_char", "answer_start", "begin"),
    "end": ("end", "end_char"),
    "text": ("text", "quote"),
}


@dataclass(frozen=True, slots=True)
class GoldSpan:
    """Gold span of a document as given in a record; `end` or `text` may be missing."""

    document: str | None
    start: int | None = None
    end: int | None = None
    text: str | None = None


@dataclass(frozen=True)
class ParsedQuestion:
    """Parsed content of one question record, before gold evidence is resolved.

    Attributes:
        identifier: The question's id, None if the record has none.
        answers: Accepted non-blank answers; `aliases` has alternative forms of numbers.
        passages: Title, text and id of each passage in the record.
        supporting: Positions of the gold passages among them.
        evidence: Names of gold passages or documents, or positions of the record's passages.
        spans: Gold spans of documents.
        turns: Earlier turns, without the question itself.
        counts: Number of peculiarities (keys of the dataset's notes).
    """

    identifier: str | None
    text: str
    record: Record
    answers: tuple[str, ...] = ()
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passages: tuple[tuple[str, str, str | None], ...] = ()
    supporting: tuple[int, ...] = ()
    evidence: tuple[str | int, ...] = ()
    spans: tuple[GoldSpan, ...] = ()
    type: str = ""
    answerable: bool = True
    synthetic: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)


class Reader:
    """Parser of question records.

    Args:
        fields: The field mapping.
        separator: Separator of several answers (or pieces of evidence) in one string; None if there is a single one.
    """

    def __init__(self, fields: Fields, separator: str | None = None) -> None:
        self._fields = fields
        self._separator = separator

    def read(self, record: Record) -> ParsedQuestion:
        """Parse a record.

        Raises:
            BadRecord: A field is missing or has an invalid value.
        """
        counts: Counter[str] = Counter()
        answers, aliases = self._answers(record, counts)
        passages, positions = self._passages(record)
        answerable = all(self._flag(record, flag, "answerable") for flag in self._all(record, "answerable"))
        counts["questions_without_answers"] += not answers and answerable and "answers" in self._fields
        flags = self._listed(record, "supporting")
        if flags and len(flags) != len(positions):
            raise record.problem(f"{len(flags)} passages are marked, {len(positions)} are there", self._path("supporting"))
        supporting = [place for place, flag in enumerate(flags) if flag is not None and self._flag(record, flag, "supporting")]
        return ParsedQuestion(
            self._one(record, "id") or None,
            self._question(record),
            record,
            answers,
            aliases,
            passages,
            tuple(self._placed(record, place, positions) for place in supporting),
            tuple(self._placed(record, value, positions) if isinstance(value, int) else value for value in self._evidence(record)),
            tuple(self._spans(record)),
            self._one(record, "type"),
            answerable,
            self._one(record, "synthetic"),
            self._kept(record),
            self._turns(record),
            counts,
        )

    def _turns(self, record: Record) -> tuple[Turn, ...]:
        """Parse the earlier turns; the last one is dropped if it is the question."""
        turns = []
        for value in self._all(record, "turns"):
            item = record.expect(value, self._path("turns"), dict)
            text = next((item[name] for name in ("content", "text") if isinstance(item.get(name), str)), None)
            role = _ROLES.get(str(item.get("role")).casefold())
            if role is None or text is None:
                what = f"a turn has the role {item.get('role')!r}" if role is None else "a turn has no text"
                raise record.problem(what, self._path("turns"), "objects with role (user or assistant) and content")
            if role:
                turns.append(Turn(role, text))
        if turns and turns[-1].text.strip() == self._question(record).strip():
            turns.pop()
        return tuple(turns)

    def _path(self, role: str) -> str:
        return " + ".join(self._fields.paths.get(role, (role,)))

    def _kept(self, record: Record) -> dict[str, Any]:
        named = [path.removesuffix("?") for path in self._fields.paths.get("metadata", ())]
        return {path: contents[0] for path in named if (contents := values(record.fields, f"{path}?"))}

    def _all(self, record: Record, role: str, *, nulls: bool = False) -> list[Any]:
        try:
            return self._fields.of(record.fields, role, nulls=nulls)
        except Missing as error:
            record.require(error.path)
            raise record.problem(f"field {error.path!r} is missing", error.path, f"there ({error.path}? lets records lack it)") from error

    def _one(self, record: Record, role: str) -> str:
        contents = self._all(record, role)
        return self._text(record, contents[0], role) if contents else ""

    def _text(self, record: Record, value: Any, role: str) -> str:
        """Return a text, or a numeric id as text (1.0 becomes "1")."""
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            record.expect(value, self._path(role), str)
        return str(int(value)) if value == int(value) else repr(value)

    def _question(self, record: Record) -> str:
        contents = self._all(record, "question")
        path = self._path("question")
        text = record.expect(contents[0] if contents else None, path, str)
        if not text.strip():
            raise record.problem(f"field {path!r} holds no word", path)
        if len(text) > QUESTION_CHARS:
            raise record.problem(f"field {path!r} has {len(text):,} characters, too many for a question", path)
        return text

    def _flag(self, record: Record, value: Any, role: str) -> bool:
        plain = str(value).strip().casefold()
        if plain not in (*_TRUE, *_FALSE):
            raise record.problem(f"field {self._path(role)!r} is {value!r}", self._path(role), bool)
        return plain in _TRUE

    def _several(self, record: Record, role: str) -> Iterator[Any]:
        """Yield the values of a role: items of lists (also written as text), and parts split at the separator."""
        for value in self._all(record, role):
            if isinstance(value, str):
                written = record.written_list(self._path(role), value)
                if written is not None:
                    value = written
                elif self._separator and not value.lstrip().startswith("["):
                    value = [part.strip() for part in value.split(self._separator)]
            yield from value if isinstance(value, list) else [value]

    def _answers(self, record: Record, counts: Counter[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
        answers: list[str] = []
        aliases: dict[str, tuple[str, ...]] = {}
        path, blank = self._path("answers"), 0
        for value in self._several(record, "answers"):
            if value is None or value != value:  # NaN
                continue
            if isinstance(value, bool):
                raise record.problem(f"field {path!r} is {str(value).lower()}", path, 'the text of the answer, such as "yes"')
            if isinstance(value, int | float):
                counts["numeric_answers"] += 1
                text = repr(value)
            else:
                text = record.expect(value, path, str)
            if not text.strip():
                blank += 1
                continue
            answers.append(text)
            counts["undivided_answers"] += self._separator is None and "|" in text
            counts["placeholder_answers"] += text.strip().casefold() in _PLACEHOLDERS
            counts["truth_values"] += text.strip().casefold() in _TRUTH
            counts["midnights"] += _MIDNIGHT.fullmatch(text.strip()) is not None
            if (whole := text.removesuffix(".0")) != text and whole.removeprefix("-").isdecimal():
                aliases[text] = (whole,)
        counts["blank_answers"] += blank if answers else 0
        return tuple(answers), aliases

    def _listed(self, record: Record, role: str) -> list[Any]:
        """Return one value per passage, None for a missing one; a single field may hold their list, also as text."""
        contents, path = self._all(record, role, nulls=True), self._path(role)
        if len(contents) != 1 or "[]" in path:
            return contents
        cell = contents[0]
        if not isinstance(cell, str):
            return cell if isinstance(cell, list) else contents
        if not cell.strip():
            return []
        written = record.written_list(path, cell) if cell.lstrip().startswith("[") else None
        if written is None:
            return contents
        if any(isinstance(item, dict) and passage_text(item) is not None for item in written):
            raise record.problem("the passages are objects written as text", path, "a list of objects")
        return written if role != "documents" or all(item is None or isinstance(item, str) for item in written) else contents

    def _passages(self, record: Record) -> tuple[tuple[tuple[str, str, str | None], ...], list[int | None]]:
        """Return the passages, and for each place in the record's list the passage's number, None if it is null."""
        texts = self._listed(record, "documents")
        path = self._path("documents")
        parts: list[list[str | None]] = []
        for role in ("titles", "document_ids"):
            contents = [None if value is None else self._text(record, value, role) for value in self._listed(record, role)] if texts else []
            if contents and len(contents) != len(texts):
                what = f"{len(texts)} passages have {len(contents)} {role.replace('_', ' ')}"
                raise record.problem(what, self._path(role), "one for each passage")
            parts.append(contents or [None] * len(texts))
        results: list[tuple[str, str, str | None]] = []
        positions: list[int | None] = []
        for text, title, native in zip(texts, *parts, strict=True):
            positions.append(None if text is None else len(results))
            if text is None:
                continue
            joined = "".join(text) if isinstance(text, list) and all(isinstance(part, str) for part in text) else text
            if not record.expect(joined, path, str).strip():
                raise record.problem("a passage holds no word", path)
            results.append((title or "", joined, native or None))
        return tuple(results), positions

    def _placed(self, record: Record, place: int, positions: list[int | None]) -> int:
        """Return the number of the passage at a place of the record's list."""
        if not 0 <= place < len(positions):
            raise record.problem(f"there is no passage {place} among {len(positions)}", self._path("evidence"), "a place, counted from 0")
        if (number := positions[place]) is None:
            raise record.problem(f"the gold passage {place} is null", self._path("documents"))
        return number

    def _evidence(self, record: Record) -> Iterator[str | int]:
        by_place = "documents" in self._fields and "document_ids" not in self._fields
        for value in self._several(record, "evidence"):
            if by_place and type(value) is int:
                yield value
            elif value is not None and (text := self._text(record, value, "evidence")):
                yield text

    def _spans(self, record: Record) -> Iterator[GoldSpan]:
        for value in self._all(record, "spans"):
            item = record.expect(value, self._path("spans"), dict)
            contents = {key: next((item[name] for name in names if item.get(name) is not None), None) for key, names in _SPAN.items()}
            document = None if contents["document"] is None else self._text(record, contents["document"], "spans")
            yield self._gold_span(record, document, contents["start"], contents["end"], contents["text"], "spans")
        starts, ends = self._all(record, "start"), self._all(record, "end")
        names = [name for name in self._evidence(record) if isinstance(name, str)]
        if starts not in ([], [""]):
            if len(names) != 1 or len(starts) != 1:
                raise record.problem("a span needs one document in the field of evidence", self._path("evidence"))
            yield self._gold_span(record, names[0], starts[0], ends[0] if ends else None, None, "start")
            return
        for value in self._several(record, "quotes"):
            if quote := record.expect(value, self._path("quotes"), str).strip():
                yield GoldSpan(None, text=quote)

    def _gold_span(self, record: Record, document: str | None, start: Any, end: Any, text: Any, role: str) -> GoldSpan:
        path = self._path(role)
        numbers = []
        for value in (start, end):
            whole = value.strip().removesuffix(".0") if isinstance(value, str) else ""
            number = int(whole) if whole.isdecimal() else value
            if isinstance(number, float) and number.is_integer():
                number = int(number)
            numbers.append(None if number in (None, "") else record.expect(number, path, int))
        first, last = numbers
        if text is not None:
            text = record.expect(text, path, str)
        if first is not None and last is None and text:
            last = first + len(text)
        if text is None and (first is None or last is None or not 0 <= first < last):
            raise record.problem(f"a span from {first} to {last} holds nothing", path, "start and end, or the text itself")
        return GoldSpan(document, first, last, text)
