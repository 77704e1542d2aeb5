"""Generated splits are kept in the cache folder, so that a run with nothing to do does not generate its worlds again.

A file is named by everything that its content depends on, the code of this package among it, and read with `pickle`: it is as
trusted as the code.
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
"""Seconds of processor time from which generating is worth a file."""
MOST = 32
"""Files kept; the oldest go first."""


def kept(make: Callable[[], T], *parts: Any) -> T:
    """Return what `make` gives, from the cache folder if these parts were made there before.

    Args:
        make: Generates; its result can be pickled.
        parts: Everything but the code that the result depends on, as JSON has it.
    """
    folder = cache_home() / "worlds"
    path = folder / f"{fingerprint(_code(), *parts)}.pickle"
    # Whatever is wrong with a file, its content can be generated.
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
    """Return what tells this code from another: Python, Arrow, and size and time of every file of the package."""
    root = Path(__file__).parents[1]
    files = [(str(path.relative_to(root)), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(root.rglob("*.py"))]
    return fingerprint(sys.version, pa.__version__, str(root), files)
