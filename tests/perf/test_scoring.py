"""The scoring benchmark on small data: both sides agree on every pair; times are not compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("data", [pytest.param("real", marks=pytest.mark.soak), pytest.param("missing", marks=pytest.mark.slow)])
def test_benchmark_and_reference_packages_agree(data, tmp_path):
    pytest.importorskip("pytrec_eval")
    pytest.importorskip("rouge_score")
    environment = dict(os.environ) | ({"RAGMETER_DATA": str(tmp_path)} if data == "missing" else {})
    done = subprocess.run(
        [sys.executable, "-m", "perf.scoring", "--quick"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DIFFERENT" not in done.stdout
    assert done.stdout.count("SQuAD script") == 2
    assert done.stdout.count(", rouge-score") == 12
    assert done.stdout.count("pytrec_eval") >= 2
