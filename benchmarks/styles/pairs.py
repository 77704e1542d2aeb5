"""Store passages rewritten in another style, by question, passage and style, in memory and in JSON Lines files.

The first line of a file is a header, `{"ragmeter": "style pairs", "format": 2, "rewriter", "made from"}`. Every other line is
one passage of one question in one style, with both texts, so that the file can be used without the corpus: `{"question",
"passage", "style", "title", "formal", "styled", "by", "tries"}`, or `failed` (a list of reasons) instead of `styled`.
`sentences` and `document` follow if the passage has them. Pairs are found by these ids, not by position. A pair whose question
is "" can be used for any question.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.files import whole
from benchmarks.core.fingerprint import content_hash
from benchmarks.records import BadRecord, Record, read_records, records
from benchmarks.registry import SkippedRecord
from benchmarks.schema import Passage, passage_id
from benchmarks.styles import FORMAL

ANY = ""
"""Question id of pairs that can be used for any question."""
FORMAT = 2
HEADER = "style pairs"

Key = tuple[str, str, str]
"""Question id, passage id, style."""


@dataclass(frozen=True, slots=True)
class StylePair:
    """A candidate of one question in its original and another style.

    Attributes:
        formal: The passage in its original style.
        style: The other style.
        styled: The passage in the other style.
        used: Whether the question's candidates contain `styled`; otherwise they contain the passage in another style.
    """

    formal: Passage
    style: str
    styled: Passage
    used: bool


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Result of rewriting one passage of one question in a style, or the reasons of failure.

    Attributes:
        question: Id of the question, or `ANY`.
        formal: The passage in its original style.
        style: The other style.
        styled: The rewritten passage, None on failure.
        by: Name of the writer (a rule set or model).
        failed: Reason of each failed attempt.
    """

    question: str
    formal: Passage
    style: str
    styled: Passage | None
    by: str = ""
    failed: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Return (question id, passage id, style), by which the pair is found."""
        return self.question, self.formal.id, self.style

    def to_json(self) -> dict[str, Any]:
        """Return the line of a pairs file as a JSON object."""
        formal, styled = self.formal, self.styled
        row: dict[str, Any] = {
            "question": self.question,
            "passage": formal.id,
            "style": self.style,
            "title": formal.title,
            "formal": formal.text,
        }
        if styled is not None:
            row["styled"] = styled.text
            row["by"] = self.by
            row["tries"] = len(self.failed) + 1
            if formal.sentences or styled.sentences:
                row["sentences"] = {"formal": formal.sentences, "styled": styled.sentences}
        if self.failed or styled is None:
            row["failed"] = self.failed
        if formal.document_id is not None:
            row["document"] = formal.document_id
        return row


class StylePairs:
    """Collection of rewritten passages, found by question, passage and style.

    Args:
        rewritings: The rewritings; failed ones are only counted.

    Attributes:
        failed: Number of permanently failed rewritings by style.
        by: Number of pairs by writer.

    Raises:
        UserError: Two different texts have the same question, passage and style.
    """

    def __init__(self, rewritings: Iterable[Rewriting]) -> None:
        self._rewritten: dict[Key, Rewriting] = {}
        failed: dict[Key, Rewriting] = {}
        for item in rewritings:
            if item.styled is None:
                failed[item.key] = item
                continue
            known = self._rewritten.setdefault(item.key, item)
            if known.styled is None or known.styled.id != item.styled.id:
                raise UserError(
                    f"question {item.question!r} has two {item.style} texts of the passage {item.formal.id}",
                    code="two-texts-of-passage",
                    where="style pairs",
                    try_this="keep one of the two: which one is used must not depend on their order",
                )
        self.by = Counter(item.by for item in self._rewritten.values())
        self.failed = Counter(item.style for key, item in failed.items() if key not in self._rewritten)

    def __len__(self) -> int:
        return len(self._rewritten)

    def __iter__(self) -> Iterator[Rewriting]:
        return iter(self._rewritten.values())

    @property
    def styles(self) -> tuple[str, ...]:
        """Return the styles of the rewritten passages, in the order of their first appearance."""
        return tuple(dict.fromkeys(style for _, _, style in self._rewritten))

    @property
    def fingerprint(self) -> str:
        """Return an order-independent hash of keys and texts."""
        rows = sorted((*key, item.styled.id, item.styled.text) for key, item in self._rewritten.items() if item.styled is not None)
        return content_hash(part for row in rows for part in row)

    def get(self, question: str, passage: str, style: str) -> Passage | None:
        """Return a passage of a question in a style; None if there is no such pair."""
        item = self._find(question, passage, style)
        return None if item is None else item.styled

    def written_by(self, question: str, passage: str, style: str) -> str:
        """Return the writer of a pair; "" if there is no such pair."""
        item = self._find(question, passage, style)
        return "" if item is None else item.by

    def _find(self, question: str, passage: str, style: str) -> Rewriting | None:
        return self._rewritten.get((question, passage, style)) or self._rewritten.get((ANY, passage, style))


def restyled(formal: Passage, text: str, sentences: tuple[str, ...] = ()) -> Passage:
    """Return a passage with another text and the content id of that text."""
    return Passage(passage_id(formal.title, text, formal.document_id), formal.title, text, sentences, formal.document_id)


def header(rewriter: str, made_from: str) -> dict[str, Any]:
    """Return the header object of a pairs file."""
    return {"ragmeter": HEADER, "format": FORMAT, "rewriter": rewriter, "made from": made_from}


def write_pairs(path: Path, rewritings: Iterable[Rewriting], *, rewriter: str, made_from: str, overwrite: bool = False) -> int:
    """Write a pairs file atomically, and return the number of rewritings written.

    Raises:
        UserError: The output file already exists.
    """
    if path.exists() and not overwrite:
        raise UserError("output file already exists", code="output-exists", where=str(path), try_this="another name, or overwrite")

    def write(partial: Path) -> int:
        written = 0
        with partial.open("w", encoding="utf-8") as file:
            file.write(line(header(rewriter, made_from)))
            for rewriting in rewritings:
                file.write(line(rewriting.to_json()))
                written += 1
        return written

    return whole(path, write)


def line(row: Mapping[str, Any]) -> str:
    """Format a row as a line of JSON."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_header(path: Path) -> Mapping[str, Any]:
    """Read the header of a pairs file.

    Raises:
        UserError: The file cannot be read, or is not a pairs file.
    """
    first = next(records(path), None)
    return _checked_header(path, first)


