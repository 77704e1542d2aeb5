"""Build and read BM25 postings on disk: for each term, the passages that contain it and its contribution to their scores.

A corpus is counted in runs of about `WORDS` words. Each run is written with sorted terms, so that the runs can be merged
sequentially in blocks of `BLOCK` postings. No file of a run stays open, because a large corpus has more runs than a process
may open files. Memory therefore depends on these two sizes and on the number of different terms (about 40 bytes each), not on
the number of passages. Complete runs are kept, so that an interrupted build resumes after the last one; the merge, about a
tenth of the time, starts again.

The result is the folder that `bm25s.BM25.save` writes for the same corpus, with equal scores, and `bm25s.BM25.load` reads
it. The terms are sorted in its vocabulary, one per line, so that they are found by bisection in the mapped file.
"""

from __future__ import annotations

import heapq
import json
import math
import mmap
import os
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from methods.baselines.words import Tokenized

WORDS = 4_000_000
"""Words per run: about 40,000 passages of a Wikipedia dump."""
BLOCK = 2_000_000
"""Number of postings of different terms merged at once; a term with more is written run by run."""
AT_ONCE = 1024
"""Number of texts tokenized at once."""
LINES = 65_536
"""Lines of the vocabulary joined before they are written."""
BUFFERS = 64 << 20
"""Bytes of terms, and of their columns, that the runs hold together while their terms are merged."""
DATA, ROWS, STARTS = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
VOCABULARY, PARAMETERS, ENDS = "vocab.index.json", "params.index.json", "vocab.ends.npy"
_STATED = {"delta": 0.5, "method": "lucene", "idf_method": "lucene", "dtype": "float32", "int_dtype": "int32", "backend": "numpy"}
"""Parameters of `bm25s` that are the same in every folder."""

Numbers = NDArray[np.int64]
_Scored = tuple[Numbers, NDArray[np.int32], NDArray[np.float32]]
"""Columns, rows and scores of postings."""


