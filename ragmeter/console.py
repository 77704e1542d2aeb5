"""How commands speak: tables for people on standard output, JSON for programs, messages on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.errors import UserError

out = Console(highlight=False, soft_wrap=False)
"""Results. Rich honours NO_COLOR and drops colours where output is no terminal."""
err = Console(stderr=True, highlight=False)
"""Messages and progress."""


def emit(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print a value as JSON, or let `show` print it for people."""
    if as_json:
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")
        # Whoever reads a server's address waits for it.
        sys.stdout.flush()
    else:
        show()


def listing(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """A plain table of texts, styled where they are rich's; `empty` says what to do where there are no rows."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    count = 0
    for row in rows:
        # Cells are strangers' text: never read them as markup.
        table.add_row(*[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row])
        count += 1
    if count:
        out.print(table)
    else:
        err.print(Text(empty))


def complain(error: UserError, as_json: bool) -> None:
    """Show a user's mistake: what, where, what to do."""
    if as_json:
        problem = {"what": error.what, "where": error.where, "try": error.try_this}
        sys.stderr.write(json.dumps({"error": problem}, ensure_ascii=False) + "\n")
        return
    first, *rest = error.lines()
    # The terminal wraps what is too long: a path that was broken here could not be copied.
    err.print(Text("error: ", style="bold red") + Text(first), soft_wrap=True)
    for line in rest:
        err.print(Text(line), soft_wrap=True)
