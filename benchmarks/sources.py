"""The authors' own files: where they are, and their records with the place that each one has.

A loader names its files by pattern, hands `read_records` a function from a `Record` to whatever it makes of one,
and takes the fields through `Record`, so that every fault is reported with file, line, field and expected type.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.errors import UserError
from benchmarks.json_stream import stream
from benchmarks.registry import DataReference, DatasetConfig, SkippedRecord

DATA_VARIABLE = "RAGMETER_DATA"
"""Environment variable: the folder that holds one folder of authors' files per dataset."""

T = TypeVar("T")

_WORDS = {
    str: "a string",
    list: "a list",
    dict: "an object",
    bool: "true or false",
    int: "an integer",
    float: "a number",
}
_REPAIR = "repair the file, or set skip_bad to leave such records out (each is counted and named)"


class BadRecord(UserError):
    """A record that cannot be read; `skip_bad` leaves it out and names it."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of an authors' file.

    Attributes:
        fields: The native fields.
        path: The file.
        place: Where in it: `line 3`, or `line 1, record 3` in an array.
    """

    fields: Mapping[str, Any]
    path: Path
    place: str

    @property
    def where(self) -> str:
        """File and place."""
        return f"{self.path}, {self.place}"

    def has(self, name: str) -> bool:
        """Whether a field is there and says something: not null, not "", not an empty list or object."""
        return self.fields.get(name) not in (None, "", [], {})

    def text(self, name: str, default: str | None = None) -> str:
        """A string field; `default` stands for a missing or null one.

        Raises:
            BadRecord: It is missing and has no default, or is not a string.
        """
        return self.field(name, str, default)

    def field(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A field of a type; `default` stands for a missing or null one.

        Raises:
            BadRecord: It is missing and has no default, or is of another type.
        """
        value = self.fields.get(name)
        if value is None:
            if default is None:
                raise self.problem(f"field {name!r} is {'null' if name in self.fields else 'missing'}", name, kind)
            return default
        return self.expect(value, name, kind)

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of strings; `default` stands for a missing or null one."""
        if default is not None and self.fields.get(name) is None:
            return default
        values = self.field(name, list)
        return tuple(self.expect(value, f"{name}[{i}]", str) for i, value in enumerate(values))

    def answers(self, name: str) -> tuple[str, ...]:
        """A field of answers, which real files write as a string, a list, or a JSON-encoded list in a string."""
        value = self.fields.get(name)
        if isinstance(value, str):
            if value.lstrip().startswith("["):
                try:
                    value = json.loads(value)
                except ValueError:
                    return (value,)
            else:
                return (value,)
        if isinstance(value, list):
            return tuple(dict.fromkeys(self.expect(item, f"{name}[{i}]", str) for i, item in enumerate(value)))
        if value is None:
            return (self.text(name),)
        raise self.problem(f"field {name!r} is {_word(value)}", name, "a string or a list of strings")

    def expect(self, value: Any, field: str, kind: type[T]) -> T:
        """A value, once it is of the type that a field must have.

        Args:
            value: The value.
            field: The field as written in messages (`context[3][0]`).
            kind: The type; true and false are no integers.

        Raises:
            BadRecord: It is of another type.
        """
        if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
            return value
        raise self.problem(f"field {field!r} is {_word(value)}", field, kind)

    def problem(self, what: str, field: str, expected: type | str | None = None) -> BadRecord:
        """The error for a faulty field of this record."""
        wanted = _WORDS.get(expected, expected.__name__) if isinstance(expected, type) else expected
        suffix = f"; it must be {wanted}" if wanted else ""
        return BadRecord(what + suffix, where=f"{self.where}, field {field}", try_this=_REPAIR)


def _word(value: Any) -> str:
    return "null" if value is None else _WORDS.get(type(value), type(value).__name__)


def records(path: Path, *, whole: bool = False) -> Iterator[Record | BadRecord]:
    """The records of a file in order, and an error in the place of each that is no JSON object.

    Args:
        path: The file: an array of objects, or one object a line.
        whole: Whether one object that spreads over several lines may be the whole file.

    Raises:
        UserError: The file cannot be read on (`json_stream.stream`).
    """
    for item in stream(path, whole=whole):
        if item.problem is not None:
            yield BadRecord(item.problem, where=f"{path}, {item.place}", try_this=_REPAIR)
        elif not isinstance(item.value, dict):
            what = f"a record must be an object, not {_word(item.value)}"
            yield BadRecord(what, where=f"{path}, {item.place}", try_this=_REPAIR)
        else:
            yield Record(item.value, path, item.place)


def read_records(
    path: Path,
    parse: Callable[[Record], T],
    *,
    skip_bad: bool,
    skipped: list[SkippedRecord],
    whole: bool = False,
) -> Iterator[T]:
    """What `parse` makes of each record.

    Args:
        path: The file.
        parse: Raises `BadRecord` for a record that cannot be used.
        skip_bad: Leave bad records out instead of stopping at the first.
        skipped: Receives what was left out.
        whole: Whether one object that spreads over several lines may be the whole file.

    Raises:
        UserError: A record is bad and `skip_bad` is off, the file cannot be read, or every record in it is bad.
    """
    good = 0
    for record in records(path, whole=whole):
        try:
            if isinstance(record, BadRecord):
                raise record
            parsed = parse(record)
        except BadRecord as error:
            if not skip_bad:
                raise
            skipped.append(SkippedRecord(error.where or str(path), error.what))
        else:
            good += 1
            yield parsed
    if not good:
        first = f": {skipped[0].reason} ({skipped[0].where})" if skipped else ""
        raise UserError(f"the file holds no record that can be read{first}", where=str(path))


# Fields that only one dataset's records have, most telling first. Each entry: all of these fields, what it then is.
_TELLTALES: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"Questions"}), "the official WebQSP file"),
    (frozenset({"q_entity", "graph"}), "a WebQSP or CWQ row in RoG's layout"),
    (frozenset({"compositionality_type"}), "cwq"),
    (frozenset({"paragraphs", "question"}), "musique"),
    (frozenset({"context_id"}), "ultradomain"),
    (frozenset({"all_classes"}), "longbench"),
    (frozenset({"ctxs"}), "a reader's file with contexts (nq)"),
    (frozenset({"positive_ctxs"}), "a DPR reader file (nq)"),
    (frozenset({"context", "evidences"}), "2wikimultihopqa"),
    (frozenset({"context", "entity_ids"}), "2wikimultihopqa"),
    (frozenset({"context", "supporting_facts"}), "hotpotqa"),
    (frozenset({"context", "level"}), "hotpotqa"),
)


