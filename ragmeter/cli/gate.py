"""The commands around decisions: `gate`, `diff`, `bless`, `checkpoints`; their arguments, the work is elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options
from ragmeter.cli.options import App, JsonOption, MetricsOption, QuietOption, RunArgument, StoreOption, VerboseOption

checkpoints_app = App(help="Trained checkpoints: list them, enter a folder, check one.")


def gate(
    baseline: Annotated[
        str, typer.Option(help="RUN to hold the candidate against: a blessed name, prefix or path.", autocompletion=options.runs)
    ],
    candidate: Annotated[
        str,
        typer.Option(help="RUN, or CHECKPOINT: its newest run on the baseline's benchmark.", autocompletion=options.runs_or_checkpoints),
    ],
    metric: Annotated[
        list[str], typer.Option(help="Decide on this metric; may be given several times.", autocompletion=options.stored_metrics)
    ],
    margin: Annotated[list[str], typer.Option(help="Tolerated loss, 1.0pp or 0.01; for one metric of several: f1=1.0pp.")],
    strict: Annotated[bool, typer.Option("--strict", help="Count any sure loss as a regression, even within the margin.")] = False,
    allow_partial: Annotated[bool, typer.Option("--allow-partial", help="Decide on what two unfinished runs have both answered.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit XML report here.")] = None,
    summary: Annotated[
        Path | None, typer.Option(envvar="GITHUB_STEP_SUMMARY", show_envvar=True, help="Append a Markdown summary to this file.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Did a candidate regress? Exit code 0: no, surely not; 100: yes; 101: too few questions to tell."""
    from ragmeter.cli.commands import gate as gating

    request = gating.Request(baseline, candidate, tuple(metric), tuple(margin), strict, allow_partial)
    raise typer.Exit(gating.gate(request, junit, summary, store, as_json, quiet))


def diff(
    first: RunArgument,
    second: RunArgument,
    metrics: MetricsOption = None,
    questions: Annotated[int, typer.Option(min=0, help="How many of the questions on which they differ most.")] = 5,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say what differs between two runs: in settings, in numbers, on which questions."""
    from ragmeter.cli.commands import compare

    compare.diff(first, second, metrics, questions, store, as_json, quiet)


def bless(
    name: Annotated[
        str | None, typer.Argument(help="The name; without any, list the blessed names.", autocompletion=options.blessed)
    ] = None,
    target: Annotated[
        str | None, typer.Argument(help="RUN or CHECKPOINT that it is to mean.", autocompletion=options.runs_or_checkpoints)
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why this one.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the name away.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Give a run or checkpoint a name, such as the baseline that candidates are held against."""
    from ragmeter.cli.commands import gate as checkpointing

    checkpointing.bless(name, target, note, remove, store, as_json, quiet)


@checkpoints_app.callback(invoke_without_command=True)
def checkpoints(
    context: typer.Context,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """List trained checkpoints."""
    if context.invoked_subcommand is None:
        from ragmeter.cli.commands import gate as checkpointing

        checkpointing.checkpoints(store, as_json)


@checkpoints_app.command("add")
def checkpoints_add(
    folder: Annotated[Path, typer.Argument(help="A folder with a ragmeter.json.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check a checkpoint folder and enter it into the store."""
    from ragmeter.cli.commands import gate as checkpointing

    checkpointing.add(folder, store, as_json, quiet)


@checkpoints_app.command("verify")
def checkpoints_verify(
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            help="A folder, blessed name, hash prefix or folder name (default: all registered)", autocompletion=options.checkpoints
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that checkpoint folders still hold what they were trained to hold."""
    from ragmeter.cli.commands import gate as checkpointing

    raise typer.Exit(checkpointing.verify(checkpoint, store, as_json))
