"""A whole training of CLaRa in two processes: its losses and weights are those of one, written once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import importlib.util, json, os, sys
from pathlib import Path
from methods.api import Services
from methods.clara import material
from methods.clara.training import ClaraTraining
from methods.clara.training_config import ClaraTrainingConfig
from methods.training import Workshop
spec = importlib.util.spec_from_file_location("toy", sys.argv[1])
toy = importlib.util.module_from_spec(spec)
sys.modules["toy"] = toy
spec.loader.exec_module(toy)
made = {"scp": toy.scp_rows, "instruction": toy.instruction_rows}
material.training_rows = lambda config, stage, services: (list(made.get(stage, toy.joint_rows)()), ["data"])
material.held_out = lambda config, stage, services, rows: toy.joint_rows(3)
config = ClaraTrainingConfig.model_validate_json(Path(sys.argv[2]).read_text())
folder = Path(sys.argv[3])
stages = ClaraTraining(config).run(Workshop(folder / "work", folder / "checkpoints", Services(device="cpu")))
# Into a file: lines that two processes print run into each other.
Path(f"{folder}-{os.environ['RANK']}.json").write_text(json.dumps([one.stage for one in stages]))
"""


def losses(folder: Path) -> list[float]:
    lines = [line for path in sorted(folder.rglob("curve.jsonl")) for line in path.read_text().splitlines()]
    return [found["loss"] for found in map(json.loads, lines) if "loss" in found]


@pytest.mark.slow
def test_two_processes_train_what_one_does(config: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "config.json").write_text(config(stages=("scp", "instruction", "joint")).model_dump_json())
    here = Path(__file__)
    for count in (1, 2):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
        given = [tmp_path / "program.py", here.with_name("toy_clara.py"), tmp_path / "config.json"]
        ran = subprocess.run(
            [*launch, *map(str, given), str(tmp_path / f"of{count}")],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(here.parents[3]), "OMP_NUM_THREADS": "1"},
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        told = [json.loads((tmp_path / f"of{count}-{rank}.json").read_text()) for rank in range(count)]
        # Only the main process reports stages.
        assert told == [["scp", "instruction", "joint"], *[[]] * (count - 1)]
    one, two = (tmp_path / f"of{count}" / "checkpoints" for count in (1, 2))
    assert len(losses(one)) == 12
    assert losses(two) == pytest.approx(losses(one), rel=1e-4)
    for path in sorted(one.rglob("*.safetensors")):
        mine, theirs = load_file(path), load_file(two / path.relative_to(one))
        for name, tensor in mine.items():
            torch.testing.assert_close(theirs[name], tensor, rtol=1e-3, atol=1e-4)
