"""Run `ragmeter data` in this process and return its result, JSON or error; and write a data file for it."""

import json
from pathlib import Path

from typer.testing import CliRunner

from benchmarks.core.errors import UserError
from benchmarks.io import hub_faults
from benchmarks.registry import load
from ragmeter.cli import app
from tests.support.worlds_native import write_native


def isolated(monkeypatch, folder: Path) -> None:
    """Remove local data and waiting times for a hub, and restore the environment after each test."""
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    monkeypatch.setenv("RAGMETER_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(folder / "no-hub"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(hub_faults, "WAIT_S", 0.0)


def write_hotpotqa(folder: Path, questions: int) -> Path:
    """Write HotpotQA's dev file from a world."""
    folder.mkdir()
    path = folder / "hotpot_dev_distractor_v1.json"
    write_native(load("worlds/multihop:test", {"questions": 3 * questions}), "hotpotqa", path)
    path.write_text(json.dumps(json.loads(path.read_text())[:questions]))
    return path


def data(*arguments):
    """Return the command's result; errors are those of the command."""
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def shown(*arguments, code=0):
    result = data(*arguments, "--json")
    assert result.exit_code == code, result.exception or result.stderr
    return json.loads(result.stdout)


def refused(*arguments) -> UserError:
    result = data(*arguments)
    assert isinstance(result.exception, UserError), result.stdout
    return result.exception
