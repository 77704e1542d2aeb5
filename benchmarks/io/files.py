"""Open data files (plain, compressed, or members of zip archives), find them by pattern, and verify recorded hashes.

A member of an archive is written as a path with `!`: `data.zip!data/qasper.jsonl`. It is read without extracting it.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, cast

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, note_file

MEMBER_MARK = "!"
"""Separator between an archive and its member in a path."""

_GZIP, _BZIP2, _XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ"
_POINTER = b"version https://git-lfs"
"""First bytes of a Git LFS pointer file."""


_FOREIGN = {
    b"\x28\xb5\x2f\xfd": ("zstd-compressed", "unzstd"),
    b"7z\xbc\xaf": ("a 7z archive", "7z x"),
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"\x80\x04": ("a Python pickle, which is never opened here", "write JSON Lines"),
    b"ARROW1": ("an Arrow file", "datasets.Dataset.from_file(FILE).to_parquet(…)"),
    b"\x93NUMPY": ("a NumPy file", "write JSON Lines"),
    b"%PDF": ("a PDF", "give the authors' data file"),
    b"<!": ("a web page: the download failed", "fetch the file again"),
    b"<html": ("a web page: the download failed", "fetch the file again"),
}
"""First bytes of unsupported file types, with their name and a hint."""


_SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
_PACKED = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of spreadsheets: zip archives, and the older format of Excel."""
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r"))


def refuse_foreign(head: bytes, path: Path) -> None:
    """Refuse a file that is not text, judged by its first bytes.

    Raises:
        UserError: The file uses an unsupported compression, or is not text.
    """
    start = head[:64].lstrip()
    if path.suffix.lower() in _SPREADSHEETS and start.startswith(_PACKED):
        raise UserError("this is a spreadsheet", code="spreadsheet", where=str(path), try_this="save the sheet as CSV (UTF-8)")
    for mark, (what, remedy) in _FOREIGN.items():
        if start.startswith(mark):
            raise UserError(f"this file is {what}", code="foreign-file-format", where=str(path), try_this=remedy)
    if head[257:262] == b"ustar":
        raise UserError(
            "this file is a tar archive", code="foreign-file-format", where=str(path), try_this="tar -xf, and name the file in it"
        )
    controls = len(head[:1024]) - len(head[:1024].translate(None, _CONTROLS))
    if controls * 10 > len(head[:1024]) > 63:
        raise UserError(
            "this file is binary, or text in another encoding than UTF-8",
            code="file-not-utf8",
            where=str(path),
            try_this="save it as UTF-8 text",
        )


def archive_of(path: Path) -> tuple[Path, str] | None:
    """Split a path into archive and member; None for an ordinary file."""
    if path.exists():
        return None
    archive, mark, member = str(path).partition(MEMBER_MARK)
    while mark and not Path(archive).is_file():
        head, mark, member = member.partition(MEMBER_MARK)
        archive = f"{archive}{MEMBER_MARK}{head}"
    return (Path(archive), member) if mark and member else None


def is_zip(path: Path) -> bool:
    """Return whether a file is a zip archive, judged by its content."""
    return path.is_file() and zipfile.is_zipfile(path)


def members(archive: Path) -> list[str]:
    """List the files in a zip archive, sorted.

    Raises:
        UserError: The file is not a zip archive, is a Git LFS pointer, or is damaged.
    """
    with _reading(archive), open(archive, "rb") as raw:
        _refuse_pointer(raw, archive)
        opened = zipfile.ZipFile(raw)
        return sorted(entry.filename for entry in opened.infolist() if not entry.is_dir())


def sibling(path: Path, name: str) -> Path:
    """Return the path of another file in the same folder, also inside an archive."""
    position = archive_of(path)
    if position is None:
        return path.with_name(name)
    archive, member = position
    folder, slash, _ = member.rpartition("/")
    return Path(f"{archive}{MEMBER_MARK}{folder}{slash}{name}")


