"""Values that options of commands offer; they stand here so that `--help` imports nothing else of this package."""

from __future__ import annotations

from dataclasses import dataclass

JSONL = "jsonl"
"""The format of submissions' rows, which predictions have unless a command names another."""
PREDICTIONS = (
    JSONL,
    "hotpotqa",
    "2wiki",
    "musique",
    "longbench",
    "rog",
    "squad",
    "dpr",
    "dpr-reader",
    "trec",
    "efficientqa",
    "kilt",
    "beir",
    "flashrag",
    "lm-eval",
    "ragas",
    "promptfoo",
)
"""Formats that predictions may come in; `results.formats.outputs` reads them."""
TABLES = ("csv", "markdown", "latex")
"""Formats that tables are written in, next to text and JSON."""
WIDE = ("csv-wide", "latex-wide")
"""Formats with all benchmarks side by side in one table."""
PARQUET = "parquet"
TRACKERS = ("wandb", "mlflow")
"""Experiment trackers that results are logged to."""
POWER = 0.8
"""Probability of showing a difference that is there, unless a command names another."""


MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a submission; bytes are bytes of UTF-8.

    Attributes:
        file_bytes: A whole predictions file, unpacked.
        line_bytes: One row; a longer line is skipped without being held.
        chunk_bytes: What is read at a time.
        rows: Rows of a file; `validate` lowers it to the number of questions and `spare_rows` more.
        spare_rows: Rows beyond the number of questions after which reading stops.
        evidence: Items of evidence per row.
        answer_chars: Characters of an answer.
        id_chars: Characters of an id.
        notes_chars: Characters of a row's notes as JSON, its prompt apart.
        contexts_chars: Characters of the texts of a row's contexts.
        url_chars: Characters of a context's id or url.
        depth: Nesting of a row's JSON.
        card_bytes: A card.
        card_depth: Nesting of a card.
        bundle_bytes: A packed bundle.
        bundle_ratio: Unpacked to packed size of a bundle's member; beyond it a member is taken for a zip bomb.
        shown: Places listed per problem; all are counted.
    """

    file_bytes: int = 256 * MIB
    line_bytes: int = 2 * MIB
    chunk_bytes: int = 256 * 1024
    rows: int = 1_000_000
    spare_rows: int = 1000
    evidence: int = 1000
    answer_chars: int = 100_000
    id_chars: int = 512
    notes_chars: int = 65_536
    contexts_chars: int = 1_000_000
    url_chars: int = 4096
    depth: int = 16
    card_bytes: int = 256 * 1024
    card_depth: int = 12
    bundle_bytes: int = 256 * MIB
    bundle_ratio: int = 200
    shown: int = 5


LIMITS = Limits()
"""Limits of `ragmeter submit`."""
