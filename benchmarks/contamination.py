"""How much of an evaluation set stands in training files: overlap of 13-grams of normalised words, by question.

| part of a question | what of it is looked for |
| --- | --- |
| its text | every 13 consecutive words; a question of fewer words as a whole |
| its gold answers | every 13 consecutive words; shorter answers are not looked for: "yes" stands in every file |
| its contexts, on request | the same, in its positive passages, or where it names none in its document or candidates |

Words are those of the squad normalisation (lower case, no punctuation, no articles). The training files are streamed;
memory holds the evaluation side alone.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.ngram_index import BATCH_WORDS, NOWHERE, NgramIndex, Places
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.text_batch import normalise_all
from benchmarks.training_texts import Text, texts, unit

N = 13
"""Words of a gram."""
QUESTION, ANSWERS, CONTEXTS = "question", "answers", "contexts"
PARTS = (QUESTION, ANSWERS, CONTEXTS)

_LINES = 1 << 40
_BATCH_TEXTS = 1024


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of a question stands in the training files.

    Attributes:
        reference: Of which evaluation set.
        question_id: Its id.
        text: Its text.
        words: Its normalised words.
        found, grams: By part, how many of its grams were met, and how many it has.
        first: `file:number` of the line, record or row where the first of them was met; None where none was.
    """

    reference: str
    question_id: str
    text: str
    words: int
    found: Mapping[str, int]
    grams: Mapping[str, int]
    first: str | None

    @property
    def whole(self) -> bool:
        """Whether the question was looked for as a whole, being shorter than a gram."""
        return self.words < N

    @property
    def share(self) -> float:
        """Share of all its grams that were met; 0 where it has none."""
        return sum(self.found.values()) / max(1, sum(self.grams.values()))

    def share_of(self, part: str) -> float | None:
        """Share of a part's grams that were met; None where the part has none."""
        return self.found[part] / self.grams[part] if self.grams.get(part) else None


@dataclass(frozen=True)
class Report:
    """What a check found.

    Attributes:
        overlaps: One of each question, in the order of the sets.
        files: Training files by name, with the number of texts in each.
        words: Normalised words read.
        seconds: Time spent on reading and comparing.
        skipped: Places of records that could not be read.
    """

    overlaps: tuple[Overlap, ...]
    files: Mapping[str, int]
    words: int
    seconds: float
    skipped: tuple[str, ...] = ()


@dataclass
class _Units:
    """The texts that are looked for, and the least number of words from which they are."""

    texts: list[str | Callable[[], str]] = field(default_factory=list)
    least: list[int] = field(default_factory=list)
    of_passage: dict[str, int] = field(default_factory=dict)
    lengths: array[int] = field(default_factory=lambda: array("q"))

    def add(self, text: str | Callable[[], str], least: int) -> int:
        self.texts.append(text)
        self.least.append(least)
        return len(self.texts) - 1

    def words(self) -> Iterator[list[str]]:
        """The normalised words of each; none of one that is too short to be looked for."""
        for start in range(0, len(self.texts), _BATCH_TEXTS):
            some = [text if isinstance(text, str) else text() for text in self.texts[start : start + _BATCH_TEXTS]]
            for normal, least in zip(normalise_all(some), self.least[start:], strict=False):
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
    """Look for every question of evaluation sets in training files.

    Args:
        benchmarks: The evaluation sets.
        files: The training files.
        contexts: Whether passages are looked for too.
        skip_bad: Leave out records that cannot be read.
        progress: Told the file and the words read in all, after every batch.

    Raises:
        UserError: A training file cannot be read.
    """
    units = _Units()
    asked = [
        (benchmark, question, _parts(question, benchmark, units, contexts)) for benchmark in benchmarks for question in benchmark.questions
    ]
    index = NgramIndex(units.words(), N)
    scan = _Scan(index)
    skipped: list[str] = []
    started = time.perf_counter()
    read: dict[str, int] = {}
    for number, file in enumerate(files):
        read[str(file)] = scan.file(number, texts(file, skip_bad=skip_bad, skipped=skipped), file, progress)
    found, total, first = index.counts()
    named = [unit(file) for file in files]
    overlaps = tuple(
        Overlap(
            str(benchmark.reference),
            question.id,
            question.text,
            units.lengths[parts[QUESTION][0]],
            {part: int(found[places].sum()) for part, places in parts.items()},
            {part: int(total[places].sum()) for part, places in parts.items()},
            _place(first, [place for places in parts.values() for place in places], files, named),
        )
        for benchmark, question, parts in asked
    )
    return Report(overlaps, read, scan.words, time.perf_counter() - started, tuple(skipped))


