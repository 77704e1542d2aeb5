"""Attempts of a candidate, anchors, and what a store must hold to know of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from results.formats.exchange import merge
from results.formats.pruning import references
from results.gate import history
from results.gate.decision import ask
from results.gate.memory import anchor_of, identity, set_anchors
from results.gate.verdicts import Gate
from results.store import schema
from results.store.queries import RunRow
from results.store.store import INTERRUPTED, Store
from tests.results.gate.test_decision import F1, coin, questions, run_of
from tests.support.errors import raises

COUNT = 100


@pytest.fixture
def main(store: Store) -> RunRow:
    return run_of(store, questions(store, COUNT), "main", {F1: np.ones(COUNT)})


def candidate(store: Store, execution: str = "", share: float = 0.97, name: str = "new", **changed: Any) -> RunRow:
    scores = coin(len(execution), COUNT, share)
    return run_of(store, questions(store, COUNT), name, {F1: scores}, run=f"{name}-fingerprint{execution}", **changed)


def decide(store: Store, baseline: RunRow, item: RunRow, *, keep: bool = True, **how: Any) -> Gate:
    result = ask(store, baseline, item, **{"metrics": ["f1"], "margin": 0.02, "anchored": "main"} | how)
    assert not keep or history.record(store, result)
    return result


def attempt(gate: Gate) -> int:
    return gate.verdicts[0].memory.attempt


@pytest.mark.slow
def test_each_new_set_of_answers_is_an_attempt_and_deciding_again_is_none(store: Store, main: RunRow) -> None:
    runs = [candidate(store, execution) for execution in ("", ".a", ".bb")]
    gates = [decide(store, main, run) for run in runs]
    assert [attempt(gate) for gate in gates] == [1, 2, 3]
    assert attempt(decide(store, main, runs[1])) == 2
    lows = [gate.verdicts[0].change[0] - gate.verdicts[0].change[1] for gate in (decide(store, main, runs[0]), gates[0])]
    assert lows[0] == lows[1]
    assert gates[2].verdicts[0].pass_level == pytest.approx(1 - 0.005 / 6)


@pytest.mark.slow
def test_a_later_attempt_is_decided_at_a_stricter_level(store: Store, main: RunRow) -> None:
    run = candidate(store)
    first = decide(store, main, run, keep=False)
    for execution in (".a", ".bb", ".ccc"):
        decide(store, main, candidate(store, execution))
    later = decide(store, main, run, keep=False)
    assert attempt(later) == 4
    assert later.verdicts[0].change[1] < first.verdicts[0].change[1]
    assert later.verdicts[0].change[2] == first.verdicts[0].change[2]
    assert any("attempt 4" in line for line in later.remarks)


def test_neither_another_seed_nor_another_name_is_another_candidate(store: Store, main: RunRow) -> None:
    run = candidate(store)
    described = {"description": run.description}
    assert identity(candidate(store, ".a", seed=1)) == identity(candidate(store, name="other", **described)) == identity(run)
    assert identity(candidate(store, ".b", description={"method": {"id": "new", "code": "2"}})) != identity(run)


@pytest.mark.slow
def test_a_baseline_that_was_asked_afresh_is_another_attempt(store: Store, main: RunRow) -> None:
    run = candidate(store)
    again = run_of(store, questions(store, COUNT), "main", {F1: np.ones(COUNT)}, run="main-fingerprint.z")
    assert [attempt(decide(store, baseline, run)) for baseline in (main, again, main)] == [1, 2, 1]


def test_a_candidate_that_passed_keeps_its_level_against_that_baseline_and_margin(store: Store, main: RunRow) -> None:
    assert decide(store, main, candidate(store, share=1.0), margin=0.1).outcome == "pass"
    assert attempt(decide(store, main, candidate(store, ".a"), margin=0.1)) == 1
    assert attempt(decide(store, main, candidate(store, ".bb"), margin=0.05, keep=False)) == 3


def test_a_decision_in_between_is_noticed_when_the_next_is_stored(store: Store, main: RunRow) -> None:
    two = [decide(store, main, candidate(store, execution), keep=False) for execution in ("", ".a")]
    assert [history.record(store, gate) for gate in two] == [True, False]
    assert len(history.history(store)) == 1


@pytest.mark.slow
def test_small_losses_add_up_to_a_regression_since_the_anchor(store: Store, main: RunRow) -> None:
    assert set_anchors(store, "main", [main]) == [main]
    baseline, scores, outcomes = main, np.ones(COUNT), []
    for push in range(1, 6):
        scores = scores.copy()
        scores[8 * push : 8 * push + 8] = 0
        run = run_of(store, questions(store, COUNT), f"push{push}", {F1: scores})
        (verdict,) = decide(store, baseline, run, margin=0.15).verdicts
        assert verdict.since is not None
        assert (verdict.since.number, verdict.since.run.run) == (push, main.run)
        outcomes.append((verdict.decision.outcome, verdict.since.outcome, verdict.outcome))
        baseline = run
    assert {step for step, _, _ in outcomes} == {"inconclusive"}
    assert outcomes[-1] == ("inconclusive", "regressed", "regressed")
    stored = history.history(store)[0]
    assert stored.details["anchor"]["decision"] == 5
    assert stored.outcome == "regressed"


def test_an_anchor_stays_where_it_is_until_another_run_is_pinned(store: Store, main: RunRow) -> None:
    set_anchors(store, "main", [main])
    assert set_anchors(store, "main", [main]) == []
    run = candidate(store)
    assert set_anchors(store, "main", [run]) == [run]
    held = anchor_of(store, "main", main)
    assert held is not None
    assert held.run == run.run
    assert anchor_of(store, "other", main) is None
    assert references(store, [run.run])[run.run] == ["anchor of main"]


def test_clock_that_went_back_does_not_keep_an_anchor_or_the_order_of_decisions(
    store: Store, main: RunRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [candidate(store, execution, share=0.9) for execution in ("", ".a", ".bb")]
    day = schema.now()
    for number, run in enumerate(runs):
        monkeypatch.setattr(schema, "now", lambda: day - timedelta(days=number))  # noqa: B023
        set_anchors(store, "main", [run])
        held = anchor_of(store, "main", main)
        assert held is not None
        assert held.run == run.run
        decide(store, main, run)
    assert [item.candidate for item in history.history(store)] == [run.run for run in reversed(runs)]


def test_only_finished_runs_become_anchors(store: Store) -> None:
    run = run_of(store, questions(store, COUNT), "half", {F1: np.ones(50)}, status=INTERRUPTED)
    with raises("anchor-not-finished", where="--set-anchor"):
        set_anchors(store, "main", [run])


@pytest.mark.slow
def test_missing_memory_is_a_remark_and_a_missing_anchor_run_an_error(store: Store, main: RunRow) -> None:
    run = candidate(store)
    remarks = decide(store, main, run).remarks
    assert [any(text in line for line in remarks) for text in ("no anchor", "no earlier decision")] == [True, True]
    set_anchors(store, "main", [run])
    assert not any("no anchor" in line or "no earlier decision" in line for line in decide(store, main, run).remarks)
    with store.database.writing() as connection:
        connection.execute("UPDATE anchors SET run = 'gone'")
    with raises("anchor-gone"):
        decide(store, main, run)


@pytest.mark.slow
def test_two_stores_merge_their_memories(store: Store, main: RunRow, tmp_path: Any) -> None:
    other = Store(tmp_path / "other")
    merge(other, store.folder)
    set_anchors(store, "main", [main])
    decide(store, main, candidate(store))
    decide(other, main, candidate(other, ".a"))
    merge(store, other.folder)
    merge(other, store.folder)
    for each in (store, other):
        result = decide(each, main, candidate(each, ".bb"), keep=False)
        assert (attempt(result), result.anchor) == (3, main.run)
