"""Downloads that outlive the process: what came of a file stays under its hash, and the rest is asked for by Range.

huggingface_hub resumes within a process alone. What is half there is named by the hash that the hub states of the
whole: when the file changes on the hub its hash does, so that the beginning of one is never taken for that of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

WORTH_BYTES = 1 << 20
"""Smaller files are fetched anew."""


def part_of(folder: Path, digest: str) -> Path:
    """Where the beginning of a file is kept until all of it is there.

    Args:
        folder: Of the repository in the cache.
        digest: What the hub states of the file: its blob's name in the cache.
    """
    return folder / "ragmeter" / "parts" / digest


def bring(library: Any, url: str, folder: Path, digest: str, size: int, is_whole: Callable[[Path], bool]) -> None:
    """Put a file among a repository's blobs, where the cache finds it; go on where an earlier process was.

    Files that the hub serves in chunks of its own (Xet) are left to the library, which fetches them so.

    Args:
        library: huggingface_hub.
        url: Of the file.
        folder, digest: As of `part_of`.
        size: Bytes of the whole.
        is_whole: Whether a file is what the hub states.
    """
    blob, part = folder / "blobs" / digest, part_of(folder, digest)
    metadata = library.get_hf_file_metadata(url)
    if metadata.etag != digest or (metadata.xet_file_data is not None and library.utils.is_xet_available()):
        return
    part.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{part}.lock"):
        if blob.exists():
            return
        began = _held(part, size)
        _complete(library, url, part, size)
        if began and not is_whole(part):
            # Beginning and end are not of one file, whoever spoilt it.
            part.unlink()
            _complete(library, url, part, size)
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace(part, blob)


def _held(part: Path, size: int) -> int:
    """Bytes that are there; a part that is longer than the whole goes."""
    held = part.stat().st_size if part.exists() else 0
    if held > size:
        part.unlink()
        return 0
    return held


def _complete(library: Any, url: str, part: Path, size: int) -> None:
    """Fetch what is missing; a server that ignores what was asked for sends all, which then takes the part's place."""
    part.touch()
    with part.open("r+b") as file:
        held = file.seek(0, os.SEEK_END)
        if held < size:
            headers = library.utils.build_hf_headers()
            library.file_download.http_get(url, file, resume_size=held, headers=headers, expected_size=size)
