"""A gate whose sides were trained on some of its questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from results.gate.decision import ask
from results.gate.verdicts import Gate
from results.store.store import Store
from tests.results.gate.test_decision import EM, F1, questions, run_of
from tests.support.stores import checkpoint_that_read, made_with

N = 600


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def decided(store: Store, folder: Path, read: range, side: str, gain: float) -> Gate:
    """Decide about a side that reads some questions and gains there: on the others both score alike, but for a loss of the candidate."""
    benchmark = questions(store, N)
    checkpoint = checkpoint_that_read(store, folder, [benchmark.questions[n].text for n in read])
    rng = np.random.default_rng(3)
    plain = rng.random(N) * 0.4 + 0.3
    other = plain + rng.normal(0, 0.02, N)
    other[read.start : read.stop] += gain
    scores = {"candidate": plain, "baseline": other} if side == "baseline" else {"candidate": other - 0.03, "baseline": plain}
    rows = {
        name: run_of(
            store, benchmark, name, {F1: values.tolist()}, description=made_with(checkpoint) if name == side else {"method": {"id": "bm25"}}
        )
        for name, values in scores.items()
    }
    return ask(store, rows["baseline"], rows["candidate"], metrics=["f1"], margin=0.01)


def test_pass_that_rests_on_questions_the_candidate_read_is_inconclusive(store: Store, tmp_path: Path) -> None:
    gate = decided(store, tmp_path / "model", range(200), "candidate", 0.3)
    (verdict,) = gate.verdicts
    assert verdict.decision.outcome == "pass"
    assert (gate.outcome, gate.exit_code) == ("inconclusive", 101)
    assert "200 questions" in verdict.held_back[0]
    assert any("200 of 600 questions" in line for line in gate.remarks)


def test_regression_against_a_baseline_that_read_the_questions_is_inconclusive(store: Store, tmp_path: Path) -> None:
    gate = decided(store, tmp_path / "model", range(200), "baseline", 0.3)
    assert gate.verdicts[0].decision.outcome == "regressed"
    assert gate.outcome == "inconclusive"


def test_regression_of_a_contaminated_candidate_is_not_held_back(store: Store, tmp_path: Path) -> None:
    assert decided(store, tmp_path / "model", range(200), "candidate", 0.0).outcome == "regressed"


def test_pass_that_holds_without_the_questions_is_a_pass_with_a_remark(store: Store, tmp_path: Path) -> None:
    benchmark = questions(store, N)
    checkpoint = checkpoint_that_read(store, tmp_path / "model", [benchmark.questions[0].text])
    values = np.random.default_rng(1).random(N)
    one = run_of(store, benchmark, "one", {F1: values.tolist()})
    two = run_of(store, benchmark, "two", {F1: (values + 0.02).tolist()}, description=made_with(checkpoint))
    gate = ask(store, one, two, metrics=["f1"], margin=0.01)
    assert gate.outcome == "pass"
    assert any("1 of 600 questions" in line for line in gate.remarks)


def test_candidate_that_read_every_question_cannot_pass(store: Store, tmp_path: Path) -> None:
    gate = decided(store, tmp_path / "model", range(N), "candidate", 0.3)
    assert gate.outcome == "inconclusive"
    assert "no other questions are left" in gate.verdicts[0].held_back[0]


def test_weights_without_a_record_are_unknown(store: Store, tmp_path: Path) -> None:
    benchmark = questions(store, 4)
    checkpoint = checkpoint_that_read(store, tmp_path / "model", [])
    one = run_of(store, benchmark, "one", {EM: [0.0] * 4})
    two = run_of(store, benchmark, "two", {EM: [1.0] * 4}, description=made_with(checkpoint))
    remarks = ask(store, one, two, metrics=["em"], margin=0.01).remarks
    assert [line for line in remarks if "unknown" in line and "candidate" in line]
    assert not [line for line in remarks if "unknown" in line and "baseline" in line]
