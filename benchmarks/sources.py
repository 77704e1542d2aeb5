"""Find the authors' files, and read their records with the position of each.

A loader names its files by pattern, gives `read_records` a function that converts a `Record`, and reads fields through
`Record`, so that every error is reported with file, line, field and expected type.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.core.errors import Broke, UserError
from benchmarks.io import hub
from benchmarks.io.files import (
    MEMBER_MARK,
    archive_of,
    check_recorded,
    fits,
    is_sharded,
    is_zip,
    matching,
    members,
    missing_shards,
    require_readable,
)
from benchmarks.io.hub import fetch as fetch_from_hub
from benchmarks.io.literals import LIST, listed
from benchmarks.io.records import is_parquet, rows, stream_json
from benchmarks.registry import DATASETS, DataReference, DatasetCard, DatasetConfig, DatasetEntry, SkippedRecord, options_of, resolve

DATA_VARIABLE = "RAGMETER_DATA"
"""Environment variable of the folder that has one folder of authors' files per dataset."""


def data_folder() -> Path | None:
    """Return the folder that RAGMETER_DATA names, or None if it is not set."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


def data_path(named: str) -> Path:
    """Return the path of an option; a relative path that is not in the working folder is looked for in RAGMETER_DATA."""
    path = Path(named).expanduser()
    root = data_folder()
    if root is None or path.is_absolute() or path.exists():
        return path
    return root / path if (root / path).exists() else path


class NotThere(UserError):
    """Raised if no local file has the split."""


def no_such_path(reference: DataReference, path: Path) -> UserError:
    """Build the error for a `path` option that does not exist."""
    return UserError(
        f"the file or folder for {reference} does not exist",
        code="missing-file",
        where=str(path),
        try_this=f"correct the option path (in an experiment config: {{path: FILE}}, relative to {Path.cwd()} or RAGMETER_DATA); "
        f"`ragmeter list datasets {reference.name}` says where else it is looked for",
    )


def key(reference: DataReference) -> str:
    """Return `[subset]:split`, the key of a split in a loader's tables of file patterns."""
    return f"{reference.subset or ''}:{reference.split}"


def found_locally(
    reference: DataReference,
    config: DatasetConfig,
    folders: Sequence[str],
    patterns: Mapping[str, Sequence[str]],
    hub: Mapping[str, Sequence[str]],
    *,
    sharded: bool,
) -> tuple[Path, ...]:
    """Find the files of a split under `config.path` or in RAGMETER_DATA.

    Args:
        reference, config, folders, patterns, hub: As in `sources.find_files`.
        sharded: Whether several shards may stand for one file.

    Raises:
        NotThere: No local file matches, and none is required to.
        UserError: `config.path` or RAGMETER_DATA does not exist, the match is ambiguous, or a file differs from its
            hash in SHA256SUMS.
    """
    wanted = key(reference)
    if config.path is not None:
        path = data_path(config.path)
        position = archive_of(path)
        if position is not None or (path.is_file() and not is_zip(path)):
            _check_name(path, reference, wanted, patterns)
            check_recorded([path])
            return (path,)
        if not path.exists():
            raise no_such_path(reference, path)
        if path.is_file() and len(members(path)) == 1:
            return found_locally(
                reference,
                config.model_copy(update={"path": f"{path}{MEMBER_MARK}{members(path)[0]}"}),
                folders,
                patterns,
                hub,
                sharded=sharded,
            )
        looked = [path]
    else:
        looked = _data_folders(reference, folders)
    names = tuple(dict.fromkeys((*patterns.get(wanted, ()), *hub.get(wanted, ()))))
    for name in names:
        results = [file for folder in looked for file in matching(folder, name)]
        if results:
            files = _one_or_shards(reference, results, looked, sharded)
            check_recorded(files)
            return files
    if config.path is not None and path.is_file():
        inside = members(path)
        raise NotThere(
            f"this zip archive has no file with a name of {reference}",
            code="archive-file-missing",
            where=f"{path}, which holds {', '.join(inside[:12]) or 'nothing'}",
            try_this=f"name the file in it: {path}{MEMBER_MARK}{inside[0]}" if inside else "fetch it again",
        )
    raise NotThere(
        f"no file of {reference} found",
        code="data-file-not-found",
        where=f"{', '.join(map(str, looked))} (looked for {', '.join(names) or 'nothing: it has no known file name'})",
        try_this=_alternatives(reference, looked, patterns) or "set path to the file",
    )


