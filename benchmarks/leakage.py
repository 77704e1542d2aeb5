"""Detect leakage: near-duplicate questions, and questions whose 13-grams occur in training files.

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
import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError, unwritable
from benchmarks.io.files import archive_of, open_bytes
from benchmarks.io.records import is_parquet, rows, stream_json
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.text_batch import normalize_all

# Words are numbered; a sequence's key is a polynomial of its words' random numbers modulo 2⁶⁴, so that the keys of all
# sequences of a length come from one cumulative sum. A key that is met is compared word by word, and where two sequences
# share a key by chance the words are renumbered, so that every match is real.


BATCH_WORDS = 1 << 17
"""Number of words of training text that are matched at a time."""
NOWHERE = np.iinfo(np.int64).max

_BITS = 22
"""Size in bits of the prefilter table for keys."""

Keys = NDArray[np.uint64]
Places = NDArray[np.int64]


class NgramIndex:
    """Index of the n-grams of evaluation texts that records where each first occurs in a stream of training text.

    Args:
        texts: Words of each text. A text with fewer than n words forms one gram; an empty text forms none.
        n: Number of words per gram.

    Attributes:
        first: Position in the stream of each gram's first occurrence, `NOWHERE` if it has not occurred. Shape (grams,).
    """

    def __init__(self, texts: Iterable[Sequence[str]], n: int) -> None:
        self.n = n
        self._numbers: dict[str, int] = {}
        number = self._numbers.setdefault
        # Number 0 is every word that no text has.
        held, ends = array("i"), array("q", [0])
        for text in texts:
            held.extend([number(word, len(self._numbers) + 1) for word in text])
            ends.append(len(held))
        self._split_words = np.array(held, dtype=np.int32)
        lengths = np.diff(np.array(ends, dtype=np.int64))
        begins = np.cumsum(lengths) - lengths
        sizes = np.minimum(lengths, n)
        windows = np.where(lengths > 0, np.maximum(lengths - n, 0) + 1, 0)
        self._ends = np.cumsum(windows)
        within = np.arange(windows.sum()) - np.repeat(self._ends - windows, windows)
        starts, width = np.repeat(begins, windows) + within, np.repeat(sizes, windows)
        self._gram = np.empty(len(starts), dtype=np.int64)
        self._tables: list[_Table] = []
        seed = 0
        while not self._build(starts, width, seed):
            seed += 1
        self._powers = _Powers()  # as many as the stream's batches need
        self.first = np.full(sum(len(table.starts) for table in self._tables), NOWHERE)

    def _build(self, starts: Places, width: Places, seed: int) -> bool:
        """Build the key tables; False if two different grams have the same key."""
        self._random = np.random.default_rng(seed).integers(1, 1 << 64, len(self._numbers) + 1, dtype=np.uint64)
        self._powers = _Powers()
        self._tables, base = [], 0
        sums = self._sums(self._split_words)
        for size in sorted(set(width.tolist())):
            chosen = np.flatnonzero(width == size)
            keys = self._keys(sums, starts[chosen], size)
            unique, where, inverse = np.unique(keys, return_index=True, return_inverse=True)
            of_key = starts[chosen][where]
            if not _equal(self._split_words, starts[chosen], self._split_words, of_key[inverse], size).all():
                return False
            self._gram[chosen] = base + inverse
            self._tables.append(_Table(size, unique, of_key, base, self._split_words, len(self._numbers)))
            base += len(unique)
        return True

    def _sums(self, words: NDArray[np.int32]) -> Keys:
        """Return polynomial prefix sums (rolling hash) at each position."""
        terms = self._random[words] * self._powers.upto(len(words))
        return np.concatenate(([np.uint64(0)], np.cumsum(terms, dtype=np.uint64)))

    def _keys(self, sums: Keys, starts: Places, size: int) -> Keys:
        return (sums[starts + size] - sums[starts]) * self._powers.inverse(starts)

    @property
    def sizes(self) -> list[int]:
        """Return the distinct gram lengths in the index, in words."""
        return [table.size for table in self._tables]

    def numbered(self, words: Iterable[str]) -> list[int]:
        """Encode the words of a training text as the index's word numbers."""
        return list(map(self._numbers.get, words, repeat(0)))

    def meet(self, words: NDArray[np.int32], place_of: Callable[[Places], Places]) -> None:
        """Match a piece of training text and record first occurrences.

        Args:
            words: Word numbers from `numbered`, with 0 between texts. Shape (words,).
            place_of: Function that converts positions in the piece to (increasing) positions in the stream.
        """
        gaps = np.concatenate(([0], np.cumsum(words == 0)))
        sums: Keys | None = None
        for table in self._tables:
            starts = np.flatnonzero(table.begins[words[: max(0, len(words) - table.size + 1)]])
            starts = starts[gaps[starts + table.size] == gaps[starts]]
            if not len(starts):
                continue
            sums = self._sums(words) if sums is None else sums
            keys = self._keys(sums, starts, table.size)
            maybe = table.bits[keys >> np.uint64(64 - _BITS)]
            starts, keys = starts[maybe], keys[maybe]
            row = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
            known = table.keys[row] == keys
            starts, row = starts[known], row[known]
            same = _equal(words, starts, self._split_words, table.starts[row], table.size)
            grams, once = np.unique(table.base + row[same], return_index=True)
            new = self.first[grams] == NOWHERE
            self.first[grams[new]] = place_of(starts[same][once[new]])

    def counts(self) -> tuple[Places, Places, Places]:
        """Return three arrays with one entry per text: grams found, grams in total, and position of the first match (`NOWHERE`
        if none).
        """
        first = self.first[self._gram]
        met = np.concatenate(([0], np.cumsum(first != NOWHERE)))
        begins = np.concatenate(([0], self._ends[:-1])) if len(self._ends) else self._ends
        total = self._ends - begins
        earliest = np.full(len(total), NOWHERE)
        some = total > 0
        if some.any():
            earliest[some] = np.minimum.reduceat(first, begins[some])
        return met[self._ends] - met[begins], total, earliest


