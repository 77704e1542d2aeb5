"""Training rows: a question with one labeled passage and one ordered list, every passage in two styles.

A row holds all that a loss compares, so style pairs and pairs of a list are of one question by construction, whatever
the order of rows.
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
"""Passages of a list."""
BATCH = 8
"""Rows of a batch; with their lists 56 passages in each style."""

BothStyles = tuple[str, str]
"""A passage's text, formal and informal."""


@dataclass(frozen=True, slots=True)
class SarkRow:
    """Row of a batch.

    Attributes:
        query: The question's text.
        passage_id: The labeled passage in its original style; "" where the row has a list alone.
        formal, informal: Its text in both styles, as rerankers see it (`Passage.full_text`).
        label: 1: with this passage a wrong answer turns right; 0: a right one wrong; None: the row has a list alone.
        list: Six passages in both styles, best first; None where the question has no list. The same in all rows of a
            question.
        question_id: The dataset's id of the question.
        list_ids: Of the list's passages in their original style.
        list_evidence: Which of them the dataset calls evidence.
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
    """Mining result of a question, on formal text.

    Attributes:
        question_id, query: The question.
        labels: 1 or 0 by passage id.
        order: Six passage ids, best first; empty where there is none.
        evidence: Ids of what the dataset calls evidence.
    """

    question_id: str
    query: str
    labels: Mapping[str, int]
    order: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """Return every passage that must be rewritten in the other style."""
        return tuple(dict.fromkeys((*self.labels, *self.order)))


Pairs = Mapping[tuple[str, str], tuple[Passage, Passage]]
"""Passage in its original style and in the other one, by question id and passage id."""


def rows_of(mined: Iterable[Mined], pairs: Pairs, counts: Counter[str] | None = None, most: int | None = None) -> list[SarkRow]:
    """Return the rows of questions: one for each labeled passage, or one for the list alone.

    A passage that could not be rewritten in the other style is left out of both styles: its label is dropped, and with it
    every list that holds it, since a list is compared as a whole.

    Args:
        mined: Labels and orders.
        pairs: Both styles of passages, by question and passage.
        counts: Counts rows, labels and lists, and those that were dropped.
        most: Most rows, the first ones; None: all.
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
    """Return passages in both styles; None where there are none or one lacks a style."""
    results = [pairs.get((item.question_id, passage)) for passage in passages]
    styled = tuple((pair[0].full_text, pair[1].full_text) for pair in results if pair is not None)
    return styled if styled and len(styled) == len(passages) else None


def batches(rows: Sequence[SarkRow], size: int = BATCH, *, seed: int = 0, epoch: int = 0) -> list[list[SarkRow]]:
    """Return rows in the order of an epoch, so many at a time; the last batch may be smaller.

    Args:
        rows: All rows.
        size: Rows of a batch.
        seed, epoch: What the order depends on.
    """
    order = list(range(len(rows)))
    Draws("sark rows", seed, epoch).shuffle(order)
    return [[rows[position] for position in order[start : start + size]] for start in range(0, len(order), size)]


def write_rows(path: Path, rows: Iterable[SarkRow]) -> None:
    """Write rows as JSON Lines; the file appears whole or not at all."""
    write_lines(path, (asdict(row) for row in rows))


def read_rows(path: Path) -> list[SarkRow]:
    """Return rows that `write_rows` wrote.

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
