"""The command line of `ragmeter train`, `explain`, `compress` and `synthesise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli import options
from ragmeter.cli import options as completion
from ragmeter.cli.data import Config, DataPath
from ragmeter.cli.options import App, DeviceOption, JsonOption, QuietOption, StoreOption

# -- The command line of `ragmeter compress` --


def compress(
    source: Annotated[
        str,
        typer.Argument(
            metavar="REF|FOLDER", help="A data reference, or a folder of `ragmeter datasets corpus`.", autocompletion=options.references
        ),
    ],
    model: Annotated[str, typer.Option(help="Folder of a checkpoint that `ragmeter train clara` made.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder of the store [default: where `ragmeter run` looks]")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of the base's weights: float32, bfloat16, float16 or auto.")] = None,
    memory_dtype: Annotated[str | None, typer.Option(help="In which memory is kept: float16 or bfloat16 [default: by the base]")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw states of documents and of their memory into this SVG file (figure 8).")
    ] = None,
    projection: Annotated[str, typer.Option(help="Of the picture: tsne or pca.")] = "tsne",
    drawn: Annotated[int, typer.Option(min=2, help="Documents in the picture.")] = 4000,
    seed: Annotated[int, typer.Option(help="Which documents are drawn.")] = 0,
    config: Config = None,
    path: DataPath = None,
    device: DeviceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compress a corpus into a store of memory (CLaRa); what was interrupted goes on where it was."""
    from ragmeter.cli.commands import train

    request = train.CompressRequest(source, model, output, dtype, memory_dtype, device, config, path)
    drawing = None if picture is None else train.Drawing(picture, projection, drawn, seed)
    train.compress(request, drawing, store, as_json, quiet)


# -- The command line of `ragmeter synthesise`: training data written by a model --


synthesise_app = App(help="Training data written by a model from documents.", no_args_is_help=True)


@synthesise_app.callback()
def synthesise() -> None:
    """Training data written by a model from documents."""


@synthesise_app.command(offline=True)
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
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rows for CLaRa's pretraining: questions with answers, checked, and paraphrases; interrupted, it goes on."""
    from ragmeter.cli.commands import train

    request = train.SynthesisRequest(data, output, by, mix, documents, seed, tuple(options or ()), config, path, dry_run)
    raise typer.Exit(train.clara(request, store, as_json, quiet))


# -- The command line of `ragmeter train` and `ragmeter explain` --


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
) -> None:
    """Train an approach, stage after stage; stopped at any moment, it goes on where it was."""
    from ragmeter.cli.commands import train as training

    request = training.TrainRequest(name, data, graph, base, preset, config, options or [], stage, output, device)
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
) -> None:
    """Show what a method does with one question, as tables and a picture."""
    from ragmeter.cli.commands import train as training

    training.explain(name, question, benchmark, options or [], picture, device, store, as_json)
