"""Values sent to trackers; `make integrations` sends them to real ones."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from ragmeter.api import run
from ragmeter.tracking import _names, log, logged
from results.boards.board import Board, boards
from results.boards.tables import board_notes
from results.store.store import Store

EXPERIMENT = """
name: tracked
reference: random
benchmarks: [{id: "worlds/multihop:test", limit: 40}]
methods: [{id: bm25, config: {k1: 1.5}}, {id: random}]
metrics: [recall@5, mrr@5]
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("tracking")
    (folder / "x.yaml").write_text(EXPERIMENT)
    assert not run(folder / "x.yaml", store=folder / "s").failed
    return Store(folder / "s")


@pytest.fixture(scope="module")
def board(store: Store) -> Board:
    return boards(store, "tracked")[0]


def test_tracker_gets_values_with_intervals_settings_and_notes(store: Store, board: Board) -> None:
    for row in board.rows:
        item = logged(store, board, row)
        for metric, name in _names(list(row.cells)).items():
            cell = row.cells[metric]
            assert item.params[f"metric.{name}"] == metric
            assert item.metrics[name] == cell.estimate.value
            if cell.estimate.low == cell.estimate.low:
                assert (item.metrics[f"{name}/low"], item.metrics[f"{name}/high"]) == (cell.estimate.low, cell.estimate.high)
        assert item.params["fingerprint"] == row.run.fingerprint
        assert all(re.fullmatch(r"[\w./ -]+", name) for name in (*item.metrics, *item.params))
        assert all(note in item.notes for note in board_notes(board))
        assert len(list(csv.DictReader(io.StringIO(item.table)))) == len(board.rows) * len(board.metrics)
    ours = next(row for row in board.rows if row.run.method == "bm25")
    assert "1.5" in [text for name, text in logged(store, board, ours).params.items() if name.endswith("k1")]


def test_metrics_that_differ_in_signs_only_keep_different_names() -> None:
    names = _names(["f1(a=1)#v1", "f1(a:1)#v1", "f1[a=1]#v1"])
    assert len(set(names.values())) == 3


@pytest.mark.parametrize("to", ["wandb", "mlflow"])
def test_tracker_that_is_not_installed_is_named_with_its_extra(
    store: Store, board: Board, to: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, to, None)
    with pytest.raises(UserError, match=to):
        log(store, [board], to, "p")
