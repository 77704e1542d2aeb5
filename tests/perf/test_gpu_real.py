"""The script for one GPU: every part runs on a CPU in tiny shapes and is reported next to its plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from methods.work import Use
from perf import gpu_real
from perf.gpu_real import Report, Sizes, Stamps, planned
from perf.measuring import Bench
from ragmeter.plan.gpus import GPUS, memory, seconds
from ragmeter.runner.sizes import ModelSize


@pytest.mark.slow
def test_each_training_runs_steps_of_its_paper_preset(tmp_path: Path) -> None:
    bench, sizes = Bench("gpu_real", quick=True), Sizes.tiny()
    report = Report(bench, GPUS[1])
    gpu_real.ark_step(tmp_path, sizes, report, "ark")
    gpu_real.gpr_step(tmp_path, sizes, report, "gpr")
    gpu_real.sark_step(tmp_path, sizes, report, "sark")
    assert set(bench.figures) == {"ark: time", "gpr: time", "sark: time"}
    assert all(figure["value"] > 0 and figure["plan"] > 0 for figure in bench.figures.values())


def test_first_step_is_excluded_as_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Stamps("cpu", [0.0, 100.0, 101.0, 103.0]).seconds == pytest.approx(1.5)


def test_plan_adds_seconds_and_counts_a_model_once() -> None:
    size = ModelSize("m", 1e9, width=1024, layers=10, kv_width=256)
    uses = [Use("m", dtype="bfloat16", trained=1e6, length=100, held=held) for held in (10.0, 20.0)]
    spent, taken = planned(uses, [size, size], GPUS[1])
    assert spent == pytest.approx(2 * seconds(uses[0], size, GPUS[1]))
    assert taken == memory(uses[1], size) == 16e9 + 10 * 96 * 1024 * 20
