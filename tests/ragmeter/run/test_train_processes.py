"""`ragmeter train` as one of several processes: `accelerate launch` and `torchrun` number them in RANK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ragmeter.cli import app
from ragmeter.runner.trainings import TrainingJob


@pytest.mark.parametrize(("processes", "rank", "spoken"), [("1", None, True), ("2", "0", True), ("2", "1", False), ("1", "1", True)])
def test_the_first_process_alone_speaks(
    processes: str, rank: str | None, spoken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(job: TrainingJob, progress: Any, *, until: str | None) -> list[Any]:
        ran.append(job.entry.id)
        return []

    monkeypatch.setattr(TrainingJob, "run", run)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", processes)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    done = CliRunner().invoke(app, ["train", "gpr", "--preset", "demo", "--store", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert ran == ["gpr"]
    assert ("nothing was trained" in done.output) == spoken
