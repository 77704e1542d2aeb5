"""`ragmeter leaderboard`: the leaderboard on a store as web pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from rich.text import Text

from benchmarks.core.errors import UserError
from leaderboard import intake, server
from ragmeter.cli import completion
from ragmeter.cli.options import App, Common, option
from ragmeter.show.console import err
from results.offered import LIMITS, MIB

SUMMARY = "Serve the leaderboard on a store as web pages."
DETAILS = f"""{SUMMARY}

Read-only unless --allow-submissions is given. With it, anybody who reaches the address may upload predictions (JSON Lines) with
a card (YAML), or a bundle (zip), for a board that the store has already: {intake.UPLOAD_MIB} MiB a file,
{LIMITS.card_bytes // 1024} KiB a card, {LIMITS.file_bytes // MIB} MiB of predictions unpacked, {LIMITS.rows:,} rows,
one upload is checked at a time, for at most {intake.TIME_S / 60:.0f} minutes, in a process without keys. Nothing that is uploaded
is executed. The number of files in memory is not limited: limit requests in a proxy if the address is public.

With --hold, no board shows a submission until you accept it with `ragmeter submit accept RUN`.
"""
app = App(help=SUMMARY)


@app.command(help=DETAILS)
def leaderboard(
    common: Common,
    port: Annotated[int, option("Port to listen on.", min=1, max=65535)] = 8501,
    host: Annotated[str, option("Address to listen on (default: this machine only).")] = "127.0.0.1",
    browser: Annotated[bool, option("Open a browser window.", "--open")] = False,
    experiment: Annotated[
        str | None,
        option(
            "Experiment to open first (default: the one with the most finished runs).",
            "--experiment",
            completes=completion.stored_experiments,
        ),
    ] = None,
    allow_submissions: Annotated[
        bool, option("Let anybody who reaches the address check and store submissions.", "--allow-submissions")
    ] = False,
    hold: Annotated[bool, option("Submissions wait for approval (with --allow-submissions).", "--hold")] = False,
) -> int:
    """Serve the leaderboard of a store."""
    from results.store import queries

    store = common.store
    if hold and not allow_submissions:
        raise UserError(
            "--hold has no effect: this leaderboard accepts no submissions",
            code="hold-without-submissions",
            where="--hold",
            try_this="add --allow-submissions",
        )
    parent: Path | None = next((item for item in (store.folder, *store.folder.parents) if item.is_file()), None)
    if parent is not None:
        raise UserError("this is a file, not the folder of a store", code="store-is-a-file", where=str(parent), try_this="--store FOLDER")
    if experiment is not None:
        queries.experiment(store, experiment)
    if not store.database.exists and not common.quiet:
        # The terminal wraps what is too long: a path that was broken here could not be copied.
        err.print(Text(f"no store at {store.folder} yet: pages fill when one is written there"), soft_wrap=True)

    def started(url: str) -> None:
        common.emit({"url": url, "store": str(store.folder)}, lambda: None)

    # In a process of its own, and never from a folder in which an untrusted file could be imported as a module.
    submit = [sys.executable, "-P", "-m", "ragmeter.cli", "submit"] if allow_submissions else None
    on_start = started if common.json else None
    return server.serve(
        store.folder, port=port, host=host, open_browser=browser, submit=submit, on_start=on_start, experiment=experiment, hold=hold
    )
