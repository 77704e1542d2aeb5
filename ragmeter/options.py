"""Options that every command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from results import DEFAULT_STORE

StoreOption = Annotated[
    Path | None, typer.Option("--store", envvar="RAGMETER_STORE", help=f"Store folder (default: ./{DEFAULT_STORE})", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Results only, no progress.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="More detail, tracebacks included.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 … (default: the best there is)")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Only the first questions of each benchmark.")]
SettingOption = Annotated[
    str | None, typer.Option(help='Where candidates come from, e.g. "corpus(retriever=bm25,n=50)" (default: the dataset\'s first)')
]
OverSeedsOption = Annotated[bool, typer.Option("--over-seeds", help="One row for all training seeds of a method.")]


def _go_offline(offline: bool) -> bool:
    if offline:
        from benchmarks.hub import go_offline

        go_offline()
    return offline


OfflineOption = Annotated[
    bool, typer.Option("--offline", callback=_go_offline, is_eager=True, help="Use what is in the hub's cache; never the network.")
]
