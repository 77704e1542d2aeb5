"""`ragmeter leaderboard`: upload limits in the help, missing stores, and invalid store folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderboard import server
from results.offered import LIMITS
from results.store.database import FILE

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def _not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "serve", lambda *_, **__: 0)


def test_help_states_upload_types_and_size_limits(call: Command) -> None:
    shown = " ".join(call("leaderboard", "--help").out.split())
    assert "Read-only unless --allow-submissions" in shown
    for limit in (f"{server.UPLOAD_MIB} MiB a file", f"{LIMITS.card_bytes // 1024} KiB a card", f"{LIMITS.rows:,} rows", "15 minutes"):
        assert limit in shown


def test_path_without_a_store_is_reported(call: Command, tmp_path: Path) -> None:
    typo = str(tmp_path / "typo")
    done = call("leaderboard", "--store", typo)
    assert (done.code, done.out) == (0, "")
    assert f"no store at {typo} yet" in done.err
    assert not (tmp_path / "typo").exists()
    (tmp_path / FILE).touch()
    for quiet in (("--store", typo, "--quiet"), ("--store", str(tmp_path))):
        assert call("leaderboard", *quiet) == (0, "", "")


def test_file_is_refused_as_a_store_folder(call: Command, tmp_path: Path) -> None:
    (tmp_path / "results.csv").touch()
    for position in (tmp_path / "results.csv", tmp_path / "results.csv" / "store"):
        done = call("leaderboard", "--store", str(position))
        assert done.code == 2
        assert "this is a file" in done.err
        assert f"where: {tmp_path / 'results.csv'}\n" in done.err
