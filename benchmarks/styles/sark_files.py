"""Read and write the two file layouts of SARK's code: labeled rows for training, ranked lists for testing.

| layout | a record |
| --- | --- |
| `labels` | `{query, passage, label, candidate_passages}`: a label 0 or 1, and the query's passages, best first |
| `ranked` | `{question, answers, rank_list}`: passages in the order of retrieval |

A passage is one string, `"title" text`, as in Pyserini's Wikipedia index. There are no ids, so a question's id is a hash of its
text. Another style of the same data is a second file with the same rows in the same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.core.errors import UserError, counted
from benchmarks.core.files import whole_text
from benchmarks.core.fingerprint import content_id
from benchmarks.records import BadRecord, Record, read_records, records, refuse_other_dataset
from benchmarks.registry import Benchmark, SkippedRecord
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.styles.pairs import Rewriting

Layout = Literal["labels", "ranked"]
LABELS: Layout = "labels"
RANKED: Layout = "ranked"
_FIELDS = {LABELS: ("query", "passage", "label", "candidate_passages"), RANKED: ("question", "answers", "rank_list")}
_TITLED = re.compile(r'"([^\n]+?)" (.*)', re.DOTALL)


@dataclass(slots=True)
class StyleRow:
    """A question in SARK's layout.

    Attributes:
        id: Hash of the question's text.
        text: The question.
        answers: Gold answers; none in `labels`.
        passages: Passages in the file's order: best first in `labels`, as retrieved in `ranked`.
        labels: 1 or 0 by labeled passage; only in `labels`.
        position: Position of its first row.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...]
    labels: dict[Passage, int] = field(default_factory=dict)
    position: str = ""


def contents(passage: Passage) -> str:
    """Format a passage as one string: `"title" text`, or only the text without a title."""
    return f'"{passage.title}" {passage.text}' if passage.title else passage.text


def passage_of(text: str, *, titled: bool = True) -> Passage:
    """Parse a string as a passage; with `titled`, a quoted prefix is the title."""
    match = _TITLED.fullmatch(text) if titled else None
    title, body = (match[1], match[2]) if match else ("", text)
    return Passage(passage_id(title, body), title, body)


def layout_of(path: Path) -> Layout:
    """Detect a file's layout from its first record.

    Raises:
        UserError: The file has neither layout.
    """
    for record in records(path):
        if isinstance(record, BadRecord):
            continue
        for layout, names in _FIELDS.items():
            if set(names) <= record.fields.keys():
                return layout
        refuse_other_dataset(record, "sark")
        raise UserError(
            f"this is not a record of SARK's: it has the fields {', '.join(record.fields)}",
            code="not-sark-record",
            where=record.where,
            try_this=" or ".join(", ".join(names) for names in _FIELDS.values()),
        )
    return RANKED  # nothing can be read: `read_records` says why


def read_sark(
    path: Path, layout: Layout | None = None, *, titled: bool = True, skip_bad: bool = False, skipped: list[SkippedRecord] | None = None
) -> list[StyleRow]:
    """Read the questions of a file in either layout; rows with the same query are merged.

    Raises:
        UserError: A record cannot be read, rows of one query differ in their lists or in a passage's label, or a ranked
            question occurs twice.
    """
    layout = layout or layout_of(path)
    left_out = [] if skipped is None else skipped
    results: dict[str, StyleRow] = {}
    parse = _labeled if layout == LABELS else _ranked
    for record, item in read_records(path, lambda record: (record, parse(record, titled)), skip_bad=skip_bad, skipped=left_out):
        known = results.setdefault(item.id, item)
        if known is item:
            continue
        if layout == RANKED:
            raise UserError(
                f"the question {item.text!r} occurs twice",
                code="duplicate-question",
                where=f"{path}, {known.position} and {item.position}",
                try_this="remove one of the records: a question's text is its id here",
            )
        if known.passages != item.passages:
            raise record.problem(f"its list of passages is not that of {known.position}", "candidate_passages")
        for passage, label in item.labels.items():
            if known.labels.setdefault(passage, label) != label:
                raise record.problem("this passage of the query has another label above", "label")
    return list(results.values())


def import_sark(formal: Path, styled: Path, style: str, *, titled: bool = True, by: str = "") -> Iterator[Rewriting]:
    """Yield style pairs from two SARK files with the same rows, one formal and one in another style.

    The files have no ids, so rows are matched by position; corresponding rows must have the same question and number of
    passages. Blank texts are skipped.

    Raises:
        UserError: The files have different layouts, or their rows do not match.
    """
    layout = layout_of(formal)
    if layout_of(styled) != layout:
        raise UserError(f"one file has the layout {layout}, the other does not", code="layouts-differ", where=f"{formal} and {styled}")
    seen = set()
    for item, other in _matched(formal, styled):
        query = "query" if layout == LABELS else "question"
        for row in (item, other):
            row.require(query, *(("passage", "candidate_passages") if layout == LABELS else ("rank_list",)))
        if item.text(query) != other.text(query):
            raise UserError(
                "these rows have different questions",
                code="rows-of-different-questions",
                where=f"{item.where} and {other.where}",
                try_this=_SAME_ROWS,
            )
        identifier = question_id(item.text(query))
        texts, rephrased = _texts(item, layout), _texts(other, layout)
        if len(texts) != len(rephrased):
            raise UserError(
                f"the rows have different numbers of passages: {len(texts)} and {len(rephrased)}",
                code="row-lengths-differ",
                where=f"{item.where} and {other.where}",
                try_this=_SAME_ROWS,
            )
        for text, new in zip(texts, rephrased, strict=True):
            source = passage_of(text, titled=titled)
            restyled_passage = passage_of(new, titled=titled)
            key = (identifier, source.id)
            if new.strip() and text.strip() and key not in seen:
                seen.add(key)
                yield Rewriting(identifier, source, style, restyled_passage, by)


