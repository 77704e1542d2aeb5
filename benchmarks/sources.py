"""Find the authors' files of a split: under a path that the user names, in RAGMETER_DATA, or on the hub.

A loader names its files by pattern. `records` reads them, and `availability` tells which splits are here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.core.errors import Broke, UserError
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
    shards_of,
)
from benchmarks.io.hub import fetch as fetch_from_hub
from benchmarks.registry import DataReference, DatasetCard, DatasetConfig

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
            files = shards_of(path) if sharded else (path,)
            check_recorded(files)
            return files
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
        hint = (
            "name it: --set path=FILE, in an experiment config: {path: FILE}, "
            f"for a training data_options: {{{reference.name}: {{path: FILE}}}}"
        )
        super().__init__(f"{reference} is read from a file of your own", code="own-file", try_this=hint)
