"""Every stage of CLaRa by the command line, on worlds and the model that ships: a few steps each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.core.errors import UserError
from ragmeter.cli import app

pytest.importorskip("torch")
SHORT = ["--set", "validate_on.questions=4"] + [
    part
    for stage in ("scp", "instruction", "supervised", "joint")
    for part in ("--set", f"{stage}.train.steps=2", "--set", f"{stage}.train.batch_size=2")
]


def train(store: Path, *given: str) -> Any:
    done = CliRunner().invoke(
        app, ["train", "clara", "--preset", "demo", "--store", str(store), "--device", "cpu", "--json", *SHORT, *given]
    )
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout[done.stdout.index("{") :])["stages"]


@pytest.mark.slow
def test_every_stage_is_trained_by_its_name_and_goes_on_from_the_one_before(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from methods.models.weights import locate

    store = tmp_path / "store"
    pretrained = train(store, "--stage", "scp")
    assert [one["stage"] for one in pretrained] == ["scp"]
    tuned = train(store, "--stage", "instruction")
    assert [one["stage"] for one in tuned] == ["scp", "instruction"]
    assert tuned[0]["sha256"] == pretrained[0]["sha256"]
    joint = train(store, "--stage", "joint")
    assert [one["stage"] for one in joint] == ["scp", "instruction", "joint"]
    start = next(path.parent for path in store.rglob("clara.json") if path.parent.name == "instruction")
    supervised = train(store, "--set", "stages=[supervised]", "--set", f"start={start}", "--stage", "supervised")
    assert [one["stage"] for one in supervised] == ["supervised"]
    last = next(path.parent for path in store.rglob("clara.json") if path.parent.name == "joint")
    base = AutoModelForCausalLM.from_pretrained(locate("pocket"))
    for name in ("compressor", "generator", "reasoner"):
        adapted = PeftModel.from_pretrained(base, str(last / name), adapter_name=name)
        assert any(f".{name}." in key for key in adapted.state_dict())


@pytest.mark.slow
def test_a_stage_that_the_options_leave_out_is_refused(tmp_path: Path) -> None:
    given = ["train", "clara", "--preset", "demo", "--store", str(tmp_path / "store"), "--device", "cpu"]
    for asked, said in (
        (["--stage", "supervised"], "trains scp, instruction, joint, and not supervised"),
        (["--stage", "instruction", "--set", "joint.init=scp"], "trains scp, joint, and not instruction"),
    ):
        done = CliRunner().invoke(app, [*given, *asked])
        assert isinstance(done.exception, UserError)
        assert said in str(done.exception)
    assert not (tmp_path / "store" / "checkpoints").exists()
