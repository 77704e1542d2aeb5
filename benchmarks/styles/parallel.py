"""Parallel texts of any origin: JSON records that hold the same text in several styles.

A style is a field, or a path of fields (`styles.KJV`), whose value is a text, or a list of texts in the same order as
the other styles' (verses, sentences). Each text of the formal side is one passage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.registry import SkippedRecord
from benchmarks.schema import Passage, passage_id
from benchmarks.sources import Record, read_records
from benchmarks.styles.pairs import ANY, Rewriting, told_as
from benchmarks.styles.rewriter import FORMAL


@dataclass(frozen=True, slots=True)
class Fields:
    """Where parallel texts stand in a record.

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
        """The formal texts as passages."""
        return [Passage(passage_id(self.title, text), self.title, text) for text in self.texts[FORMAL]]

    def rewritings(self, by: str) -> Iterator[Rewriting]:
        """The other texts as rewritings of the formal ones; where one is blank, there is no pair."""
        formal = self.formal
        for style, texts in self.texts.items():
            for source, text in zip(formal, texts, strict=True):
                if style != FORMAL and text.strip() and source.text.strip():
                    yield Rewriting(self.question, source, style, told_as(source, text), by)


def read_parallel(
    paths: Path | Sequence[Path], fields: Fields, *, skip_bad: bool = False, skipped: list[SkippedRecord] | None = None
) -> Iterator[Parallel]:
    """The records of files of parallel texts.

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
    """The pairs of files of parallel texts, each once.

    Args:
        paths, fields: As in `read_parallel`.
        by: What wrote the texts.
    """
    seen = set()
    for record in read_parallel(paths, fields):
        for one in record.rewritings(by):
            if one.key not in seen:
                seen.add(one.key)
                yield one


def _parallel(record: Record, fields: Fields, number: int) -> Parallel:
    texts = {style: _texts(record, path) for style, path in fields.styles.items()}
    for style, found in texts.items():
        if len(found) != len(texts[FORMAL]):
            what = f"{fields.styles[style]!r} holds {len(found)} texts, {fields.styles[FORMAL]!r} {len(texts[FORMAL])}"
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
        if not isinstance(value, Mapping) or part not in value:
            raise record.problem(f"field {path!r} is missing", path, "a text or a list of texts")
        value = value[part]
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    return tuple(record.expect(item, path, str) for item in values)