def size_of(path: Path) -> int:
    """Return the uncompressed size in bytes of a file or archive member; 0 if it does not exist."""
    position = archive_of(path)
    if position is None:
        return path.stat().st_size if path.is_file() else 0
    archive, member = position
    with _reading(archive), zipfile.ZipFile(archive) as opened:
        return opened.getinfo(member).file_size if member in opened.namelist() else 0


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file or archive member for reading bytes; gzip, bzip2 and xz are detected by content and decompressed.

    Args:
        path: A file, or `archive.zip!member`.

    Raises:
        UserError: It cannot be opened or read, or its compression is damaged (also while it is being read).
    """
    position = archive_of(path)
    with _reading(path):
        if position is None:
            with open(path, "rb") as raw:
                note_file(path, os.fstat(raw.fileno()))
                _refuse_pointer(raw, path)
                yield from _plain(raw)
            return
        archive, member = position
        note_file(archive, archive.stat())
        with zipfile.ZipFile(archive) as opened:
            if member not in opened.namelist():
                raise UserError(
                    f"the archive has no file {member!r}",
                    code="archive-member-missing",
                    where=str(archive),
                    try_this="it holds " + ", ".join(sorted(opened.namelist())[:12]),
                )
            with _member(opened, member, path) as inner:
                yield from _plain(inner)


def require_readable(paths: Iterable[Path]) -> None:
    """Check that each file, or member of an archive, can be opened and is not empty.

    Raises:
        UserError: A file cannot be opened, is empty, is a Git LFS pointer, or its compressed data are damaged at the start.
    """
    for path in paths:
        with open_bytes(path) as source:
            if not source.read(1):
                raise UserError("this file is empty", code="empty-file", where=str(path), try_this="fetch it again")


def _refuse_pointer(raw: BinaryIO, path: Path) -> None:
    if raw.read(len(_POINTER)) == _POINTER:
        what = "this is a pointer of Git LFS, a few lines that stand for the file itself"
        raise UserError(what, code="lfs-pointer", where=str(path), try_this="git lfs pull, in the repository that it is from")
    raw.seek(0)


def _member(opened: zipfile.ZipFile, member: str, path: Path) -> BinaryIO:
    try:
        return cast(BinaryIO, opened.open(member))
    except (RuntimeError, NotImplementedError) as error:
        # zipfile's words for a password and for a method of compression that it does not know.
        raise UserError(f"this member of the archive cannot be read: {error}", code="unreadable-archive-member", where=str(path)) from error


def _plain(raw: BinaryIO) -> Iterator[BinaryIO]:
    head = raw.read(6)
    raw.seek(0)
    kinds: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
        (_GZIP, lambda raw: gzip.GzipFile(fileobj=raw)),
        (_BZIP2, bz2.BZ2File),
        (_XZ, lzma.LZMAFile),
    )
    opened = next((kind for mark, kind in kinds if head.startswith(mark)), None)
    if opened is None or (head.startswith(_BZIP2) and not head[3:4].isdigit()):
        yield raw
        return
    with opened(raw) as plain:
        yield cast(BinaryIO, plain)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise UserError(
            f"the compressed file is damaged or cut off: {error}",
            code="damaged-archive",
            where=str(path),
            try_this="fetch it again; `gzip -t` (or `unzip -t`) tells when it is whole",
        ) from error
    except OSError as error:
        raise UserError(f"this file cannot be read: {error.strerror or error}", code="unreadable-file", where=str(path)) from error


SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def recorded(folder: Path) -> dict[str, str]:
    """Parse a folder's SHA256SUMS into hash by file name; empty if there is no such file.

    Raises:
        UserError: A line does not have the form `HASH  NAME`.
    """
    sums = folder / SUMS
    if not sums.is_file():
        return {}
    results = {}
    for number, line in enumerate(sums.read_text("utf-8").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError(
                "this is not a line of sha256sum",
                code="not-hash-line",
                where=f"{sums}, line {number}",
                try_this=f"write it again: sha256sum * > {SUMS}",
            )
        results[match[2].removeprefix("./")] = match[1].lower()
    return results


def check_recorded(paths: Iterable[Path]) -> None:
    """Verify files against the SHA256SUMS in their folders; files that are not listed are not checked.

    Args:
        paths: Files; for members of archives, the archive is verified.

    Raises:
        UserError: A hash differs; the message has both hashes.
    """
    for path in paths:
        position = archive_of(path)
        file = path if position is None else position[0]
        wanted = recorded(file.parent).get(file.name)
        if wanted is not None and file_sha256(file) != wanted:
            raise UserError(
                f"{file.name} is not the file that {SUMS} records: its SHA-256 is {file_sha256(file)}, recorded is {wanted}",
                code="recorded-hash-mismatch",
                where=str(file),
                try_this=f"fetch it again, or record it again if the change is intended (sha256sum * > {SUMS})",
            )


# The hub's older shards have a hash of their own behind their number.
_SHARD = re.compile(r"(.*-)(\d{3,})-of-(\d{3,})(?:-[0-9a-f]{16})?(.*)")


def fits(name: str, pattern: str) -> bool:
    """Return whether a name (`folder/file.json.gz`) matches a pattern (`folder/*.json`). `*` does not cross folders, case is
    ignored, and `.gz` may follow.
    """
    name, pattern = name.lower(), pattern.lower()
    if name.count("/") != pattern.count("/"):
        return False
    return fnmatch(name, pattern) or fnmatch(name.removesuffix(".gz"), pattern)


def best(names: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the names that match the first pattern with any match, sorted; archive patterns return the archive."""
    known = sorted(names)
    for pattern in patterns:
        results = tuple(name for name in known if fits(name, pattern.partition(MEMBER_MARK)[0]))
        if results:
            return results
    return ()


