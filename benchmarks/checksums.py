"""Recorded hashes of files: what `sha256sum * > SHA256SUMS` writes beside them is held against what is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.errors import UserError
from benchmarks.fingerprint import file_sha256
from benchmarks.open_file import archive_of

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def recorded(folder: Path) -> dict[str, str]:
    """The hashes that a folder's SHA256SUMS records, by file name; empty without one.

    Raises:
        UserError: A line of it is not `HASH  NAME`.
    """
    sums = folder / SUMS
    if not sums.is_file():
        return {}
    found = {}
    for number, line in enumerate(sums.read_text("utf-8").splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise UserError("this is no line of sha256sum", where=f"{sums}, line {number}", try_this=f"write it anew: sha256sum * > {SUMS}")
        found[match[2].removeprefix("./")] = match[1].lower()
    return found


def check_recorded(paths: Iterable[Path]) -> None:
    """Hold files against the SHA256SUMS beside each, where there is one that names it.

    Args:
        paths: Files, or members of archives, which stand for their archive.

    Raises:
        UserError: A file is not the one that was recorded; names both hashes.
    """
    for path in paths:
        place = archive_of(path)
        file = path if place is None else place[0]
        wanted = recorded(file.parent).get(file.name)
        if wanted is not None and file_sha256(file) != wanted:
            raise UserError(
                f"{file.name} is not the file that {SUMS} records: its SHA-256 is {file_sha256(file)}, recorded is {wanted}",
                where=str(file),
                try_this=f"fetch it again, or record it anew if the change is meant (sha256sum * > {SUMS})",
            )
