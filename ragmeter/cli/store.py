"""The command line of `ragmeter results` and `ragmeter cache`: what keeps a store in order."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options
from ragmeter.cli.options import App, JsonOption, StoreOption

results_app = App(help="Take runs out of a store, bring them in, throw them away.", no_args_is_help=True)


@results_app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A new folder for the Parquet files.")],
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to export (default: all).", autocompletion=options.runs)] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs, with their data and cards, as Parquet."""
    from ragmeter.cli.commands import store as keeping

    keeping.export(folder, runs or [], store, as_json)


@results_app.command()
def merge(
    sources: Annotated[list[Path], typer.Argument(help="Store folders, or folders that `export` wrote.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring in the runs of other stores; what is here already stays as it is."""
    from ragmeter.cli.commands import store as keeping

    keeping.merge(sources, store, as_json)


@results_app.command()
def prune(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs to delete.", autocompletion=options.runs)] = None,
    experiment: Annotated[
        str | None, typer.Option(help="An experiment, with the runs that only it shows.", autocompletion=options.stored_experiments)
    ] = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="Runs that no experiment shows any more.")] = False,
    older_than: Annotated[int | None, typer.Option(min=0, help="Of these, only runs not written for DAYS.")] = None,
    artefacts: Annotated[bool, typer.Option("--artefacts", help="Indexes and embeddings too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it the command only says what would go.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete runs, and the data and passages that only they needed."""
    from ragmeter.cli.commands import store as keeping

    keeping.prune(runs or [], experiment, orphans, older_than, artefacts, yes, store, as_json)


@results_app.command()
def vacuum(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Give the room that deleted rows left back to the disk."""
    from ragmeter.cli.commands import store as keeping

    keeping.vacuum(store, as_json)


# -- The command line of `ragmeter cache`: kept model replies, as a tape and by age --


cache_app = App(help="Kept replies of models: how many, as a tape, and away with them.", no_args_is_help=True)


@cache_app.command()
def show(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say how many replies are kept and how much room they take."""
    from ragmeter.cli.commands import store as caching

    caching.show(store, as_json)


@cache_app.command()
def tape(
    file: Annotated[Path, typer.Argument(help="The tape to write (JSONL).")],
    run: Annotated[str | None, typer.Option(help="Only the replies of this run (default: all).", autocompletion=options.runs)] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write replies as a tape, which replays a run elsewhere without a call."""
    from ragmeter.cli.commands import store as caching

    caching.tape(file, run, store, as_json)


@cache_app.command()
def load(file: Annotated[Path, typer.Argument(help="A tape.")], store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Take a tape's replies into the cache; those that are kept stay as they are."""
    from ragmeter.cli.commands import store as caching

    caching.load(file, store, as_json)


@cache_app.command("prune")
def prune_replies(
    older_than: Annotated[float | None, typer.Option(min=0, help="Replies kept for more than DAYS.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model's.")] = None,
    keep_mib: Annotated[float | None, typer.Option(min=0, help="The oldest, until so many MiB are left.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All of them.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete replies; runs that need them again will ask again."""
    from ragmeter.cli.commands import store as caching

    caching.prune_replies(older_than, model, keep_mib, everything, store, as_json)
