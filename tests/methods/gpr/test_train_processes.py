"""A whole training of GPR in two processes: failed question calls, a long preparation, an interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import importlib.util, json, os, sys, time
from collections import Counter
from pathlib import Path
from methods.api import Services
from methods.gpr.wordings import TemplateQuestions
from methods.gpr.train import GprTraining
from methods.training import TrainingContext
from tests.support.cut import Cut
spec = importlib.util.spec_from_file_location("toy", sys.argv[1])
toy = importlib.util.module_from_spec(spec)
sys.modules["toy"] = toy
spec.loader.exec_module(toy)
folder, rank = Path(sys.argv[3]), os.environ["RANK"]


class Failing:
    # Of the first process, at its first try, every fourth call fails; later calls and those of the other one come through.
    name, counts, attempts = "failing", Counter(), 0

    def generate(self, batch):
        fails = rank == "0" and not Failing.attempts
        if "WORLD_SIZE" in os.environ and fails:
            time.sleep(12)
        texts = TemplateQuestions().generate(batch)
        return [None if fails and number % 4 == 0 else text for number, text in enumerate(texts)]


config = toy.options(sys.argv[2], train={"epochs": 3})
progress, stages = Cut(5), []
for attempt in range(2):
    Failing.attempts = attempt
    context = TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), progress)
    try:
        stages += GprTraining(config, Failing()).run(context)
    except KeyboardInterrupt:
        assert not attempt
figures = dict(stages[0].figures) if stages else {}
Path(f"{folder}-{rank}.json").write_text(json.dumps([progress.resumed, figures]))
"""


@pytest.fixture(scope="module")
def toy(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("gpr_toy.py"))


@pytest.mark.soak
def test_two_processes_equal_one_after_failed_calls_and_an_interruption(
    toy: ModuleType, tiny_models: ModuleType, tmp_path: Path, in_two: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preparation takes longer than the group's time-out."""
    from safetensors.torch import load_file

    monkeypatch.setenv("RAGMETER_GROUP_TIMEOUT", "10")
    base = toy.save_base(tiny_models, tmp_path / "base")
    one, two = in_two(PROGRAM, str(Path(__file__).with_name("gpr_toy.py")), base)
    reports = [json.loads(Path(f"{folder}-{rank}.json").read_text()) for folder, rank in ((one, 0), (two, 0), (two, 1))]
    assert [resumed for resumed, _ in reports] == [[0, 4]] * 3
    assert reports[0][1]["questions"] == reports[1][1]["questions"] == 160 - 40
    assert reports[2][1] == {}
    curves = [[json.loads(line) for line in (folder / "work" / "train" / "curve.jsonl").read_text().splitlines()] for folder in (one, two)]
    losses = [[line["loss"] for line in curve if "loss" in line] for curve in curves]
    assert len(losses[0]) == int(reports[0][1]["steps"])
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    for path in (one / "checkpoints").rglob("*.safetensors"):
        mine, theirs = load_file(path), load_file(two / path.relative_to(one))
        for name, weight in mine.items():
            # AdamW divides by the gradient's size, so that rounding of tiny gradients shows.
            assert torch.allclose(weight, theirs[name], atol=5e-4), name
