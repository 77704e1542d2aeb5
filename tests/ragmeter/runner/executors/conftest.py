"""One local Ray cluster for the tests of this folder; its processes would take a tenth of a core from later tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a small cluster with two simulated GPUs, in which workers import the packages of this checkout."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    small = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    for tries_left in (2, 1, 0):
        try:
            ray.init("local", **small, runtime_env={"env_vars": {"PYTHONPATH": path}}, log_to_driver=False, logging_level="ERROR")
            break
        except Exception as error:
            # Ray gives its processes 30 seconds to start, which a busy machine exceeds.
            ray.shutdown()
            if not tries_left or "timed out during startup" not in str(error):
                raise
    yield
    ray.shutdown()
