"""Detect leakage: questions whose 13-grams occur in training files.

| part of a question | what of it is looked for |
| --- | --- |
| its text | every 13 consecutive words; a question of fewer words as a whole |
| its gold answers | every 13 consecutive words; shorter answers are not looked for: "yes" is in every file |
| its contexts, on request | the same, in its positive passages, or where it names none in its document or candidates |

Words are those of the squad normalization (lower case, no punctuation, no articles). The training files are streamed;
memory holds the evaluation side alone.
"""

from __future__ import annotations

import csv
import io
import json
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.errors import unwritable
from benchmarks.ngrams import NOWHERE, NgramIndex, Places
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.text_batch import normalize_all
from benchmarks.training_texts import Text, texts, unit

BATCH_WORDS = 1 << 17
"""Number of words of training text that are matched at a time."""

N = 13
"""Words per n-gram."""
QUESTION, ANSWERS, CONTEXTS = "question", "answers", "contexts"
PARTS = (QUESTION, ANSWERS, CONTEXTS)
FORMATS = (".csv", ".json", ".jsonl")
"""File formats for the per-question results."""

_LINES = 1 << 40
_BATCH_TEXTS = 1024


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap of one evaluation question with the training files.

    Attributes:
        reference: Data reference of the evaluation set.
        question_id: Id of the question.
        text: Text of the question.
        words: Normalized words of the question.
        result, grams: Number of grams found and in total, by part (question, answers, contexts).
        first: `file:number` of the line, record or row with the first match; None if there is none.
    """

    reference: str
    question_id: str
    text: str
    words: int
    result: Mapping[str, int]
    grams: Mapping[str, int]
    first: str | None

    @property
    def whole(self) -> bool:
        """Return whether the question has fewer than 13 words, so that it was searched as a whole."""
        return self.words < N

    @property
    def share(self) -> float:
        """Return the fraction of the question's grams that were found; 0 if it has none."""
        return sum(self.result.values()) / max(1, sum(self.grams.values()))

    def share_of(self, part: str) -> float | None:
        """Return the fraction of a part's grams that were found; None if the part has none."""
        return self.result[part] / self.grams[part] if self.grams.get(part) else None

    def to_json(self) -> dict[str, Any]:
        """Return the overlap as a flat row, with the columns of the CSV output."""
        return {
            "reference": self.reference,
            "question_id": self.question_id,
            "question": self.text,
            "words": self.words,
            "whole": self.whole,
            "share": self.share,
            "first": self.first,
            **{f"{part}_{what}": hits.get(part, 0) for part in PARTS for what, hits in (("found", self.result), ("grams", self.grams))},
        }


