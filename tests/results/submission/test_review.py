"""Accepting, holding, rejecting and withdrawing submissions: what boards show, and what visitors read."""

from __future__ import annotations

import pytest

from results.boards.board import boards
from results.store import queries
from results.store.store import FINISHED, Run, Store
from results.submission import review
from tests.support.errors import raises

OURS, SENT = "ab" * 8, "cd" * 8


@pytest.fixture
def sent(store: Store) -> Store:
    """An experiment with one run, and a submission on the same questions."""
    for run, name, origin, card in ((OURS, "mine", "run", None), (SENT, "theirs@1", "submitted", {"method": {}, "submission": {}})):
        store.start(Run(run, name, name, "method", {}, "d", "f" * 16, "distractor", 0, 3, {}, {}, origin, card))
        store.end(run, FINISHED)
    store.put_experiment("e", "text", None, None, None, [OURS], metrics=[["em(rules=squad)#v2"]])
    return store


def shown(store: Store, experiment: str | None = "e") -> list[str]:
    return [row.method for row in queries.runs(store, experiment)]


def test_a_submission_is_on_the_board_of_an_experiment_with_the_same_questions_and_has_its_columns(sent: Store) -> None:
    rows = queries.runs(sent, "e")
    assert [row.method for row in rows] == ["mine", "theirs@1"]
    assert {row.metrics for row in rows} == {("em(rules=squad)#v2",)}
    (board,) = boards(sent, "e")
    assert [row.run.origin for row in board.rows] == ["run", "submitted"]
    assert [row["origin"] for row in board.to_json()["rows"]] == ["run", "submitted"]


@pytest.mark.parametrize(("setting", "seed"), [("corpus", 0), ("distractor", 1)])
def test_a_submission_in_another_setting_or_with_another_seed_is_not(sent: Store, setting: str, seed: int) -> None:
    sent.start(Run("ef" * 8, "other@1", "o", "method", {}, "d", "f" * 16, setting, seed, 3, {}, {}, "submitted", {}))
    assert shown(sent) == ["mine", "theirs@1"]
    assert "other@1" in shown(sent, None)


@pytest.mark.parametrize(("action", "status"), [("hold", "held"), ("reject", "rejected"), ("withdraw", "withdrawn")])
def test_what_is_not_accepted_is_on_no_board_and_keeps_status_and_reason(sent: Store, action: str, status: str) -> None:
    row = queries.find_run(sent, SENT)
    done = review.decide(sent, row, action, " answers of <b>another</b> system ")
    assert (done.status, done.reason) == (status, "answers of <b>another</b> system")
    assert shown(sent) == shown(sent, None) == ["mine"]
    assert [row.method for row in queries.runs(sent, hidden=True)] == ["mine", "theirs@1"]
    assert review.submissions(sent)[0].to_json()["status"] == status
    again = review.decide(sent, queries.find_run(sent, SENT), "accept")
    assert (again.status, again.reason) == ("accepted", "")
    assert shown(sent) == ["mine", "theirs@1"]
    record = queries.find_run(sent, SENT).card["submission"]["review"]
    assert [entry["status"] for entry in record] == [status, "accepted"]


def test_a_verified_submission_that_is_accepted_again_stays_verified(sent: Store) -> None:
    with sent.database.writing() as connection:
        card = '{"submission": {"verification": {"agrees": true}}}'
        connection.execute("UPDATE runs SET origin = 'verified', card = ? WHERE run = ?", [card, SENT])
    review.decide(sent, queries.find_run(sent, SENT), "hold", "a question")
    assert review.decide(sent, queries.find_run(sent, SENT), "accept").run.origin == "verified"


@pytest.mark.parametrize(
    ("run", "action", "reason", "code"),
    [
        (SENT, "reject", " ", "reason-needed"),
        (SENT, "hold", "a\nb", "bad-reason"),
        (SENT, "hold", "a\u202eb", "bad-reason"),
        (SENT, "accept", "x" * 501, "bad-reason"),
        (SENT, "publish", "x", "unknown-action"),
        (OURS, "reject", "x", "not-submission"),
    ],
)
def test_other_decisions_are_refused_and_change_nothing(sent: Store, run: str, action: str, reason: str, code: str) -> None:
    with raises(code):
        review.decide(sent, queries.find_run(sent, run), action, reason)
    assert shown(sent) == ["mine", "theirs@1"]
