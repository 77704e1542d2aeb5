"""A whole training of SARK in two processes: rows, losses and weights equal those of one process. A model fails to
answer, order and rewrite, and the training is interrupted once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import json, os, sys, zlib
from pathlib import Path
from methods.api import Services
from methods.models.endpoint import Fault
from methods.sark.train import SarkTraining
from methods.training import TRAININGS, TrainingContext
from ragmeter import scripted
from tests.support.cut import Cut
folder, rank, reply = Path(sys.argv[2]), os.environ["RANK"], scripted.WorldTruth.reply


def failing(self, messages):
    # Of the first process, at its first try, every eighth call fails; later calls and those of the other one come through.
    if rank == "0" and not attempt and zlib.crc32(messages[-1]["content"].encode()) % 8 == 0:
        raise Fault("this prompt is not answered now", "fail", status=400)
    return reply(self, messages)


scripted.WorldTruth.reply = failing
config = TRAININGS.get("sark").validate(json.loads(Path(sys.argv[1]).read_text()))
progress, stages = Cut(3), []
for attempt in range(2):
    context = TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), progress)
    try:
        stages = list(SarkTraining(config).run(context))
    except KeyboardInterrupt:
        assert not attempt
figures = dict(stages[0].figures) if stages else {}
Path(f"{folder}-{rank}.json").write_text(json.dumps([progress.resumed, figures]))
"""


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_two_processes_equal_one_after_failed_calls_and_an_interruption(
    base: str, tmp_path: Path, in_two: Callable[..., tuple[Path, Path]]
) -> None:
    from safetensors.torch import load_file

    world = {"worlds": 1, "questions": 6, "entities": 60, "mix": {"single": 1.0}}
    llm = {"by": "llm", "llm": {"scripted": "worlds/multihop:train", "options": world}}
    options = {
        "data": ["worlds/multihop:train"],
        "data_options": {"worlds": world},
        "base": base,
        "rows": 12,
        "candidates": {"source": "retriever", "retriever": "bm25", "depth": 8},
        "labels": llm,
        "lists": llm,
        "styles": llm,
        "model": {"max_length": 64, "dropout": 0.0, "backbone_dropout": 0.0},
        "train": {"epochs": 2, "learning_rate": 1e-4, "batch_size": 4, "token_budget": 512, "save_every": 1},
    }
    (tmp_path / "config.json").write_text(json.dumps(options))
    one, two = in_two(PROGRAM, str(tmp_path / "config.json"))
    reports = [json.loads(Path(f"{folder}-{rank}.json").read_text()) for folder, rank in ((one, 0), (two, 0), (two, 1))]
    assert [resumed for resumed, _ in reports] == [[0, 2]] * 3
    assert reports[0][1] == pytest.approx(reports[1][1], abs=1e-4)
    assert reports[2][1] == {}
    rows = sorted(path.relative_to(one) for path in (one / "work").rglob("rows*.jsonl"))
    assert rows
    for path in rows:
        assert (one / path).read_bytes() == (two / path).read_bytes()
    curves = [[json.loads(line) for line in next((folder / "work").rglob("curve.jsonl")).read_text().splitlines()] for folder in (one, two)]
    losses = [[line["loss"] for line in curve if "loss" in line] for curve in curves]
    assert len(losses[0]) == int(reports[0][1]["steps"])
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    for path in (one / "checkpoints").rglob("*.safetensors"):
        theirs = load_file(two / path.relative_to(one))
        for name, weight in load_file(path).items():
            # AdamW divides by the gradient's size, so that rounding of tiny gradients shows.
            assert torch.allclose(weight, theirs[name], atol=5e-4), name