def _data_folders(reference: DataReference, folders: Sequence[str]) -> list[Path]:
    root = data_folder()
    if root is None:
        raise NotThere(
            f"no file is named for {reference}, and {DATA_VARIABLE} is not set",
            code="no-data-file-named",
            try_this=f"set path to the file, or {DATA_VARIABLE} to the folder that holds {folders[0]}/",
        )
    if not root.is_dir():
        raise UserError(f"{DATA_VARIABLE} names no folder", code="unknown-folder", where=str(root), try_this=f"correct {DATA_VARIABLE}")
    known = {name.lower() for name in folders}
    looked = sorted(child for child in root.iterdir() if child.is_dir() and child.name.lower() in known)
    if not looked:
        raise NotThere(
            f"no data of {reference.name} found",
            code="no-data-found",
            where=f"{root} (looked for {', '.join(f'{name}/' for name in folders)})",
            try_this="put the authors' files there, or set path to the file",
        )
    return looked


def _one_or_shards(reference: DataReference, results: Sequence[Path], looked: Sequence[Path], sharded: bool) -> tuple[Path, ...]:
    names = [str(path) for path in results]
    missing = missing_shards(names) if sharded else ""
    if missing:
        raise UserError(f"{reference} lacks {missing}", code="missing-shards", where=names[0], try_this="fetch them too")
    if len(results) > 1 and not (sharded and is_sharded(names)):
        raise UserError(
            f"several files could be {reference}: {', '.join(file.name for file in results)}",
            code="ambiguous-file",
            where=", ".join(map(str, looked)),
            try_this=f"set path to the one that is meant, e.g. {results[0]}",
        )
    return tuple(results)


def _check_name(path: Path, reference: DataReference, wanted: str, patterns: Mapping[str, Sequence[str]]) -> None:
    def named(split: str) -> bool:
        return any(fits(_member_name(path), name) for name in patterns.get(split, ()))

    if not named(wanted):
        for split in patterns:
            if named(split):
                other = _name(reference, split)
                raise UserError(
                    f"by its name this file is {other}, not {reference}",
                    code="file-name-mismatch",
                    where=str(path),
                    try_this=f"ask for {other}, or rename the file if its name misleads",
                )


def _member_name(path: Path) -> str:
    position = archive_of(path)
    return path.name if position is None else Path(position[1]).name


def _alternatives(reference: DataReference, looked: Sequence[Path], patterns: Mapping[str, Sequence[str]]) -> str:
    present = [split for split, names in patterns.items() if any(matching(folder, name) for folder in looked for name in names)]
    there = ", ".join(_name(reference, split) for split in present)
    return f"set path to the file, or ask for what is there: {there}" if there else ""


def _name(reference: DataReference, wanted: str) -> str:
    subset, _, split = wanted.partition(":")
    return str(DataReference(reference.name, subset or None, split))


T = TypeVar("T")

_WORDS = {str: "a string", list: "a list", dict: "an object", bool: "true or false", int: "an integer", float: "a number"}
QUESTION_CHARS = 1_000_000
"""Longest question; a longer text is a document, a whole file, or damaged."""
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
                raise self.problem(f"field {name!r} is {'null' if name in self.fields else 'missing'}", name, kind)
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


def find_file(reference: DataReference, config: DatasetConfig, *, folders: Sequence[str], patterns: Mapping[str, Sequence[str]]) -> Path:
    """Return the one local file that holds a split: `find_files` without the hub.

    Raises:
        UserError: As in `find_files`.
    """
    if _asking.get():
        raise _Interrupted(Sought(reference, folders, patterns))
    (path,) = found_locally(reference, config, folders, patterns, {}, sharded=False)
    return path


