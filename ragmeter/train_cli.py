"""The command line of `ragmeter train` and `ragmeter explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter import completion
from ragmeter.options import DeviceOption, JsonOption, QuietOption, StoreOption, VerboseOption

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option, nested ones with dots (train.epochs=2); may be repeated.")
]


def train(
    name: Annotated[
        str | None, typer.Argument(help="What to train (default: list what can be trained)", autocompletion=completion.trainings)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated training data: ultradomain/fin:train,worlds/long:train",
            autocompletion=completion.several(completion.references),
        ),
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated graphs to pretrain on: webqsp:train+validation,cwq:train",
            autocompletion=completion.several(completion.references),
        ),
    ] = None,
    base: Annotated[str | None, typer.Option(help="Model to begin from: a folder or hub id.")] = None,
    preset: Annotated[str | None, typer.Option(help="Named options: paper, released …", autocompletion=completion.presets)] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML file of options.")] = None,
    options: Settings = None,
    stage: Annotated[str | None, typer.Option(help="Stop after this stage.", autocompletion=completion.stages)] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the checkpoints (default: checkpoints/ in the store)")] = None,
    device: DeviceOption = None,
    show: Annotated[bool, typer.Option("--options", help="List the options and stop.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Train an approach, stage after stage; stopped at any moment, it goes on where it was."""
    from ragmeter.commands import training

    request = training.Request(name, data, graph, base, preset, config, options or [], stage, output, device)
    if name is None:
        training.listed(as_json)
    elif show:
        training.options(name, as_json)
    else:
        training.train(request, store, as_json, quiet)


def explain(
    name: Annotated[str, typer.Argument(help="A method that can explain itself: ark, gpr …", autocompletion=completion.explainers)],
    question: Annotated[str, typer.Argument(help="A question's id, or the beginning of its text.")],
    benchmark: Annotated[
        str, typer.Option("--benchmark", help="The data that the question is from.", autocompletion=completion.references)
    ],
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option, nested ones with dots; checkpoint=FOLDER is what was trained; may be repeated."
        ),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the picture to this SVG file.")] = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show what a method does with one question, as tables and a picture."""
    from ragmeter.commands import training

    training.explain(name, question, benchmark, options or [], picture, device, store, as_json)