def _parts(question: Question, benchmark: Benchmark, units: _Units, contexts: bool) -> dict[str, list[int]]:
    """The units of a question's parts."""
    parts = {QUESTION: [units.add(question.text, 1)], ANSWERS: [units.add(gold, N) for gold in question.golds]}
    if contexts:
        parts[CONTEXTS] = [_passage(identifier, benchmark, units) for identifier in _contexts(question, benchmark)]
    return parts


def _contexts(question: Question, benchmark: Benchmark) -> Iterable[str]:
    given: Iterable[str] = question.evidence
    if not given and question.document_id is not None:
        given = benchmark.corpus.by_document.get(question.document_id, ())
    elif not given:
        given = question.candidates or ()
    return (identifier for identifier in given if identifier in benchmark.corpus)


def _passage(identifier: str, benchmark: Benchmark, units: _Units) -> int:
    # Questions share passages; an id is a hash of the content, the same in every set.
    place = units.of_passage.get(identifier)
    if place is None:
        # Read when it is its turn: a corpus may lie on disk.
        place = units.add(lambda: benchmark.corpus.get([identifier])[0].text, N)
        units.of_passage[identifier] = place
    return place


def _place(first: Places, places: Sequence[int], files: Sequence[Path], named: Sequence[str]) -> str | None:
    code = int(first[places].min())
    if code == NOWHERE:
        return None
    file, number = divmod(code, _LINES)
    return f"{files[file]}:{number}" if named[file] == "line" else f"{files[file]}, {named[file]} {number}"


class _Scan:
    """Hands the words of training files to an index, a batch at a time."""

    def __init__(self, index: NgramIndex) -> None:
        self._index = index
        self._longest = max(index.sizes, default=1)
        self.words = 0
        self._clear()

    def _clear(self) -> None:
        self._batch = array("i")
        self._starts: list[int] = []
        self._places: list[int] = []

    def file(self, number: int, read: Iterator[Text], path: Path, progress: Callable[[Path, int], None] | None) -> int:
        """Read a file; returns the number of its texts."""
        count = 0
        while some := list(islice(read, _BATCH_TEXTS)):
            count += len(some)
            for text, normal in zip(some, normalise_all([one.text for one in some]), strict=True):
                self._add(normal.split(), number * _LINES + text.number, text.joined)
                if len(self._batch) >= BATCH_WORDS:
                    self._flush()
                    if progress is not None:
                        progress(path, self.words)
        self._flush()
        self._clear()
        return count

    def _add(self, words: list[str], place: int, joined: bool) -> None:
        if not joined:
            self._batch.append(0)
        self._starts.append(len(self._batch))
        self._places.append(place)
        self._batch.extend(self._index.numbered(words))
        self.words += len(words)

    def _flush(self) -> None:
        """Look at the batch, and keep its end: the next text may go on there."""
        words = np.array(self._batch, dtype=np.int32)
        starts, places = np.array(self._starts, dtype=np.int64), np.array(self._places, dtype=np.int64)
        self._index.meet(words, lambda at: places[np.searchsorted(starts, at, side="right") - 1])
        kept = max(0, len(words) - self._longest + 1)
        begins = np.searchsorted(starts, kept, side="right") - 1 if len(starts) else 0
        self._clear()
        self._batch.extend(words[kept:].tolist())
        self._starts.extend(np.maximum(starts[max(0, begins) :] - kept, 0).tolist())
        self._places.extend(places[max(0, begins) :].tolist())
