"""Values that options of commands offer; they stand here so that `--help` imports nothing else of this package."""

from __future__ import annotations

JSONL = "jsonl"
"""The format of submissions' rows, which predictions have unless a command names another."""
PREDICTIONS = (JSONL, "hotpotqa", "2wiki", "musique", "longbench", "rog", "squad", "dpr", "dpr-reader", "trec")
"""Formats that predictions may come in; `results.formats` reads them."""
TABLES = ("csv", "markdown", "latex")
"""Formats that tables are written in, beside text and JSON."""
POWER = 0.8
"""Probability of showing a difference that is there, unless a command names another."""
