"""Tiny profiles of shipped experiments: which have one, and ten of them, one of each kind, that run to their tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragmeter import experiment
from ragmeter.runner import side_by_side
from tools.tiny_checkpoints import make, published
from tools.tiny_profiles import names

TEN = (
    "demo",
    "demo-graph",
    "graph_rag/scripted",
    "sark/table2",
    "clara/table3",
    "clara/table8",
    "clara/released",
    "compress/released",
    "rerank/released",
    "end_to_end/tuned",
)
"""One of each kind; `make experiments-small` runs all tiny profiles."""


WITHOUT = {
    "ark/baselines",
    "ark/real",
    "ark/table3",
    "ark/table4",
    "clara/figure4",
    "clara/figure5",
    "clara/figure6",
    "clara/figure7",
    "clara/figure8",
    "clara/table12",
    "clara/table13",
    "clara/table14",
    "clara/table15",
    "clara/table17",
    "clara/table18",
    "clara/table18-compression",
    "clara/table20",
    "clara/table21",
    "clara/table4",
    "clara/table5",
    "clara/worlds-long",
    "compress/worlds-long",
    "gpr/figure2",
    "gpr/table1",
    "sark/figure4",
    "sark/figure5",
    "sark/figure6",
    "sark/figure8",
    "sark/table3",
}
"""Experiments that have no tiny profile: their data or models do not ship, and no random checkpoints stand in for them."""


def test_experiments_without_a_tiny_profile_are_listed() -> None:
    assert set(experiment.shipped()) - set(names()) == WITHOUT
    assert set(TEN) <= set(names())


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_tiny_profiles_run_to_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    # Trainings in this process: others would import everything again.
    monkeypatch.setattr(side_by_side, "memory", lambda device: 0.0)
    make(Path("tiny"))
    published(Path("tiny/published"))
    for name in TEN:
        done = call("run", name, "--profile", "tiny", "--limit", "1", "--store", "store")
        assert done.code == 0, (name, done)
        assert all(method.name in done.out for method in experiment.load(name, profile="tiny").methods), name
    assert call("train", "checkpoints", "check", "--store", "store").code == 0
    shown = " ".join(call("results", "show", "clara-table3/GenGround (prompted)", "--store", "store").out.split())
    assert "ended plain 1" in shown
