"""The command line of `ragmeter compress`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragmeter import completion
from ragmeter.datasets_cli import Config, DataPath
from ragmeter.options import DeviceOption, JsonOption, OfflineOption, QuietOption, StoreOption, VerboseOption


def compress(
    source: Annotated[
        str,
        typer.Argument(
            metavar="REF|FOLDER", help="A data reference, or a folder of `ragmeter datasets corpus`.", autocompletion=completion.references
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
    offline: OfflineOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compress a corpus into a store of memory (CLaRa); what was interrupted goes on where it was."""
    from ragmeter.commands import compressing

    request = compressing.Request(source, model, output, dtype, memory_dtype, device, config, path)
    drawing = None if picture is None else compressing.Drawing(picture, projection, drawn, seed)
    compressing.compress(request, drawing, store, as_json, quiet)
