"""Arguments and options that name something, declared once for all commands; the Tab key completes them."""

from __future__ import annotations

from typing import Annotated

import typer

from ragmeter import completion

RunArgument = Annotated[
    str, typer.Argument(help="Blessed name, fingerprint prefix, or experiment/method/dataset/setting/seed.", autocompletion=completion.runs)
]
StoredExperiment = Annotated[
    str | None,
    typer.Argument(help="Name of an experiment in the store (default: the newest)", autocompletion=completion.stored_experiments),
]
Experiment = Annotated[
    str, typer.Argument(help="An experiment file, or the name of a shipped experiment.", autocompletion=completion.experiments)
]
ProfileOption = Annotated[str | None, typer.Option(help="One of the file's profiles, laid over it.", autocompletion=completion.profiles)]
MetricsOption = Annotated[
    str | None,
    typer.Option(
        help="Only these metrics, by name or id, with commas between (default: those usually shown)",
        autocompletion=completion.several(completion.stored_metrics),
    ),
]
ReferenceOption = Annotated[
    str | None,
    typer.Option(help="Method that differences are taken to (default: the experiment's).", autocompletion=completion.stored_methods),
]
