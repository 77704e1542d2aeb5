"""Deduplicate generated questions, and write them as a table that users correct and the dataset `files` loads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.core.files import whole_text
from benchmarks.core.fingerprint import content_id
from benchmarks.near_duplicates import near_duplicates
from benchmarks.schema import Passage
from methods.questions import rules
from methods.questions.material import drawn
from methods.questions.writing import KEPT, Written

COLUMNS = ("id", "question", "answer", "source", "quotes", "type", "answerable", "synthetic")
"""Columns of the table, with names that the dataset `files` recognizes."""
NEAR_DUPLICATE = 0.8
"""Similarity above which questions are near-duplicates, as in `data check`."""


def without_duplicates(questions: Sequence[Written], threshold: float = NEAR_DUPLICATE) -> list[Written]:
    """Mark questions that nearly duplicate an earlier one; the first is kept."""
    kept = [number for number, item in enumerate(questions) if item.status == KEPT]
    texts = [questions[number].question for number in kept]
    near = (pair for pair in near_duplicates(texts, texts, threshold) if pair.first != pair.second)
    pairs = {tuple(sorted((kept[pair.first], kept[pair.second]))) for pair in near}
    removed: set[int] = set()
    for first, second in sorted(pairs):
        if first not in removed:
            removed.add(second)
    return [replace(item, status="duplicate") if number in removed else item for number, item in enumerate(questions)]


def by_rule(passages: Sequence[Passage], count: int = 50, seed: int = 0) -> list[Written]:
    """Generate `count` questions of each rule-based type."""
    items = [item for kind in rules.KINDS for item in drawn(kind, passages, count, seed)]
    return without_duplicates([rules.WRITE[item.kind](item) for item in items])


def write_table(path: Path, questions: Iterable[Written]) -> int:
    """Write the accepted questions as CSV (with a byte order mark for spreadsheets), and return their number."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    writer.writerow(COLUMNS)
    number = 0
    for item in questions:
        if item.status == KEPT:
            number += 1
            identifier = content_id("s", item.kind, item.question)
            answerable = "no" if item.kind == "unanswerable" else "yes"
            sources = () if item.kind == "unanswerable" else item.documents
            row = (identifier, item.question, _cell([item.answer] if item.answer else []), _cell(sources), _cell(item.quotes))
            writer.writerow((*row, item.kind, answerable, item.by))
    whole_text(path, "\ufeff" + sink.getvalue())
    return number


def _cell(values: Sequence[str]) -> str:
    """Format one value as text, several as a list."""
    plain = len(values) == 1 and not values[0].lstrip().startswith("[")
    return values[0] if plain else json.dumps(list(values), ensure_ascii=False) if values else ""
