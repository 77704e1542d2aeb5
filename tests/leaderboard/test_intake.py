"""The owner's token, decisions, and messages that contain server paths."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from leaderboard import intake
from leaderboard.intake import Draft
from leaderboard.server import _environment
from tests.support.errors import raises

TOKEN = "correct horse battery"


def answering(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setenv(intake.VARIABLE, json.dumps([sys.executable, "-c", code]))


def test_server_stores_only_the_hash_of_the_owner_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_OWNER_TOKEN", TOKEN)
    environment = _environment(tmp_path, ["submit"], hold=True, owner=intake.token_hash(TOKEN))
    assert TOKEN not in repr(environment)
    for name in (intake.VARIABLE, intake.HOLD_VARIABLE, intake.OWNER_VARIABLE):
        monkeypatch.setenv(name, environment[name])
    assert intake.waits_for_approval()
    assert [intake.is_owner(text) for text in (TOKEN, TOKEN[:-1], "", environment[intake.OWNER_VARIABLE])] == [True, False, False, False]


def test_owner_access_requires_a_token_and_enabled_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(intake.VARIABLE, raising=False)
    monkeypatch.setenv(intake.OWNER_VARIABLE, intake.token_hash(TOKEN))
    assert not intake.is_owner(TOKEN)
    answering(monkeypatch, "")
    monkeypatch.delenv(intake.OWNER_VARIABLE)
    assert not intake.is_owner(TOKEN)


def test_weak_owner_token_is_refused() -> None:
    with raises("owner-token-short"):
        intake.token_hash("x" * 15)


def test_decision_runs_one_command_and_its_reason_is_not_parsed_as_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "import json, sys; print(json.dumps({'status': sys.argv[1:]}))")
    status = intake.decide("ab12", "reject", "--store=/", tmp_path)
    assert "'reject', 'ab12', '--reason=--store=/', '--json'" in status


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/data/hotpotqa/dev.json:3", "dev.json:3"),
        ("no file in /srv/data/x", "no file in x"),
        ("https://a.example/b/c", "https://a.example/b/c"),
        ("hotpotqa/distractor:dev", "hotpotqa/distractor:dev"),
    ],
)
def test_visitor_messages_contain_no_server_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, shown: str) -> None:
    error = {"error": {"what": text, "where": text, "try": None}}
    answering(monkeypatch, f"import sys; print({json.dumps(json.dumps(error))}, file=sys.stderr); sys.exit(2)")
    with raises("refused-submission") as caught:
        intake.hand_over(Draft(b"{}", b"a: 1"), tmp_path, keep=False)
    assert (caught.value.what, caught.value.where) == (shown, shown)
