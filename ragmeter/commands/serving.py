"""`serve-model`: a local language model behind the OpenAI protocol; and what `serve` checks before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.text import Text

from benchmarks.errors import UserError
from benchmarks.wording import told_of
from ragmeter.console import emit, err, out
from results.database import FILE


def expect_store(folder: Path, quiet: bool) -> None:
    """Say where no store is yet: one may come to be while it is served.

    Raises:
        UserError: The place is no folder.
    """
    for place in (folder, *folder.parents):
        if place.is_file():
            raise UserError("this is a file, not the folder of a store", where=str(place), try_this="--store FOLDER")
    if not quiet and not (folder / FILE).exists():
        # The terminal wraps what is too long: a path that was broken here could not be copied.
        err.print(Text(f"no store at {folder} yet: pages fill when one is written there"), soft_wrap=True)


def serve_model(
    path: str, options: Mapping[str, Any], name: str | None, host: str, port: int, device: str | None, as_json: bool, quiet: bool
) -> int:
    """Load a model and answer until interrupted; returns the exit code.

    Args:
        path: Folder or hub id.
        options: Further fields of `CausalConfig`.
        name: What clients call the model.
        host: Address to listen on.
        port: 0 takes a free one.
        device: "cpu", "cuda" …; None chooses.
        as_json: Print address and name as JSON.
        quiet: Print nothing but that.

    Raises:
        UserError: The model cannot be loaded, an option is wrong, or the address is taken.
    """
    from methods.models.causal import CausalConfig
    from methods.models.serving import LocalServer

    try:
        config = CausalConfig(model=path, **options)
    except ValidationError as error:
        place, what = told_of(error)
        raise UserError(what, where=f"--{place.replace('_', '-')}" if place else None) from None
    local = LocalServer(config, name, device)
    try:
        server = local.server(host, port)
        with server:
            emit({"model": local.name, "base_url": server.url}, as_json, lambda: out.print(Text(server.url)))
            if not quiet and not as_json:
                example = f"chat reader: {{model: {local.name}, base_url: {server.url}, key_variable: null}}"
                err.print(Text(f"{local.name} on {local.model.device}; {example}; Ctrl-C ends it"))
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    finally:
        local.close()
    return 0
