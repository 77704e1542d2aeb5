"""What `ragmeter demo` says of itself: what comes, how long, and which part it is at."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragmeter.cli import app
from ragmeter.cli.commands import demo


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    monkeypatch.setattr(demo, "carry_and_show", lambda *_: (0, {}))
    monkeypatch.setattr(demo, "BEHIND", {})
    monkeypatch.setattr(demo, "show_approaches", lambda *_, **__: None)
    return ["demo", "--store", str(tmp_path / "store")]


@pytest.mark.slow
def test_it_says_what_comes_and_how_far_it_is(said: list[str]) -> None:
    done = CliRunner().invoke(app, said)
    told = " ".join(done.stderr.split())
    assert "4 parts: demo, demo-graph, demo-styles, demo-compression; seven to eight minutes on two cores" in told
    assert [f"{n} of 4: {name}" in told for n, name in enumerate(demo.PARTS, start=1)] == [True] * 4
    assert done.stdout.startswith("leaderboard: ")


@pytest.mark.slow
def test_a_smaller_one_promises_no_time_and_a_quiet_one_says_nothing(said: list[str]) -> None:
    assert "minutes" not in CliRunner().invoke(app, [*said, "--limit", "2"]).stderr
    assert CliRunner().invoke(app, [*said, "--quiet"]).stderr == ""
