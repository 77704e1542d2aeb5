"""Tiny profiles of shipped experiments: each has a valid one, and ten, one of each kind, run to their tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from ragmeter.runner import side_by_side
from results.store.store import Store
from tools import tiny_profiles
from tools.tiny_checkpoints import make, published

TEN = (
    "first",
    "demo-graph",
    "ark/table4",
    "gpr/figure2",
    "sark/table3",
    "clara/figure7",
    "clara/released",
    "compress/released",
    "rerank/released",
    "end_to_end/scripted",
)
"""One experiment of each kind; `make experiments-small` runs all tiny profiles."""
USED = ["bge", "bge-reranker", "distilbert", "llama", "llama3", "qwen2.5", "qwen3", "qwen3-embedding", "rank-r1", "rankllama", "zephyr"]
"""Random checkpoints that these experiments need."""
TRAINED = {"ark": ("ark/table4", ["stage1", "stage2", "stage3"]), "gpr": ("gpr/figure2", ["towers"])}
TRAINED |= {"sark": ("sark/table3", ["reranker"]), "clara": ("clara/figure7", ["scp", "instruction", "joint"])}
"""Of each approach an experiment of the ten that trains it by its `paper` options, and the stages."""


@pytest.mark.parametrize("name", experiment.shipped())
def test_every_experiment_has_a_valid_tiny_profile(name: str) -> None:
    loaded = experiment.load(name, profile=tiny_profiles.PROFILE)
    assert loaded.reference in {method.name.partition(" #")[0] for method in loaded.methods}


@pytest.mark.parametrize("approach", TRAINED)
def test_preset_tiny_keeps_the_paper_options_of_an_approach(approach: str) -> None:
    """Steps are fewer and texts shorter, but each step is computed as in the paper."""
    entry = next(entry for entry in experiment.load(TRAINED[approach][0]).trainings if entry.entry.id == approach).entry
    data = {"data": ["nq:train"], "validation": ["nq:dev"]} if approach == "sark" else {}
    paper, tiny = (
        entry.validate({"preset": name} | (data if name == "paper" else {})).model_dump(mode="json") for name in ("paper", "tiny")
    )
    parts = [(paper, tiny), (paper.get("train", {}), tiny.get("train", {})), (paper.get("loss", {}), tiny.get("loss", {}))]
    kept = {"precision", "recompute", "learning_rate", "batch_size", "accumulation", "in_batch", "temperature", "lambda_fixed", "styles"}
    assert any("precision" in own for own, _ in parts)
    for own, other in parts:
        for key in kept & {key for key, value in own.items() if not isinstance(value, dict)}:
            assert other[key] == own[key], key


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_tiny_profiles_run_to_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    monkeypatch.chdir(tmp_path)
    # Trainings in this process: others would import everything again.
    monkeypatch.setattr(side_by_side, "memory", lambda device: 0.0)
    make(Path("tiny"), USED)
    published(Path("tiny/published"))
    for name in TEN:
        done = call("run", name, "--profile", "tiny", "--limit", "1", "--store", "store")
        assert done.code == 0, (name, done)
        missing = [method.name for method in experiment.load(name, profile="tiny").methods if method.name not in done.out]
        assert not missing, (name, missing, done)
    assert call("train", "checkpoints", "check", "--store", "store").code == 0
    manifests = [json.loads(path.read_text())["stages"] for path in Path("store", "artifacts", "training").rglob("manifest.json")]
    for name, stages in TRAINED.values():
        steps = [manifest[stage]["figures"]["steps"] for stage in stages for manifest in manifests if stage in manifest]
        assert len(steps) >= len(stages), name
        assert max(steps) >= 2, name


def test_experiments_on_real_data_are_skipped_without_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    for name in ("ark/real", "ark/real-kg", "clara/real", "gpr/real", "sark/real"):
        assert tiny_profiles.run(name, Store(tmp_path))["ended"] == "skipped", name


def test_results_are_written_one_by_one_and_finished_ones_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_profiles, "make", lambda folder: None)
    monkeypatch.setattr(tiny_profiles, "published", lambda folder: None)
    monkeypatch.chdir(tmp_path)
    ended = {"first": "finished", "demo": "failed"}
    monkeypatch.setattr(tiny_profiles, "run", lambda name, store: {"ended": ended[name]})
    tiny_profiles.run_all(tmp_path, list(ended))
    written = json.loads((tmp_path / "results.json").read_text())
    assert {name: result["ended"] for name, result in written.items()} == ended
    ended |= {"first": "failed", "demo": "finished"}
    results = tiny_profiles.run_all(tmp_path, list(ended))
    assert [result["ended"] for result in results.values()] == ["finished", "finished"]
