"""Win rates and strengths as people would have them, who labeled some of the pairs that a judge compared."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results.judging.battles import THIS_JUDGE_ONLY
from results.judging.labels import export_items, import_labels
from results.store.store import Store
from tests.results.judging.test_battles_board import board_of, fight, overall_of

COUNT = 60
NAMES = ("mine", "other", "last")


@pytest.fixture
def runs(store: Store, fill: Any) -> dict[str, Any]:
    """Three methods; the judge says that `mine` wins nine questions in ten, and that the others win equally often."""
    results: dict[str, Any] = fill(
        store, {name: [f"{name} {n}" for n in range(COUNT)] for name in NAMES}, [f"gold{n}" for n in range(COUNT)], metrics=()
    )
    for mine, theirs in (("mine", "other"), ("mine", "last"), ("other", "last")):
        winner = {n: "mine" if (mine == "mine" and n % 10) or n % 2 else "theirs" for n in range(COUNT)}
        fight(store, results[mine], results[theirs], {f"q{n}": (winner[n], winner[n]) for n in range(COUNT)})
    return results


def label(store: Store, runs: dict[str, Any], folder: Path, number: int) -> None:
    """Let a person say of a random sample that every method wins as often as not."""
    rows = list(csv.DictReader(io.StringIO(export_items(store, list(runs.values()), "overall", number, pairs=True, seed=1))))
    for row in rows:
        first_is_earlier = NAMES.index(row["answer_1"].split()[0]) < NAMES.index(row["answer_2"].split()[0])
        row["label"] = "1" if (int(row["answer_1"].split()[1]) % 4 < 2) == first_is_earlier else "2"
    with (folder / "l.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    import_labels(store, folder / "l.csv", "ann")


def test_marks_without_labels_hold_for_this_judge_only(store: Store, runs: dict[str, Any]) -> None:
    board = board_of(store, runs, "last")
    assert (board.basis("overall"), overall_of(board, "mine").won, board.corrected) == (THIS_JUDGE_ONLY, True, frozenset())
    assert overall_of(board, "mine").people is None
    assert board.to_json()["basis"]["overall"] == THIS_JUDGE_ONLY


def test_labels_correct_a_judge_that_favors_a_method(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    label(store, runs, tmp_path, 3 * COUNT - 20)
    board = board_of(store, runs, "last")
    pairing = overall_of(board, "mine")
    assert pairing.rate.with_ties.value == pytest.approx(0.9)
    assert pairing.people is not None
    assert pairing.people.corrected.value == pytest.approx(0.5, abs=0.08)
    assert pairing.people.corrected.n >= 40
    assert (pairing.corrected_by_people, pairing.won, board.basis("overall")) == (True, None, "corrected by people's labels")
    strengths = dict(board.strengths["overall"])
    assert "overall" in board.corrected
    assert all(strength.logit.low < 0 < strength.logit.high for strength in strengths.values())


@pytest.mark.slow
def test_too_few_labels_are_shown_and_change_no_mark(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    label(store, runs, tmp_path, 20)
    before = [pairing.won for pairing in board_of(store, runs, "last").pairings]
    board = board_of(store, runs, "last")
    assert any(pairing.people is not None and not pairing.corrected_by_people for pairing in board.pairings)
    assert (board.basis("overall"), [pairing.won for pairing in board.pairings]) == (THIS_JUDGE_ONLY, before)
    assert board.corrected == frozenset()


@pytest.mark.slow
def test_other_tie_rules_are_not_corrected(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    label(store, runs, tmp_path, 3 * COUNT)
    assert all(pairing.people is None for pairing in board_of(store, runs, "last", ties="loss").pairings)
    assert np.isfinite(overall_of(board_of(store, runs, "last"), "mine").people.p(0.5))  # type: ignore[union-attr]
