"""Values that options of commands offer; they stand here so that `--help` imports nothing else of this package."""

from __future__ import annotations

from dataclasses import dataclass

JSONL = "jsonl"
"""Row format of submissions, and default format of predictions."""
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
"""Formats of predictions, which `results.formats.outputs` reads."""
TABLES = ("csv", "markdown", "latex")
"""Table formats besides text and JSON."""
WIDE = ("csv-wide", "latex-wide")
"""Formats with all benchmarks side by side in one table."""
PARQUET = "parquet"
TRACKERS = ("wandb", "mlflow")
"""Experiment trackers that results are logged to."""
POWER = 0.8
"""Default probability of detecting a true difference."""


MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the size of a submission; sizes in bytes refer to UTF-8.

    Attributes:
        file_bytes: Maximum size of an unpacked predictions file.
        line_bytes: Maximum size of a row; longer lines are skipped without being loaded.
        chunk_bytes: Size of the chunks in which files are read.
        rows: Maximum number of rows; `validate` lowers it to the number of questions plus `spare_rows`.
        spare_rows: Number of surplus rows after which reading stops.
        evidence: Maximum number of evidence items per row.
        answer_chars: Maximum length of an answer, in characters, like all following `_chars`.
        id_chars: Length of an id.
        notes_chars: Length of a row's notes as JSON, without its prompt.
        contexts_chars: Total length of a row's contexts.
        url_chars: Length of a context's id or URL.
        depth: Nesting depth of a row's JSON.
        card_bytes: Size of a card.
        card_depth: Nesting depth of a card.
        bundle_bytes: Size of a packed bundle.
        bundle_ratio: Maximum compression ratio of a file in a bundle; above it the file is refused as a zip bomb.
        shown: Number of places listed per problem; all are counted.
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
