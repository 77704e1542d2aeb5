"""Read the records of the authors' files with the position of each.

A loader gives `read_records` a function that converts a `Record`, and reads fields through `Record`, so that every error is
reported with file, line, field and expected type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.core.errors import UserError
from benchmarks.io.literals import LIST, listed
from benchmarks.io.records import is_parquet, rows, stream_json
from benchmarks.registry import DATASETS, SkippedRecord

T = TypeVar("T")

_WORDS = {str: "a string", list: "a list", dict: "an object", bool: "true or false", int: "an integer", float: "a number"}
QUESTION_CHARS = 1_000_000
"""Longest question; a longer text is a document, a whole file, or damaged."""
_IDS = ("id", "_id")
_REPAIR = "repair the file, or set skip_bad to leave such records out (each is counted and named)"


class BadRecord(UserError):
    """Raised for a record that cannot be parsed; with `skip_bad` it is recorded and skipped."""


@dataclass(slots=True)  # not frozen: that would take three times as long to make
class Record:
    """A record of an authors' file.

    Attributes:
        fields: The native fields.
        path: The file.
        position: Position in the file: `line 3`, or `line 1, record 3` in an array.
    """

    fields: Mapping[str, Any]
    path: Path
    position: str

    @property
    def where(self) -> str:
        """Return file and position, for messages."""
        return f"{self.path}, {self.position}"

    def has(self, name: str) -> bool:
        """Return whether a field is present and not null, "", [] or {}."""
        return self.fields.get(name) not in (None, "", [], {})

    def require(self, *paths: str) -> None:
        """Check that fields exist (nested ones with dots); one error lists all missing fields.

        Raises:
            BadRecord: Some are missing.
        """
        missing = [repr(path) for path in paths if path not in self.fields and not _reached(self.fields, path)]
        if missing:
            what = f"field {missing[0]} is missing" if len(missing) == 1 else f"fields {', '.join(missing)} are missing"
            raise BadRecord(
                what, code="bad-record", where=self.where, try_this=f"the record has {', '.join(self.fields) or 'none'}; {_REPAIR}"
            )

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string field; `default` replaces a missing or null value.

        Raises:
            BadRecord: It is missing and has no default, or is not a string.
        """
        value = self.fields.get(name)
        if name in _IDS and type(value) is int:  # pandas and others write ids of digits as numbers
            return str(value)
        return value if type(value) is str else self.field(name, str, default)

    def nonblank(self, name: str, most: int | None = QUESTION_CHARS) -> str:
        """Return a string field that contains at least one word: a question, or with `most=None` a document.

        Raises:
            BadRecord: It is missing, not a string, has no words, or is longer than `most` characters.
        """
        text = self.text(name)
        if not text.strip():
            raise self.problem(f"field {name!r} holds no word", name)
        if most is not None and len(text) > most:
            raise self.problem(
                f"field {name!r} has {len(text):,} characters, too many for a question", name, f"at most {most:,} characters"
            )
        return text

    def field(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Return a field of the given type; `default` replaces a missing or null value.

        Raises:
            BadRecord: It is missing and has no default, or is of another type.
        """
        value = self.fields.get(name)
        if type(value) is kind:
            return value
        if value is None:
            if default is None:
                fault = self.problem(f"field {name!r} is {'null' if name in self.fields else 'missing'}", name, kind)
                if name not in self.fields:
                    fault.try_this = f"the record has {', '.join(self.fields) or 'no field'}; {_REPAIR}"
                raise fault
            return default
        return self.expect(value, name, kind)

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Return a list of strings; `default` replaces a missing or null value."""
        if default is not None and self.fields.get(name) is None:
            return default
        return tuple(self._strings(self.field(name, list), name))

    def _strings(self, values: list[Any], name: str) -> list[str]:
        if set(map(type, values)) - {str}:
            return [self.expect(value, f"{name}[{i}]", str) for i, value in enumerate(values)]
        return values

    def answers(self, name: str) -> tuple[str, ...]:
        """Return the answers in a field, with repetitions; the field is a string, a list, or a list written as a string."""
        value = self.fields.get(name)
        if isinstance(value, str):
            written = self.written_list(name, value)
            return (value,) if written is None else tuple(self._strings(written, name))
        if isinstance(value, list):
            return tuple(self._strings(value, name))
        if value is None:
            return (self.text(name),)
        raise self.problem(f"field {name!r} is {_word(value)}", name, "a string or a list of strings")

    def written_list(self, name: str, text: str) -> list[Any] | None:
        """Parse a field's text as a list (`literals.listed`); None if the text is not a list.

        Raises:
            BadRecord: The text holds texts that cannot be read as a list (`literals.listed`).
        """
        if not text.lstrip().startswith(("[", "array(", "(", "{")):
            return None
        try:
            return listed(text)
        except ValueError as error:
            raise self.problem(str(error), name, LIST) from None

    def expect(self, value: Any, field: str, kind: type[T]) -> T:
        """Return a value after checking that it has the field's type.

        Args:
            value: The value.
            field: The field as written in messages (`context[3][0]`).
            kind: The type; true and false are not integers.

        Raises:
            BadRecord: It is of another type.
        """
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        raise self.problem(f"field {field!r} is {_word(value)}", field, kind)

    def problem(self, what: str, field: str, expected: type | str | None = None) -> BadRecord:
        """Build the error for an invalid field of this record."""
        wanted = _WORDS.get(expected, expected.__name__) if isinstance(expected, type) else expected
        suffix = f"; it must be {wanted}" if wanted else ""
        return BadRecord(what + suffix, code="bad-record", where=f"{self.where}, field {field}", try_this=_REPAIR)


def _reached(value: Any, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return True


def _word(value: Any) -> str:
    return "null" if value is None else _WORDS.get(type(value), type(value).__name__)


def bad_record(what: str, path: Path, position: str) -> BadRecord:
    """Build the error for a position of a file where no record could be parsed."""
    return BadRecord(what, code="bad-record", where=f"{path}, {position}", try_this=_REPAIR)


def records(path: Path, *, whole: bool = False, recoded: bytes | None = None) -> Iterator[Record | BadRecord]:
    """Yield the records of a file in order; a record that is not a JSON object is yielded as an error.

    The format is detected from the content: JSON Lines or an array, plain or gzip-compressed, or Parquet, whose
    positions are written `row 17`. A file may be a member of a zip archive, which is read without extracting it.

    Args:
        path: The file, or `archive.zip!member` (`data.zip!data/qasper.jsonl`).
        whole: Whether the whole file may be one object that spans several lines.
        recoded: As of `stream_json`.

    Raises:
        UserError: The file cannot be read to its end (`json_stream.stream`, `parquet_rows.rows`).
    """
    if is_parquet(path):
        for number, row in enumerate(rows(path), 1):
            yield Record(row, path, f"row {number}")
        return
    for item in stream_json(path, whole=whole, recoded=recoded):
        if item.problem is not None:
            yield bad_record(item.problem, path, item.position)
        elif not isinstance(item.value, dict):
            yield bad_record(f"a record must be an object, not {_word(item.value)}", path, item.position)
        else:
            yield Record(item.value, path, item.position)


def read_records(
    path: Path | Sequence[Path],
    parse: Callable[[Record], T],
    *,
    skip_bad: bool,
    skipped: list[SkippedRecord],
    whole: bool = False,
    read: Callable[[Path], Iterable[Record | BadRecord]] | None = None,
) -> Iterator[T]:
    """Parse the records of one or several files.

    Args:
        path: The file, or the shards of one in order (`find_files`).
        parse: Function that converts a record, and raises `BadRecord` if it cannot be used.
        skip_bad: Leave bad records out instead of stopping at the first.
        skipped: List that receives the records left out.
        whole: Whether the whole file may be one object that spans several lines.
        read: Function that yields a file's records instead of `records`.

    Raises:
        UserError: A record is bad and `skip_bad` is off, a file cannot be read, or every record in it is bad.
    """
    for file in (path,) if isinstance(path, Path) else path:
        good = 0
        before = len(skipped)
        for record in records(file, whole=whole) if read is None else read(file):
            try:
                if isinstance(record, BadRecord):
                    raise record
                parsed = parse(record)
            except BadRecord as error:
                if not skip_bad:
                    raise
                skipped.append(SkippedRecord(error.where or str(file), error.what))
            else:
                good += 1
                yield parsed
        if not good:
            bad = skipped[before:]
            first = f": {bad[0].reason} ({bad[0].where})" if bad else ""
            raise UserError(f"the file has no readable records{first}", code="no-record-in-file", where=str(file))


# Fields that only one dataset's records have, most specific first. Each entry: the required fields, and the dataset.
_TELLTALES: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"Questions"}), "the official WebQSP file"),
    (frozenset({"q_entity", "graph"}), "a WebQSP or CWQ row in RoG's layout"),
    (frozenset({"compositionality_type"}), "cwq"),
    (frozenset({"paragraphs", "question"}), "musique"),
    (frozenset({"context_id"}), "ultradomain"),
    (frozenset({"all_classes"}), "longbench"),
    (frozenset({"choice_A", "choice_B"}), "longbench_v2"),
    (frozenset({"input", "context", "options"}), "infinitebench"),
    (frozenset({"id", "golden_answers"}), "flashrag"),
    (frozenset({"ctxs"}), "a reader's file with contexts (nq)"),
    (frozenset({"positive_ctxs"}), "a DPR reader file (nq)"),
    (frozenset({"context", "evidences"}), "2wikimultihopqa"),
    (frozenset({"context", "entity_ids"}), "2wikimultihopqa"),
    (frozenset({"context", "supporting_facts"}), "hotpotqa"),
    (frozenset({"context", "level"}), "hotpotqa"),
)


def looks_like(fields: Mapping[str, Any]) -> str | None:
    """Guess from its fields which dataset a record comes from; None if they are ambiguous."""
    if isinstance(fields.get("context"), dict):
        return "HotpotQA or 2WikiMultihopQA in the hub's row layout (objects of lists)"
    for names, dataset in _TELLTALES:
        if names <= fields.keys():
            return dataset
    return None


def refuse_other_dataset(record: Record, dataset: str) -> None:
    """Refuse a record of another dataset, even with `skip_bad`, because the whole file is the wrong one.

    Raises:
        UserError: The record's fields are another dataset's.
    """
    looks = looks_like(record.fields)
    if looks not in (None, dataset):
        raise UserError(
            f"this is not a record of {dataset}: by its fields it looks like {looks}",
            code="record-of-other-dataset",
            where=record.where,
            try_this=(f"load it as {looks}, or " if looks in DATASETS else "") + f"give {dataset} the authors' own file",
        )
