"""Passages rewritten in another style, by question, passage and style: in memory, and as a file.

A file is JSON Lines. Its first line says what it holds: `{"ragmeter": "style pairs", "format": 2, "rewriter", "made
from"}`. Every other line is one passage of one question in one style, with both texts, so that the file is of use
without the corpus: `{"question", "passage", "style", "title", "formal", "styled", "by", "tries"}`, or `failed` (a list of
reasons) in the place of `styled`. `sentences` and `document` follow where a passage has them. Pairs are found by these
ids, never by their place. A pair whose question is "" belongs to no question and serves any.
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
from benchmarks.registry import SkippedRecord
from benchmarks.schema import Passage, passage_id
from benchmarks.sources import BadRecord, Record, read_records, records
from benchmarks.styles import FORMAL

ANY = ""
"""The question of pairs that belong to no question."""
FORMAT = 2
HEADER = "style pairs"

Key = tuple[str, str, str]
"""Question id, passage id, style."""


@dataclass(frozen=True, slots=True)
class StylePair:
    """One candidate of one question in two styles.

    Attributes:
        formal: The passage in its original style.
        style: The other style.
        styled: The same passage in it.
        used: Whether the question's candidates hold `styled`; else they hold another style of the same passage.
    """

    formal: Passage
    style: str
    styled: Passage
    used: bool


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One passage of one question rewritten in a style, or why it could not be.

    Attributes:
        question: Id of the question, or `ANY`.
        formal: The passage in its original style.
        style: The other style.
        styled: The same passage in it, None where nothing usable came back.
        by: What wrote it.
        failed: Why each try that failed did.
    """

    question: str
    formal: Passage
    style: str
    styled: Passage | None
    by: str = ""
    failed: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Return what the pair is found by."""
        return self.question, self.formal.id, self.style

    def to_json(self) -> dict[str, Any]:
        """Return the line of a file."""
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
    """Passages in other styles, found by question, passage and style.

    Args:
        rewritings: Any number; those that failed are counted and cannot be found.

    Attributes:
        failed: How many rewritings failed for good, by style.
        by: How many pairs were written by what.

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
        """Return a hash of keys and texts, whatever their order."""
        rows = sorted((*key, item.styled.id, item.styled.text) for key, item in self._rewritten.items() if item.styled is not None)
        return content_hash(part for row in rows for part in row)

    def get(self, question: str, passage: str, style: str) -> Passage | None:
        """Return a passage of a question in a style; None where there is no such pair."""
        item = self._find(question, passage, style)
        return None if item is None else item.styled

    def written_by(self, question: str, passage: str, style: str) -> str:
        """Return what wrote a pair; "" where there is none."""
        item = self._find(question, passage, style)
        return "" if item is None else item.by

    def _find(self, question: str, passage: str, style: str) -> Rewriting | None:
        return self._rewritten.get((question, passage, style)) or self._rewritten.get((ANY, passage, style))


def restyled(formal: Passage, text: str, sentences: tuple[str, ...] = ()) -> Passage:
    """Return a passage with another text, and an id of its own."""
    return Passage(passage_id(formal.title, text, formal.document_id), formal.title, text, sentences, formal.document_id)


def header(rewriter: str, made_from: str) -> dict[str, Any]:
    """Return the first line of a file."""
    return {"ragmeter": HEADER, "format": FORMAT, "rewriter": rewriter, "made from": made_from}


def write_pairs(path: Path, rewritings: Iterable[Rewriting], *, rewriter: str, made_from: str, overwrite: bool = False) -> int:
    """Write a file of pairs; it appears whole or not at all. Returns how many were written.

    Raises:
        UserError: A file is in the way.
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
    """Return a row as a line of JSON."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_header(path: Path) -> Mapping[str, Any]:
    """Return what a file of pairs says of itself.

    Raises:
        UserError: It cannot be read, or holds no pairs.
    """
    first = next(records(path), None)
    return _checked_header(path, first)


def read_pairs(path: Path) -> Iterator[Rewriting]:
    """Yield the rewritings of a file, one at a time, those that failed among them.

    Raises:
        UserError: The file holds no pairs, a line cannot be read, or a text is not that of the passage it names.
    """
    rows = records(path)
    _checked_header(path, next(rows, None))
    for row in rows:
        if isinstance(row, BadRecord):
            row.try_this = "go on with the rewriting, which drops a line that was cut off; or repair the line"
            raise row
        yield _rewriting(row)


def load_pairs(path: Path | str) -> StylePairs:
    """Return the pairs of a file.

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
    """Fields of a record that hold the parallel texts.

    Attributes:
        styles: Path of fields by style; one of them is `formal`.
        id: Field of the record's id; None: its number.
        title: Field of the title, None where texts have none.
        question: Field of the id of the question that a text belongs to, None where it belongs to none.
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
    """A record of parallel texts.

    Attributes:
        id: Of the record.
        question: What its texts belong to, or `ANY`.
        title: Of its texts.
        texts: By style, as many as of every other style.
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
        """Yield the other texts as rewritings of the formal ones; where one is blank, there is no pair."""
        formal = self.formal
        for style, texts in self.texts.items():
            for source, text in zip(formal, texts, strict=True):
                if style != FORMAL and text.strip() and source.text.strip():
                    yield Rewriting(self.question, source, style, restyled(source, text), by)


def read_parallel(
    paths: Path | Sequence[Path], fields: Fields, *, skip_bad: bool = False, skipped: list[SkippedRecord] | None = None
) -> Iterator[Parallel]:
    """Return the records of files of parallel texts.

    Args:
        paths: JSON Lines, a JSON array or Parquet.
        fields: Where the texts stand.
        skip_bad: Leave out records that cannot be read.
        skipped: Receives what was left out.

    Raises:
        UserError: A record lacks a style, or its styles differ in the number of texts.
    """
    numbers = iter(range(1, 1 << 62))
    return read_records(
        paths, lambda record: _parallel(record, fields, next(numbers)), skip_bad=skip_bad, skipped=[] if skipped is None else skipped
    )


def import_parallel(paths: Path | Sequence[Path], fields: Fields, *, by: str = "people") -> Iterator[Rewriting]:
    """Yield the pairs of files of parallel texts, each once.

    Args:
        paths, fields: As in `read_parallel`.
        by: What wrote the texts.
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
