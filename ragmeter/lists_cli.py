"""The bare nouns that list what is registered, shipped or printed: `methods`, `metrics`, `experiments`, `published`."""

from __future__ import annotations

from typing import Annotated

import typer

from ragmeter import completion
from ragmeter.options import JsonOption, QuietOption, StoreOption, VerboseOption


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method with its options.", autocompletion=completion.methods)] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only this kind: retriever, reader, control …",
            autocompletion=completion.words("retriever", "reranker", "compressor", "reader", "method", "control"),
        ),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List methods, or show one."""
    from ragmeter.commands import listing

    listing.methods(name, kind, as_json)


def metrics(
    name: Annotated[str | None, typer.Argument(help="Show this metric's definition.", autocompletion=completion.metrics)] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List metrics, or show one."""
    from ragmeter.commands import listing

    listing.metrics(name, as_json)


def experiments(store: StoreOption = None, as_json: JsonOption = False, quiet: QuietOption = False, verbose: VerboseOption = False) -> None:
    """List experiments: those shipped with ragmeter and those in the store."""
    from ragmeter.commands import listing

    listing.experiments(store, as_json)


def published(
    paper: Annotated[
        str | None,
        typer.Argument(help="ark, clara, gpr or sark (default: list them)", autocompletion=completion.words("ark", "clara", "gpr", "sark")),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Only this table, by its number.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Only this method: the paper's name of it, or our id.", autocompletion=completion.methods)
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.", autocompletion=completion.datasets)] = None,
    slips: Annotated[bool, typer.Option("--slips", help="Only figures that cannot be right as printed.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List the figures that a paper prints; `ragmeter table --published` sets ours beside them."""
    from ragmeter.commands import publishing

    if paper is None:
        publishing.papers(as_json)
    else:
        publishing.published(paper, table, method, dataset, slips, as_json)
