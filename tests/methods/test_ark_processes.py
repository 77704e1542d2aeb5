"""A whole training of ARK in two processes: its rows, losses and checkpoints are those of one, written once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import importlib.util, json, os, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("here", sys.argv[1])
here = importlib.util.module_from_spec(spec)
sys.modules["here"] = here
spec.loader.exec_module(here)
here.material_module.load_benchmarks = lambda references, options: [here.benchmark() for _ in references]
stages = here.train(here.config(sys.argv[2], sys.argv[3]), Path(sys.argv[4]))
# Into a file: lines that two processes print run into each other.
Path(f"{sys.argv[4]}-{os.environ['RANK']}.json").write_text(json.dumps([one.stage for one in stages]))
"""


@pytest.fixture
def base(tiny_models: ModuleType, tmp_path: Path) -> str:
    """A tiny encoder without dropout, whose masks depend on how a batch is shared out."""
    import transformers

    torch.manual_seed(0)
    config = tiny_models.config("Bert", len(tiny_models.tokenizer("bert")))
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    tiny_models.save(tmp_path / "base", "bert", transformers.BertModel(config))
    tiny_models.layout(tmp_path / "base", 64, [tiny_models.pooling("mean")], {"query": "query : ", "document": ""})
    return str(tmp_path / "base")


def losses(folder: Path) -> list[float]:
    lines = [line for path in sorted(folder.rglob("curve.jsonl")) for line in path.read_text().splitlines()]
    return [found["loss"] for found in map(json.loads, lines) if "loss" in found]


@pytest.mark.slow
def test_two_processes_write_the_rows_losses_and_stages_of_one(base: str, tiny_llama: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    here = Path(__file__)
    for count in (1, 2):
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(count)]
        given = [str(program), str(here.with_name("test_ark_training.py")), base, tiny_llama, str(tmp_path / f"of{count}")]
        ran = subprocess.run(
            [*launch, *given], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(here.parents[2])}
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        # Only the main process reports stages.
        told = [json.loads((tmp_path / f"of{count}-{rank}.json").read_text()) for rank in range(count)]
        assert told == [["stage1", "stage2", "stage3"], *[[]] * (count - 1)]
    one, two = (tmp_path / f"of{count}" for count in (1, 2))
    rows = sorted(path.relative_to(one) for path in (one / "work" / "train").glob("*.jsonl"))
    assert [path.name for path in rows] == ["stage1.jsonl", "stage2.jsonl", "stage3.jsonl"]
    for path in rows:
        assert (one / path).read_bytes() == (two / path).read_bytes()
    assert losses(one)
    assert losses(two) == pytest.approx(losses(one), abs=1e-3)
    assert sorted(p.name for p in (two / "checkpoints").iterdir()) == ["stage1", "stage2", "stage3"]
