"""Submissions that wait, and messages that contain server paths."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from leaderboard import intake
from leaderboard.intake import Draft
from leaderboard.server import _environment
from tests.support.errors import raises


def answering(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setenv(intake.VARIABLE, json.dumps([sys.executable, "-c", code]))


def test_submissions_wait_if_the_server_was_started_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for hold in (True, False):
        monkeypatch.delenv(intake.HOLD_VARIABLE, raising=False)
        for name, value in _environment(tmp_path, ["submit"], hold=hold).items():
            monkeypatch.setenv(name, value)
        assert intake.waits_for_approval() is hold


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
