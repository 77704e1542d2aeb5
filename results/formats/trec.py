"""TREC run and qrels files: what trec_eval, pytrec_eval, ir_measures and ranx read.

A run has the columns `qid Q0 docid rank score tag`, qrels have `qid 0 docid grade`. Three things differ from ours:

- Columns are separated by white space, so ids are escaped: white space, control characters, `%` and everything beyond
  ASCII become `%XX` per byte of UTF-8, an empty id becomes `%`; `unescape` undoes it exactly.
- TREC tools ignore the rank and sort by score, as 32-bit floats, breaking ties by docid. Here the order given counts.
  `write_run` therefore writes strictly decreasing scores: a score that does not lie below the one before it is
  lowered to just below it. Scores that fall strictly are written exactly as they are.
- A question without results has no line, and one without positives no qrels; both are lost in these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO, TextIO
from urllib.parse import unquote_to_bytes

import numpy as np

from benchmarks.corpus import Corpus
from benchmarks.io.judged import NAME_THE_SCORE, Entry, Fault, Reading, entries, not_ranks
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Evidence, Prediction
from results.offered import LIMITS, Limits
from results.submission import Findings, shown
from results.submission.rows import PredictionRow, RowReader, lines

EMPTY = "%"
_PLAIN = re.compile(r"(?!#)[!-$&-~]+")
_ESCAPED = re.compile(r"(?:[!-$&-~]|%[0-9A-Fa-f]{2})*")
_HUGE = 1e30
"""Scores above this lose precision as 32-bit floats; the question's scores are then replaced by decreasing numbers."""


def escape(identifier: str) -> str:
    """Escape an id as one column of printable ASCII, reversibly (percent encoding)."""
    if _PLAIN.fullmatch(identifier):
        return identifier
    raw = identifier.encode("utf-8", "surrogatepass")
    column = "".join(chr(b) if 0x21 <= b <= 0x7E and b != 0x25 else f"%{b:02X}" for b in raw) or EMPTY
    # A line that begins with # is a comment to trec_eval 10.
    return f"%23{column[1:]}" if column[0] == "#" else column


def unescape(column: str) -> str:
    """Reverse `escape`.

    Raises:
        ValueError: The column is not an escaped id: `%` is not followed by two hex digits, or the bytes are not UTF-8.
    """
    if column == EMPTY:
        return ""
    if not _ESCAPED.fullmatch(column):
        # Files of other tools hold ids as they are; only a stray % cannot be distinguished from an escape.
        if "%" in column:
            raise ValueError(f"{column!r} has a % that does not begin an escape")
        return column
    return unquote_to_bytes(column).decode("utf-8", "surrogatepass")


def decreasing(scores: Sequence[float]) -> list[float]:
    """Lower tied or rising scores minimally, so that the list decreases strictly in 32-bit floats, as trec_eval reads them.

    A list that decreases already is returned unchanged. If a score is too large for 32-bit floats, the whole list becomes n, n
    - 1, … 1.
    """
    if any(abs(score) > _HUGE for score in scores):
        return [float(rank) for rank in range(len(scores), 0, -1)]
    results: list[float] = []
    for score in scores:
        if results and np.float32(score) >= np.float32(results[-1]):
            # Four units in the last place of a 32-bit float, and enough next to 0 not to be a denormal.
            score = float(np.float32(results[-1] - max(abs(results[-1]) * 2.0**-21, 2.0**-40)))
        results.append(score)
    return results


def write_run(sink: TextIO, rankings: Iterable[tuple[str, Sequence[Evidence]]], tag: str) -> int:
    """Write rankings as a TREC run file; a document that is ranked twice is written at its first rank only, as metrics count it.

    Args:
        sink: The file to write to.
        rankings: (Question id, ranked evidence) pairs, each question once.
        tag: Name of the system, written into the last column.

    Returns:
        The number of scores that `decreasing` lowered.
    """
    lowered = 0
    name = escape(tag)
    for question, ranked in rankings:
        first: dict[str, Evidence] = {}
        for item in ranked:
            first.setdefault(item.id, item)
        evidence = list(first.values())
        scores = decreasing([item.score for item in evidence])
        column = escape(question)
        for rank, (item, score) in enumerate(zip(evidence, scores, strict=True), 1):
            lowered += score != item.score
            sink.write(f"{column} Q0 {escape(item.id)} {rank} {score!r} {name}\n")
    return lowered


def write_qrels(sink: TextIO, questions: Iterable[Question]) -> int:
    """Write the gold passages of questions as a TREC qrels file: their grades, or grade 1 for every positive.

    Returns:
        The number of questions without positives, which have no line.
    """
    without = 0
    for question in questions:
        without += not question.evidence
        if question.evidence:
            for identifier, grade in (question.grades or dict.fromkeys(question.evidence, 1.0)).items():
                sink.write(f"{escape(question.id)} 0 {escape(identifier)} {grade:.12g}\n")
    return without


