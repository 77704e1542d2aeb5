"""Store hashes of the questions that a training has seen, to detect later whether it saw test questions.

A record holds two sorted lists of 64-bit hashes: one of whole questions and one of their 13-grams.

| part | what is hashed |
| --- | --- |
| whole question | its normalized text: the squad rules of `benchmarks.text` (lower case, no punctuation, no articles) |
| 13-gram | thirteen consecutive words of the normalized text, joined by single spaces; shorter texts have none |

A hash is BLAKE2b with a digest of eight bytes over the UTF-8 text, read as a little-endian number. The file is one line
of JSON, then both lists as little-endian 64-bit numbers:

    {"format": 1, "questions": 2, "grams": 5, "every_question": 1, "every_gram": 1}\\n
    16 bytes of hashes of questions, 40 bytes of hashes of 13-grams

A list keeps at most 3 million hashes, so a record is smaller than 50 MB. If there are more, the list keeps the hashes
that are divisible by a power of two, which `every_…` states: with `every_gram` 4 it holds about a fourth of the 13-grams.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import READ_QUESTIONS as FILE
from benchmarks.text_batch import normalize_all

GRAM = 13
"""Words of an n-gram."""
FEW = 3
"""Maximum number of test questions that may share an n-gram. A more frequent n-gram is boilerplate and not evidence of leakage."""
MOST = 3_000_000
"""Maximum number of hashes per list."""
FORMAT = 1
_BATCH = 4096
_KEYS = ("format", "questions", "grams", "every_question", "every_gram")

Hashes = NDArray[np.uint64]


def hash64(text: str) -> int:
    """Return the 64-bit hash of a normalized text (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def grams(normal: str) -> list[str]:
    """Return the 13-grams of a normalized text."""
    words = normal.split()
    return [" ".join(words[start : start + GRAM]) for start in range(len(words) - GRAM + 1)]


class _Sample:
    """Bounded set of distinct hashes; if it is full, `every` doubles and only hashes divisible by it are kept."""

    def __init__(self, most: int, kept: Hashes, every: int) -> None:
        self.every, self._most = every, most
        self._kept = kept
        self._new: list[int] = []

    def add(self, values: Iterable[int]) -> None:
        self._new += values
        if len(self._new) >= self._most // 2:
            self.result()

    def result(self) -> Hashes:
        self._kept = self._divisible(np.union1d(self._kept, np.array(self._new, np.uint64)))
        self._new = []
        while len(self._kept) > self._most:
            self.every *= 2
            self._kept = self._divisible(self._kept)
        return self._kept

    def _divisible(self, values: Hashes) -> Hashes:
        return values if self.every == 1 else values[values % np.uint64(self.every) == 0]


@dataclass(frozen=True, eq=False)
class ReadQuestions:
    """Hashes of the questions that a training has seen.

    Attributes:
        questions, grams: Sorted distinct hashes.
        every_question, every_gram: 1 if all hashes are kept, n if only those divisible by n.
    """

    questions: Hashes
    grams: Hashes
    every_question: int = 1
    every_gram: int = 1

    def to_bytes(self) -> bytes:
        """Serialize to the file format described above."""
        values = (FORMAT, len(self.questions), len(self.grams), self.every_question, self.every_gram)
        head = json.dumps(dict(zip(_KEYS, values, strict=True))).encode() + b"\n"
        return head + self.questions.astype("<u8").tobytes() + self.grams.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> ReadQuestions:
        """Parse the file format; `where` names the file in errors.

        Raises:
            UserError: The content is invalid.
        """
        head, _, body = content.partition(b"\n")
        try:
            values = json.loads(head)
            known = [values[key] for key in _KEYS]
        except (ValueError, KeyError, TypeError):
            known = []
        good = all(type(value) is int and value >= 0 for value in known) and known[:1] == [FORMAT] and min(known[3:]) >= 1
        if not good or len(body) != 8 * (known[1] + known[2]):
            raise UserError(
                "this record of training questions is damaged",
                code="read-questions-damaged",
                where=where,
                try_this="write it again: ragmeter train record FILES --into FOLDER",
            )
        hashes = np.frombuffer(body, "<u8").astype(np.uint64)
        lists = hashes[: known[1]], hashes[known[1] :]
        # Other programs need not sort; a list that is not sorted would hide what it holds.
        return cls(np.unique(lists[0]), np.unique(lists[1]), known[3], known[4])

    @property
    def rate(self) -> str:
        """Describe which fraction of the hashes was kept, for display; "" if all were."""
        rates = {"questions": self.every_question, f"{GRAM}-grams": self.every_gram}
        return " and ".join(f"1 in {every} {what}" for what, every in rates.items() if every > 1)

    def touched(self, texts: Sequence[str], golds: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
        """Return which test questions the training has seen, as a whole question or by a shared 13-gram. Shape (questions,).

        A 13-gram that more than three different questions share is boilerplate and does not count. Neither does a
        question that the benchmark asks with more than three different answers, such as "Summarize the document."

        Args:
            texts: The questions.
            golds: The accepted answers of each.
        """
        normal = normalize_all(texts)
        answers: dict[str, set[tuple[str, ...]]] = {}
        for text, gold in zip(normal, golds, strict=True):
            answers.setdefault(text, set()).add(tuple(gold))
        shared = Counter(gram for text in answers for gram in set(grams(text)))
        result = {}
        for text, different in answers.items():
            whole = [hash64(text)] if text and len(different) <= FEW else []
            parts = [hash64(gram) for gram in grams(text) if shared[gram] <= FEW]
            result[text] = bool(_members(self.questions, whole) or _members(self.grams, parts))
        return np.array([result[text] for text in normal], np.bool_)


def _members(hashes: Hashes, values: Sequence[int]) -> bool:
    if not values or not len(hashes):
        return False
    wanted = np.array(values, np.uint64)
    at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    return bool((hashes[at] == wanted).any())


class Recorder:
    """Collector of the questions that a training reads, and of the records and questions that it leaves out.

    Args:
        before: Earlier record to extend; None starts an empty one.
        most: Maximum number of hashes per list.

    Attributes:
        left_out: Positions of the records and questions that are not trained on, by reason (`records_skipped` …).
    """

    def __init__(self, before: ReadQuestions | None = None, most: int = MOST) -> None:
        before = before or ReadQuestions(np.empty(0, np.uint64), np.empty(0, np.uint64))
        self._questions = _Sample(most, before.questions, before.every_question)
        self._grams = _Sample(most, before.grams, before.every_gram)
        self.left_out: dict[str, set[str]] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Add question texts."""
        left = iter(texts)
        while some := list(islice(left, _BATCH)):
            for normal in filter(None, normalize_all(some)):
                self._questions.add([hash64(normal)])
                self._grams.add(map(hash64, grams(normal)))

    def read(self) -> ReadQuestions | None:
        """Return the record so far; None if no questions were added, since the training data is then unknown."""
        questions, parts = self._questions.result(), self._grams.result()
        return ReadQuestions(questions, parts, self._questions.every, self._grams.every) if len(questions) else None


_RECORDER: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """Context manager that records all questions loaded inside it; None suspends recording, for data that are only compared or
    counted.
    """
    token = _RECORDER.set(recorder)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def note(texts: Iterable[str]) -> None:
    """Add question texts to the active recorder, if any; `benchmarks.registry.load` calls this for all data it loads."""
    recorder = _RECORDER.get()
    if recorder is not None:
        recorder.add(texts)


def note_left_out(positions: Iterable[str], reason: str = "records_skipped") -> None:
    """Add positions of records or questions that are not trained on to the active recorder, if one is active."""
    recorder = _RECORDER.get()
    if recorder is not None:
        recorder.left_out.setdefault(reason, set()).update(positions)


def write_so_far(folder: Path) -> None:
    """Write what the active recorder has read into a model's folder, if anything."""
    recorder = _RECORDER.get()
    if recorder is not None and (hashes := recorder.read()) is not None:
        write_record(folder, hashes)


def left_out_counts() -> dict[str, int]:
    """Return the numbers of records and questions left out so far, by reason, without zeros."""
    recorder = _RECORDER.get()
    return {} if recorder is None else {reason: len(positions) for reason, positions in recorder.left_out.items() if positions}


def read_record(folder: Path) -> ReadQuestions | None:
    """Read the record of a model's folder; None if it has none.

    Raises:
        UserError: It is damaged.
    """
    path = folder / FILE
    return ReadQuestions.from_bytes(path.read_bytes(), str(path)) if path.is_file() else None


def write_record(folder: Path, read: ReadQuestions) -> None:
    """Write the record into a model's folder, atomically."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.{FILE}")
    draft.write_bytes(read.to_bytes())
    draft.replace(folder / FILE)
