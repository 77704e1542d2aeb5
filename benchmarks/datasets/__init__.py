"""Dataset loaders, one file each. This file has what they share: unique question ids, counts with notes, and folds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.records import Record
from benchmarks.sources import data_path


class QuestionIds:
    """Set of the question ids read so far, to detect duplicates.

    Args:
        paths: The files that are read; with a single file, error positions omit its name.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._only = str(paths[0]) if len(paths) == 1 else ""
        self._positions: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._positions

    def add(self, identifier: str, record: Record) -> None:
        """Add the id of a record's question.

        Raises:
            UserError: The id was added before.
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
            known = ", ".join(value) if isinstance(value, dict) else "none: the file does not hold a JSON object"
            raise UserError(f"{path.name} has no key {key!r}", code="unknown-ids-key", where=where, try_this=f"its keys: {known}")
        value = value[key]
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise UserError("the file does not list question ids", code="no-ids", where=where, try_this="a list of strings, or FILE#KEY")
    return frozenset(value)


_FOLD = re.compile(r"(-?)(\d{1,3})/(\d{1,3})")


def parse_fold(fold: str) -> tuple[int, int, bool]:
    """Parse `K/N` or `-K/N` into (part from 1, number of parts, whether it is negated: all parts except K).

    Raises:
        ValueError: The text has another form, or the part does not exist.
    """
    match = _FOLD.fullmatch(fold)
    part, parts = (int(match[2]), int(match[3])) if match else (0, 0)
    if match is None or not 1 <= part <= parts or parts < 2:
        raise ValueError(f"a fold is K/N or -K/N with K from 1 to N and N of at least 2, not {fold!r}")
    return part, parts, match[1] == "-"


def fold_of(text: str, parts: int) -> int:
    """Return the fold (1 to `parts`) of a question, determined by its text; case and white space are ignored."""
    return 1 + int(content_id("f", " ".join(text.casefold().split()))[1:], 16) % parts


def count_notes(counts: Mapping[str, int], sentences: Mapping[str, str], *before: str) -> dict[str, Any]:
    """Build `counts` and `notes` of `Benchmark.extra` from the counts that a loader collected.

    Args:
        counts: Numbers by key.
        sentences: Sentence per key, with `{n}` for the number; it also sets the order.
        before: Notes to put first.
    """
    met = {key: counts[key] for key in sentences if counts.get(key)}
    return {"counts": met, "notes": (*before, *(sentences[key].format(n=number) for key, number in met.items()))}
