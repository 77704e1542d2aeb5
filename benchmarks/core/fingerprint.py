"""Content hashes for reusing results: equal content gives equal fingerprints on every machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any

from benchmarks.core.errors import UserError

LENGTH = 16
"""Number of hex digits of a fingerprint (64 bits)."""
_SIZE = Struct("<Q").pack
"""Encodes the length of a text as 8 bytes."""
_AT_ONCE = 256
"""Number of texts hashed at a time."""


def fingerprint(*parts: Any) -> str:
    """Hash JSON-like values in their canonical form.

    Args:
        parts: JSON-serializable values; the order of keys does not matter.

    Returns:
        Sixteen hex digits, equal on every machine for equal parts.

    Raises:
        TypeError: A part is not JSON-serializable.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=LENGTH // 2).hexdigest()


_IN_STORE = re.compile(r".*[/\\](checkpoints[/\\][\w.-]+[/\\][0-9a-f]{12}(?:[/\\].*)?)", re.DOTALL)
"""Pattern of a trained checkpoint's folder in a store, which is named by a hash of the training."""


def without_store(value: Any) -> Any:
    """Shorten the folders of trained checkpoints in JSON-like values to their path in the store, which is equal wherever the store is."""
    if isinstance(value, str):
        match = _IN_STORE.fullmatch(value)
        return match[1].replace("\\", "/") if match else value
    if isinstance(value, dict):
        return {key: without_store(item) for key, item in value.items()}
    return [without_store(item) for item in value] if isinstance(value, list) else value


def content_hash(chunks: Iterable[str]) -> str:
    """Hash a stream of texts in constant memory; boundaries between texts count."""
    digest, chunks = hashlib.blake2b(digest_size=LENGTH // 2), iter(chunks)
    while frames := b"".join(map(framed, islice(chunks, _AT_ONCE))):
        digest.update(frames)
    return digest.hexdigest()


def framed(text: str) -> bytes:
    """Return a text's bytes preceded by their length, the form in which `content_hash` hashes it."""
    raw = text.encode("utf-8", "surrogatepass")
    return _SIZE(len(raw)) + raw


def framed_hash(frames: bytes) -> bytes:
    """Hash concatenated `framed` texts; returns the 8 bytes that `content_hash` prints in hexadecimal."""
    return hashlib.blake2b(frames, digest_size=LENGTH // 2).digest()


def content_id(prefix: str, *texts: str) -> str:
    """Return an opaque id derived from content: a prefix letter and 16 hex digits."""
    # As `content_hash`, written out: a corpus asks for millions.
    frames = []
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        frames.append(_SIZE(len(raw)))
        frames.append(raw)
    return prefix + hashlib.blake2b(b"".join(frames), digest_size=LENGTH // 2).hexdigest()


CHECKPOINT_CARD = "ragmeter.json"
"""File in a checkpoint folder that describes its training. It contains the folder's hash, so it is not hashed itself."""
READ_QUESTIONS = "ragmeter-questions.hashes"
"""File in a checkpoint folder with hashes of its training questions (`benchmarks.read_questions`). It is not part of the
folder's hash, because it may be added later.
"""


def folder_sha256(folder: Path) -> str:
    """Hash a folder's file names and contents, except the checkpoint's card and the record of its training questions.

    The same hash as this command (paths in byte order): `find * -type f ! -path 'ragmeter[.-]*' | LC_ALL=C sort | xargs
    sha256sum | sha256sum`, hidden files included.

    Returns:
        64 hex digits; times, owners and permissions do not count.

    Raises:
        UserError: The folder does not exist, is empty, or contains something other than regular files.
    """
    if not folder.is_dir():
        raise UserError("folder does not exist", code="missing-folder", where=str(folder))
    names: list[str] = []
    for root, folders, files in os.walk(folder):
        here = Path(root)
        for name in folders:
            if (here / name).is_symlink():
                raise UserError(
                    "this is a link to a folder, and links to folders are not hashed",
                    code="link-to-folder",
                    where=str(here / name),
                    try_this="copy it here",
                )
        for name in files:
            path = here / name
            if not path.is_file():
                raise UserError("this is neither a file nor a folder", code="not-file-or-folder", where=str(path), try_this="remove it")
            if "\n" in name or "\\" in name:
                raise UserError(f"the name {name!r} contains a line break or backslash", code="bad-file-name", where=str(here))
            names.append(path.relative_to(folder).as_posix())
    names = sorted((name for name in names if name not in (CHECKPOINT_CARD, READ_QUESTIONS)), key=os.fsencode)
    if not names:
        raise UserError("this folder contains no files", code="empty-folder", where=str(folder))
    total = hashlib.sha256()
    for name in names:
        total.update(f"{file_sha256(folder / name)}  ".encode() + os.fsencode(name) + b"\n")
    return total.hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits; results are cached while the file is unchanged."""
    stat = path.stat()
    note_file(path, stat, result := _file_sha256(str(path), stat.st_size, stat.st_mtime_ns))
    return result


@lru_cache(maxsize=4096)
def _file_sha256(path: str, size: int, modified: int) -> str:
    """Return the hash of a file; size and modification time are arguments so that the cache notices changes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


FilesRead = dict[str, tuple[int, int, str]]
"""Size, modification time in nanoseconds and hash ("" if not computed) of files, by absolute path."""
_FILES: ContextVar[FilesRead | None] = ContextVar("files", default=None)


@contextmanager
def recording_files() -> Iterator[FilesRead]:
    """Context manager that records the data files opened (`benchmarks.io.files`) and the files hashed inside it."""
    files: FilesRead = {}
    token = _FILES.set(files)
    try:
        yield files
    finally:
        _FILES.reset(token)


def note_file(path: Path, stat: os.stat_result, digest: str = "") -> None:
    """Add a file to the active record, if any, as it was when first read; a hash is added later if it is still the same file."""
    files = _FILES.get()
    if files is not None:
        size, modified, known = files.setdefault(str(path.absolute()), (stat.st_size, stat.st_mtime_ns, digest))
        if not known and digest and (size, modified) == (stat.st_size, stat.st_mtime_ns):
            files[str(path.absolute())] = (size, modified, digest)
