"""`report`: the board as one HTML file, and as JSON for other pages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from benchmarks.errors import unwritable
from leaderboard.embedding import as_json as json_text
from leaderboard.embedding import board_document
from leaderboard.report import report as html_of
from ragmeter.console import emit, out
from results import queries, store_folder
from results.store import Store


def report(experiment: str | None, output: Path, board: Path | None, folder: Path | None, as_json: bool) -> None:
    """Write the report of an experiment.

    Args:
        experiment: Its name; None takes the newest.
        output: The HTML file.
        board: The JSON file, if one is wanted.
        folder: The store.
        as_json: Say as JSON what was written.

    Raises:
        UserError: The store has no such experiment, or a file cannot be written.
    """
    store = Store(store_folder(folder))
    name = queries.experiment(store, experiment).name
    now = datetime.now(UTC)
    written = [_write(output, html_of(store, name, now))]
    if board is not None:
        written.append(_write(board, json_text(board_document(store, name, now), indent=1) + "\n"))
    lines = [f"{path} (replaced)" if replaced else path for path, replaced in written]
    value = {"experiment": name, "files": [path for path, _ in written]}
    emit(value, as_json, lambda: out.print(Text("\n".join(lines))))


def _write(path: Path, text: str) -> tuple[str, bool]:
    """Write a file; returns its path, and whether another was there."""
    replaced = path.exists()
    try:
        path.write_text(text, "utf-8", newline="")
    except OSError as error:
        raise unwritable(error, path) from None
    return str(path), replaced
