"""Boards in a terminal: how they fit, what stands behind a method's name, and the sentence below them."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from ragmeter.show.board_text import conclusion, show_board
from results.boards.board import Board, boards
from results.store.store import Store


def printed(board: Board, width: int, **options: bool) -> list[str]:
    out = io.StringIO()
    show_board(board, Console(file=out, width=width), **options)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.slow
def test_names_say_who_was_sent_in_and_who_learned_what_is_asked(tmp_path: Path, module_at: Callable[[Path], ModuleType]) -> None:
    made = module_at(Path(__file__).parents[2] / "leaderboard" / "matrix_store.py")
    every = boards(made.fill(tmp_path / "store"), "several")
    text = {(board.dataset, board.setting): "\n".join(printed(board, 200)) for board in every}
    nq_queries = text["nq:test", "distractor"]
    assert "\ntrained on it (contaminated) " in nq_queries
    assert "trained on it: contaminated: nq was trained on; not compared" in nq_queries
    assert "\ncheat@1 (submitted, contaminated) " in text["musique:dev", "distractor"]
    other = text["hotpotqa:dev", "distractor"]
    assert "cheat@1 (submitted) " in other
    assert "contaminated" not in other
    assert all(len(line) <= 80 for board in every for line in printed(board, 80))


@pytest.fixture
def board(store: Store) -> Board:
    return boards(store, "small")[0]


def test_long_name_is_broken_only_if_the_table_does_not_fit(board: Board) -> None:
    long = " with a name of half a terminal"
    named = replace(board, rows=tuple(replace(row, run=replace(row.run, method=row.run.method + long)) for row in board.rows))
    wide, narrow = printed(named, 120), printed(named, 60)
    assert any(line.startswith(f"random{long}  ") for line in wide)
    assert any(line.startswith("random with ") for line in narrow)
    assert all(len(line) <= 60 for line in narrow[1:])


def test_more_is_said_where_it_is_asked_for(board: Board) -> None:
    brief, whole = (" ".join(printed(board, 80, verbose=verbose)) for verbose in (False, True))
    for words in ("em(rules=squad)#v1", "(over worlds)", "Holm per column"):
        assert (words in brief, words in whole) == (False, True)
    assert "below: difference from bm25, * p < .05" in brief


def moved(board: Board, values: Mapping[str, tuple[float, float]]) -> Board:
    """The board with these differences to the reference, and their p-values."""

    def row(old: Any) -> Any:
        (metric,) = board.metrics
        cell = old.cells[metric]
        if cell.difference is None:
            return old
        value, p = values[old.run.method]
        return replace(old, cells={metric: replace(cell, difference=replace(cell.difference, value=value, clusters=30), p_holm=p)})

    return replace(board, rows=tuple(map(row, board.rows)))


@pytest.mark.parametrize(
    ("value", "p", "response"),
    [
        (0.2, 0.01, "random is significantly ahead of bm25 "),
        (-0.2, 0.01, "random is significantly behind bm25 "),
        # However large a difference is, the test decides.
        (0.9, 0.06, "random is not distinguishable from bm25 "),
        (0.0, 1.0, "random is not distinguishable from bm25 "),
    ],
)
def test_the_sentence_below_a_table_is_what_its_paired_tests_say(value: float, p: float, response: str, board: Board) -> None:
    assert "random is not tested against bm25 " in conclusion(board), "eight questions decide nothing"
    result = moved(board, {"random": (value, p)})
    assert conclusion(result).startswith(f"On em, {response}")
    if p < 0.05:
        other = conclusion(result, higher_is_better=False)
        assert ("behind" in other) == ("ahead" in response), "of a metric of which less is better"


def test_without_a_comparison_the_sentence_says_so(board: Board) -> None:
    assert conclusion(replace(board, reference=None)).startswith("Nothing was compared: ")
    assert conclusion(moved(board, {"random": (math.nan, math.nan)})) == "Nothing was compared with bm25."
    assert "gold_answer" not in conclusion(board), "controls are not tested"
