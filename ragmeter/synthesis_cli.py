"""The command line of `ragmeter synthesise`: training data written by a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter import completion
from ragmeter.datasets_cli import Config, DataPath
from ragmeter.options import JsonOption, OfflineOption, QuietOption, StoreOption, VerboseOption

synthesise_app = typer.Typer(help="Training data written by a model from documents.", no_args_is_help=True)


@synthesise_app.callback()
def synthesise() -> None:
    """Training data written by a model from documents."""


@synthesise_app.command()
def clara(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Whose documents: a data reference, or a corpus by its path (./wiki, /data/wiki).",
            autocompletion=completion.references,
        ),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="The file of rows; OUT.states.jsonl goes on.")],
    by: Annotated[str, typer.Option(help="llm: a chat model; worlds: the world's own truth, offline.")] = "llm",
    mix: Annotated[str, typer.Option(help="all, simple, paraphrase or simple+complex.")] = "all",
    documents: Annotated[int | None, typer.Option(min=1, help="So many, drawn by the seed; larger draws hold the smaller.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the model: model, base_url, rounds …")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, and ask nobody.")] = False,
    config: Config = None,
    path: DataPath = None,
    offline: OfflineOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Rows for CLaRa's pretraining: questions with answers, checked, and paraphrases; interrupted, it goes on."""
    from ragmeter.commands import synthesising

    request = synthesising.Request(data, output, by, mix, documents, seed, tuple(options or ()), config, path, dry_run)
    raise typer.Exit(synthesising.clara(request, store, as_json, quiet))
