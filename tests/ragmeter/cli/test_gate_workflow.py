"""The example workflow for GitHub: its shell steps, executed with stubs of `ragmeter` and `gh`."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from results.gate.comment import MARK

FILE = Path(__file__).parents[3] / "examples" / "github" / "gate.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text("utf-8"))


def step(workflow: dict[str, Any], name: str) -> dict[str, Any]:
    (result,) = [each for each in workflow["jobs"]["gate"]["steps"] if each.get("name") == name]
    return result


def execute(folder: Path, script: str, env: dict[str, Any], **commands: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, with scripts in place of commands."""
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **{name: str(value) for name, value in env.items()}}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("code", "fails", "warned"), [(0, 0, 0), (100, 100, 100), (101, 101, 0), (2, 2, 2), (1, 1, 1)])
def test_workflow_tolerates_only_inconclusive_with_a_warning(
    tmp_path: Path, workflow: dict[str, Any], code: int, fails: int, warned: int
) -> None:
    script = step(workflow, "Gate")["run"]
    stub = {"ragmeter": f'echo "$@" > arguments; exit {code}'}
    done = execute(tmp_path, script, workflow["env"], **stub)
    assert (done.returncode, "::warning" in done.stdout) == (fails, False)
    done = execute(tmp_path, script, workflow["env"] | {"inconclusive": "warn"}, **stub)
    assert (done.returncode, "::warning" in done.stdout) == (warned, code == 101)
    env = workflow["env"]
    sides = f"--baseline main --need-anchor --candidate {env['METHOD']}/{env['BENCHMARK']}"
    expected = f"gate {sides} {env['METRICS']} --junit gate.xml --comment gate.md"
    assert (tmp_path / "arguments").read_text().strip() == expected


@pytest.mark.parametrize(("code", "fails"), [(0, 0), (101, 0), (100, 100), (2, 2)])
def test_push_to_main_is_gated_and_stopped_only_by_a_regression_or_error(
    tmp_path: Path, workflow: dict[str, Any], code: int, fails: int
) -> None:
    env = workflow["env"] | {"GITHUB_EVENT_NAME": "push"}
    done = execute(tmp_path, step(workflow, "Gate")["run"], env, ragmeter=f'echo "$@" > arguments; exit {code}')
    assert done.returncode == fails
    assert (tmp_path / "arguments").read_text().split()[-1] == "--allow-same"
    # Without `always()`, the baseline moves only after a step that did not fail; the store is kept either way.
    assert step(workflow, "Tag the run on main as the baseline")["if"] == "github.event_name == 'push'"
    assert workflow["jobs"]["gate"]["steps"][-1]["if"] == "always()"


@pytest.mark.parametrize("wanted", ["true", "false"])
def test_only_a_manual_run_moves_the_anchor(tmp_path: Path, workflow: dict[str, Any], wanted: str) -> None:
    name = "Set the anchor"
    assert step(workflow, name)["if"] == "github.event_name == 'workflow_dispatch'"
    script = step(workflow, name)["run"]
    assert execute(tmp_path, script, workflow["env"] | {"ANCHOR": wanted}, ragmeter='echo "$@" >> arguments').returncode == 0
    made = (tmp_path / "arguments").read_text().splitlines() if (tmp_path / "arguments").exists() else []
    assert [line.split()[0] for line in made] == (["results", "gate"] if wanted == "true" else [])
    others = [each["run"] for each in workflow["jobs"]["gate"]["steps"] if "run" in each and each.get("name") != name]
    assert not any("--set-anchor" in text for text in others)


def test_workflow_command_is_accepted_by_the_command_line(
    tmp_path: Path, workflow: dict[str, Any], call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = workflow["env"] | {"BOARD": "--board-url https://board.example.org"}
    execute(tmp_path, step(workflow, "Gate")["run"], env, ragmeter='echo "$@" > arguments')
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    done = call(*shlex.split((tmp_path / "arguments").read_text()))
    assert (done.code, "there is no store here yet" in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("known", "expected"), [("", "POST repos/o/r/issues/7/comments"), ("41\n42", "PATCH repos/o/r/issues/comments/41")]
)
def test_existing_comment_is_updated(tmp_path: Path, workflow: dict[str, Any], known: str, expected: str) -> None:
    comment = step(workflow, "Comment")
    assert MARK in comment["run"]
    assert comment["continue-on-error"] is True
    stub = f'echo "$@" >> arguments; if [ "$2" = --paginate ]; then printf "{known}"; fi'
    env = {"GITHUB_REPOSITORY": "o/r", "PULL_REQUEST": 7}
    assert execute(tmp_path, comment["run"], env, gh=stub).returncode == 0
    assert not (tmp_path / "arguments").exists(), "without a comment nothing is posted"
    (tmp_path / "gate.md").write_text(MARK)
    done = execute(tmp_path, comment["run"], env, gh=stub)
    assert done.returncode == 0, done.stderr
    _, last = (tmp_path / "arguments").read_text().splitlines()
    assert last == f"api --silent --method {expected} -F body=@gate.md"
