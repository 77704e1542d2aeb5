"""How commands speak: tables for people on standard output, JSON for programs, messages on standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
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


def listing(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, keys: int = 0) -> None:
    """Print a plain table of texts, styled where they are rich's.

    Args:
        columns: Heads.
        rows: A cell a column.
        empty: What to do where there are no rows.
        keys: Where the table is wider than the terminal, columns are printed in several parts, and so many of the first
            ones stand in each; 0: cells are broken instead.
    """
    # Cells are strangers' text: never read them as markup.
    lines = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    if not lines:
        err.print(Text(empty))
        return
    for places in _parts(columns, lines, keys):
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for place in places:
            table.add_column(columns[place], overflow="fold", no_wrap=place == 0)
        for line in lines:
            table.add_row(*[line[place] for place in places])
        out.print(table)


class Folding:
    """A name in a cell: where the column is too narrow it is broken behind a separator, and not within a word."""

    def __init__(self, name: str) -> None:
        self._pieces = re.findall(r"[^/:,_ ]*[/:,_ ]+|[^/:,_ ]+", name)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max((cell_len(piece.rstrip()) for piece in self._pieces), default=0)
        return Measurement(longest, cell_len("".join(self._pieces))).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = [""]
        for piece in self._pieces:
            if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > options.max_width:
                lines.append("")
            lines[-1] += piece
        yield Text("\n".join(line.rstrip() for line in lines), overflow="fold")


_GAP = 2
"""Blanks between columns."""


def _parts(columns: Sequence[str], lines: Sequence[Sequence[Text]], keys: int) -> list[list[int]]:
    """Which columns stand in each part of a table, by place."""
    width = [
        _GAP + max(cell_len(head), *(line[place].cell_len for line in lines)) for place, head in enumerate(columns)
    ]
    if not keys or sum(width) - _GAP <= out.width:
        return [list(range(len(columns)))]
    first = list(range(keys))
    left, parts = out.width + _GAP - sum(width[:keys]), [first.copy()]
    room = left
    for place in range(keys, len(columns)):
        if width[place] > room and len(parts[-1]) > keys:
            parts.append(first.copy())
            room = left
        parts[-1].append(place)
        room -= width[place]
    return parts


def counted(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