@dataclass(frozen=True)
class Report:
    """Result of a leakage check.

    Attributes:
        overlaps: One overlap per question, in the order of the evaluation sets.
        files: Training files by name, with the number of texts in each.
        words: Normalized words read.
        seconds: Time for reading and comparing.
        skipped: Positions of records that could not be read.
    """

    overlaps: tuple[Overlap, ...]
    files: Mapping[str, int]
    words: int
    seconds: float
    skipped: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return what was read, and the number of contaminated questions per evaluation set."""
        by_set: dict[str, list[Overlap]] = {}
        for overlap in self.overlaps:
            by_set.setdefault(overlap.reference, []).append(overlap)
        sets = [
            {
                "reference": reference,
                "questions": len(overlaps),
                "touched": sum(overlap.share > 0 for overlap in overlaps),
                "question_touched": sum(bool(overlap.share_of(QUESTION)) for overlap in overlaps),
                "question_half": sum((overlap.share_of(QUESTION) or 0) >= 0.5 for overlap in overlaps),
                "question_all": sum(overlap.share_of(QUESTION) == 1 for overlap in overlaps),
                "looked_for_whole": sum(overlap.whole for overlap in overlaps),
            }
            for reference, overlaps in by_set.items()
        ]
        return {"files": self.files, "words": self.words, "seconds": self.seconds, "skipped": list(self.skipped), "sets": sets}

    def write(self, path: Path) -> None:
        """Write every question's overlap to a CSV, JSON or JSONL file, chosen by its suffix.

        Raises:
            UserError: The file cannot be written.
        """
        rows, text = [overlap.to_json() for overlap in self.overlaps], io.StringIO()
        if path.suffix == ".csv":
            writer = csv.DictWriter(text, Overlap("", "", "", 0, {}, {}, None).to_json(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        elif path.suffix == ".jsonl":
            text.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        else:
            text.write(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
        try:
            path.write_text(text.getvalue(), "utf-8", newline="")
        except OSError as error:
            raise unwritable(error, path) from error


@dataclass
class _Units:
    """Texts to search for, and the minimum number of words."""

    texts: list[str | Callable[[], str]] = field(default_factory=list)
    least: list[int] = field(default_factory=list)
    of_passage: dict[str, int] = field(default_factory=dict)
    lengths: array[int] = field(default_factory=lambda: array("q"))

    def add(self, text: str | Callable[[], str], least: int) -> int:
        self.texts.append(text)
        self.least.append(least)
        return len(self.texts) - 1

    def split_words(self) -> Iterator[list[str]]:
        """Yield the normalized words of each text; [] for texts that are too short."""
        for start in range(0, len(self.texts), _BATCH_TEXTS):
            some = [text if isinstance(text, str) else text() for text in self.texts[start : start + _BATCH_TEXTS]]
            for normal, least in zip(normalize_all(some), self.least[start:], strict=False):
                words = normal.split()
                self.lengths.append(len(words))
                yield words if len(words) >= least else []


def contamination(
    benchmarks: Sequence[Benchmark],
    files: Sequence[Path],
    *,
    contexts: bool = False,
    skip_bad: bool = False,
    progress: Callable[[Path, int], None] | None = None,
) -> Report:
    """Search training files for the questions, answers and (optionally) contexts of evaluation sets.

    Args:
        benchmarks: The evaluation sets.
        files: The training files.
        contexts: Whether to search for the questions' passages, too.
        skip_bad: Leave out records that cannot be read.
        progress: Called after every batch with the current file and the total number of words read.

    Raises:
        UserError: A training file cannot be read.
    """
    units = _Units()
    queries = [
        (benchmark, question, _parts(question, benchmark, units, contexts)) for benchmark in benchmarks for question in benchmark.questions
    ]
    index = NgramIndex(units.split_words(), N)
    scan = _Scan(index)
    skipped: list[str] = []
    started = time.perf_counter()
    read: dict[str, int] = {}
    for number, file in enumerate(files):
        read[str(file)] = scan.file(number, texts(file, skip_bad=skip_bad, skipped=skipped), file, progress)
    result, total, first = index.counts()
    named = [unit(file) for file in files]
    overlaps = tuple(
        Overlap(
            str(benchmark.reference),
            question.id,
            question.text,
            units.lengths[parts[QUESTION][0]],
            {part: int(result[positions].sum()) for part, positions in parts.items()},
            {part: int(total[positions].sum()) for part, positions in parts.items()},
            _position(first, [position for part in parts.values() for position in part], files, named),
        )
        for benchmark, question, parts in queries
    )
    return Report(overlaps, read, scan.words, time.perf_counter() - started, tuple(skipped))


def _parts(question: Question, benchmark: Benchmark, units: _Units, contexts: bool) -> dict[str, list[int]]:
    """Return the texts to search for by part of a question (question, answers, contexts)."""
    parts = {QUESTION: [units.add(question.text, 1)], ANSWERS: [units.add(gold, N) for gold in question.golds]}
    if contexts:
        parts[CONTEXTS] = [_passage(identifier, benchmark, units) for identifier in _contexts(question, benchmark)]
    return parts


def _contexts(question: Question, benchmark: Benchmark) -> Iterable[str]:
    options: Iterable[str] = question.evidence
    if not options and question.document_id is not None:
        options = benchmark.corpus.by_document.get(question.document_id, ())
    elif not options:
        options = question.candidates or ()
    return (identifier for identifier in options if identifier in benchmark.corpus)


def _passage(identifier: str, benchmark: Benchmark, units: _Units) -> int:
    # Questions share passages; an id is a hash of the content, the same in every set.
    position = units.of_passage.get(identifier)
    if position is None:
        # Read when it is its turn: a corpus may lie on disk.
        position = units.add(lambda: benchmark.corpus.get([identifier])[0].text, N)
        units.of_passage[identifier] = position
    return position


def _position(first: Places, positions: Sequence[int], files: Sequence[Path], named: Sequence[str]) -> str | None:
    code = int(first[positions].min())
    if code == NOWHERE:
        return None
    file, number = divmod(code, _LINES)
    return f"{files[file]}:{number}" if named[file] == "line" else f"{files[file]}, {named[file]} {number}"


class _Scan:
    """Feeds the words of training files to an index in batches."""

    def __init__(self, index: NgramIndex) -> None:
        self._index = index
        self._longest = max(index.sizes, default=1)
        self.words = 0
        self._clear()

    def _clear(self) -> None:
        self._batch = array("i")
        self._starts: list[int] = []
        self._positions: list[int] = []

    def file(self, number: int, read: Iterator[Text], path: Path, progress: Callable[[Path, int], None] | None) -> int:
        """Read a file, and return the number of its texts."""
        count = 0
        while some := list(islice(read, _BATCH_TEXTS)):
            count += len(some)
            for text, normal in zip(some, normalize_all([item.text for item in some]), strict=True):
                self._add(normal.split(), number * _LINES + text.number, text.joined)
                if len(self._batch) >= BATCH_WORDS:
                    self._flush()
                    if progress is not None:
                        progress(path, self.words)
        self._flush()
        self._clear()
        return count

    def _add(self, words: list[str], position: int, joined: bool) -> None:
        if not joined:
            self._batch.append(0)
        self._starts.append(len(self._batch))
        self._positions.append(position)
        self._batch.extend(self._index.numbered(words))
        self.words += len(words)

    def _flush(self) -> None:
        """Match the batch, and keep its end for n-grams across batches."""
        words = np.array(self._batch, dtype=np.int32)
        starts, positions = np.array(self._starts, dtype=np.int64), np.array(self._positions, dtype=np.int64)
        self._index.meet(words, lambda at: positions[np.searchsorted(starts, at, side="right") - 1])
        kept = max(0, len(words) - self._longest + 1)
        begins = np.searchsorted(starts, kept, side="right") - 1 if len(starts) else 0
        self._clear()
        self._batch.extend(words[kept:].tolist())
        self._starts.extend(np.maximum(starts[max(0, begins) :] - kept, 0).tolist())
        self._positions.extend(positions[max(0, begins) :].tolist())