@dataclass(frozen=True, slots=True)
class Sought:
    """Arguments of a loader's call of `find_files` (or of `find_file`, without a card): where it looks for its data."""

    reference: DataReference
    folders: Sequence[str]
    patterns: Mapping[str, Sequence[str]]
    card: DatasetCard | None = None
    hub: Mapping[str, Sequence[str]] = field(default_factory=dict)


class _Interrupted(BaseException):
    """Raised to stop a loader that is only queried for its files; not an `Exception`, so that loaders do not catch it."""

    def __init__(self, sought: Sought) -> None:
        self.sought = sought


_asking: ContextVar[bool] = ContextVar("asking", default=False)


def sought_by(load: Callable[[], object]) -> Sought | Exception | None:
    """Run a loader only to capture which files it looks for.

    Returns:
        The captured arguments; None if the loader uses no files; the exception if it fails before it looks for files.
    """
    token = _asking.set(True)
    try:
        load()
    except _Interrupted as interrupted:
        return interrupted.sought
    except Exception as error:
        return error
    finally:
        _asking.reset(token)
    return None


def find_files(
    reference: DataReference,
    config: DatasetConfig,
    *,
    card: DatasetCard,
    folders: Sequence[str],
    patterns: Mapping[str, Sequence[str]],
    hub: Mapping[str, Sequence[str]] = {},
) -> tuple[Path, ...]:
    """Find the files of a split: one file, or its shards in order.

    `config.path` names a file, or the folder or zip archive that contains it; otherwise files are looked for in RAGMETER_DATA,
    in its folders that `folders` names, and then on the hub. With `config.revision`, only the hub is used. In a
    folder, the first pattern that matches anything decides, those of `patterns` before those of `hub`, so that a
    downloaded copy of the repository serves as well.

    Args:
        reference: The requested reference, with subset and split.
        config: The dataset's options.
        card: The dataset's card, for its `hub_id` and, if the options name none, its `revision`.
        folders: Names that the dataset's folder may have (letter case does not matter).
        patterns: File name patterns by `[subset]:split`, the authors' exact name first; `.gz` may follow, and
            `archive.zip!member` looks inside (`io/files.py`).
        hub: Names in the hub's repository, by the same keys and in the same grammar, relative to its root.

    Returns:
        Local paths; a member of an archive as `archive.zip!member`, which every reader here opens.

    Raises:
        UserError: There is no such file, several match that are not shards of one, shards are missing, the named
            file's name says that it is another split, or the hub does not give it (`hub.fetch`).
    """
    if _asking.get():
        raise _Interrupted(Sought(reference, folders, patterns, card, hub))
    names = hub.get(key(reference), ())
    if config.revision is not None:
        if config.path is not None:
            raise UserError(
                "path and revision exclude each other", code="path-and-revision", try_this="revision means the hub: leave out path"
            )
        if card.hub_id is None or not names:
            raise UserError(
                f"{reference} is not on the hub, so it has no revision", code="revision-without-hub", try_this="leave out revision"
            )
        return fetch_from_hub(card.hub_id, names, config.revision).paths
    try:
        return found_locally(reference, config, folders, patterns, hub, sharded=True)
    except NotThere as here:
        if config.path is not None or card.hub_id is None or not names:
            raise
        try:
            return fetch_from_hub(card.hub_id, names, card.revision).paths
        except UserError as there:
            kind = Broke if isinstance(there, Broke) else UserError
            raise kind(
                f"{here.what}; from the hub: {there.what}",
                code=there.code,
                where=" and ".join(filter(None, (here.where, there.where))),
                try_this="; or ".join(filter(None, (here.try_this, there.try_this))),
            ) from there


LOCAL, CACHED, ABSENT, MADE, UNCLEAR, OWN = "local", "cached", "absent", "made here", "unclear", "own file"
"""States of a split: local file; in the hub's cache; missing; generated; present but unusable; requires a user's `path`."""

