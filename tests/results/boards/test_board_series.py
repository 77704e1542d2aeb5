"""Training seeds of one method as one row of a board."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Question, passage_id
from methods.api import Prediction, Usage
from results.boards.board import boards
from results.boards.names import base_name, first_name, is_called, repeat_of, repeated_name, seeded_name
from results.boards.tables import remarks
from results.statistics.difference import Side
from results.statistics.intervals import compared_together
from results.store.store import FINISHED, Run, Store
from tests.support.errors import raises
from tests.support.toy import CARD

SCORES = {
    "base": [0.0, 1.0, 0.0, 0.5],
    "tuned #0": [1.0, 1.0, 0.0, 0.25],
    "tuned #1": [1.0, 0.0, 1.0, 0.75],
    "tuned #2": [0.5, 0.5, 0.5, np.nan],
    "other #0": [0.0, 0.0, 0.0, 0.0],
    "other #1": [1.0, 0.0, 0.0, 0.0],
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("series"))
    passage = Passage(passage_id("T", "text"), "T", "text")
    questions = [Question(f"q{n}", f"what {n}?", ("a",), document_id=f"d{n // 2}") for n in range(4)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of([passage]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    for position, (name, values) in enumerate(SCORES.items()):
        data = "toy:dev", benchmark.fingerprint
        run = Run(f"run{position}", name, base_name(name), "retriever", {"checkpoint": name}, *data, "distractor", 0, 4, {})
        store.start(run)
        responses = [Prediction(q.id, "x", (), Usage(prompt_tokens=position)) for q in questions]
        store.append(f"run{position}", responses, {"em#v2": np.array(values)}, [passage])
        if name != "other #1":
            store.end(f"run{position}", FINISHED)
    store.put_experiment("toy", "name: toy", None, None, "base", [f"run{position}" for position in range(len(SCORES))])
    return store


def rows(store: Store, **options: Any) -> dict[str, Any]:
    (board,) = boards(store, "toy", over_seeds=True, **options)
    return {row.run.method: row for row in board.rows}


@pytest.mark.slow
def test_seeds_are_averaged_question_by_question(filled: Store) -> None:
    result = rows(filled)
    assert list(result) == ["base", "tuned (3 seeds)", "other (2 seeds)"]
    cell = result["tuned (3 seeds)"].cells["em#v2"]
    mean = np.mean([SCORES[f"tuned #{seed}"] for seed in range(3)], axis=0)
    assert np.isnan(mean[3])
    assert cell.estimate.value == pytest.approx(np.nanmean(mean))
    assert (cell.estimate.n, cell.estimate.unscorable) == (3, 1)
    assert cell.by_seed == pytest.approx((2 / 3, 2 / 3, 0.5))
    tuned = Side.of([SCORES[f"tuned #{seed}"] for seed in range(3)], trainings=range(3))
    (expected,) = compared_together([tuned], [Side.of(SCORES["base"])], clusters=["d0", "d0", "d1", "d1"]).differences
    other = result["other (2 seeds)"].cells["em#v2"].difference
    assert other is None or other.generalizes == "new questions, this checkpoint only"
    assert (cell.difference.value, cell.difference.p) == (expected.value, expected.p)
    assert cell.difference.generalizes == expected.generalizes == "new questions and new trainings"


def test_a_row_of_seeds_is_as_finished_as_the_least_of_them(filled: Store) -> None:
    result = rows(filled)
    assert result["tuned (3 seeds)"].run.status == FINISHED
    assert result["other (2 seeds)"].run.status != FINISHED
    assert result["tuned (3 seeds)"].cost.prompt_tokens == pytest.approx(2.0)
    assert any(line.startswith("by seed: em 66.7 66.7 50.0") for line in remarks(result["tuned (3 seeds)"]))
    assert not any(line.startswith("by seed") for line in remarks(result["base"]))


def test_a_method_of_several_seeds_can_be_the_reference(filled: Store) -> None:
    result = rows(filled, reference="tuned")
    assert result["tuned (3 seeds)"].cells["em#v2"].difference is None
    assert result["base"].cells["em#v2"].difference.value < 0
    with raises("unknown-method"):
        rows(filled, reference="tunde")


def test_apart_every_seed_is_a_row(filled: Store) -> None:
    (board,) = boards(filled, "toy")
    assert [row.run.method for row in board.rows] == list(SCORES)
    assert all(cell.by_seed == () for row in board.rows for cell in row.cells.values())


@pytest.mark.parametrize("name", ["ARK", "ARK #x", "a # 3", "#1"])
def test_only_a_number_after_the_mark_is_a_seed(name: str) -> None:
    assert base_name(name) == name
    assert base_name(seeded_name(name, 12)) == name


@pytest.mark.slow
def test_repeats_are_one_row_and_seeds_with_repeats_count_each_training_once(store: Store, fill: Any) -> None:
    names = ("tuned #0", "tuned #0 ~2", "tuned #1", "base", "base ~2")
    runs = fill(store, {name: ["a"] * 4 for name in names}, ["a"] * 4)
    values = dict(zip(names, (1.0, 0.0, 0.25, 0.5, 1.0), strict=True))
    with store.database.writing() as connection:
        for name, row in runs.items():
            made_of = json.dumps({"checkpoint": first_name(name)})
            connection.execute("UPDATE runs SET description = ? WHERE run = ?", [made_of, row.run])
            connection.execute("UPDATE scores SET value = ? WHERE run = ?", [values[name], row.run])
    (apart,) = boards(store, "toy", metrics=["em"])
    assert [row.run.method for row in apart.rows] == ["tuned #0 (2 repeats)", "tuned #1", "base (2 repeats)"]
    (together,) = boards(store, "toy", metrics=["em"], over_seeds=True, reference="base")
    tuned, base = (row.cells[together.metrics[0]] for row in together.rows)
    assert [row.run.method for row in together.rows] == ["tuned (2 seeds, 3 answers)", "base (2 repeats)"]
    assert tuned.estimate.value == pytest.approx((0.5 + 0.25) / 2), "the mean over trainings of the mean over repeats"
    assert (tuned.by_seed, tuned.by_repeat) == (pytest.approx((0.5, 0.25)), ())
    assert (base.by_seed, base.by_repeat) == ((), pytest.approx((0.5, 1.0)))
    assert tuned.difference is not None
    assert tuned.difference.value == pytest.approx(0.375 - 0.75)
    assert [line for line in remarks(together.rows[1]) if "by repeat" in line]


@pytest.mark.slow
def test_failures_of_repeats_are_added_by_kind(store: Store, fill: Any) -> None:
    fill(store, {"m": ["a"] * 4, "m ~2": ["a", None, "a", "a"], "m ~3": [None, None, "a", "a"]}, ["a"] * 4)
    (board,) = boards(store, "toy", metrics=["em"])
    (row,) = board.rows
    assert (row.run.failed, sum(row.failures.values())) == (3, 3)


@pytest.mark.parametrize(
    ("name", "base", "first", "repeat"),
    [("ARK", "ARK", "ARK", 0), ("ARK ~3", "ARK", "ARK", 2), ("ARK #1 ~2", "ARK", "ARK #1", 1), ("a ~x", "a ~x", "a ~x", 0)],
)
def test_name_of_a_run_has_seed_and_repeat(name: str, base: str, first: str, repeat: int) -> None:
    assert (base_name(name), first_name(name), repeat_of(name)) == (base, first, repeat)
    assert repeated_name(first, repeat) == name


@pytest.mark.parametrize("row", ["ARK", "ARK (3 seeds)", "ARK (3 seeds, 9 answers)", "ARK #1 (2 repeats)"])
def test_row_is_called_by_the_names_of_its_runs(row: str) -> None:
    assert is_called(row, "ARK" if row == "ARK" else "ARK #1")
    assert row == "ARK" or is_called(row, "ARK #1 ~2")
    assert not is_called(row, "GPR #1")
