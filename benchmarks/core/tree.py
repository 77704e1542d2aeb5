"""Read a folder from which modules are imported, on disk or inside a zip archive, by relative names with `/`."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_MARK_OF_A_STORE = "store.duckdb"
_BLOCKS, _BLOCK = 64, 2**14
"""Number of blocks of a large file that are hashed, and bytes per block."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of the files and folders in a folder, relative to the tree's base."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


@dataclass(eq=False)
class Tree:
    """A folder on disk.

    Attributes:
        base: Path of the folder.
    """

    base: Path
    _listings: dict[str, Listing] = field(default_factory=dict, repr=False)

    @cached_property
    def site(self) -> bool:
        """Return whether this is a site-packages folder, with packages of several distributions."""
        listed = self.listing("").folders
        return self.base.name in ("site-packages", "dist-packages") or any(name.endswith(".dist-info") for name in listed)

    def listing(self, folder: str) -> Listing:
        """List a folder; empty if it cannot be read."""
        if folder not in self._listings:
            self._listings[folder] = self._list(folder)
        return self._listings[folder]

    def is_file(self, name: str) -> bool:
        """Return whether the name is an existing file."""
        return name in self.listing(name.rpartition("/")[0]).files

    def is_folder(self, name: str) -> bool:
        """Return whether the name is an existing folder."""
        return name in self.listing(name.rpartition("/")[0]).folders

    def walk(self, folder: str) -> Iterator[str]:
        """Yield all files below a folder in a fixed order, except hidden folders, caches and ragmeter stores."""
        waiting, seen = [folder], set()
        while waiting:
            here = waiting.pop()
            listed = self.listing(here)
            place = self._place(here)
            if place in seen or f"{here}/{_MARK_OF_A_STORE}" in listed.files:
                continue
            seen.add(place)
            yield from sorted(listed.files)
            waiting += sorted((name for name in listed.folders if not _left_out(name.rpartition("/")[2])), reverse=True)

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        return (self.base / name).read_bytes()

    def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        return (self.base / name).stat().st_size

    def sample(self, name: str) -> bytes:
        """Return evenly spaced blocks of a large file, including its beginning and end, for hashing."""
        last = max(0, self.size(name) - _BLOCK)
        with (self.base / name).open("rb") as opened:
            blocks = []
            for number in range(_BLOCKS):
                opened.seek(last * number // (_BLOCKS - 1))
                blocks.append(opened.read(_BLOCK))
        return b"".join(blocks)

    def _place(self, folder: str) -> str:
        """Return a folder's real path, so that cyclic links end."""
        return os.path.realpath(self.base / folder)

    def _list(self, folder: str) -> Listing:
        files: set[str] = set()
        folders: set[str] = set()
        try:
            with os.scandir(self.base / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_dir():
                        folders.add(name)
                    elif entry.is_file():  # neither a pipe nor a link to nothing
                        files.add(name)
        except OSError:
            return Listing()
        return Listing(frozenset(files), frozenset(folders))


class ZipTree(Tree):
    """A folder inside a zip archive.

    Args:
        base: Archive and folder as one path, as in a module's `__file__`.
        archive: The archive.
    """

    def __init__(self, base: Path, archive: Path) -> None:
        super().__init__(base)
        self._archive = archive
        self._within = base.relative_to(archive).as_posix().removeprefix(".")
        with zipfile.ZipFile(archive) as opened:
            self._members = {item.filename: (item.file_size, item.CRC) for item in opened.infolist() if not item.is_dir()}

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self._archive) as opened:
            return opened.read(self._member(name))

    def size(self, name: str) -> int:
        return self._members[self._member(name)][0]

    def sample(self, name: str) -> bytes:
        """Return the file's checksum from the archive."""
        return self._members[self._member(name)][1].to_bytes(4, "big")

    def _member(self, name: str) -> str:
        return "/".join(filter(None, (self._within, name)))

    def _place(self, folder: str) -> str:
        return folder

    def _list(self, folder: str) -> Listing:
        start = self._member(folder)
        start = f"{start}/" if start else ""
        files: set[str] = set()
        folders: set[str] = set()
        for member in self._members:
            if member.startswith(start):
                first, separator, _ = member[len(start) :].partition("/")
                name = f"{folder}/{first}" if folder else first
                (folders if separator else files).add(name)
        return Listing(frozenset(files), frozenset(folders))


def tree_at(base: Path) -> Tree | None:
    """Return the tree at a path, which may lead into a zip archive; None if it does not exist."""
    if base.is_dir():
        return Tree(base)
    archive = next((path for path in (base, *base.parents) if path.is_file()), None)
    return ZipTree(base, archive) if archive is not None and zipfile.is_zipfile(archive) else None


def _left_out(folder: str) -> bool:
    return folder.startswith(".") or folder in ("__pycache__", "node_modules") or folder.endswith((".egg-info", ".dist-info"))
