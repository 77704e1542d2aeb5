"""The boards of an experiment as one JSON document, for other pages and programs to show."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from leaderboard.matrix.exports import Export
from leaderboard.matrix.still import lines, still_matrix
from results import queries
from results.board import Board, boards
from results.plain import plain
from results.store import Store

FORMAT = "ragmeter-board"
VERSION = 2


def board_document(store: Store, experiment: str, now: datetime) -> dict[str, Any]:
    """The boards of an experiment.

    Args:
        store: Where to read.
        experiment: Its name.
        now: When the document is made.

    Returns:
        An object with `format`, `version`, `generated`, `experiment`, `metrics` (definitions by id), `boards` as
        `results.board.Board.to_json` writes them, and `matrix`, all benchmarks by their own metric: one object a cell
        with value, rank band, comparison, published figure and the reason why it is not comparable, if it is not
        (`leaderboard.matrix.exports.CSV_COLUMNS`). Values are fractions, null stands for "no value".
    """
    found = still_matrix(store, experiment, experiment)
    return document_of(boards(store, experiment), queries.definitions(store), experiment, now, found)


def document_of(
    found: list[Board], definitions: dict[str, dict[str, Any]], experiment: str, now: datetime, whole: Export | None
) -> dict[str, Any]:
    """The same, of boards that are known already."""
    shown = {metric for board in found for metric in board.metrics}
    return dict(
        plain(
            {
                "format": FORMAT,
                "version": VERSION,
                "generated": now.isoformat(timespec="seconds"),
                "experiment": experiment,
                "metrics": {metric: known for metric, known in definitions.items() if metric in shown},
                "boards": [board.to_json() for board in found],
                "matrix": lines(whole) if whole is not None else [],
            }
        )
    )


def as_json(document: Any, *, indent: int | None = None) -> str:
    """JSON that may stand inside a page's `script` element: no character in it begins a tag or a comment."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
