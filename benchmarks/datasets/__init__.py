"""The loaders, a file each. Here: what every one does while it brings records together: ids once, what was met counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.sources import Record, data_path


class QuestionIds:
    """The ids of the questions read so far, with their places.

    Args:
        paths: The files that are read; with one alone, a place need not name it.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._only = str(paths[0]) if len(paths) == 1 else ""
        self._positions: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._positions

    def add(self, identifier: str, record: Record) -> None:
        """Note the id of a record's question.

        Raises:
            UserError: It was there already.
        """
        position = record.position if self._only else record.where
        if identifier in self._positions:
            raise UserError(
                f"question id {identifier!r} occurs twice",
                code="duplicate-question",
                where=(f"{self._only}, " if self._only else "") + f"{self._positions[identifier]} and {position}",
                try_this="remove one of the records: scores are kept per question id",
            )
        self._positions[identifier] = position


def listed_ids(named: str) -> frozenset[str]:
    """Read question ids from a file.

    Args:
        named: A file with one id per line or a JSON list; `FILE#KEY` takes the list under a key of a JSON object.

    Raises:
        UserError: The file cannot be read, has no such key, or does not list ids.
    """
    file, mark, key = named.partition("#")
    path, where = data_path(file), f"ids: {named}"
    try:
        text = path.read_text("utf-8-sig")
        value: Any = json.loads(text) if mark or path.suffix == ".json" else [line.strip() for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UserError(f"the file of ids cannot be read: {error}", code="unreadable-ids", where=where, try_this="correct ids") from None
    if mark:
        if not isinstance(value, dict) or key not in value:
            known = ", ".join(value) if isinstance(value, dict) else "none: the file is no JSON object"
            raise UserError(f"{path.name} has no key {key!r}", code="unknown-ids-key", where=where, try_this=f"its keys: {known}")
        value = value[key]
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise UserError("this is no list of question ids", code="no-ids", where=where, try_this="a list of strings, or FILE#KEY")
    return frozenset(value)


def said(counts: Mapping[str, int], sentences: Mapping[str, str], *before: str) -> dict[str, Any]:
    """`counts` and `notes` of `Benchmark.extra`: what was met, in the order of the sentences.

    Args:
        counts: Numbers by key.
        sentences: What each key means, `{n}` in the place of the number.
        before: Notes that stand before them.
    """
    met = {key: counts[key] for key in sentences if counts.get(key)}
    return {"counts": met, "notes": (*before, *(sentences[key].format(n=number) for key, number in met.items()))}