def looks_like(fields: Mapping[str, Any]) -> str | None:
    """The dataset that a record comes from, judged by its fields; None where they do not tell."""
    if isinstance(fields.get("context"), dict):
        return "HotpotQA or 2WikiMultihopQA in the hub's row layout (objects of lists)"
    for names, dataset in _TELLTALES:
        if names <= fields.keys():
            return dataset
    return None


def refuse_other_dataset(record: Record, dataset: str) -> None:
    """Stop at a record of another dataset: the file is the wrong one, so this is never skipped.

    Raises:
        UserError: The record's fields are another dataset's.
    """
    looks = looks_like(record.fields)
    if looks not in (None, dataset):
        raise UserError(
            f"this is not a record of {dataset}: by its fields it looks like {looks}",
            where=record.where,
            try_this=f"give {dataset} the authors' own file",
        )


def data_folder() -> Path | None:
    """The folder that RAGMETER_DATA names, None where it names none."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


def find_file(
    reference: DataReference,
    config: DatasetConfig,
    *,
    folders: Sequence[str],
    patterns: Mapping[str, Sequence[str]],
) -> Path:
    """The file that holds a split.

    `config.path` names the file, or the folder it is in; otherwise it is looked for in RAGMETER_DATA, in the
    first of `folders` that exists there. In a folder, the first pattern that matches anything decides.

    Args:
        reference: What is asked for, subset and split set.
        config: The dataset's options.
        folders: Names that the dataset's folder may have (letter case does not matter).
        patterns: File name patterns by `[subset]:split`, the authors' exact name first; `.gz` may follow.

    Raises:
        UserError: There is no such file, several match, or the named file's name says that it is another split.
    """
    wanted = f"{reference.subset or ''}:{reference.split}"
    names = patterns.get(wanted, ())
    if config.path is not None:
        path = Path(config.path).expanduser()
        if path.is_file():
            _check_name(path, reference, wanted, patterns)
            return path
        if not path.is_dir():
            raise UserError("there is no such file or folder", where=str(path), try_this=f"the path of {reference}")
        looked = [path]
    else:
        root = data_folder()
        if root is None:
            raise UserError(
                f"no file is named for {reference}, and {DATA_VARIABLE} is not set",
                try_this=f"set path to the file, or {DATA_VARIABLE} to the folder that holds {folders[0]}/",
            )
        if not root.is_dir():
            raise UserError(f"{DATA_VARIABLE} names no folder", where=str(root), try_this=f"correct {DATA_VARIABLE}")
        known = {name.lower() for name in folders}
        looked = sorted(child for child in root.iterdir() if child.is_dir() and child.name.lower() in known)
        if not looked:
            raise UserError(
                f"no data of {reference.name} found",
                where=f"{root} (looked for {', '.join(f'{name}/' for name in folders)})",
                try_this="put the authors' files there, or set path to the file",
            )
    for name in names:
        found = sorted(child for folder in looked for child in folder.iterdir() if _matches(child, name))
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError(
                f"several files could be {reference}: {', '.join(file.name for file in found)}",
                where=", ".join(map(str, looked)),
                try_this=f"set path to the one that is meant, e.g. {found[0]}",
            )
    raise UserError(
        f"no file of {reference} found",
        where=f"{', '.join(map(str, looked))} (looked for {', '.join(names) or 'nothing: it has no known file name'})",
        try_this=_alternatives(reference, looked, patterns) or "set path to the file",
    )


def _matches(path: Path, pattern: str) -> bool:
    name = path.name.lower().removesuffix(".gz")
    return fnmatch(name, pattern.lower()) and path.is_file()


def _check_name(path: Path, reference: DataReference, wanted: str, patterns: Mapping[str, Sequence[str]]) -> None:
    def fits(key: str) -> bool:
        return any(_matches(path, name) for name in patterns.get(key, ()))

    if not fits(wanted):
        for key in patterns:
            if fits(key):
                other = _name(reference, key)
                raise UserError(
                    f"by its name this file is {other}, not {reference}",
                    where=str(path),
                    try_this=f"ask for {other}, or rename the file if its name misleads",
                )


def _alternatives(reference: DataReference, looked: Sequence[Path], patterns: Mapping[str, Sequence[str]]) -> str:
    children = [child for folder in looked for child in folder.iterdir()]
    present = [key for key, names in patterns.items() if any(_matches(c, name) for c in children for name in names)]
    there = ", ".join(_name(reference, key) for key in present)
    return f"set path to the file, or ask for what is there: {there}" if there else ""


def _name(reference: DataReference, key: str) -> str:
    subset, _, split = key.partition(":")
    return str(DataReference(reference.name, subset or None, split))