_SAME_ROWS = "two files with the same rows in the same order"


def question_id(text: str) -> str:
    """Return a question id derived from the text's hash."""
    return content_id("n", text)


def write_sark(
    benchmark: Benchmark,
    path: Path,
    layout: Layout = RANKED,
    *,
    labels: Mapping[str, Mapping[str, int]] | None = None,
    orders: Mapping[str, Sequence[str]] | None = None,
    overwrite: bool = False,
) -> int:
    """Write a benchmark's questions and candidates in a SARK layout; returns the number of records.

    Args:
        benchmark: Questions with candidates.
        path: Output file: a JSON array in `labels`, JSON Lines in `ranked`.
        layout: `labels` or `ranked`.
        labels: For `labels`: 1 or 0 by question id and passage id; None uses `Question.metadata["labels"]`.
        orders: For `labels`: passages best first, by question id; None uses `Question.metadata["order"]`.
        overwrite: Whether to replace an existing file.

    Returns:
        Number of records.

    Raises:
        UserError: A question has no candidates, labels or order, or the output file already exists.
    """
    if path.exists() and not overwrite:
        raise UserError("output file already exists", code="output-exists", where=str(path), try_this="another name, or overwrite")
    rows: list[dict[str, Any]] = []
    for question in benchmark.questions:
        if layout == RANKED:
            if question.candidates is None:
                raise _lacks(question.id, "candidates", "a setting that gives candidates")
            texts = [contents(passage) for passage in benchmark.corpus.get(question.candidates)]
            rows.append({"question": question.text, "answers": list(question.golds), "rank_list": texts})
            continue
        label = (labels or {}).get(question.id) or question.metadata.get("labels")
        order = (orders or {}).get(question.id) or question.metadata.get("order")
        if not label or not order:
            raise _lacks(question.id, "labels and an order", "give them as labels and orders")
        texts = [contents(passage) for passage in benchmark.corpus.get(order)]
        for passage in benchmark.corpus.get(label):
            row = {"query": question.text, "passage": contents(passage), "label": label[passage.id]}
            rows.append({**row, "candidate_passages": texts})
    whole_text(path, _dumped(rows, layout))
    return len(rows)


def writable(benchmark: Benchmark, passages: int | None = None) -> tuple[Benchmark, list[str]]:
    """Return the questions that can be written as ranked lists, and notes on the others.

    The layout identifies questions by text, so repeated texts are dropped, as are questions without candidates.

    Args:
        benchmark: The benchmark.
        passages: Maximum candidates per question; None for all.
    """
    kept: dict[str, Question] = {}
    repeated = empty = 0
    for question in benchmark.questions:
        if not question.candidates:
            empty += 1
        elif question.text in kept:
            repeated += 1
        else:
            # A slice of None is all.
            kept[question.text] = replace(question, candidates=tuple(question.candidates[:passages]))
    short = sum(len(item.candidates or ()) < (passages or 0) for item in kept.values())
    notes = {
        "left out, with the text of an earlier one": repeated,
        "left out, without a candidate": empty,
        f"fewer than {passages} candidates": short,
    }
    return replace(benchmark, questions=list(kept.values())), [f"{what}: {counted(n, 'question')}" for what, n in notes.items() if n]


def _dumped(rows: Sequence[Mapping[str, Any]], layout: Layout) -> str:
    if layout == LABELS:
        return json.dumps(rows, ensure_ascii=False, indent=4) + "\n"
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _lacks(question: str, what: str, remedy: str) -> UserError:
    return UserError(f"question {question!r} has no {what} to write", code="question-lacks-field", try_this=remedy)


def _labeled(record: Record, titled: bool) -> StyleRow:
    record.require(*_FIELDS[LABELS])
    text = record.nonblank("query")
    label = record.field("label", int)
    if label not in (0, 1):
        raise record.problem(f"the label is {label}", "label", "0 or 1")
    passages = _passages(record, "candidate_passages", titled)
    passage = passage_of(record.text("passage"), titled=titled)
    return StyleRow(question_id(text), text, (), passages, {passage: label}, record.position)


def _ranked(record: Record, titled: bool) -> StyleRow:
    record.require(*_FIELDS[RANKED])
    text = record.nonblank("question")
    return StyleRow(question_id(text), text, record.answers("answers"), _passages(record, "rank_list", titled), position=record.position)


def _passages(record: Record, name: str, titled: bool) -> tuple[Passage, ...]:
    results = tuple(passage_of(text, titled=titled) for text in record.texts(name))
    if not results:
        raise record.problem(f"field {name!r} is empty", name)
    return results


def _texts(record: Record, layout: Layout) -> tuple[str, ...]:
    if layout == LABELS:
        return (record.text("passage"), *record.texts("candidate_passages"))
    return record.texts("rank_list")


def _matched(formal: Path, styled: Path) -> Iterable[tuple[Record, Record]]:
    first, second = records(formal), records(styled)
    while True:
        item, other = next(first, None), next(second, None)
        if item is None and other is None:
            return
        for result in (item, other):
            if isinstance(result, BadRecord):
                raise result
        if not isinstance(item, Record) or not isinstance(other, Record):
            shorter = formal if item is None else styled
            raise UserError("this file has fewer rows than the other", code="row-counts-differ", where=str(shorter), try_this=_SAME_ROWS)
        yield item, other