class _Table:
    """The grams of one length, by key."""

    def __init__(self, size: int, keys: Keys, starts: Places, base: int, words: NDArray[np.int32], vocabulary: int) -> None:
        self.size, self.keys, self.starts, self.base = size, keys, starts, base
        self.bits = np.zeros(1 << _BITS, dtype=bool)
        self.bits[keys >> np.uint64(64 - _BITS)] = True
        self.begins = np.zeros(vocabulary + 1, dtype=bool)
        self.begins[words[starts]] = True


class _Powers:
    """Cached powers of an odd base modulo 2⁶⁴, and of its inverse."""

    _BASE = 0x9E3779B97F4A7C15

    def __init__(self) -> None:
        self._powers = np.ones(1, dtype=np.uint64)
        self._inverse = np.ones(1, dtype=np.uint64)

    def upto(self, count: int) -> Keys:
        self._grow(count)
        return self._powers[:count]

    def inverse(self, exponents: Places) -> Keys:
        return self._inverse[exponents]

    def _grow(self, count: int) -> None:
        if count > len(self._powers):
            self._powers = _powers(self._BASE, count)
            self._inverse = _powers(pow(self._BASE, -1, 1 << 64), count)


def _powers(base: int, count: int) -> Keys:
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _equal(left: NDArray[np.int32], at: Places, right: NDArray[np.int32], there: Places, size: int) -> NDArray[np.bool_]:
    """Compare `size` elements of two arrays starting at each pair of positions; returns one boolean per pair."""
    same = np.ones(len(at), dtype=bool)
    for offset in range(size):
        same &= left[at + offset] == right[there + offset]
    return same


# JSON (Lines, an array, one object), CSV and TSV, Parquet, and plain text; each may be gzip-compressed or a member of a
# zip archive. Every string of a record counts, however deep it lies and whatever its field is called.


SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".txt", ".md", ".parquet")
"""Suffixes of the files that are read from a folder; each may be followed by `.gz`."""

_TABLES = {".csv": ",", ".tsv": "\t"}
_PLAIN = (".txt", ".md")
_LONGEST_FIELD = 1 << 30
_HEAD = 4096


class Text(NamedTuple):
    """A piece of text from a training file.

    Attributes:
        text: The text.
        number: 1-based number of its line, record or row (`unit`).
        joined: Whether it continues the previous text, like a line of plain text or an item of a list of strings.
    """

    text: str
    number: int
    joined: bool


def training_files(value: Path) -> list[Path]:
    """Return the path itself if it is a file, else all training files in the folder, recursively and sorted.

    Raises:
        UserError: There is no such file or folder, or none in it.
    """
    if not value.is_dir():
        if archive_of(value) is None and not value.exists():
            raise UserError("training file or folder does not exist", code="missing-file", where=str(value))
        return [value]
    results = sorted(f for f in value.rglob("*") if f.is_file() and f.name.lower().removesuffix(".gz").endswith(SUFFIXES))
    if not results:
        raise UserError(
            "this folder contains no training file",
            code="folder-without-training-file",
            where=str(value),
            try_this=f"files that end in {', '.join(SUFFIXES)}",
        )
    return results


def unit(path: Path) -> str:
    """Return what a file's positions count: `line`, `record` or `row`."""
    kind = _kind(path)
    return "row" if kind == "parquet" else "record" if kind == "array" else "line"


def texts(path: Path, *, skip_bad: bool = False, skipped: list[str] | None = None) -> Iterator[Text]:
    """Yield all strings of a training file, in order.

    Args:
        path: The file, or `archive.zip!member`.
        skip_bad: Leave out records that cannot be read instead of stopping.
        skipped: List that receives the positions of skipped records.

    Raises:
        UserError: The file cannot be read, or a record is bad and `skip_bad` is off.
    """
    kind = _kind(path)
    if kind == "parquet":
        for number, row in enumerate(rows(path), 1):
            yield from _strings(row, number)
    elif kind in _TABLES:
        yield from _read_table(path, _TABLES[kind])
    elif kind == "text":
        with open_bytes(path) as source:
            for number, line in enumerate(source, 1):
                yield Text(line.decode("utf-8", "replace"), number, number > 1)
    else:
        for item in stream_json(path, whole=kind == "object"):
            if item.problem is None:
                yield from _strings(item.value, item.line if item.number is None else item.number)
            elif not skip_bad:
                raise UserError(
                    item.problem,
                    code="bad-record",
                    where=f"{path}, {item.position}",
                    try_this="repair the file, or skip bad records (each is counted)",
                )
            elif skipped is not None:
                skipped.append(f"{path}, {item.position}")


