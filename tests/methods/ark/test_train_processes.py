"""A whole training of ARK in two processes: rows, losses and checkpoints equal those of one process and are written
once. A model fails to write some queries, and the training is interrupted once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
here.material_module.load_data = lambda references, options, train=True: [here.benchmark() for _ in references]
from methods.ark.negatives import Augmented
from tests.support.cut import Cut
folder, rank = Path(sys.argv[4]), os.environ["RANK"]


class Failing(here.Scripted):
    # Of the first process, at its first try, the first call fails; later ones come through.
    async def queries(self, document, questions):
        made, fails = await super().queries(document, questions), rank == "0" and not attempt
        return made | ({questions[0].id: Augmented(questions[0].id, (), ())} if fails and self.calls == 1 else {})


progress = Cut(3)
for attempt in range(2):
    try:
        config = here.config(sys.argv[2], sys.argv[3], train={"save_every": 1, "epochs": [4, 2, 1]})
        stages = here.train(config, folder, Failing(), progress)
    except KeyboardInterrupt:
        assert not attempt
# Into a file: lines that two processes print run into each other.
Path(f"{folder}-{rank}.json").write_text(json.dumps([progress.resumed, [one.stage for one in stages]]))
"""


@pytest.fixture
def base(tiny_models: ModuleType, tmp_path: Path) -> str:
    """Save a tiny encoder without dropout, because masks depend on how a batch is divided."""
    import transformers

    torch.manual_seed(0)
    config = tiny_models.config("Bert", len(tiny_models.tokenizer("bert")))
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    tiny_models.save(tmp_path / "base", "bert", transformers.BertModel(config))
    tiny_models.layout(tmp_path / "base", 64, [tiny_models.pooling("mean")], {"query": "query : ", "document": ""})
    return str(tmp_path / "base")


def losses(folder: Path) -> list[float]:
    lines = [line for path in sorted(folder.rglob("curve.jsonl")) for line in path.read_text().splitlines()]
    return [result["loss"] for result in map(json.loads, lines) if "loss" in result]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_two_processes_give_the_same_rows_losses_and_stages_as_one(
    base: str, tiny_llama: str, in_two: Callable[..., tuple[Path, Path]]
) -> None:
    item, two = in_two(PROGRAM, str(Path(__file__).with_name("test_train.py")), base, tiny_llama)
    for folder, count in ((item, 1), (two, 2)):
        # Only the main process reports stages.
        reported = [json.loads(Path(f"{folder}-{rank}.json").read_text()) for rank in range(count)]
        assert [stages for _, stages in reported] == [["stage1", "stage2", "stage3"], *[[]] * (count - 1)]
        resumed = [begun for begun, _ in reported]
        assert resumed == [[0, 2, 0, 0]] * count
    rows = sorted(path.relative_to(item) for path in (item / "work" / "train").glob("*.jsonl"))
    assert [path.name for path in rows] == ["stage1.jsonl", "stage2.jsonl", "stage3.jsonl"]
    for path in rows:
        assert (item / path).read_bytes() == (two / path).read_bytes()
    assert losses(item)
    assert losses(two) == pytest.approx(losses(item), abs=1e-3)
    assert sorted(p.name for p in (two / "checkpoints").iterdir()) == ["stage1", "stage2", "stage3"]
