"""Answers without a judge's value are marked in tables, exports and pictures."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node
from leaderboard.matrix import exports
from leaderboard.matrix.benchmark import of_metrics
from leaderboard.matrix.exports import still_matrix
from leaderboard.matrix.rows import default_order, ordered
from leaderboard.matrix.table import Shown, gaps
from results.boards.board import Board, boards
from results.boards.markup import to_csv
from results.boards.tables import CSV_COLUMNS, remarks, tidy
from results.store.store import Store
from tests.support.nodes import still

DATASET = "hotpotqa:dev"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, several: Path, matrix_store: ModuleType) -> Store:
    """Return a store in which three of sixty answers of `dense` on one benchmark, and all of bm25 on another, have no verdict."""
    made = Store(shutil.copytree(several, tmp_path_factory.mktemp("unscored") / "store"))
    with made.database.writing() as connection:
        connection.execute(
            """UPDATE scores SET value = NULL, unscored = 'timeout' WHERE metric = ? AND run IN
               (SELECT run FROM runs WHERE setting = 'distractor' AND (method = 'dense' AND dataset = ?
                AND split_part(question, '-', 2)::INT < 3 OR method = 'bm25' AND dataset = 'nq:test'))""",
            [matrix_store.EM, DATASET],
        )
    return made


@pytest.fixture(scope="module")
def shown(store: Store) -> Shown:
    result = still_matrix(store, "several")
    assert result is not None
    return result


@pytest.fixture(scope="module")
def every_board(store: Store) -> list[Board]:
    return boards(store, "several")


@pytest.fixture(scope="module")
def board(every_board: list[Board]) -> Board:
    return next(item for item in every_board if (item.dataset, item.setting) == (DATASET, "distractor"))


def line(tree: Node, method: str) -> Node:
    body = next(tree.find(tag="tbody"))
    return next(row for row in body.find(tag="tr") if method in " ".join(row.texts()))


@pytest.mark.parametrize(
    ("count", "query", "expected"),
    [
        (0, 60, ""),
        (0, 0, ""),
        (3, 60, "5 % unscored"),
        (60, 60, "100 % unscored"),
        (1, 1000, "under 1 % unscored"),
        (999, 1000, "over 99 % unscored"),
        (99, 100, "99 % unscored"),
    ],
)
def test_share_is_never_rounded_to_0_or_100_percent(count: int, query: int, expected: str) -> None:
    assert formats.unscored(count, query) == expected


def test_matrix_cells_show_the_share_without_a_verdict(shown: Shown) -> None:
    board = shown.board
    responses = {cell.run.method: gaps(cell) for cell in board.cells.values() if cell.unscored}
    assert responses == {"dense": "5 % unscored", "bm25": "100 % unscored"}
    tree = still(shown)
    for method in ("dense", "bm25"):
        cells = [" ".join(cell.texts()) for cell in line(tree, method).find(tag="td")]
        assert sum("unscored" in text for text in cells) == 1
        assert any(responses[method] in text for text in cells)
    assert "unscored" not in " ".join(line(tree, "strong").texts())
    (incomplete,) = [cell for cell in board.cells.values() if cell.run.method == "bm25" and cell.unscored]
    assert incomplete.bounds is not None
    assert (incomplete.bounds.if_wrong, incomplete.bounds.if_right, incomplete.band) == (0.0, 1.0, None)
    assert "60 of 60 verdicts are missing" in incomplete.bounds.incomplete
    (few,) = [cell for cell in board.cells.values() if cell.run.method == "dense" and cell.unscored]
    assert few.bounds is not None
    assert few.bounds.if_right - few.bounds.if_wrong == pytest.approx(3 / 60)
    assert f"[{100 * few.bounds.if_wrong:.1f}, {100 * few.bounds.if_right:.1f}]" in " ".join(line(tree, "dense").texts())


def test_csv_of_the_matrix_contains_the_number_without_a_verdict(shown: Shown) -> None:
    rows = csv.DictReader(io.StringIO(exports.csv(shown, ordered(shown.board, default_order(shown.board)))))
    lacking = {row["method"]: row for row in rows if int(row["unscored"] or 0)}
    assert {method: row["unscored"] for method, row in lacking.items()} == {"dense": "3", "bm25": "60"}
    assert (lacking["bm25"]["value"], lacking["bm25"]["low_if_wrong"], lacking["bm25"]["high_if_right"]) == ("", "0.0", "1.0")


def test_benchmark_board_shows_the_unscored_share_for_every_metric(board: Board, matrix_store: ModuleType) -> None:
    em, recall = matrix_store.EM, matrix_store.RECALL
    for focus in (recall, em):
        drawn = line(still(of_metrics(board, focus, {}, ({}, {}), {})), "dense")
        (cell,) = [cell for cell in drawn.find(tag="td") if "unscored" in " ".join(cell.texts())]
        assert "5 % unscored [" in " ".join(cell.texts())
        assert "3 without a value from the judge" in cell.tip
    row = next(row for row in board.rows if row.run.method == "dense")
    assert any("the judge gave 3 questions no value" in remark for remark in remarks(row))
    lines = csv.DictReader(io.StringIO(to_csv(CSV_COLUMNS, tidy(board))))
    assert {(item["method"], item["metric"]): item["unscored"] for item in lines if item["unscored"] != "0"} == {("dense", em): "3"}


def test_metric_without_any_verdict_shows_the_reason_and_no_value(every_board: list[Board], matrix_store: ModuleType) -> None:
    board = next(item for item in every_board if item.dataset == "nq:test")
    drawn = line(still(of_metrics(board, matrix_store.RECALL, {}, ({}, {}), {})), "bm25")
    (cell,) = [cell for cell in drawn.find(tag="td") if "unscored" in " ".join(cell.texts())]
    assert next(iter(cell.texts())) == "–"
    assert "100 % unscored" in " ".join(cell.texts())
    assert "60 of 60 verdicts are missing" in cell.tip
