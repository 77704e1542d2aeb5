"""Which trained checkpoints a method's options name, however deep: in a part of a part, or by one folder of several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.errors import UserError
from benchmarks.fingerprint import CHECKPOINT_CARD, folder_sha256

DEPTH = 2
"""How many folders may lie between a checkpoint's own folder and the model that an option names, up or down."""
_NAMES = {"id"}
"""Options that name no folder, even where one of that name lies about."""


def checkpoints_named(options: Any) -> list[str]:
    """Hashes of the checkpoints that options name, as JSON has them.

    A checkpoint is named by its folder, by a folder within it (one of two encoders), or by a folder that holds it. The
    hash is `benchmarks.fingerprint.folder_sha256`, as its card and the registry of checkpoints have it.

    Args:
        options: Mappings, lists and plain values.

    Returns:
        64 hex digits each, every checkpoint once, in order.
    """
    found: dict[str, None] = {}
    for text in _texts(options):
        for folder in _checkpoints_at(Path(text)):
            # A folder that cannot be hashed is none that could have been registered.
            with suppress(UserError):
                found[folder_sha256(folder)] = None
    return sorted(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _NAMES:
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _checkpoints_at(path: Path) -> Iterator[Path]:
    """Checkpoint folders that a path means; none where it is no folder (a template, a hub id, a word)."""
    try:
        folder = path.expanduser().resolve()
        if not path.parts or not folder.is_dir():
            return
        within = [card.parent for depth in range(1, DEPTH + 1) for card in folder.glob("*/" * depth + CHECKPOINT_CARD)]
        around = (outer for outer in (folder, *folder.parents[:DEPTH]) if (outer / CHECKPOINT_CARD).is_file())
        yield from dict.fromkeys([*within, *around])
    except (OSError, RuntimeError, ValueError):
        # Not every text can be a path (too long, a home that does not exist): it names no folder then.
        return