def archived(path: Path, patterns: Sequence[str], name: str) -> tuple[Path, ...]:
    """Return a file itself, or the members of an archive that match the pattern by which the archive was found."""
    for pattern in patterns:
        outer, mark, inner = pattern.partition(MEMBER_MARK)
        if fits(name, outer):
            return matching(path, inner) if mark else (path,)
    return (path,)


def matching(position: Path, pattern: str) -> tuple[Path, ...]:
    """Return the files in a folder or zip archive that match a pattern, sorted.

    In an archive, a pattern without a folder matches members in any folder.
    """
    if position.is_file():
        results = [m for m in members(position) if fits(m, pattern) or ("/" not in pattern and fits(_last(m), pattern))]
        return tuple(Path(f"{position}{MEMBER_MARK}{member}") for member in results)
    outer, mark, inner = pattern.partition(MEMBER_MARK)
    deep = "/".join("*" * (outer.count("/") + 1))
    files = sorted(path for path in position.glob(deep) if fits(path.relative_to(position).as_posix(), outer) and path.is_file())
    if mark:
        return tuple(member for archive in files for member in matching(archive, inner))
    return tuple(files)


def missing_shards(names: Sequence[str]) -> str:
    """Describe which shards of `…-00000-of-00003…` are missing among the names; "" if none are."""
    parts = [match for match in map(_SHARD.fullmatch, names) if match]
    if not parts or len(parts) < len(names):
        return ""
    total = int(parts[0][3])
    there = {int(match[2]) for match in parts}
    lacking = sorted(set(range(total)) - there)
    return f"shards {', '.join(map(str, lacking))} of {total}" if lacking else ""


def is_sharded(names: Sequence[str]) -> bool:
    """Return whether several names are shards of one file (`train-00000-of-00002.parquet` …)."""
    parts = [_SHARD.fullmatch(name) for name in names]
    return all(parts) and len({(match[1], match[3], match[4]) for match in parts if match}) == 1


def shards_of(path: Path) -> tuple[Path, ...]:
    """Return all shards of a file of which one is named, in order; only the path itself if its name is not a shard's.

    Raises:
        UserError: A shard is missing.
    """
    own = _SHARD.fullmatch(path.name)
    if own is None:
        return (path,)
    position = archive_of(path)
    around = path.parent.iterdir() if position is None else (Path(f"{position[0]}{MEMBER_MARK}{member}") for member in members(position[0]))
    results = sorted(file for file in around if file.parent == path.parent and is_sharded([path.name, file.name]))
    if missing := missing_shards([file.name for file in results]):
        hint = "fetch them too; if only this one is meant, give it another name"
        raise UserError(f"the file is a shard, and its folder lacks {missing}", code="missing-shards", where=str(path), try_this=hint)
    return tuple(results)


def _last(name: str) -> str:
    return name.rpartition("/")[2]
