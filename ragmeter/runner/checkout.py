"""The git checkout that a folder lies in: its commit, and whether files differ from it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.core.fingerprint import LENGTH

_ELSEWHERE = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"})
_MOST_BYTES = 2**20
_SECONDS = 10
"""How long git may take; a state that takes longer is recorded as unknown."""


@lru_cache(maxsize=32)
def checkout(folder: Path, paths: tuple[str, ...] = ()) -> dict[str, Any] | None:
    """Return commit and state of the checkout that a folder lies in; asked once per process and folder, see `forget`.

    Args:
        folder: The folder.
        paths: Look for changes only in these, relative to the folder, new files among them. Without any, changes of
            tracked files anywhere in the checkout count: new files in a working folder are mostly results.

    Returns:
        `{"repository": name, "commit": hash, "dirty": flag}`. `dirty` is None if git did not answer in time, and
        `commit` is None before the first commit. With `paths`, a dirty state has `changes`, a hash of what
        differs, to compare two dirty states of one commit. None if the folder is in no checkout, or there is no git.
    """
    # One process where there is a commit, as git takes longer to start than to answer.
    top, _, head = (_git(folder, "rev-parse", "--show-toplevel", "HEAD") or _git(folder, "rev-parse", "--show-toplevel") or "").partition(
        "\n"
    )
    if not top:
        return None
    commit = head or None
    new = "--untracked-files=all" if paths else "--untracked-files=no"
    listed = _git(folder, "status", "--porcelain", "-z", new, "--", *paths)
    state: dict[str, Any] = {"repository": Path(top).name, "commit": commit, "dirty": None if listed is None else bool(listed)}
    if listed and paths:
        state["changes"] = _changes(folder, paths, Path(top), listed, commit)
    return state


def forget() -> None:
    """Ask git again the next time: a process that lives for long, such as a notebook, outlives commits."""
    checkout.cache_clear()


def _changes(folder: Path, paths: tuple[str, ...], top: Path, listed: str, commit: str | None) -> str:
    """Hash of what differs from the commit: tracked files by their difference, new ones by their content, large ones by their size."""
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    if commit is not None:
        difference = _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--", *paths) or ""
        digest.update(difference.encode("utf-8", "surrogateescape"))
    for name in sorted(line[3:] for line in listed.split("\0") if line.startswith("??")):
        digest.update(os.fsencode(name) + b"\0")
        with suppress(OSError):
            size = (top / name).stat().st_size
            digest.update((top / name).read_bytes() if size <= _MOST_BYTES else str(size).encode())
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git says; None if it fails, takes too long or is not installed. It writes nothing into the repository."""
    # Within a hook, git's own variables lead to the repository that is being committed to.
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=_SECONDS,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None
