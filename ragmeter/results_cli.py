"""The command line of `ragmeter results`: what keeps a store in order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter import completion
from ragmeter.options import JsonOption, QuietOption, StoreOption, VerboseOption

results_app = typer.Typer(help="Take runs out of a store, bring them in, throw them away.", no_args_is_help=True)


@results_app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A new folder for the Parquet files.")],
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to export (default: all).", autocompletion=completion.runs)] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write runs, with their data and cards, as Parquet."""
    from ragmeter.commands import keeping

    keeping.export(folder, runs or [], store, as_json)


@results_app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Store folders, or folders that `export` wrote.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring in the runs of other stores; what is here already stays as it is."""
    from ragmeter.commands import keeping

    keeping.merge(sources, store, as_json)


@results_app.command()
def prune(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to delete.", autocompletion=completion.runs)] = None,
    experiment: Annotated[
        str | None, typer.Option(help="An experiment, with the runs that only it shows.", autocompletion=completion.stored_experiments)
    ] = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="Runs that no experiment shows any more.")] = False,
    older_than: Annotated[int | None, typer.Option(min=0, help="Of these, only runs not written for DAYS.")] = None,
    artefacts: Annotated[bool, typer.Option("--artefacts", help="Indexes and embeddings too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it the command only says what would go.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Delete runs, and the data and passages that only they needed."""
    from ragmeter.commands import keeping

    keeping.prune(runs or [], experiment, orphans, older_than, artefacts, yes, store, as_json)


@results_app.command()
def vacuum(store: StoreOption = None, as_json: JsonOption = False, quiet: QuietOption = False, verbose: VerboseOption = False) -> None:
    """Give the room that deleted rows left back to the disk."""
    from ragmeter.commands import keeping

    keeping.vacuum(store, as_json)
