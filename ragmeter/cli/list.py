"""The bare nouns `methods`, `metrics`, `experiments`, `published`, and the command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options
from ragmeter.cli.options import JsonOption, QuietOption, StoredExperiment, StoreOption, VerboseOption


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method with its options.", autocompletion=options.methods)] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only this kind: retriever, reader, control …",
            autocompletion=options.words("retriever", "reranker", "compressor", "reader", "method", "control"),
        ),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List methods, or show one."""
    from ragmeter.cli.commands import list

    list.methods(name, kind, as_json)


def metrics(
    name: Annotated[str | None, typer.Argument(help="Show this metric's definition.", autocompletion=options.metrics)] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List metrics, or show one."""
    from ragmeter.cli.commands import list

    list.metrics(name, as_json)


def experiments(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List experiments: those shipped with ragmeter and those in the store."""
    from ragmeter.cli.commands import list

    list.experiments(store, as_json)


def published(
    paper: Annotated[
        str | None,
        typer.Argument(help="ark, clara, gpr or sark (default: list them)", autocompletion=options.words("ark", "clara", "gpr", "sark")),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only this table, by its number.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Only this method: the paper's name of it, or our id.", autocompletion=options.methods)
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.", autocompletion=options.datasets)] = None,
    slips: Annotated[bool, typer.Option("--slips", help="Only figures that cannot be right as printed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the figures that a paper prints; `ragmeter table --published` sets ours beside them."""
    from ragmeter.cli.commands import list

    if paper is None:
        list.papers(as_json)
    else:
        list.published(paper, table, method, dataset, slips, as_json)


# -- The command `report` --


def report(
    experiment: StoredExperiment = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path("report.html"),
    board: Annotated[Path | None, typer.Option("--board", metavar="FILE", help="Write the boards as JSON too, to embed them.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the leaderboard of an experiment as one HTML file that needs no server."""
    from ragmeter.cli.commands import results

    results.report(experiment, output, board, store, as_json)
