"""What a report says behind its boards: style, compression, pairwise verdicts; only what the experiment has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.columns import MAIN, board_label, families, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, el
from leaderboard.views import battle_view, budget_view, style_view
from results import queries
from results.battle_board import battle_boards
from results.board import Board
from results.budgets import budget_curves, read_in_full
from results.queries import UserError
from results.store import Store
from results.style_drops import style_drops

Definitions = Mapping[str, Mapping[str, Any]]


def behind(store: Store, experiment: str, found: Sequence[Board], definitions: Definitions, cards: Mapping[str, Any]) -> Iterator[Node]:
    """Sections, each a heading and a table.

    Args:
        store: Where to read.
        experiment: Its name.
        found: Its boards.
        definitions: Of metrics by id.
        cards: Of datasets by fingerprint.
    """
    yield from _styles(store, experiment, definitions)
    for board in found:
        yield from _compression(board, definitions, cards.get(board.dataset_fingerprint, {}).get("card", {}))
    yield from _battles(store, experiment)


def _styles(store: Store, experiment: str, definitions: Definitions) -> Iterator[Node]:
    try:
        tables = style_drops(store, experiment)
    except UserError:
        # Nothing is asked both formally and in another style.
        return
    for table in tables:
        better = higher_is_better(table.metric, definitions)
        title = f"What style costs: {formats.metric_label(table.metric)} on {table.base}"
        yield el(
            "div",
            el("h2", title),
            style_view.drops(table, higher_is_better=better),
            el("p", style_view.drops_note(table), cls="note"),
            cls="stack",
        )


def _compression(board: Board, definitions: Definitions, card: Mapping[str, Any]) -> Iterator[Node]:
    remembers = any(row.cost is not None and row.cost.memory_tokens > 0 for row in board.rows)
    compresses = remembers or any(row.run.description.get("compressor") for row in board.rows)
    if not board.metrics or not compresses:
        return
    metric = families(board.metrics, definitions, card.get("metrics", ()))[MAIN][0]
    curves, full = budget_curves(board, metric), read_in_full(board)
    if curves:
        table = budget_view.curve_table(curves, metric, scale_of(metric, definitions), full.run.method if full is not None else None)
        title = f"What compression saves: {board_label([row.run for row in board.rows])}"
        yield el("div", el("h2", title), table, cls="stack")


def _battles(store: Store, experiment: str) -> Iterator[Node]:
    for board in battle_boards(store, queries.runs(store, experiment)):
        criteria = battle_view.criteria(board)
        if not criteria:
            continue
        first = criteria[0]
        strengths = board.strengths.get(first)
        title = f"Who wins against whom: {board.judge}, {first}, on {board.dataset}, setting {board.setting}"
        placed = battle_view.controls(board, first)
        yield el(
            "div",
            el("h2", title),
            el("h3", "Where it places the controls") if placed else None,
            placed,
            battle_view.rates(board, first),
            el("p", battle_view.MATRIX_NOTE, cls="note"),
            battle_view.strengths(strengths, board.controls) if strengths else None,
            el("p", battle_view.STRENGTHS_NOTE, cls="note") if strengths else None,
            cls="stack",
        )
