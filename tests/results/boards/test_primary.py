"""What an experiment declares as primary, and what tables say of stars on several metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from methods.api import Prediction
from ragmeter.experiment import load
from results.boards.board import Board, boards
from results.boards.diff import diff
from results.boards.primary import Primary
from results.boards.tables import family_of_marks, plus_minus
from results.statistics.difference import Range, Side, compared
from results.store.queries import NO_EXPERIMENT
from results.store.store import FINISHED, Run, Store
from tests.support.errors import raises
from tests.support.toy import CARD

FILE = """\
name: toy
benchmarks: [{id: worlds/multihop, split: test}]
methods: [{id: bm25}, {id: random}]
metrics: [em, f1]
"""


stores: list[Store] = []


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    store = Store(tmp_path_factory.mktemp("primary") / "store")
    stores.append(store)
    queries = [Question(f"q{n}", f"what {n}?", ("a",)) for n in range(40)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, queries, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    worse, better = np.zeros(40), np.repeat([1.0, 0.0], 20)
    for name, values in (("base", worse), ("ours", better), ("same", worse)):
        store.start(Run(name, name, "x", "retriever", {}, "toy:dev", benchmark.fingerprint, "distractor", 0, 40, {}))
        store.append(name, [Prediction(q.id, "x") for q in queries], {"em#v2": values, "f1(rules=squad)#v2": values, "recall@5#v1": worse})
        store.end(name, FINISHED)
    source = "primary: {metric: em}\nprofiles: {other: {primary: {metric: f1, method: ours}}}"
    store.put_experiment("toy", source, None, "other", "base", ["base", "ours", "same"])
    (result,) = boards(store, "toy", metrics=["em", "f1", "recall@5"])
    return result


def test_a_board_knows_what_the_profile_of_its_experiment_declares(board: Board) -> None:
    assert board.primary == Primary("f1", "ours")
    assert board.to_json()["primary"] == {"metric": "f1", "method": "ours"}
    metric, comparison = family_of_marks(board)
    assert "f1" in metric
    p = next(row.cells["f1(rules=squad)#v2"].difference for row in board.rows if row.run.method == "ours").p  # type: ignore[union-attr]
    assert "ours against base" in comparison
    assert f", p = {p:.2g}" in comparison
    difference = compared([Side.of(np.repeat([1.0, 0.0], 20))], [Side.of(np.zeros(40))], metric=Range())
    assert plus_minus(0.5, *(float(end[0]) for end in difference.interval()), "{:+.1f}") in comparison


def test_stars_on_several_metrics_state_the_error_of_all_unless_one_metric_is_primary(board: Board) -> None:
    (line,) = family_of_marks(replace(board, primary=None))
    assert "2 of 3 metrics" in line
    assert "15 %" in line
    assert family_of_marks(replace(board, primary=None, metrics=board.metrics[:1])) == []
    assert len(family_of_marks(replace(board, primary=Primary("em")))) == 1
    # A primary metric that is not shown decides nothing here.
    assert family_of_marks(replace(board, primary=Primary("ndcg@10"))) == [line]
    # A method's id stands for its row, unless a row has this name.
    assert len(family_of_marks(replace(board, primary=Primary("em", "ours")))) == 2
    other = replace(board, rows=tuple(replace(row, run=replace(row.run, method_id=f"{row.run.method}_id")) for row in board.rows))
    assert len(family_of_marks(replace(other, primary=Primary("em", "ours_id")))) == 2


def test_two_runs_of_the_primary_comparison_state_it_and_others_do_not(board: Board) -> None:
    runs = {row.run.method: row.run for row in board.rows}
    store = stores[0]
    primary = diff(store, runs["base"], runs["ours"]).primary
    assert len(primary) == 2
    interval = next(row.cells["f1(rules=squad)#v2"].difference for row in board.rows if row.run.method == "ours").alone  # type: ignore[union-attr]
    assert plus_minus(0.5, *interval, "{:+.1f}") in primary[1]
    assert len(diff(store, runs["same"], runs["ours"]).primary) == 1
    # An earlier execution of a method is in no experiment; a gate compares both on the primary metric.
    earlier = replace(runs["base"], method="ours", experiment=NO_EXPERIMENT)
    metric, comparison = diff(store, earlier, runs["ours"]).primary
    assert "f1" in metric
    assert plus_minus(0.5, *interval, "{:+.1f}") in comparison
    assert len(diff(store, replace(earlier, method="same"), runs["ours"]).primary) == 1


def test_an_experiment_names_its_primary_metric_and_method_among_its_own(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text(FILE + "primary: {metric: f1, method: random}\n", "utf-8")
    load(str(file))
    for wrong, code, where in (
        ("{metric: f2}", "unknown-metric", "primary.metric"),
        ("{metric: f1, method: dense}", "unknown-method", "primary.method"),
    ):
        file.write_text(FILE + f"primary: {wrong}\n", "utf-8")
        with raises(code, where=where):
            load(str(file))