_FAULTS = {
    "not_trec": "a line has another format",
    "not_trec_number": "rank or score is not a number",
    "not_json": "a line is not JSON",
    "two_runs": "lines have different tags",
}


def read_run(source: BinaryIO, findings: Findings, limits: Limits = LIMITS) -> dict[str, tuple[int, tuple[Evidence, ...]]]:
    """Read the rankings of a TREC run file: by decreasing score, ties by the rank column, then by file order.

    Args:
        source: The file, in any layout of `benchmarks.io.judged`; it is read in chunks.
        findings: Collects the problems.
        limits: Limits: at most `limits.rows` questions are read, and `limits.evidence` documents are kept per question.

    Returns:
        By question id: the number of its first line, and its ranked documents.
    """
    results: dict[str, list[tuple[float, int, str]]] = {}
    first: dict[str, int] = {}
    ids_by_query: dict[str, set[str]] = {}
    # A run in JSON may be one line.
    allowed = replace(limits, line_bytes=limits.file_bytes)
    numbered = ((line.number, line.text) for line in lines(source, findings, allowed, limits.rows * limits.evidence))
    for item in entries(numbered, "run", reading := Reading()):
        entry = _entry(item, findings, limits)
        if entry is None:
            continue
        line, question, document, rank, score = entry
        if question not in results:
            if len(results) >= limits.rows:
                findings.add("too_many_rows", f"the run has more than {limits.rows} questions; reading stopped", line=line)
                break
            results[question], ids_by_query[question], first[question] = [], set(), line
        if document in ids_by_query[question]:
            findings.add("evidence_twice", "a document is listed twice for a question", shown(document), line=line)
        elif len(ids_by_query[question]) >= limits.evidence:
            findings.listed("too_much_evidence", shown(question), line=line, most=limits.evidence)
        else:
            ids_by_query[question].add(document)
            results[question].append((score, rank, document))
    if reading.comments:
        findings.listed("comments", f"{reading.comments} lines")
    if what := not_ranks(((question, [score for score, _, _ in ranked]) for question, ranked in results.items()), reading):
        findings.add("not_ranks", shown(what, 160), try_this=NAME_THE_SCORE)
    rankings = {}
    for question, ranked in results.items():
        ordered = sorted(ranked, key=lambda item: (-item[0], item[1]))
        ranks = [rank for _, rank, _ in ordered]
        if ranks != sorted(ranks):
            findings.listed("rank_ignored", f"question {shown(question)}", line=first[question])
        rankings[question] = (first[question], tuple(Evidence(document, score) for score, _, document in ordered))
    return rankings


def _entry(item: Entry | Fault, findings: Findings, limits: Limits) -> tuple[int, str, str, int, float] | None:
    if isinstance(item, Fault):
        findings.add(item.code, _FAULTS[item.code], shown(item.what, 160), line=item.line, try_this=item.try_this)
        return None
    if max(len(item.question), len(item.document)) > 3 * limits.id_chars:
        findings.listed("bad_id", line=item.line, most=limits.id_chars)
        return None
    try:
        return item.line, unescape(item.question), unescape(item.document), item.rank or 0, item.value
    except ValueError as error:
        findings.listed("bad_escape", shown(str(error), 160), line=item.line)
        return None


def _passages_of(corpus: Corpus, name: str) -> tuple[str, ...]:
    """Return the passages with a name: one with this id, or with this id in the corpus's dump, or all of the document of this name."""
    own_id = name if name in corpus else corpus.by_native_id(name)
    return corpus.by_document.get(name, ()) if own_id is None else (own_id,)


def run_rows(benchmark: Benchmark) -> RowReader:
    """Return a reader of TREC runs for `results.submission.validate.validate`: one retrieval-only row per question.

    Document ids may be ragmeter's, those of the dataset's own corpus (BEIR), or names of documents that are one passage each. A
    question without a line gets a row without evidence, because a TREC run cannot express an empty ranking otherwise.
    """

    def named(items: tuple[Evidence, ...], line: int, findings: Findings) -> Iterator[Evidence]:
        for item in items:
            first, *others = _passages_of(benchmark.corpus, item.id) or (item.id,)
            if others:
                what = "a document has several passages in the corpus"
                detail = f"{shown(item.id)}, {len(others) + 1} passages"
                hint = "rank passages, or load documents as one passage each (chunker: whole)"
                findings.add("several_passages", what, detail, line=line, try_this=hint)
            yield item if first == item.id else Evidence(first, item.score)

    def rows(source: BinaryIO, findings: Findings, limits: Limits) -> Iterator[PredictionRow]:
        rankings = read_run(source, findings, limits)
        for identifier, (line, evidence) in rankings.items():
            yield PredictionRow(line, Prediction(identifier, "", tuple(named(evidence, line, findings))))
        silent = [item for item in benchmark.questions if item.id not in rankings and item.query_id not in rankings]
        for question in silent:
            findings.listed("nothing_found", f"question {shown(question.id)}")
            yield PredictionRow(0, Prediction(question.id, ""))

    return rows
