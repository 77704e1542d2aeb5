"""Files that appear whole or not at all, so that what was cut off is never taken for finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def whole(path: Path, write: Callable[[Path], T]) -> T:
    """Write a file under another name beside its own, then give it its own, in place of any that is there.

    Args:
        path: The file, in a folder that is there.
        write: Writes it to the path that it is given.

    Returns:
        What `write` returns.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        result = write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return result


def whole_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, as `whole` does."""
    whole(path, lambda partial: partial.write_text(text, "utf-8"))
