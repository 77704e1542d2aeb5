"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.names import StoredExperiment
from ragmeter.options import JsonOption, QuietOption, StoreOption, VerboseOption


def report(
    experiment: StoredExperiment = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    board: Annotated[Path | None, typer.Option("--board", metavar="FILE", help="Write the boards as JSON too, to embed them.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write the leaderboard of an experiment as one HTML file that needs no server."""
    from ragmeter.commands import reporting

    reporting.report(experiment, output, board, store, as_json)
