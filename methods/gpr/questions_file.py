"""Questions on disk: a line of JSON each, written as they come and taken up again.

    {"tid": "t…", "h": head, "r": relation, "t": tail, "side": "head" | "tail", "question": …, "generator": …}

`side` is the hidden end. Questions of several generators may stand in one file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import UserError, unwritable
from benchmarks.fingerprint import file_sha256
from benchmarks.schema import triple_id
from methods.gpr.masked import SIDES, MaskedTriple, Side, checked

FIELDS = ("tid", "h", "r", "t", "side", "question", "generator")
WHAT = "the file of questions"
"""What errors call it."""
Key = tuple[str, Side]
"""The triple's id and the hidden end."""


class Written(NamedTuple):
    """A line of the file."""

    masked: MaskedTriple
    question: str
    generator: str


def read_questions(path: Path) -> Iterator[Written]:
    """The questions of a file, in order.

    Raises:
        UserError: It cannot be read, or a line is no question; the message names the line.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _written(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file of questions cannot be read: {error}", where=str(path)) from None


def _written(line: str, where: str) -> Written:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"this line is no JSON: {error.msg}", where=where, try_this="remove the line") from None
    if not isinstance(row, dict):
        raise UserError("this line is no JSON object", where=where, try_this=f"an object with {', '.join(FIELDS)}")
    for name in FIELDS:
        if not isinstance(row.get(name), str):
            what = "is missing" if name not in row else f"must be a text, and is {json.dumps(row[name])[:40]}"
            raise UserError(f"the field {name} {what}", where=where, try_this=f"all of {', '.join(FIELDS)}")
    if row["side"] not in SIDES:
        raise UserError(f"side must be head or tail, and is {row['side']!r}", where=where, try_this="the hidden end")
    if not row["question"].strip():
        raise UserError("the question is empty", where=where, try_this="remove the line")
    triple = (row["h"], row["r"], row["t"])
    if row["tid"] != triple_id(triple):
        raise UserError(
            f"tid {row['tid']} is not the id of h, r and t, which is {triple_id(triple)}",
            where=where,
            try_this="correct the field, or remove the line",
        )
    return Written(MaskedTriple(triple, row["side"]), row["question"], row["generator"])


def kept_questions(path: Path, generator: str) -> dict[Key, str]:
    """The questions of one generator in a file, none where there is no file.

    A last line that was cut off, when whoever wrote it was stopped, is removed from the file.
    """
    if not path.exists():
        return {}
    _mend(path)
    return {(one.masked.id, one.masked.side): one.question for one in read_questions(path) if one.generator == generator}


def _mend(path: Path) -> None:
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        at = end
        while at > 0:
            start = max(0, at - (1 << 16))
            file.seek(start)
            newline = file.read(at - start).rfind(b"\n")
            if newline >= 0:
                at = start + newline + 1
                break
            at = start
        if at < end:
            file.truncate(at)


def append_questions(path: Path, rows: Iterable[Written]) -> None:
    """Append questions to a file, which is made where it is not there; they are on disk when this returns.

    Raises:
        UserError: The file cannot be written.
        Broke: The disk is full.
    """
    lines = []
    for masked, question, generator in rows:
        head, relation, tail = masked.triple
        values = (masked.id, head, relation, tail, masked.side, question, generator)
        lines.append(json.dumps(dict(zip(FIELDS, values, strict=True)), ensure_ascii=False) + "\n")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.write("".join(lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(error, path, what=WHAT) from error


class CachedQuestions:
    """Questions that were written before, by whatever generators; the last one of a triple and side counts.

    Args:
        path: The file.

    Raises:
        UserError: It cannot be read, or holds no question.
    """

    def __init__(self, path: Path) -> None:
        self._questions = {(one.masked.id, one.masked.side): one.question for one in read_questions(path)}
        if not self._questions:
            raise UserError("the file holds no question", where=str(path), try_this="another file, or generator")
        self.counts: Counter[str] = Counter()
        self.name = f"cache({file_sha256(path)[:8]})"

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """The question of each, or None where the file has none that can be used."""
        return [checked(self._questions.get((one.id, one.side)), one, self.counts, "not in the file") for one in batch]
