"""Training rows of SARK: a question with one labeled passage and one ordered list, with all passages in two styles.

A row contains everything that a loss compares, so batches can be formed in any order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from methods.training.stages import write_lines

LENGTH = 6
"""Number of passages in a list."""
BATCH = 8
"""Rows per batch; with their lists, 56 passages in each style."""

BothStyles = tuple[str, str]
"""Formal and informal text of a passage."""


@dataclass(frozen=True, slots=True)
class SarkRow:
    """A training row.

    Attributes:
        query: Text of the question.
        passage_id: Id of the labeled passage in its original style; "" if the row only has a list.
        formal, informal: Its text in both styles, with title (`Passage.full_text`).
        label: 1 if the passage turns a wrong answer correct, 0 if it turns a correct one wrong; None if the row only has a
            list.
        list: Six passages in both styles, best first; None without a list. Equal in all rows of a question.
        question_id: Id of the question in the dataset.
        list_ids: Ids of the list's passages in their original style.
        list_evidence: Which of them are gold evidence.
    """

    query: str
    passage_id: str
    formal: str
    informal: str
    label: int | None
    list: tuple[BothStyles, ...] | None
    question_id: str = ""
    list_ids: tuple[str, ...] = ()
    list_evidence: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Mined:
    """Labels and list order of a question, from formal text.

    Attributes:
        question_id, query: Id and text of the question.
        labels: 1 or 0 by passage id.
        order: Six passage ids, best first; empty without a list.
        evidence: Ids of gold evidence.
    """

    question_id: str
    query: str
    labels: Mapping[str, int]
    order: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the ids of all passages that must be rewritten."""
        return tuple(dict.fromkeys((*self.labels, *self.order)))


Pairs = Mapping[tuple[str, str], tuple[Passage, Passage]]
"""Original and rewritten passage by question id and passage id."""


def rows_of(mined: Iterable[Mined], pairs: Pairs, counts: Counter[str] | None = None, most: int | None = None) -> list[SarkRow]:
    """Build the rows of questions: one per labeled passage, or one for the list only.

    If a passage could not be rewritten, its label and every list that contains it are dropped.

    Args:
        mined: Labels and orders.
        pairs: Passages in both styles, by question and passage.
        counts: Counter of rows, labels and lists, used and dropped.
        most: Maximum number of rows (the first ones); None for all.
    """
    counted = Counter[str]() if counts is None else counts
    rows: list[SarkRow] = []
    for item in mined:
        styled = _texts(item, item.order, pairs)
        if item.order and styled is None:
            counted["lists_without_rewrite"] += 1
        ids = item.order if styled is not None else ()
        evidence = tuple(passage in item.evidence for passage in ids)
        labeled = []
        for passage, label in item.labels.items():
            both = _texts(item, (passage,), pairs)
            if both is None:
                counted["labels_without_rewrite"] += 1
                continue
            labeled.append(SarkRow(item.query, passage, *both[0], label, styled, item.question_id, ids, evidence))
        if not labeled and styled is not None:
            labeled.append(SarkRow(item.query, "", "", "", None, styled, item.question_id, ids, evidence))
        kept = labeled if most is None else labeled[: most - len(rows)]
        if len(kept) < len(labeled):
            counted["rows_not_needed"] += len(labeled) - len(kept)
        _count(kept, counted)
        rows += kept
    counted["rows"] += len(rows)
    return rows


def _count(rows: Sequence[SarkRow], counts: Counter[str]) -> None:
    """Count the rows of one question."""
    counts["positives"] += sum(row.label == 1 for row in rows)
    counts["negatives"] += sum(row.label == 0 for row in rows)
    counts["lists"] += any(row.list is not None for row in rows)
    if alone := sum(row.label is None for row in rows):
        counts["lists_without_label"] += alone


def _texts(item: Mined, passages: Sequence[str], pairs: Pairs) -> tuple[BothStyles, ...] | None:
    """Return passages in both styles; None if there are none or one lacks a style."""
    results = [pairs.get((item.question_id, passage)) for passage in passages]
    styled = tuple((pair[0].full_text, pair[1].full_text) for pair in results if pair is not None)
    return styled if styled and len(styled) == len(passages) else None


def batches(rows: Sequence[SarkRow], size: int = BATCH, *, seed: int = 0, epoch: int = 0) -> list[list[SarkRow]]:
    """Shuffle rows for an epoch and split them into batches; the last batch may be smaller.

    Args:
        rows: All rows.
        size: Batch size.
        seed, epoch: Seeds of the order.
    """
    order = list(range(len(rows)))
    Draws("sark rows", seed, epoch).shuffle(order)
    return [[rows[position] for position in order[start : start + size]] for start in range(0, len(order), size)]


def write_rows(path: Path, rows: Iterable[SarkRow]) -> None:
    """Write rows as JSON Lines, atomically."""
    write_lines(path, (asdict(row) for row in rows))


def read_rows(path: Path) -> list[SarkRow]:
    """Read rows that `write_rows` wrote.

    Raises:
        UserError: The file cannot be read, or a line is not a row.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the rows cannot be read: {error}", code="unreadable-rows", where=str(path)) from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"this is not a training row: {error}",
                code="not-training-row",
                where=f"{path}:{number}",
                try_this="delete the file: it will be written again",
            ) from None
    return rows


def _row(fields: dict[str, Any]) -> SarkRow:
    styled = fields["list"]
    if styled is not None:
        styled = tuple((str(formal), str(informal)) for formal, informal in styled)
        if len(styled) != LENGTH:
            raise ValueError(f"its list has {len(styled)} passages, not {LENGTH}")
    if fields["label"] not in (0, 1, None):
        raise ValueError(f"the label is {fields['label']!r}")
    return SarkRow(**{**fields, "list": styled, "list_ids": tuple(fields["list_ids"]), "list_evidence": tuple(fields["list_evidence"])})
