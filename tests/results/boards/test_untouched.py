"""Boards and comparisons of runs whose training read some of the questions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.core.fingerprint import folder_sha256
from benchmarks.datasets import fold_of
from benchmarks.read_questions import ReadQuestions, write_record
from results.boards.board import Row, boards, positions
from results.boards.budget import quality_budget
from results.boards.compare import compare
from results.boards.diff import diff
from results.boards.systems import POSITIVE_CONTROL, POSITIVE_CONTROL_TIP, UNTRAINED_CONTROL
from results.boards.tables import READ_UNKNOWN, badge, remarks
from results.formats.table_files import wide_latex
from results.gate.comparable import check_comparable
from results.store import checkpoints, queries, score_queries
from results.store.store import Store
from tests.results.gate.test_decision import F1, questions, run_of
from tests.support.errors import raises
from tests.support.stores import checkpoint_that_read, made_with

N = 100


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def row_of(store: Store, name: str) -> Row:
    (board,) = boards(store)
    (row,) = [row for row in board.rows if row.run.method == name]
    return row


def trained(store: Store, folder: Path, read: int, *, parent: bool = False) -> np.ndarray:
    """Store a run that scores 1 on what it read and 0.5 elsewhere, and an untrained one that scores 0.4."""
    benchmark = questions(store, N)
    checkpoint = checkpoint_that_read(store, folder / "first", [question.text.upper() for question in benchmark.questions[:read]])
    if parent:
        checkpoint = checkpoint_that_read(store, folder / "second", ["Who founded Korv?"], [checkpoint.sha256])
    scores = np.where(np.arange(N) < read, 1.0, 0.5)
    run_of(store, benchmark, "ours", {F1: scores.tolist()}, description=made_with(checkpoint))
    run_of(store, benchmark, "plain", {F1: [0.4] * N}, description={"method": {"id": "bm25"}})
    return scores


@pytest.mark.slow
@pytest.mark.parametrize("parent", [False, True])
def test_row_shows_its_value_without_the_questions_that_were_read(store: Store, tmp_path: Path, parent: bool) -> None:
    scores = trained(store, tmp_path, 40, parent=parent)
    row = row_of(store, "ours")
    assert row.read is not None
    assert len(row.read.touched.questions) == 40
    value = row.read.values[F1]
    assert (value.whole, value.untouched, value.n) == (pytest.approx(scores.mean()), 0.5, 60)
    # Contaminated: it is neither ranked nor tested.
    assert "40 of 100 questions" in row.contaminated[0]
    assert row.cells[F1].apart.startswith("contaminated")
    assert any("70.0, without them 50.0 (60 questions)" in line for line in remarks(row))
    (board,) = boards(store)
    as_json = {entry["method"]: entry for entry in json.loads(json.dumps(board.to_json()))["rows"]}
    assert as_json["ours"]["questions_read"]["questions"] == 40
    assert as_json["ours"]["questions_read"]["without"][F1] == {"value": 0.5, "n": 60}
    assert as_json["plain"]["questions_read"] is None
    assert not row_of(store, "plain").contaminated


def test_few_questions_are_noted_and_the_row_is_compared(store: Store, tmp_path: Path) -> None:
    trained(store, tmp_path, 4)
    row = row_of(store, "ours")
    assert not row.contaminated
    assert not row.cells[F1].apart
    assert any("4 of 100 questions" in line for line in remarks(row))


def test_row_of_which_every_question_was_read_has_no_value_without_them(store: Store, tmp_path: Path) -> None:
    trained(store, tmp_path, N)
    row = row_of(store, "ours")
    assert row.read is not None
    assert row.read.to_json()["without"][F1] == {"value": None, "n": 0}
    assert row.contaminated


@pytest.mark.slow
@pytest.mark.parametrize("described", [{"id": "sark", "config": {"model": "x"}, "weights": "50e606e9af5cbfd4"}, None])
def test_weights_without_a_record_are_unknown_and_a_record_that_says_nothing_is_not(
    store: Store, tmp_path: Path, described: dict[str, object] | None
) -> None:
    benchmark = questions(store, N)
    description = (
        {"method": {"id": "bm25"}, "reader": described} if described else made_with(checkpoint_that_read(store, tmp_path / "c", []))
    )
    run_of(store, benchmark, "bare", {F1: [0.4] * N}, description=description)
    recorded = checkpoint_that_read(store, tmp_path / "r", ["Who founded Korv?"])
    run_of(store, benchmark, "recorded", {F1: [0.4] * N}, description=made_with(recorded))
    run_of(
        store, benchmark, "child", {F1: [0.4] * N}, description=made_with(checkpoint_that_read(store, tmp_path / "k", ["Who?"], ["a" * 64]))
    )
    empty = checkpoint_that_read(store, tmp_path / "e", [])
    write_record(empty.path, ReadQuestions(np.empty(0, np.uint64), np.empty(0, np.uint64)))
    checkpoints.register(store, empty.path)
    assert checkpoints.known_checkpoints(store)[empty.sha256].read is None
    assert READ_UNKNOWN in remarks(row_of(store, "bare"))
    assert READ_UNKNOWN in remarks(row_of(store, "child"))
    assert not remarks(row_of(store, "recorded"))
    (board,) = boards(store)
    states = {entry["method"]: entry["questions_read"] for entry in board.to_json()["rows"]}
    assert states == {"bare": "unknown", "recorded": None, "child": "unknown"}


@pytest.mark.slow
def test_comparison_shows_values_and_difference_without_the_questions(store: Store, tmp_path: Path) -> None:
    trained(store, tmp_path, 40)
    first, second = (queries.find_run(store, f"{name}-fingerprint") for name in ("ours", "plain"))
    lines = diff(store, first, second, questions=0).read
    assert any(line.startswith("first: 40 of 100 questions") and "without them 50.0" in line for line in lines)
    assert any("other 60 questions" in line and "−10.0" in line for line in lines)
    assert compare(store, [first, second], F1).read[-1] == lines[-1]
    assert list(diff(store, first, second, questions=0).to_json()["questions_read"]) == list(lines)


def test_record_that_is_added_later_marks_earlier_runs(store: Store, tmp_path: Path) -> None:
    benchmark = questions(store, N)
    checkpoint = checkpoint_that_read(store, tmp_path / "c", [])
    run_of(store, benchmark, "ours", {F1: [0.4] * N}, description=made_with(checkpoint))
    assert not row_of(store, "ours").contaminated
    (tmp_path / "other").mkdir()
    added = checkpoint_that_read(store, tmp_path / "other" / "c", [question.text for question in benchmark.questions])
    assert added.sha256 == checkpoint.sha256
    assert row_of(store, "ours").contaminated


def of_folds(parts: int, *checkpoints: checkpoints.Checkpoint) -> dict[str, object]:
    """Return the description of a run that asks the K-th checkpoint about fold K, with as many checkpoints as are left."""
    weights = "-".join(item.sha256 for item in checkpoints[:parts])
    return {"method": {"id": "ark_folds", "config": {}, "weights": weights}}


def test_folds_count_the_questions_that_their_own_checkpoint_read(store: Store, tmp_path: Path) -> None:
    benchmark = questions(store, N)
    folds = [fold_of(question.text, 2) for question in benchmark.questions]
    of = {fold: [question.text for question, own in zip(benchmark.questions, folds, strict=True) if own == fold] for fold in (1, 2)}
    begun = checkpoint_that_read(store, tmp_path / "0", of[2])
    one = checkpoint_that_read(store, tmp_path / "1", of[2][:3], [begun.sha256])
    two = checkpoint_that_read(store, tmp_path / "2", of[1])
    for name, order in (("held out", (one, two)), ("swapped", (two, one))):
        run_of(store, benchmark, name, {F1: [0.4] * N}, method_id="ark_folds", description=of_folds(2, *order))
    run_of(store, benchmark, "one for all", {F1: [0.4] * N}, description=made_with(one, two))
    run_of(store, benchmark, "beside", {F1: [0.4] * N}, description=of_folds(2, one, two) | {"rerankers": made_with(two)["rerankers"]})
    row = row_of(store, "held out")
    assert (row.read, row.contaminated, row.cells[F1].apart) == (None, (), "")
    for name, read in (("swapped", N), ("one for all", N), ("beside", len(of[1]))):
        row = row_of(store, name)
        assert row.read is not None
        assert len(row.read.touched.questions) == read
        assert row.contaminated


def test_positive_control_is_compared_and_never_ranked_or_best(store: Store, tmp_path: Path) -> None:
    benchmark = questions(store, N)
    scores = {"base": np.arange(N) % 2 * 0.5, "ours": np.arange(N) % 2 * 0.8}
    for name, values in scores.items():
        run_of(store, benchmark, name, {F1: values.tolist()}, description={"method": {"id": "bm25"}})
    read = checkpoint_that_read(store, tmp_path / "c", [question.text for question in benchmark.questions])
    run_of(store, benchmark, "trained #1", {F1: [1.0] * N}, run="trained-fingerprint", description=made_with(read))
    runs = [f"{name}-fingerprint" for name in (*scores, "trained")]
    kept = "name: e\npositive_controls: [trained]\nprofiles: {other: {positive_controls: []}}"
    store.put_experiment("e", kept, None, None, "base", runs)
    (board,) = boards(store, "e")
    row = next(row for row in board.rows if row.run.method == "trained #1")
    cell = row.cells[F1]
    assert row.run.positive_control
    assert not row.contaminated
    assert cell.difference is not None
    assert cell.difference.value == pytest.approx(0.75)
    assert f"{POSITIVE_CONTROL}: {POSITIVE_CONTROL_TIP}" in remarks(row)
    assert badge(board, row) == f" ({POSITIVE_CONTROL})"
    assert next(entry for entry in board.to_json()["rows"] if entry["method"] == "trained #1")["positive_control"]
    assert set(positions(store, board, F1)) == {"base-fingerprint", "ours-fingerprint"}
    assert r"\mathbf{40.0}" in wide_latex([board], score_queries.definitions(store), "e")
    assert "trained #1" not in {item.row.run.method for item in quality_budget(board, F1, "seconds") if item.front}
    with raises("control-gated"):
        check_comparable(queries.find_run(store, "base-fingerprint"), row.run, allow_partial=False)
    # Another profile of the file declares nothing.
    store.put_experiment("e", kept, None, "other", "base", runs)
    (board,) = boards(store, "e")
    row = next(row for row in board.rows if row.run.method == "trained #1")
    assert row.contaminated
    assert row.cells[F1].difference is None


def test_positive_control_trained_on_other_questions_is_no_evidence(store: Store, tmp_path: Path) -> None:
    benchmark = questions(store, N)
    run_of(store, benchmark, "base", {F1: [0.5] * N}, description={"method": {"id": "bm25"}})
    elsewhere = checkpoint_that_read(store, tmp_path / "c", ["Was this ever asked?"])
    run_of(store, benchmark, "trained", {F1: [0.5] * N}, run="trained-fingerprint", description=made_with(elsewhere))
    store.put_experiment("e", "name: e\npositive_controls: [trained]", None, None, "base", ["base-fingerprint", "trained-fingerprint"])
    (board,) = boards(store, "e")
    row = next(row for row in board.rows if row.run.method == "trained")
    assert f"{POSITIVE_CONTROL}: {UNTRAINED_CONTROL}" in remarks(row)


def test_run_enters_checkpoints_that_bring_a_record(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "one"), Store(tmp_path / "two")
    recorded = checkpoint_that_read(first, tmp_path / "r", ["Who?"])
    bare = checkpoint_that_read(first, tmp_path / "b", [])
    checkpoints.register_recorded(second, {item.sha256: item.path for item in (recorded, bare)})
    assert list(checkpoints.known_checkpoints(second)) == [recorded.sha256]


def test_edited_checkpoint_keeps_its_record(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "one"), Store(tmp_path / "two")
    folder = checkpoint_that_read(first, tmp_path / "r", ["Who?"]).path
    (folder / "README.md").write_text("edited")
    sha256 = folder_sha256(folder)
    with pytest.warns(UserWarning, match="incomplete copy"):
        checkpoints.register_recorded(second, {sha256: folder})
    (known,) = checkpoints.known_checkpoints(second).values()
    assert known.sha256 == sha256
    assert known.read is not None