_NOWHERE = "/no-such-folder/only-asked-where-it-reads"
"""Nonexistent path, so that a queried loader opens no file."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Location of a split's data, if there is any.

    Attributes:
        reference: The split, complete.
        state: One of the states above.
        paths: Its files, if there are any.
        repository: The hub's repository that has the split, if one does.
        problem: Why the files cannot be used, if they cannot.
    """

    reference: DataReference
    state: str
    paths: tuple[Path, ...] = ()
    repository: str | None = None
    problem: UserError | None = None

    @property
    def read_from(self) -> str:
        """Describe where the split is read from, or why it cannot be."""
        if self.paths:
            return ", ".join(map(str, self.paths))
        if self.state == ABSENT:
            return f"the hub ({self.repository}), when it is loaded" if self.repository else "–"
        return self.problem.what if self.problem is not None else "–"

    def to_json(self) -> dict[str, Any]:
        """Return the location as a JSON object."""
        problem = None if self.problem is None or self.state == ABSENT else self.problem.what
        return {"state": self.state, "paths": list(map(str, self.paths)), "hub": self.repository, "problem": problem}


def splits(entry: DatasetEntry) -> Iterator[DataReference]:
    """Yield every split of every subset of a dataset."""
    for subset in entry.subsets or (None,):
        for split in entry.card.splits_of(subset):
            yield DataReference(entry.id, subset, split)


def parts(reference: str | DataReference) -> list[DataReference]:
    """Split a reference with `+` into references with one split each."""
    whole, _ = resolve(reference)
    return [replace(whole, split=split) for split in (whole.split or "").split("+")]


def availability(reference: DataReference, options: Mapping[str, Any] | None = None) -> Availability:
    """Determine where a split would be loaded from, without loading it.

    Args:
        reference: A single split.
        options: The dataset's options.

    Raises:
        UserError: The reference or an option does not exist.
    """
    reference, entry = resolve(reference)
    try:
        config = options_of(entry, options or {})
    except UserError as error:
        if options:
            raise
        # A required option is missing, which the user was not asked for yet.
        return Availability(reference, OWN, problem=error)
    sought = _sought(reference, entry, options or {})
    if isinstance(sought, OwnFile):
        return _own(reference, config.path, sought)
    if sought is None:
        return Availability(reference, MADE)
    names = sought.hub.get(key(reference), ())
    repository = sought.card.hub_id if sought.card is not None and names else None
    missing: UserError | None = None
    if config.revision is None:
        try:
            result = found_locally(reference, config, sought.folders, sought.patterns, sought.hub, sharded=True)
            require_readable(result)
            return Availability(reference, LOCAL, result, repository)
        except NotThere as error:
            missing = error
        except UserError as error:
            return Availability(reference, UNCLEAR, (), repository, error)
    if repository is not None and config.path is None:
        cached = hub.cached(repository, names, config.revision or entry.card.revision)
        if cached is not None:
            return Availability(reference, CACHED, cached, repository)
    return Availability(reference, ABSENT, (), repository, missing)


def base_of(reference: DataReference, config: DatasetConfig) -> tuple[DataReference, DatasetConfig] | None:
    """Return reference and options of the dataset that a style dataset (`styled`, `rephrased`) rewrites; None for other
    datasets.
    """
    named = getattr(config, "base", None)
    if not isinstance(named, str):
        return None
    result, entry = resolve(named if ":" in named else f"{named}:{reference.split}")
    return result, options_of(entry, getattr(config, "base_config", {}))


FILES = {
    "corpus": "its path; the documentation's page “Data” says where corpora are had",
    "pairs": "make it with `ragmeter data restyle`, or name its path",
}
"""Dataset options that name files, and instructions to obtain each file."""