def _kind(path: Path) -> str:
    """Detect a file's format by content, then name: `parquet`, `.csv`, `.tsv`, `text`, `array`, `object` or `lines`."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if is_parquet(path):
        return "parquet"
    if suffix in _TABLES:
        return suffix
    with open_bytes(path) as source:
        head = source.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    if suffix in _PLAIN or head[:1] not in (b"{", b"[", b'"'):
        return "text"
    if head[:1] == b"[":
        return "array"
    # One object that spreads over several lines is read as a whole, so it is not looked for in what is JSON Lines.
    return "object" if suffix == ".json" or head.split(b"\n", 1)[0].strip() == b"{" else "lines"


def _strings(value: Any, number: int, joined: bool = False) -> Iterator[Text]:
    if isinstance(value, str):
        yield Text(value, number, joined)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner, number)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            # Sentences of a paragraph are one text.
            yield from _strings(inner, number, joined=position > 0 and isinstance(inner, str))


def _read_table(path: Path, delimiter: str) -> Iterator[Text]:
    csv.field_size_limit(_LONGEST_FIELD)
    with open_bytes(path) as source:
        lines = io.TextIOWrapper(source, "utf-8-sig", "replace", newline="")
        reader = csv.reader(lines, delimiter=delimiter)
        try:
            for cells in reader:
                for cell in cells:
                    yield Text(cell, reader.line_num, False)
        except csv.Error as error:
            raise UserError(f"this is not a table: {error}", code="not-table", where=f"{path}, line {reader.line_num}") from error


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


# Two questions are as similar as the words that they share: the weighted Jaccard index of their sets of normalized words,
# each weighed by how rare it is (log of n over the number of questions that hold it, plus one), so that "who directed X"
# and "who directed Y" are far apart. The order of words does not count.
#
# Source: the prefix filter of Chaudhuri et al. (2006) and Bayardo et al. (2007), for weights.


THRESHOLD = 0.8
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A pair of near-duplicate texts: their positions in the two sequences, and their similarity from 0 to 1."""

    first: int
    second: int
    similarity: float


def near_duplicates(first: Sequence[str], second: Sequence[str], threshold: float = THRESHOLD) -> list[NearDuplicate]:
    """Return all pairs of a text of `first` and a text of `second` whose weighted word overlap reaches the threshold.

    For a pair above the threshold, the shared words make up at least that fraction of each text's total weight. Such texts
    therefore share one of their rarest words, so only texts with a common rare word are compared.

    Args:
        first, second: Texts; texts without words after normalization match nothing.
        threshold: Minimum similarity, above 0 and at most 1.

    Returns:
        The pairs, sorted by position.
    """
    left, right = (list(map(_split_words, normalize_all(texts))) for texts in (first, second))
    weights = word_weights([*left, *right])
    order = {word: rank for rank, word in enumerate(sorted(weights, key=lambda word: (-weights[word], word)))}
    index: dict[str, list[int]] = {}
    totals = [_weight(words, weights) for words in left]
    for position, words in enumerate(left):
        for word in _rarest(words, order, weights, totals[position], threshold):
            index.setdefault(word, []).append(position)
    results = []
    for position, words in enumerate(right):
        total = _weight(words, weights)
        rarest = _rarest(words, order, weights, total, threshold)
        for other in sorted({candidate for word in rarest for candidate in index.get(word, ())}):
            shared = _weight(words & left[other], weights)
            similarity = shared / (total + totals[other] - shared)
            if similarity >= threshold - _ROUNDING:
                results.append(NearDuplicate(other, position, similarity))
    return sorted(results, key=lambda pair: (pair.first, pair.second))


def word_weights(texts: Sequence[frozenset[str]]) -> Mapping[str, float]:
    """Return a weight per word that grows with its rarity among all texts (inverse document frequency)."""
    frequencies = Counter(word for words in texts for word in words)
    return {word: 1 + math.log(len(texts) / times) for word, times in frequencies.items()}


def _split_words(normal: str) -> frozenset[str]:
    return frozenset(normal.split())


def _weight(words: frozenset[str], weights: Mapping[str, float]) -> float:
    # Sums of floats depend on their order, sets have none: fsum does not.
    return math.fsum(weights[word] for word in words)


def _rarest(words: frozenset[str], order: Mapping[str, int], weights: Mapping[str, float], total: float, threshold: float) -> Iterator[str]:
    """Yield a text's rarest words, until the others weigh less than the threshold's fraction of it."""
    left = total
    for word in sorted(words, key=order.__getitem__):
        if left < threshold * total - _ROUNDING:
            return
        yield word
        left -= weights[word]
