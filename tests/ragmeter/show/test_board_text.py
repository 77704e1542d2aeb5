"""Boards in a terminal: one line per method that fits, sorted by the main metric, with at most three notes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from ragmeter.show import board_text
from ragmeter.show.board_text import NOTES, show_board, sorted_rows
from results.boards.board import Board, Row, boards
from results.boards.verdict_of import verdicts
from results.boards.verdict_text import headlines
from results.statistics.bradley_terry import bradley_terry
from results.statistics.core import Resampling
from results.store.store import Store


def printed(board: Board, width: int, **options: Any) -> list[str]:
    out = io.StringIO()
    show_board(board, Console(file=out, width=width), **options)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.slow
def test_row_names_mark_submissions_and_contaminated_methods(tmp_path: Path, module_at: Callable[[Path], ModuleType]) -> None:
    made = module_at(Path(__file__).parents[2] / "leaderboard" / "matrix_store.py")
    every = boards(made.fill(tmp_path / "store"), "several")
    text = {(board.dataset, board.setting): "\n".join(printed(board, 200, verbose=True)) for board in every}
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


def renamed(board: Board, rows: tuple[Row, ...], name: str) -> Board:
    return replace(board, rows=tuple(replace(row, run=replace(row.run, method=f"{row.run.method}{name}")) for row in rows))


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_table_has_one_line_per_method_that_fits(board: Board, width: int) -> None:
    lines = printed(board, width)[1:]
    assert max(map(len, lines)) <= width
    starts = [next(number for number, line in enumerate(lines) if line.startswith(row.run.method)) for row in board.rows]
    assert sorted(starts) == list(range(1, len(board.rows) + 1))


def test_columns_that_do_not_fit_are_counted_and_printed_with_option_wide(board: Board) -> None:
    narrow, wide = "\n".join(printed(board, 50)), "\n".join(printed(board, 50, wide=True))
    assert ("--wide" in narrow, "--wide" in wide) == (True, False)
    assert ("s/question" in narrow, "s/question" in wide) == (False, True)


def test_long_name_is_broken_only_if_the_table_does_not_fit(board: Board) -> None:
    long = " with a name of half a terminal"
    named = renamed(board, board.rows, long)
    wide, narrow = printed(named, 160), printed(named, 60)
    assert any(line.startswith(f"random{long}  ") for line in wide)
    assert any(line.startswith("random with ") for line in narrow)
    assert all(len(line) <= 60 for line in narrow[1:])


def test_long_name_keeps_one_line_if_the_main_metric_fits_next_to_it(board: Board) -> None:
    named = replace(board, rows=tuple(replace(row, run=replace(row.run, method=f"{at} {'x' * 30}")) for at, row in enumerate(board.rows)))
    lines = printed(named, 80)
    assert [sum(line.startswith(row.run.method) for line in lines) for row in named.rows] == [1] * len(named.rows)


def test_short_names_leave_one_table(board: Board) -> None:
    short = replace(board, rows=tuple(replace(row, run=replace(row.run, method=str(at))) for at, row in enumerate(board.rows)))
    assert [sum(line.startswith("method") for line in printed(short, width)) for width in range(40, 120, 5)] == [1] * 16


def test_board_by_metric_has_one_line_per_metric_and_cost(board: Board) -> None:
    single = replace(board, rows=board.rows[:1])
    lines = printed(single, 60, by_metric=True)
    assert [line.split()[0] for line in lines[1:3]] == ["metric", "em"]
    assert any(line.startswith("s/question") for line in lines)
    assert "--wide" not in "\n".join(lines)


def test_rows_are_sorted_by_the_main_metric_with_controls_last(board: Board) -> None:
    (metric,) = board.metrics

    def worth(row: Row, value: float) -> Row:
        cell = row.cells[metric]
        return replace(row, cells={metric: replace(cell, estimate=replace(cell.estimate, value=value))})

    board = replace(board, rows=tuple(worth(row, number / 10) for number, row in enumerate(board.rows)))
    lower = replace(board, lower_is_better=frozenset(board.metrics))
    up, down = ([row for row in sorted_rows(each, metric) if not row.control] for each in (board, lower))
    values = [row.cells[metric].estimate.value for row in up]
    assert values == sorted(values, reverse=True)
    assert [row.run.method for row in down] == [row.run.method for row in reversed(up)]
    assert [row.control for row in sorted_rows(board, metric)] == sorted(row.control for row in board.rows)
    assert ("em ↑" in "\n".join(printed(board, 80)), "em ↓" in "\n".join(printed(lower, 80))) == (True, True)


def test_option_verbose_prints_metric_ids_and_corrections(board: Board) -> None:
    brief, whole = (" ".join(printed(board, 80, verbose=verbose)) for verbose in (False, True))
    for words in ("em(rules=squad)#v2", "(over worlds)", "Holm per column"):
        assert (words in brief, words in whole) == (False, True)
    assert "Δ: difference from bm25, * p < .05" in brief


def test_metrics_that_the_reference_lacks_are_named_in_the_legend(board: Board) -> None:
    def lacking(board: Board) -> str:
        return next(line for line in printed(board, 200) if "Δ: " in line).partition("no Δ")[2]

    assert lacking(board) == ""
    without = [replace(row, cells={}) if row.run.method == board.reference else row for row in board.rows]
    assert str(board.reference) in lacking(replace(board, rows=tuple(without)))
    both = lacking(replace(board, metrics=(*board.metrics, "recall@5")))
    assert "recall@5" in both
    assert board.metrics[0].partition("(")[0] not in both


def test_hidden_warnings_are_counted(board: Board) -> None:
    flagged = replace(board, flags={f"m{number}": ["measures something else"] for number in range(6)})
    brief, whole = ("\n".join(printed(flagged, 400, verbose=verbose)) for verbose in (False, True))
    assert (brief.count("⚑"), whole.count("⚑")) == (NOTES - 1, 6)
    assert f"{6 - (NOTES - 1)} more warnings" in brief
    assert "--verbose" not in whole


def test_verdict_is_printed_above_the_table(store: Store, board: Board) -> None:
    (headline,) = headlines(verdicts(store, "small"))
    lines = printed(board, 400, headline=headline)
    assert headline.main.best is not None
    assert headline.main.best.name in lines[1]
    assert lines[2].startswith("method")


def test_strengths_without_interval_or_battle_are_shown_without_numbers() -> None:
    fitted = bradley_terry([0] * 10, [1] * 10, range(10), [1.0, 0.0] * 5, methods=3, how=Resampling(resamples=50))
    shown = board_text._ranked(list(zip(("a", "b", "c"), fitted.strengths, strict=True)))
    assert shown == "a 1500 rank 1–2, b 1500 rank 1–2, c – rank –"