def absences(reference: DataReference, config: DatasetConfig) -> Iterator[UserError]:
    """Yield an error for each missing file of a dataset or of the dataset that it rewrites."""
    for option, remedy in FILES.items():
        path = getattr(config, option, None)
        if isinstance(path, str) and not Path(path).expanduser().exists():
            yield UserError(
                f"{reference} needs a file that is not here", code="needed-file-missing", where=f"{option}: {path}", try_this=remedy
            )
    if (base := base_of(reference, config)) is not None:
        yield from absences(*base)
        return
    options = config.model_dump(exclude_unset=True)
    for split in (reference.split or "").split("+"):
        try:
            result = availability(replace(reference, split=split), options)
        except UserError as error:
            yield error
            continue
        if result.state in (ABSENT, UNCLEAR):
            fetch = f"ragmeter data download {result.reference}" if result.repository else None
            problem = result.problem
            yield UserError(
                f"the data {result.reference} are not here" if result.state == ABSENT else str(problem and problem.what),
                code="missing-data",
                where=problem.where if problem else None,
                try_this="; or ".join(filter(None, (problem.try_this if problem else None, fetch))) or None,
            )


def fetch(reference: DataReference, revision: str | None = None) -> hub.Fetched:
    """Download a split's files into the hub's cache, even if other local copies exist.

    Args:
        reference: A single split.
        revision: Revision to use instead of the card's.

    Raises:
        UserError: The split is not on the hub, or as in `hub.fetch`.
    """
    reference, entry = resolve(reference)
    sought, repository = _sought(reference, entry, {}), entry.card.hub_id
    if isinstance(sought, OwnFile):
        raise UserError(f"{sought.what}: there is nothing to fetch", code="nothing-to-download", try_this=sought.try_this)
    if sought is None:
        raise UserError(f"{reference} is generated: there is nothing to fetch", code="nothing-to-fetch")
    names = sought.hub.get(key(reference), ())
    if repository is None or not names:
        wanted = [str(split) for split in splits(entry) if key(split) in sought.hub] if repository else []
        raise UserError(
            f"{reference} is not on the hub",
            code="not-on-hub",
            where=str(repository or reference),
            try_this=f"of {entry.id} the hub has {', '.join(wanted[:12])}" if wanted else "set path to the authors' file",
        )
    return hub.fetch(repository, names, revision or entry.card.revision)


def only_asked(reference: DataReference) -> None:
    """Raise `OwnFile` if the caller only wants to know which files a loader reads (`sought_by`).

    Raises:
        OwnFile: The loader was only queried.
    """
    if _asking.get():
        raise OwnFile(reference)


def own_path(reference: DataReference, config: DatasetConfig) -> Path:
    """Return the `path` option of a loader whose data has no other source.

    Raises:
        OwnFile: No path is named.
        UserError: The path does not exist.
    """
    if config.path is None:
        raise OwnFile(reference)
    path = data_path(config.path)
    if archive_of(path) is None and not path.exists():
        raise no_such_path(reference, path)
    return path


class OwnFile(UserError):
    """Error in a file that the loader opens itself from the option `path`."""

    def __init__(self, reference: DataReference) -> None:
        hint = "name it: --set path=FILE, in an experiment config: {path: FILE}"
        super().__init__(f"{reference} is read from a file of your own", code="own-file", try_this=hint)


def _own(reference: DataReference, named: str | None, problem: OwnFile) -> Availability:
    if named is None:
        return Availability(reference, OWN, problem=problem)
    path = data_path(named)
    if path.exists():
        return Availability(reference, LOCAL, (path,))
    return Availability(reference, ABSENT, problem=no_such_path(reference, path))


def _sought(reference: DataReference, entry: DatasetEntry, options: Mapping[str, Any]) -> Sought | OwnFile | None:
    # A loader that generates its questions refuses a path immediately, so this generates nothing.
    shipped = DATASETS.source(entry.id).startswith("benchmarks.")
    path = (options.get("path") if shipped else None) or _NOWHERE
    config = options_of(entry, {**options, "path": path, "revision": None})
    result = sought_by(lambda: entry.load(reference, config))
    if not isinstance(result, Exception) or isinstance(result, OwnFile):
        return result
    opened = not isinstance(result, UserError) or _NOWHERE in str(result)
    return OwnFile(reference) if opened and not shipped else None