def read_pairs(path: Path) -> Iterator[Rewriting]:
    """Yield the rewritings of a pairs file one at a time, including failed ones.

    Raises:
        UserError: The file is not a pairs file, a line cannot be parsed, or a text does not match the passage's id.
    """
    rows = records(path)
    _checked_header(path, next(rows, None))
    for row in rows:
        if isinstance(row, BadRecord):
            row.try_this = "go on with the rewriting, which drops a line that was cut off; or repair the line"
            raise row
        yield _rewriting(row)


def load_pairs(path: Path | str) -> StylePairs:
    """Load all pairs of a file.

    Raises:
        UserError: As in `read_pairs` and `StylePairs`.
    """
    return StylePairs(read_pairs(Path(path).expanduser()))


def _checked_header(path: Path, first: Record | BadRecord | None) -> Mapping[str, Any]:
    if isinstance(first, Record) and first.fields.get("ragmeter") == HEADER:
        if first.fields.get("format") != FORMAT:
            raise UserError(
                f"this file has format {first.fields.get('format')}, expected {FORMAT}", code="file-format-mismatch", where=str(path)
            )
        return first.fields
    raise UserError(
        "this is not a file of style pairs: its first line is not the header of one",
        code="not-style-pairs",
        where=str(path),
        try_this="write one with a rewriter, or import parallel texts (dataset parallel_style)",
    )


def _rewriting(row: Record) -> Rewriting:
    document = row.text("document") if row.has("document") else None
    sides = row.field("sentences", dict, {})
    title, text = row.text("title", ""), row.text("formal")
    formal = Passage(row.text("passage"), title, text, _sentences(row, sides, "formal"), document)
    if formal.id != passage_id(title, text, document):
        raise row.problem(f"the formal text is not that of the passage {formal.id}", "formal")
    styled = None
    if "styled" in row.fields:
        styled = restyled(formal, row.text("styled"), _sentences(row, sides, "styled"))
        if not styled.text.strip():
            raise row.problem("the rewritten text is empty", "styled")
    failed = row.texts("failed", ())
    return Rewriting(row.text("question"), formal, row.text("style"), styled, row.text("by", ""), failed)


