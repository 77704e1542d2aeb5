"""File name patterns as loaders write them, over the names in a folder, an archive or a repository.

`*` stays within a folder, letter case does not matter, `.gz` may follow, and `archive.zip!member` looks inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.open_file import MEMBER_MARK, members

# The hub's older shards have a hash of their own behind their number.
_SHARD = re.compile(r"(.*-)(\d{3,})-of-(\d{3,})(?:-[0-9a-f]{16})?(.*)")


def fits(name: str, pattern: str) -> bool:
    """Whether a name (`folder/file.json.gz`) is what a pattern (`folder/*.json`) means."""
    name, pattern = name.lower(), pattern.lower()
    if name.count("/") != pattern.count("/"):
        return False
    return fnmatch(name, pattern) or fnmatch(name.removesuffix(".gz"), pattern)


def best(names: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """All names that the first pattern with any fits, sorted; of `archive.zip!member` the archive."""
    known = sorted(names)
    for pattern in patterns:
        found = tuple(name for name in known if fits(name, pattern.partition(MEMBER_MARK)[0]))
        if found:
            return found
    return ()


def archived(path: Path, patterns: Sequence[str], name: str) -> tuple[Path, ...]:
    """A file itself, or the members of an archive that the pattern which chose it means."""
    for pattern in patterns:
        outer, mark, inner = pattern.partition(MEMBER_MARK)
        if fits(name, outer):
            return matching(path, inner) if mark else (path,)
    return (path,)


def matching(place: Path, pattern: str) -> tuple[Path, ...]:
    """The files that a pattern means in a folder or a zip archive, sorted.

    In an archive, a pattern without a folder fits a member in any folder.
    """
    if place.is_file():
        found = [m for m in members(place) if fits(m, pattern) or ("/" not in pattern and fits(_last(m), pattern))]
        return tuple(Path(f"{place}{MEMBER_MARK}{member}") for member in found)
    outer, mark, inner = pattern.partition(MEMBER_MARK)
    deep = "/".join("*" * (outer.count("/") + 1))
    files = sorted(path for path in place.glob(deep) if fits(path.relative_to(place).as_posix(), outer) and path.is_file())
    if mark:
        return tuple(member for archive in files for member in matching(archive, inner))
    return tuple(files)


def missing_shards(names: Sequence[str]) -> str:
    """Which shards of `…-00000-of-00003…` are not among names that should be all of them; "" where none is."""
    parts = [match for match in map(_SHARD.fullmatch, names) if match]
    if not parts or len(parts) < len(names):
        return ""
    total = int(parts[0][3])
    there = {int(match[2]) for match in parts}
    lacking = sorted(set(range(total)) - there)
    return f"shards {', '.join(map(str, lacking))} of {total}" if lacking else ""


def is_sharded(names: Sequence[str]) -> bool:
    """Whether several names are shards of one file (`train-00000-of-00002.parquet` …)."""
    parts = [_SHARD.fullmatch(name) for name in names]
    return all(parts) and len({(match[1], match[3], match[4]) for match in parts if match}) == 1


def _last(name: str) -> str:
    return name.rpartition("/")[2]