@dataclass(frozen=True)
class Postings:
    """Passages by term, as a sparse column matrix.

    Attributes:
        number: Function from a term to its column, or None if no passage has it.
        starts: Start of each column and the end of the last: shape (terms + 1,).
        rows: Passages of each column, ascending.
        scores: Contribution of the term to their scores, float32.
    """

    number: Callable[[str], int | None]
    starts: Numbers
    rows: NDArray[np.int32]
    scores: NDArray[np.float32]

    def of(self, words: Iterable[str]) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Yield rows and scores of each known word, once per occurrence."""
        for word in words:
            if (number := self.number(word)) is not None:
                column = slice(self.starts[number], self.starts[number + 1])
                yield self.rows[column], self.scores[column]

    def release(self) -> None:
        """Release memory-mapped pages that were read, because they count as memory of the process."""
        for values in (self.rows, self.scores):
            if (mapping := getattr(values, "_mmap", None)) is not None and hasattr(mmap, "MADV_DONTNEED"):
                mapping.madvise(mmap.MADV_DONTNEED)


class Vocabulary:
    """Terms of a postings folder, looked up by bisection.

    Args:
        folder: Folder of `build`.
    """

    def __init__(self, folder: Path) -> None:
        self._lines = np.memmap(folder / VOCABULARY, dtype=np.uint8, mode="r")
        self._ends: Numbers = np.load(folder / ENDS, mmap_mode="r")
        if len(self._lines) != self._ends[-1] + 1:
            raise ValueError("the vocabulary is truncated")

    def number(self, term: str) -> int | None:
        """Return the column of a term, or None."""
        number = bisect_left(range(len(self._ends) - 1), term, key=self._term)
        return number if number < len(self._ends) - 1 and self._term(number) == term else None

    def _term(self, number: int) -> str:
        # Behind an opening brace or a comma, `"term": number`.
        entry = self._lines[self._ends[number] + 1 : self._ends[number + 1]].tobytes()
        return str(json.loads(entry[: entry.rindex(b":")]))


def open_postings(folder: Path) -> Postings | None:
    """Memory-map the postings in a folder; None if the corpus has no terms.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is damaged.
    """
    if not (folder / PARAMETERS).exists():
        return None
    starts, rows, scores = (np.load(folder / name, mmap_mode="r") for name in (STARTS, ROWS, DATA))
    if not starts[-1] == len(rows) == len(scores):
        raise ValueError(f"{starts[-1]:,} postings are listed, {len(rows):,} rows and {len(scores):,} scores are there")
    return Postings(Vocabulary(folder).number, starts, rows, scores)


def build(
    texts: Iterable[str], tokenize: Callable[[list[str]], Tokenized], k1: float, b: float, folder: Path, advance: Callable[[int], None]
) -> None:
    """Write the postings of a corpus, resuming an interrupted build.

    Args:
        texts: The passages, in row order.
        tokenize: Function that splits texts into words.
        k1, b: Constants of the formula.
        folder: Output folder.
        advance: Function called with the number of passages counted so far.
    """
    runs = _counted(iter(texts), tokenize, folder, advance)
    if sum(run.size for run in runs):
        _merge(runs, k1, b, folder)
    for run in runs:
        shutil.rmtree(run.folder)


class _Run:
    """Counts of one run on disk: term frequencies by sorted term and passage.

    A part is mapped only while it is used, because its pages count as memory of the process until then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.first = int(folder.name.removeprefix("run-"))
        self.passages = len(self.part("lengths"))
        self.size = (folder / "rows").stat().st_size // 4
        self.position = 0

    def part(self, name: str) -> NDArray:
        """Map `holders`, the number of passages of the run with each term, `columns` of the terms, or `lengths` of the passages."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def terms(self, size: int) -> Iterator[bytes]:
        """Yield the terms in UTF-8, reading about `size` bytes at once; their order is that of the strings."""
        position = 0
        while True:
            with open(self.folder / "terms.txt", "rb") as file:
                file.seek(position)
                lines = file.readlines(size)
                position = file.tell()
            if not lines:
                return
            for line in lines:
                yield line[:-1]

    def add_columns(self, columns: array[int]) -> None:
        """Append the columns of the next terms to the part `columns`, and empty the array."""
        path = self.folder / "columns.npy"
        with open(path, "ab") as file:
            if not file.tell():
                _write_header(file, np.int64, len(self.part("holders")))
            columns.tofile(file)
        del columns[:]

    def piece(self, start: int, end: int) -> tuple[Numbers, NDArray[np.int32], NDArray[np.int32]]:
        """Return columns, rows and frequencies of columns `start` to `end` (exclusive)."""
        columns = self.part("columns")
        low, high = np.searchsorted(columns, (start, end))
        holders = self.part("holders")[low:high]
        size = int(holders.sum(dtype=np.int64))
        rows, frequencies = (np.fromfile(self.folder / name, np.int32, size, offset=4 * self.position) for name in ("rows", "frequencies"))
        self.position += size
        return np.repeat(columns[low:high], holders), rows, frequencies


def _counted(texts: Iterator[str], tokenize: Callable[[list[str]], Tokenized], folder: Path, advance: Callable[[int], None]) -> list[_Run]:
    """Count all passages except those of finished runs."""
    runs: list[_Run] = []
    first = 0
    while True:
        path = folder / f"run-{first}"
        if path.exists():
            runs.append(_Run(path))
            passed = runs[-1].passages
            next(islice(texts, passed - 1, passed), None)
        else:
            batch = list(islice(texts, AT_ONCE))
            if not batch:
                return runs
            partial = folder / "run.part"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _count(chain([batch], iter(lambda: list(islice(texts, AT_ONCE)), [])), tokenize, partial)
            os.replace(partial, path)
            runs.append(_Run(path))
        first += runs[-1].passages
        advance(first)


def _count(batches: Iterator[list[str]], tokenize: Callable[[list[str]], Tokenized], folder: Path) -> None:
    """Write one run of batches with `WORDS` words in total."""
    vocabulary: dict[str, int] = {}
    counted: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    words = 0
    for batch in batches:
        tokens = tokenize(batch)
        own = np.array([vocabulary.setdefault(term, len(vocabulary)) for term in tokens.vocab], np.int32)
        numbers = np.empty(len(own), np.int32)
        numbers[np.fromiter(tokens.vocab.values(), np.int64, len(own))] = own
        sizes = np.fromiter(map(len, tokens.ids), np.int64, len(tokens.ids))
        term_numbers = numbers[np.fromiter(chain.from_iterable(tokens.ids), np.int64, int(sizes.sum()))]
        rows = np.repeat(np.arange(len(lengths), len(lengths) + len(batch)), sizes)
        unique, frequencies = np.unique(term_numbers.astype(np.int64) << 32 | rows, return_counts=True)
        counted.append(np.stack([unique >> 32, unique & 0xFFFFFFFF, frequencies]).astype(np.int32))
        lengths += sizes.tolist()
        words += len(term_numbers)
        if words >= WORDS:
            break
    terms, rows, frequencies = np.concatenate(counted, axis=1)
    counted.clear()
    ordered = sorted(vocabulary)
    ranks = np.empty(len(ordered), np.int32)
    ranks[[vocabulary[term] for term in ordered]] = np.arange(len(ordered))
    terms = ranks[terms]
    order = np.argsort(terms.astype(np.int64) << 32 | rows)
    _save(folder / "holders.npy", np.bincount(terms, minlength=len(ordered)).astype(np.int32))
    (folder / "rows").write_bytes(rows[order].data)
    (folder / "frequencies").write_bytes(frequencies[order].data)
    _save(folder / "lengths.npy", np.array(lengths, np.int32))
    with open(folder / "terms.txt", "w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.writelines(f"{term}\n" for term in ordered)


def _merge(runs: Sequence[_Run], k1: float, b: float, folder: Path) -> None:
    """Merge runs into a folder in the format of `bm25s`."""
    starts = _merge_terms(runs, folder)
    terms = len(starts) - 1
    passages = sum(run.passages for run in runs)
    mean = sum(int(run.part("lengths").sum(dtype=np.int64)) for run in runs) / passages
    counts = np.unique(np.diff(starts))
    # `math.log`, as in bm25s, because NumPy's logarithm may differ in the last bit.
    idf = np.array([math.log(1 + (passages - n + 0.5) / (n + 0.5)) for n in counts.tolist()], np.float32)

    def scored(number: int, start: int, end: int) -> _Scored:
        run = runs[number]
        columns, rows, frequencies = run.piece(start, end)
        damping = k1 * ((1 - b) + b * run.part("lengths")[rows].astype(np.float64) / mean)
        holders = starts[columns + 1] - starts[columns]
        scores = idf[np.searchsorted(counts, holders)] * (frequencies / (damping + frequencies))
        return columns, rows + np.int32(run.first), scores.astype(np.float32)

    with open(folder / ROWS, "wb") as rows_out, open(folder / DATA, "wb") as scores_out:
        _write_header(rows_out, np.int32, int(starts[-1]))
        _write_header(scores_out, np.float32, int(starts[-1]))
        start = 0
        while start < terms:
            end = max(start + 1, int(np.searchsorted(starts, starts[start] + BLOCK, side="right")) - 1)
            pieces: Iterator[_Scored] = (scored(number, start, end) for number in range(len(runs)))
            if end - start > 1:
                columns, rows, scores = map(np.concatenate, zip(*pieces, strict=True))
                order = np.argsort(columns, kind="stable")
                pieces = iter([(columns, rows[order], scores[order])])
            for _, rows, scores in pieces:
                rows_out.write(rows.data)
                scores_out.write(scores.data)
            start = end
    parameters = {"k1": k1, "b": b, **_STATED, "num_docs": passages}
    (folder / PARAMETERS).write_text(json.dumps(parameters, indent=4))


def _write_header(file: IO[bytes], dtype: Any, size: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, header)


def _save(path: Path, values: NDArray) -> None:
    """Write an array like `np.save`, with a clear error if the disk is full."""
    with open(path, "wb") as file:
        _write_header(file, values.dtype, len(values))
        file.write(np.ascontiguousarray(values).data)


def _merge_terms(runs: Sequence[_Run], folder: Path) -> Numbers:
    """Write the merged vocabulary and each run's columns of its terms.

    Returns:
        Start of each column and the end of the last: shape (terms + 1,); also written.
    """
    buffer = max(4096, BUFFERS // len(runs))
    numbers = [array("q") for _ in runs]
    ends = array("q", [0])
    for run in runs:  # of a merge that was interrupted
        (run.folder / "columns.npy").unlink(missing_ok=True)
    with open(folder / VOCABULARY, "wb") as file:
        last, count, end = None, 0, 0
        lines: list[bytes] = []
        for term, number in heapq.merge(*(_tagged(run.terms(buffer), number) for number, run in enumerate(runs))):
            if term != last:
                line = f"{',' if count else '{'}\n{json.dumps(term.decode('utf-8', 'surrogatepass'))}: {count}".encode()
                end += len(line)
                lines.append(line)
                ends.append(end)
                last, count = term, count + 1
                if len(lines) == LINES:
                    file.write(b"".join(lines))
                    lines.clear()
            numbers[number].append(count - 1)
            if len(numbers[number]) * 8 >= buffer:
                runs[number].add_columns(numbers[number])
        file.write(b"".join(lines) + b"}")
    _save(folder / ENDS, np.frombuffer(ends, np.int64))
    del ends
    starts = np.zeros(count + 1, np.int64)
    for run, own in zip(runs, numbers, strict=True):
        run.add_columns(own)
        starts[run.part("columns") + 1] += run.part("holders")
    np.cumsum(starts, out=starts)
    _save(folder / STARTS, starts)
    return starts


def _tagged(terms: Iterator[bytes], number: int) -> Iterator[tuple[bytes, int]]:
    return ((term, number) for term in terms)
