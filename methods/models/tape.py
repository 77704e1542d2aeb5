"""Kept replies as a tape: a JSONL file that replays a run elsewhere without a single call.

A line is `{"key", "request": {endpoint, model, messages, parameters, repetition}, "reply": {…}, "created"}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks.errors import UserError
from benchmarks.files import whole
from methods.models.endpoint import Completion
from methods.models.response_cache import Call, Entry, ResponseCache, storable

_BATCH = 1000


def export_tape(cache: ResponseCache, path: Path, keys: Iterable[str] | None = None) -> int:
    """Write entries, sorted by key, so that equal caches give equal tapes but for the times.

    Args:
        cache: Where from.
        path: The file; complete or not there at all.
        keys: Only these calls (those of a run); None for all.

    Returns:
        How many were written.
    """

    def write(partial: Path) -> int:
        count = 0
        with partial.open("w", encoding="utf-8") as file:
            for entry in cache.entries(keys):
                # Texts go out as their own JSON, so that a lone surrogate stays the escape that it came in as.
                file.write(f'{{"key":"{entry.key}","request":{entry.request},"reply":{entry.reply},"created":{entry.created!r}}}\n')
                count += 1
        return count

    return whole(path, write)


def import_tape(cache: ResponseCache, path: Path) -> int:
    """Add a tape's entries to a cache; those that are kept stay as they are. Returns how many were new.

    Raises:
        UserError: A line is no entry, or its key does not belong to its request.
    """
    added = 0
    with path.open(encoding="utf-8", errors="strict") as file:
        entries = _entries(file, path)
        while batch := list(islice(entries, _BATCH)):
            added += cache.add(batch)
    return added


def _entries(lines: Iterable[str], path: Path) -> Iterator[Entry]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            call = Call(**row["request"])
            reply = row["reply"]
            if not isinstance(reply, dict):
                raise ValueError("its reply is no object")
            Completion.from_json(reply)
            if call.key != row["key"]:
                raise ValueError("its key does not belong to its request")
            created = float(row["created"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(
                f"this is no entry of a tape: {problem}",
                where=f"{path}, line {number}",
                try_this="export the tape again; a changed request has another key",
            ) from None
        text = json.dumps(reply, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        yield Entry(call.key, storable(call.request), storable(text), created)
