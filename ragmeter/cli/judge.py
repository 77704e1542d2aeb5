"""The command line of `ragmeter judge` and `ragmeter score`: judge and score stored answers, again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options as completion
from ragmeter.cli.options import App, JsonOption, QuietOption, StoredExperiment, StoreOption

judge_app = App(help="Judges: what they are, what they say of stored answers, and how far to trust them.", no_args_is_help=True)

Stored = Annotated[
    str, typer.Argument(help="A judge in the store: its id, or the beginning of it.", autocompletion=completion.stored_judges)
]
Runs = Annotated[
    list[str] | None, typer.Argument(help="Runs, as `ragmeter runs` lists them (default: --experiment)", autocompletion=completion.runs)
]
OfExperiment = Annotated[
    str | None,
    typer.Option("--experiment", help="All runs of this experiment (default: newest)", autocompletion=completion.stored_experiments),
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of the judge; may be repeated.")]


@judge_app.command("list")
def list_judges(
    name: Annotated[str | None, typer.Argument(help="Show this judge with its options.", autocompletion=completion.judges)] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List judges, and those that have judged something in the store; or show one with its options."""
    from ragmeter.cli.commands import judge as judges

    judges.listed(name, store, as_json)


@judge_app.command()
def run(
    judge: Annotated[str, typer.Argument(help="A judge: `ragmeter judge list` lists them.", autocompletion=completion.judges)],
    runs: Runs = None,
    experiment: OfExperiment = None,
    options: Settings = None,
    everyone: Annotated[bool, typer.Option("--all-pairs", help="Compare all methods with each other.")] = False,
    retry: Annotated[bool, typer.Option("--retry-unscored", help="Judge again where no value could be had.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Judge stored answers; what is judged already is left alone."""
    from ragmeter.cli.commands import judge as judges

    judges.run(judge, runs or [], experiment, options or [], everyone, retry, store, as_json, quiet)


@judge_app.command()
def replay(judge: Stored, options: Settings = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Read a judge's kept replies again, with this code or other options; no call is made."""
    from ragmeter.cli.commands import judge as judges

    judges.replay(judge, options or [], store, as_json)


@judge_app.command()
def table(
    experiment: StoredExperiment = None,
    ties: Annotated[
        str,
        typer.Option(
            help="What a tied question counts: half, ignore, loss or win.", autocompletion=completion.words("half", "ignore", "loss", "win")
        ),
    ] = "half",
    length: Annotated[bool, typer.Option("--length", help="Take off strengths what longer answers gain.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print who beats whom: win rates by criterion, and Bradley–Terry strengths."""
    from ragmeter.cli.commands import judge as judges

    judges.table(experiment, ties, length, store, as_json)


@judge_app.command()
def card(judge: Stored, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Say how far a judge can be trusted: failures, repetitions, orders, length, price; agreement with others."""
    from ragmeter.cli.commands import judge as judge_cards

    judge_cards.card(judge, store, as_json)


annotate_app = App(help="Labels by people: items to label as CSV, and labels back.", no_args_is_help=True)


@annotate_app.command("export")
def export_items(
    file: Annotated[Path, typer.Argument(help="The CSV to write.")],
    criterion: Annotated[str, typer.Option(help="What to label by: accuracy, faithfulness, overall …")],
    runs: Annotated[
        list[str] | None, typer.Option("--run", help="A run; may be repeated (default: --experiment)", autocompletion=completion.runs)
    ] = None,
    experiment: OfExperiment = None,
    number: Annotated[int, typer.Option("--n", min=1, help="Number of items, drawn at random.")] = 100,
    pairs: Annotated[bool, typer.Option("--pairs", help="Two answers an item, in a drawn order.")] = False,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write items for a person to label, without a hint of who answered."""
    from ragmeter.cli.commands import judge as judge_cards

    judge_cards.export_items(file, criterion, runs or [], experiment, number, pairs, seed, store, as_json)


@annotate_app.command("import")
def import_labels(
    file: Annotated[Path, typer.Argument(help="A CSV that `annotate export` wrote, its column `label` filled.")],
    annotator: Annotated[str, typer.Option(help="Who labelled.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take labels in, and say how far the people who labelled agree."""
    from ragmeter.cli.commands import judge as judge_cards

    judge_cards.import_labels(file, annotator, store, as_json)


def score(
    runs: Runs = None,
    add: Annotated[
        list[str] | None, typer.Option(help="A metric id, e.g. rouge(type=rougeL); may be repeated.", autocompletion=completion.metrics)
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(help="Take a column that was added off the tables; may be repeated.", autocompletion=completion.stored_metrics),
    ] = None,
    experiment: OfExperiment = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score stored answers on further metrics, without answering again; their columns stay until `--remove`."""
    from benchmarks.core.errors import UserError
    from ragmeter.cli.commands import judge as judges

    if remove and add:
        raise UserError("columns are added or removed", where="--remove", try_this="one after the other")
    if remove:
        judges.unscore(runs or [], remove, experiment, store, as_json)
        return
    judges.score(runs or [], add or [], experiment, store, as_json, quiet)
