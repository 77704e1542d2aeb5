"""Keep scores: the DuckDB store, statistics, submissions, gates, and the papers' published figures.

Start at `store.py` (what is kept and how it survives a crash), then `queries.py` (every question that tables and
pages ask of it) and `statistics/` (intervals and tests on plain arrays). Imports `benchmarks`, `methods.api`
and `judges`.
"""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_STORE = "ragmeter-store"


def store_folder(option: Path | None) -> Path:
    """Return the folder of the run store: the `--store` option if it was given, else RAGMETER_STORE, else the default folder."""
    return (option or Path(os.environ.get("RAGMETER_STORE") or DEFAULT_STORE)).absolute()
