"""A whole training of CLaRa in two processes: losses and weights equal those of one process and are written once.

The training asks no language model: `ragmeter data pretraining-rows` and `instruction-rows` write its rows before.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


PROGRAM = """
import importlib.util, json, os, sys
from pathlib import Path
from methods.api import Services
from methods.clara import data as material
from methods.clara.train import ClaraTraining
from methods.clara.config import ClaraTrainingConfig
from methods.training import TrainingContext
from tests.support.cut import Cut
spec = importlib.util.spec_from_file_location("toy", sys.argv[1])
toy = importlib.util.module_from_spec(spec)
sys.modules["toy"] = toy
spec.loader.exec_module(toy)
made = {"scp": toy.scp_rows, "instruction": toy.instruction_rows}
material.training_rows = lambda config, stage, services: (list(made.get(stage, toy.joint_rows)()), ["data"])
material.held_out = lambda config, stage, services, rows: toy.joint_rows(3)
config = ClaraTrainingConfig.model_validate_json(Path(sys.argv[2]).read_text())
folder = Path(sys.argv[3])
progress = Cut(3)
for attempt in range(2):
    try:
        context = TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), progress)
        stages = [one.stage for one in ClaraTraining(config).run(context)]
    except KeyboardInterrupt:
        assert not attempt
# Into a file: lines that two processes print run into each other.
Path(f"{folder}-{os.environ['RANK']}.json").write_text(json.dumps([progress.resumed, stages]))
"""


def losses(folder: Path) -> list[float]:
    lines = [line for path in sorted(folder.rglob("curve.jsonl")) for line in path.read_text().splitlines()]
    return [result["loss"] for result in map(json.loads, lines) if "loss" in result]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_two_processes_end_with_the_weights_of_one(config: Any, tmp_path: Path, in_two: Callable[..., tuple[Path, Path]]) -> None:
    from safetensors.torch import load_file

    (tmp_path / "config.json").write_text(config(stages=("scp", "instruction", "joint")).model_dump_json())
    folders = in_two(PROGRAM, str(Path(__file__).with_name("toy_clara.py")), str(tmp_path / "config.json"))
    for count, folder in enumerate(folders, 1):
        # Only the main process reports stages.
        reported = [json.loads(Path(f"{folder}-{rank}.json").read_text()) for rank in range(count)]
        assert [stages for _, stages in reported] == [["scp", "instruction", "joint"], *[[]] * (count - 1)]
        resumed = [begun for begun, _ in reported]
        assert resumed == [[0, 2, 0, 0]] * count
    item, two = (folder / "checkpoints" for folder in folders)
    assert len(losses(item)) == 12
    assert losses(two) == pytest.approx(losses(item), rel=1e-4)
    for path in sorted(item.rglob("*.safetensors")):
        mine, theirs = load_file(path), load_file(two / path.relative_to(item))
        for name, tensor in mine.items():
            torch.testing.assert_close(theirs[name], tensor, rtol=1e-3, atol=1e-4)
