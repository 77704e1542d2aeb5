"""Differences over several experiments: the mean over their benchmarks, tested on the questions of all of them together."""

from __future__ import annotations

import pytest

import ragmeter
from results.boards.board import Board, boards
from results.store.store import Store
from tools.over_sets import rows_over

ASKED = {
    "first": [{"id": "worlds/multihop", "split": "train", "config": {"worlds": 12, "questions": 60}}],
    "second": [
        {"id": "styled", "split": "test", "limit": 60, "config": {"base": "worlds/multihop", "mix": {"informal": 1}, "restyled": which}}
        for which in ("evidence", "distractors")
    ],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("sets") / "store"
    for name, benchmarks in ASKED.items():
        ragmeter.run(
            {
                "name": name,
                "benchmarks": benchmarks,
                "methods": [{"id": method, "name": method, "reader": "retrieval_only"} for method in ("random", "bm25")],
                "metrics": ["recall@5", "mrr@10"],
                "reference": "random",
            },
            store=folder,
        )
    return Store(folder)


def test_difference_over_experiments_is_the_mean_over_their_benchmarks(store: Store) -> None:
    every = [board for name in ("first", "second") for board in boards(store, name, reference="random")]
    rows = list(rows_over(store, ["first", "second"], ["recall@5", "mrr@10"], "random", ["bm25"]))
    assert [row["metric"] for row in rows] == ["recall@5", "mrr@10"]
    for row in rows:
        assert row["base"]["value"] == pytest.approx(sum(difference(board, row["metric"]) for board in every) / len(every))
        assert row["base"]["low"] < row["base"]["value"] < row["base"]["high"]
        assert row["base"]["detectable"] >= (row["base"]["high"] - row["base"]["low"]) / 2
        assert row["base"]["n"] == 120, "the second experiment asks the same 60 questions in two styles"
        assert not row["beats"], "one training is not enough for a claim"


def test_experiment_without_a_row_or_metric_is_named(store: Store) -> None:
    with pytest.raises(ValueError, match=r"first.*dense"):
        list(rows_over(store, ["first", "second"], ["recall@5"], "random", ["dense"]))
    with pytest.raises(ValueError, match=r"first.*f1"):
        list(rows_over(store, ["first", "second"], ["f1"], "random", ["bm25"]))


def difference(board: Board, head: str) -> float:
    row = next(row for row in board.rows if row.run.method == "bm25")
    gap = next(cell.difference for metric, cell in row.cells.items() if metric.startswith(head))
    assert gap is not None
    return gap.value
