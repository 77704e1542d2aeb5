"""Cache of generated splits, so that a run with nothing to do does not generate its worlds again.

A file's name is a hash of everything that its content depends on, including this package's code. Files are pickles, so the
cache folder must be trusted like code.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from benchmarks.core.files import cache_home, whole
from benchmarks.core.fingerprint import fingerprint

T = TypeVar("T")
LEAST_S = 0.2
"""Minimum processor seconds of generation for which the result is cached."""
MOST = 32
"""Maximum number of cached files; the oldest are deleted first."""


def kept(make: Callable[[], T], *parts: Any) -> T:
    """Return the cached result of `make` for these parts, or call `make` and cache its result.

    Args:
        make: Function that generates a picklable result.
        parts: JSON-serializable values on which the result depends, besides the code.
    """
    folder = cache_home() / "worlds"
    path = folder / f"{fingerprint(_code(), *parts)}.pickle"
    # A damaged file is not an error, because its content can be generated.
    with suppress(Exception):
        made: T = pickle.loads(path.read_bytes())
        return made
    started = time.process_time()
    made = make()
    if time.process_time() - started >= LEAST_S:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            whole(path, lambda partial: partial.write_bytes(pickle.dumps(made, pickle.HIGHEST_PROTOCOL)))
            files = sorted(folder.glob("*.pickle"), key=lambda file: file.stat().st_mtime)
            for file in files[:-MOST]:
                file.unlink(missing_ok=True)
    return made


@cache
def _code() -> str:
    """Return a key of the code version: Python, Arrow, and size and modification time of the package's files."""
    root = Path(__file__).parents[1]
    files = [(str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.rglob("*.py"))]
    return fingerprint(sys.version, pa.__version__, str(root), files)