def _sentences(row: Record, sides: Mapping[str, Any], side: str) -> tuple[str, ...]:
    options = row.expect(sides.get(side, []), f"sentences.{side}", list)
    return tuple(row.expect(item, f"sentences.{side}", str) for item in options)


# A style is a field, or a path of fields (`styles.KJV`), whose value is a text, or a list of texts in the same order as
# the other styles' (verses, sentences). Each text of the formal side is one passage.


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that contain parallel texts.

    Attributes:
        styles: Field path by style; one style must be `formal`.
        id: Field of the record's id; None uses its number.
        title: Field of the title, None without titles.
        question: Field of the id of the question to which a text belongs, None without questions.
    """

    styles: Mapping[str, str]
    id: str | None = None
    title: str | None = None
    question: str | None = None

    def __post_init__(self) -> None:
        if FORMAL not in self.styles or len(self.styles) < 2:
            raise UserError(
                f"parallel texts need the fields of {FORMAL} and of at least one other style",
                code="too-few-style-fields",
                where=f"fields: {dict(self.styles)}",
                try_this=f"e.g. {{{FORMAL}: formal, informal: informal}}",
            )


@dataclass(frozen=True, slots=True)
class Parallel:
    """A record with the same texts in several styles.

    Attributes:
        id: Id of the record.
        question: Question id, or `ANY`.
        title: Title of the texts.
        texts: Texts by style; the same number in each style.
    """

    id: str
    question: str
    title: str
    texts: Mapping[str, tuple[str, ...]]

    @property
    def formal(self) -> list[Passage]:
        """Return the formal texts as passages."""
        return [Passage(passage_id(self.title, text), self.title, text) for text in self.texts[FORMAL]]

    def rewritings(self, by: str) -> Iterator[Rewriting]:
        """Yield the texts in other styles as rewritings of the formal ones; blank texts are skipped."""
        formal = self.formal
        for style, texts in self.texts.items():
            for source, text in zip(formal, texts, strict=True):
                if style != FORMAL and text.strip() and source.text.strip():
                    yield Rewriting(self.question, source, style, restyled(source, text), by)


def read_parallel(
    paths: Path | Sequence[Path], fields: Fields, *, skip_bad: bool = False, skipped: list[SkippedRecord] | None = None
) -> Iterator[Parallel]:
    """Yield the records of files with parallel texts.

    Args:
        paths: JSON Lines, a JSON array or Parquet.
        fields: Names of the fields.
        skip_bad: Leave out records that cannot be read.
        skipped: List that receives skipped records.

    Raises:
        UserError: A record lacks a style, or its styles differ in the number of texts.
    """
    numbers = iter(range(1, 1 << 62))
    return read_records(
        paths, lambda record: _parallel(record, fields, next(numbers)), skip_bad=skip_bad, skipped=[] if skipped is None else skipped
    )


def import_parallel(paths: Path | Sequence[Path], fields: Fields, *, by: str = "people") -> Iterator[Rewriting]:
    """Yield the distinct rewritings in files of parallel texts.

    Args:
        paths, fields: As in `read_parallel`.
        by: Name of the writer.
    """
    seen = set()
    for record in read_parallel(paths, fields):
        for rewriting in record.rewritings(by):
            if rewriting.key not in seen:
                seen.add(rewriting.key)
                yield rewriting


def _parallel(record: Record, fields: Fields, number: int) -> Parallel:
    record.require(*fields.styles.values(), *filter(None, (fields.id, fields.question)))
    texts = {style: _texts(record, path) for style, path in fields.styles.items()}
    for style, results in texts.items():
        if len(results) != len(texts[FORMAL]):
            what = f"{fields.styles[style]!r} holds {len(results)} texts, {fields.styles[FORMAL]!r} {len(texts[FORMAL])}"
            raise record.problem(f"{what}: they are not parallel", fields.styles[style])
    identifier = str(number) if fields.id is None else _name(record, fields.id)
    question = ANY if fields.question is None else _name(record, fields.question)
    title = "" if fields.title is None else record.text(fields.title, "")
    return Parallel(identifier, question, title, texts)


def _name(record: Record, field: str) -> str:
    value = record.fields.get(field)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else record.text(field)


def _texts(record: Record, path: str) -> tuple[str, ...]:
    value: Any = record.fields
    for part in path.split("."):
        value = value[part]
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    return tuple(record.expect(item, path, str) for item in values)
