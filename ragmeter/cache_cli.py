"""The command line of `ragmeter cache`: kept model replies, as a tape and by age."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter import completion
from ragmeter.options import JsonOption, QuietOption, StoreOption, VerboseOption

cache_app = typer.Typer(help="Kept replies of models: how many, as a tape, and away with them.", no_args_is_help=True)


@cache_app.command()
def show(store: StoreOption = None, as_json: JsonOption = False, quiet: QuietOption = False, verbose: VerboseOption = False) -> None:
    """Say how many replies are kept and how much room they take."""
    from ragmeter.commands import caching

    caching.show(store, as_json)


@cache_app.command()
def tape(
    file: Annotated[Path, typer.Argument(help="The tape to write (JSONL).")],
    run: Annotated[str | None, typer.Option(help="Only the replies of this run (default: all).", autocompletion=completion.runs)] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write replies as a tape, which replays a run elsewhere without a call."""
    from ragmeter.commands import caching

    caching.tape(file, run, store, as_json)


@cache_app.command()
def load(
    file: Annotated[Path, typer.Argument(help="A tape.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Take a tape's replies into the cache; those that are kept stay as they are."""
    from ragmeter.commands import caching

    caching.load(file, store, as_json)


@cache_app.command("prune")
def prune(
    older_than: Annotated[float | None, typer.Option(min=0, help="Replies kept for more than DAYS.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model's.")] = None,
    keep_mib: Annotated[float | None, typer.Option(min=0, help="The oldest, until so many MiB are left.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All of them.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Delete replies; runs that need them again will ask again."""
    from ragmeter.commands import caching

    caching.prune(older_than, model, keep_mib, everything, store, as_json)
