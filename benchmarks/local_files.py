"""Where authors' files lie on this machine: at a path that is named, or in RAGMETER_DATA."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.checksums import check_recorded
from benchmarks.errors import UserError
from benchmarks.name_patterns import fits, is_sharded, matching, missing_shards
from benchmarks.open_file import archive_of, is_zip
from benchmarks.registry import DataReference, DatasetConfig

DATA_VARIABLE = "RAGMETER_DATA"
"""Environment variable: the folder that holds one folder of authors' files per dataset."""


def data_folder() -> Path | None:
    """The folder that RAGMETER_DATA names, None where it names none."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


class NotThere(UserError):
    """A split that no local file holds."""


def no_such_path(reference: DataReference, path: Path) -> UserError:
    """The error for a `path` at which nothing lies."""
    return UserError(
        f"there is no such file or folder, and {reference} was to be read from it",
        where=str(path),
        try_this=f"correct the option path (in an experiment config: {{path: FILE}}, relative to {Path.cwd()}); "
        f"`ragmeter datasets {reference.name}` says where else it is looked for",
    )


def key(reference: DataReference) -> str:
    """The key of a split in a loader's tables of patterns: `[subset]:split`."""
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
    """The files of a split under `config.path` or in RAGMETER_DATA (arguments as in `sources.find_files`).

    Args:
        reference, config, folders, patterns, hub: As there.
        sharded: Whether the shards of one file may be taken for it.

    Raises:
        NotThere: Nothing matches, and nothing says that it should be here rather than elsewhere.
        UserError: `config.path` or RAGMETER_DATA names nothing, what is there is not clear, or a file is not the one
            that a SHA256SUMS beside it records.
    """
    wanted = key(reference)
    if config.path is not None:
        path = Path(config.path).expanduser()
        place = archive_of(path)
        if place is not None or (path.is_file() and not is_zip(path)):
            _check_name(path, reference, wanted, patterns)
            check_recorded([path])
            return (path,)
        if not path.exists():
            raise no_such_path(reference, path)
        looked = [path]
    else:
        looked = _data_folders(reference, folders)
    names = tuple(dict.fromkeys((*patterns.get(wanted, ()), *hub.get(wanted, ()))))
    for name in names:
        found = [file for folder in looked for file in matching(folder, name)]
        if found:
            files = _one_or_shards(reference, found, looked, sharded)
            check_recorded(files)
            return files
    raise NotThere(
        f"no file of {reference} found",
        where=f"{', '.join(map(str, looked))} (looked for {', '.join(names) or 'nothing: it has no known file name'})",
        try_this=_alternatives(reference, looked, patterns) or "set path to the file",
    )


def _data_folders(reference: DataReference, folders: Sequence[str]) -> list[Path]:
    root = data_folder()
    if root is None:
        raise NotThere(
            f"no file is named for {reference}, and {DATA_VARIABLE} is not set",
            try_this=f"set path to the file, or {DATA_VARIABLE} to the folder that holds {folders[0]}/",
        )
    if not root.is_dir():
        raise UserError(f"{DATA_VARIABLE} names no folder", where=str(root), try_this=f"correct {DATA_VARIABLE}")
    known = {name.lower() for name in folders}
    looked = sorted(child for child in root.iterdir() if child.is_dir() and child.name.lower() in known)
    if not looked:
        raise NotThere(
            f"no data of {reference.name} found",
            where=f"{root} (looked for {', '.join(f'{name}/' for name in folders)})",
            try_this="put the authors' files there, or set path to the file",
        )
    return looked


def _one_or_shards(reference: DataReference, found: Sequence[Path], looked: Sequence[Path], sharded: bool) -> tuple[Path, ...]:
    names = [str(path) for path in found]
    missing = missing_shards(names) if sharded else ""
    if missing:
        raise UserError(f"{reference} lacks {missing}", where=names[0], try_this="fetch them too")
    if len(found) > 1 and not (sharded and is_sharded(names)):
        raise UserError(
            f"several files could be {reference}: {', '.join(file.name for file in found)}",
            where=", ".join(map(str, looked)),
            try_this=f"set path to the one that is meant, e.g. {found[0]}",
        )
    return tuple(found)


def _check_name(path: Path, reference: DataReference, wanted: str, patterns: Mapping[str, Sequence[str]]) -> None:
    def named(split: str) -> bool:
        return any(fits(_member_name(path), name) for name in patterns.get(split, ()))

    if not named(wanted):
        for split in patterns:
            if named(split):
                other = _name(reference, split)
                raise UserError(
                    f"by its name this file is {other}, not {reference}",
                    where=str(path),
                    try_this=f"ask for {other}, or rename the file if its name misleads",
                )


def _member_name(path: Path) -> str:
    place = archive_of(path)
    return path.name if place is None else Path(place[1]).name


def _alternatives(reference: DataReference, looked: Sequence[Path], patterns: Mapping[str, Sequence[str]]) -> str:
    present = [split for split, names in patterns.items() if any(matching(folder, name) for folder in looked for name in names)]
    there = ", ".join(_name(reference, split) for split in present)
    return f"set path to the file, or ask for what is there: {there}" if there else ""


def _name(reference: DataReference, wanted: str) -> str:
    subset, _, split = wanted.partition(":")
    return str(DataReference(reference.name, subset or None, split))
