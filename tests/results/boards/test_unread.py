"""Verdicts that are missing: bounds against hand-computed values, incomplete cells everywhere, tests that hold at both ends."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from judges.judge import AS_GIVEN, FIRST, NOTHING_CLAIMED, SECOND, SWAPPED, Judge, JudgeCall, Parsed, Score
from ragmeter.show.board_text import show_battles, show_board
from results.boards.added import add_columns
from results.boards.board import Board, boards, positions
from results.boards.matrix import Column, Matrix, matrix, ranked_cells
from results.boards.systems import Wanted, figures, systems
from results.boards.tables import render
from results.boards.unread import Missing, bounds_of, why_incomplete
from results.judging import judgments
from results.judging.battles import battle_boards
from results.statistics.battles import Verdict, win_rates
from results.statistics.difference import Range, Side
from results.statistics.intervals import difference
from results.store.queries import RunRow
from results.store.store import Store

MATCH = Judge.of("match", {"llm": {"model": "m"}})
PAIRWISE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
ACCURACY, MISMATCH = MATCH.metric("accuracy"), MATCH.metric("mismatch")
RISING = {"low": 0.0, "high": 1.0, "higher_is_better": True}


@pytest.mark.parametrize(
    ("values", "unread", "definition", "wrong", "right"),
    [
        ([1, 1, 0], 1, RISING, 2 / 4, 3 / 4),
        ([1] * 10, 10, RISING, 0.5, 1.0),
        ([0.2], 3, RISING, 0.05, 0.8),
        ([], 4, RISING, 0.0, 1.0),
        ([0, 0, 1], 1, {**RISING, "higher_is_better": False}, 2 / 4, 1 / 4),
        ([3, 5], 2, {"low": 1.0, "high": 5.0}, 10 / 4, 18 / 4),
    ],
)
def test_bounds_by_hand(values: list[float], unread: int, definition: dict[str, Any], wrong: float, right: float) -> None:
    mean = sum(values) / len(values) if values else math.nan
    result = bounds_of(mean, len(values), unread, definition, Missing(), 1.0)
    assert (result.if_wrong, result.if_right) == pytest.approx((wrong, right))
    assert (result.unread, result.scorable) == (unread, len(values) + unread)


def test_measure_without_ends_has_no_bounds() -> None:
    result = bounds_of(2.0, 3, 1, {"low": 0.0, "high": None}, Missing(1), 1.0)
    assert result.to_json() == {"unread": 1, "scorable": 4, "low_if_wrong": None, "high_if_right": None}


@pytest.mark.parametrize(
    ("missing", "scorable", "most", "incomplete"),
    [
        (Missing(106), 120, 0.05, True),
        (Missing(6), 120, 0.05, False),
        (Missing(7), 120, 0.05, True),
        (Missing(7), 120, 0.1, False),
        (Missing(18), 19, 0.05, False),
        (Missing(2), 20, 0.05, True),
        (Missing(5, silent=True), 10, 0.05, True),
        (Missing(1, silent=True), 20, 0.05, False),
        (Missing(1), 20, 0.0, True),
        (Missing(0), 0, 0.05, False),
    ],
)
def test_value_is_not_shown_if_too_many_verdicts_are_missing(missing: Missing, scorable: int, most: float, incomplete: bool) -> None:
    assert bool(why_incomplete(missing, scorable, most)) == incomplete


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.booleans()), min_size=1, max_size=30))
def test_bounds_hold_the_value_that_all_verdicts_would_give(rows: list[tuple[float, bool]]) -> None:
    known = [value for value, read in rows if read]
    result = bounds_of(sum(known) / len(known) if known else math.nan, len(known), len(rows) - len(known), RISING, Missing(), 1.0)
    assert result.low - 1e-9 <= sum(value for value, _ in rows) / len(rows) <= result.high + 1e-9


def p_of(candidate: Sequence[float | None], reference: Sequence[float | None]) -> tuple[float, float, float]:
    sides = [np.array([math.nan if v is None else v for v in side]) for side in (candidate, reference)]
    result = difference(*(Side.of(side, open=np.isnan(side)) for side in sides), metric=Range())
    return result.p, result.low, result.high


def test_difference_is_significant_only_if_it_is_at_both_ends() -> None:
    ahead, behind = [1.0] * 60, [0.0] * 45 + [1.0] * 15
    p, low, high = p_of(ahead, behind)
    assert p < 0.01
    assert 0 < low <= 0.75 <= high
    few = p_of([None, None, *ahead[2:]], behind)
    assert few[0] < 0.01
    assert few[1] < low  # wider, as two verdicts are open
    p, low, high = p_of([None] * 30 + [1.0] * 30, [0.0] * 15 + [1.0] * 45)
    assert p == 1.0  # behind with all of them wrong, ahead with all of them right
    assert low < 0 < high


def put(store: Store, run: RunRow, values: Sequence[float | str], *, shortcut: int = 0, judge: Judge = MATCH) -> None:
    """Store a number or a reason for each question; the first `shortcut` were settled without a call."""
    calls = [
        [JudgeCall("match", 0, None if number < shortcut else "k", Parsed(None, v) if isinstance(v, str) else Parsed({"verdict": v}))]
        for number, v in enumerate(values)
    ]
    scores = [{"accuracy": s, "partial": s, "mismatch": s} for s in (Score(None, v) if isinstance(v, str) else Score(v) for v in values)]
    judgments.put_judge(store, judge)
    with store.database.writing() as connection:  # verdicts that were read are never replaced
        for table in ("scores", "judge_calls"):
            connection.execute(f"DELETE FROM {table} WHERE run = ?", [run.run])
    judgments.put_judgments(store, run.run, judge, [f"q{n}" for n in range(len(values))], calls, scores)
    add_columns(store, run.run, [ACCURACY, MISMATCH])


def texts(board: Board) -> tuple[str, str, str, str]:
    console = Console(width=220, record=True, file=io.StringIO())
    show_board(board, console, verbose=True)
    return console.export_text(), render([board], "markdown"), render([board], "latex"), render([board], "csv")


def many(fill: Any, store: Store, *names: str, questions: int = 40) -> dict[str, RunRow]:
    golds = [f"g{n}" for n in range(questions)]
    return fill(store, dict.fromkeys(names, ["x"] * questions), golds, metrics=(), reference=names[0])  # type: ignore[no-any-return]


@pytest.mark.slow
def test_incomplete_cell_has_no_value_in_any_form(store: Store, fill: Any) -> None:
    runs = many(fill, store, "bm25", "dense")
    put(store, runs["bm25"], [1.0] * 10 + [0.0] * 30)
    put(store, runs["dense"], [1.0] * 14 + ["no verdict"] * 26, shortcut=13)
    (board,) = boards(store, "toy")
    read, incomplete = (row.cells[ACCURACY] for row in board.rows)
    assert (read.estimate.value, read.incomplete, read.bounds.unread) == (0.25, "", 0)
    assert math.isnan(incomplete.estimate.value)
    assert incomplete.apart == incomplete.incomplete
    assert incomplete.difference is None
    assert incomplete.incomplete.startswith("incomplete: 26 of 40 verdicts are missing")
    shown = board.to_json()["rows"][1]["metrics"][ACCURACY]
    wanted = {"value": None, "low_if_wrong": 0.35, "high_if_right": 1.0, "unread": 26, "scorable": 40, "incomplete": incomplete.incomplete}
    assert {key: shown[key] for key in wanted} == wanted
    json.dumps(board.to_json(), allow_nan=False)
    terminal, for_markdown, for_latex, csv = texts(board)
    for text in (terminal, for_markdown, for_latex):
        assert "26 of 40 verdicts are missing" in text
        assert "between 35.0 and 100.0" in text
        assert "100.0 ±" not in text
    cells = next(line for line in for_latex.splitlines() if line.startswith("dense")).removesuffix(r" \\").split(" & ")
    assert cells[1:] == ["", ""]
    assert positions(store, board, ACCURACY).keys() == {runs["bm25"].run}
    assert any("26,0.35,1" in line for line in csv.splitlines())


def test_few_missing_verdicts_are_shown_with_bounds(store: Store, fill: Any) -> None:
    runs = many(fill, store, "bm25", "dense")
    put(store, runs["bm25"], [1.0] * 10 + [0.0] * 30)
    put(store, runs["dense"], [1.0] * 38 + ["no verdict"] * 2)
    (board,) = boards(store, "toy")
    cell = board.rows[1].cells[ACCURACY]
    assert (cell.estimate.value, cell.bounds.if_wrong, cell.bounds.if_right) == (1.0, 0.95, 1.0)
    assert cell.p_holm < 0.01
    assert cell.difference.low < 0.75 < cell.difference.high  # (40 - 10) / 40 with both right
    mismatch = board.rows[1].cells[MISMATCH]  # of which less is better, so a wrong answer counts as 1
    assert (mismatch.bounds.if_wrong, mismatch.bounds.if_right) == (1.0, 0.95)
    for text in texts(board)[:3]:
        assert "[95.0, 100.0]" in text.replace("\\", "")


@pytest.mark.slow
def test_star_needs_both_ends(store: Store, fill: Any) -> None:
    """Of 19 questions every value is shown, but 9 open verdicts leave open who is ahead."""
    runs = many(fill, store, "bm25", "dense", questions=19)
    put(store, runs["bm25"], [0.0] * 19)
    put(store, runs["dense"], [1.0] * 10 + ["no verdict"] * 9)
    (board,) = boards(store, "toy")
    assert board.rows[1].cells[ACCURACY].p_holm < 0.05  # ahead even with all nine wrong
    put(store, runs["bm25"], ["no verdict"] * 9 + [0.0] * 10)
    (board,) = boards(store, "toy")
    cell = board.rows[1].cells[ACCURACY]
    assert not cell.p_holm < 0.05
    assert (cell.difference.value, cell.difference.n) == (1.0, 1)
    bands = positions(store, board, ACCURACY)
    assert all(band.low < band.high for band in bands.values())


@pytest.mark.slow
def test_experiment_sets_the_share_that_may_be_missing(store: Store, fill: Any) -> None:
    run = many(fill, store, "bm25")["bm25"]
    put(store, run, [1.0] * 30 + ["no verdict"] * 10)
    assert boards(store, "toy")[0].rows[0].cells[ACCURACY].incomplete
    with store.database.writing() as connection:
        connection.execute("UPDATE experiments SET source = 'name: toy\nmax_unscored: 0.3\n'")
    assert boards(store, "toy")[0].rows[0].cells[ACCURACY].estimate.value == 1.0
    assert judgments.judged(store, run.run, MATCH, retry_unscored=True) == {f"q{n}" for n in range(30)}


def test_answer_that_claims_nothing_is_bounded_and_shown(store: Store, fill: Any) -> None:
    run = many(fill, store, "bm25")["bm25"]
    put(store, run, [1.0] * 30 + [NOTHING_CLAIMED[0]] * 10)
    (shown,) = boards(store, "toy")
    assert "unread_verdicts" not in {line.code for line in shown.health}
    cell = shown.rows[0].cells[ACCURACY]
    assert (cell.estimate.value, cell.bounds.if_wrong, cell.incomplete) == (1.0, 0.75, "")


@pytest.mark.slow
def test_incomplete_cell_of_the_matrix_has_no_rank(store: Store, fill: Any) -> None:
    runs = many(fill, store, "bm25", "dense", "fused")
    put(store, runs["bm25"], [1.0] * 10 + [0.0] * 30)
    put(store, runs["dense"], [1.0] * 14 + ["no verdict"] * 26)
    put(store, runs["fused"], [1.0] * 38 + ["no verdict"] * 2)
    result = matrix_of(store, list(runs.values()), ACCURACY)
    cells = {row.name: result.cells[row.key, "c"] for row in result.rows}
    assert math.isnan(cells["dense"].value)
    assert (cells["dense"].band, cells["dense"].paired) == (None, None)
    assert "26 of 40 verdicts are missing" in cells["dense"].apart
    assert (cells["fused"].value, cells["fused"].bounds.if_wrong, cells["fused"].bounds.if_right) == (1.0, 0.95, 1.0)
    assert cells["fused"].paired.corrected < 0.05
    assert cells["fused"].band.rank == 1
    put(store, runs["bm25"], ["no verdict", *[1.0] * 37, *["no verdict"] * 2])
    cells = matrix_of(store, list(runs.values()), ACCURACY).cells
    assert all(cell.insufficient_data for (_, _), cell in cells.items() if cell.run.method != "fused")


def test_matrix_tests_hold_at_both_ends(store: Store, fill: Any) -> None:
    runs = many(fill, store, "bm25", "dense", questions=19)
    put(store, runs["bm25"], ["no verdict"] * 9 + [0.0] * 10)
    put(store, runs["dense"], [1.0] * 10 + ["no verdict"] * 9)
    result = matrix_of(store, list(runs.values()), ACCURACY)
    (paired,) = [cell.paired for cell in result.cells.values() if cell.paired is not None]
    assert not paired.corrected < 0.05
    assert all(cell.band.low < cell.band.high for cell in result.cells.values())


def matrix_of(store: Store, runs: list[RunRow], metric: str) -> Matrix:
    columns = [Column("c", tuple(runs), metric)]
    rows = systems({"c": runs}, {}, {})
    of_column = figures(store, [Wanted("c", runs[0].dataset_fingerprint, tuple(run.run for run in runs), metric)])
    return matrix(
        columns, rows, of_column, ranked_cells(columns, rows, of_column, cards={}, known={}, violations={}), costs={}, reference="bm25"
    )


def test_win_rate_holds_at_both_ends_or_is_not_shown() -> None:
    def rate(*verdicts: Verdict) -> Any:
        numbers = np.arange(len(verdicts))
        zeros = np.zeros_like(numbers)
        return win_rates(zeros, numbers, zeros, zeros, np.array(verdicts))[0]

    sure = rate(*[Verdict.WIN] * 30, *[Verdict.UNSCORED] * 2)
    assert sure.p < 0.01
    assert (sure.with_ties.value, sure.with_ties_failures_zero.value, sure.with_ties_failures_one.value) == (1.0, 30 / 32, 1.0)
    assert rate(*[Verdict.WIN] * 12, *[Verdict.UNSCORED] * 12).p == 1.0


def test_incomplete_win_rate_has_no_number(store: Store, fill: Any) -> None:
    runs = many(fill, store, "bm25", "dense")
    one, other = sorted(run.run for run in runs.values())
    match = judgments.Match(runs["bm25"].dataset_fingerprint, "distractor", one, other)
    judgments.put_judge(store, PAIRWISE)
    criteria = PAIRWISE.entry.criteria
    calls, verdicts = [], []
    for number in range(40):
        read = number < 30
        calls.append([JudgeCall(part, 0, "k", Parsed({"said": 1}) if read else Parsed(None, "no JSON")) for part in (AS_GIVEN, SWAPPED)])
        verdicts.append([dict.fromkeys(criteria, verdict if read else None) for verdict in (FIRST, SECOND)])
    judgments.put_battles(store, match, PAIRWISE, [f"q{n}" for n in range(40)], calls, verdicts)
    assert judgments.unread_battles(store, match, PAIRWISE) == (10, 40)
    (board,) = battle_boards(store, list(runs.values()), "bm25")
    (pairing, *_) = board.pairings
    assert pairing.won is None
    assert pairing.incomplete.startswith("incomplete: 10 of 40 verdicts are missing")
    shown = board.to_json()["pairings"][0]
    assert (shown["with_ties"]["value"], shown["decided"]["value"], shown["incomplete"]) == (None, None, pairing.incomplete)
    console = Console(width=200, record=True, file=io.StringIO())
    show_battles(board, console)
    text = console.export_text()
    assert "10 of 40 verdicts are missing" in text
    assert "▲" not in text.replace("▲ ▼", "")
