"""Print for commands: tables for people on standard output, JSON for programs, messages on standard error.

Every command imports this, so it imports rich alone; how boards look is in `board_text.py`.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import zip_longest
from typing import Any, Literal, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from benchmarks.core.errors import UserError
from benchmarks.core.unseen import UNSEEN, printable


class SafeConsole(Console):
    """Console that removes control characters from untrusted text, such as answers, names and error messages.

    If the output pipe is closed, it raises `BrokenPipeError`, while rich's own console exits with an error.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as rich does; control codes come only from styles, never from text."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            # What is removed has no width, so tables stay aligned.
            yield segment if control or not UNSEEN.search(text) else Segment(printable(text), style)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the program that reads this output ended")


_SIZE = (None, None) if "COLUMNS" in os.environ or sys.stdout.isatty() else (10_000, 100)
out: Console = SafeConsole(highlight=False, width=_SIZE[0], height=_SIZE[1])
"""Console for results. In a file or a pipe there are no colors, and a table row is one line of any length."""
err: Console = SafeConsole(stderr=True, highlight=False)
"""Console for messages and progress."""


_KEPT: list[TextIO] = []
"""Standard output while `only_json` keeps it."""


@contextmanager
def only_json() -> Iterator[None]:
    """Keep standard output for `emit`: what plug-ins and libraries print within the block goes to standard error."""
    _KEPT.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _KEPT.pop()


def stdout() -> TextIO:
    """Return standard output, also within `only_json`."""
    return _KEPT[-1] if _KEPT else sys.stdout


def emit(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print a value as JSON, or call `show` to print it for people."""
    if as_json:
        stream = stdout()
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
        if not _holds(stream.encoding, text):
            text = json.dumps(value, indent=2, default=str)
        stream.write(_escaped(text) + "\n")
        # Readers wait for a server's address, so it is printed at once.
        stream.flush()
    else:
        show()


def _escaped(text: str) -> str:
    """Escape unseen characters in JSON, which only strings can contain."""
    return UNSEEN.sub(lambda match: "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", match[0].encode("utf-16-be"))), text)


def _holds(encoding: str | None, text: str) -> bool:
    """Return whether an encoding can represent a text."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def listing(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, keys: int = 0, whole: bool = False) -> None:
    """Print a table of texts, or a hint if there are no rows; empty columns are left out.

    Args:
        columns: Column heads.
        rows: Rows with one cell per column, as text or as rich's `Text`.
        empty: Hint to print if there are no rows.
        keys: As in `print_table`.
        whole: Never break a cell, so that it can be copied from a terminal.
    """
    # Cells are untrusted text: never read them as markup.
    lines = [[cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row] for row in rows]
    if not lines:
        err.print(Text(empty))
        return
    used = [position for position, head in enumerate(columns) if head or any(line[position].plain for line in lines)]
    cells = [[line[position] for position in used] for line in lines]
    print_table(out, [Text(columns[position]) for position in used], cells, keys=keys, whole=whole)


def print_table(
    console: Console,
    heads: Sequence[Text],
    rows: Sequence[Sequence[Text]],
    *,
    keys: int = 0,
    whole: bool = False,
    numbers: bool = False,
    styles: Sequence[str] = (),
) -> None:
    """Print a table without lines; cells that are too wide for the terminal are wrapped.

    Args:
        console: The console to print to.
        heads: Column heads.
        rows: Rows with one cell per column.
        keys: If the table is too wide, it is split into several tables that all begin with the first `keys` columns. 0: never
            split.
        whole: Never wrap cells nor split the table; the terminal wraps long lines.
        numbers: Align columns after the keys to the right.
        styles: One style per row.
    """
    widths = [max(map(widest, column)) for column in zip(heads, *rows, strict=True)]
    first = max(_KEY, console.width // 3)
    folded = [min(width, first) if position < keys else width for position, width in enumerate(widths)]
    groups = _groups(widths if _across(widths) <= console.width else folded, keys, console.width)
    for group in [[*range(len(widths))]] if whole else groups:
        needed = _across([widths[position] for position in group])
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=any(head.plain for head in heads))
        # A number is never cut: if even one column does not fit next to the keys, the terminal wraps the line.
        table.width = needed if whole else min(needed, max(console.width, _across([folded[position] for position in group]) if keys else 0))
        for position in group:
            number = keys <= position
            justify: Literal["left", "right"] = "right" if numbers and number else "left"
            table.add_column(heads[position], overflow="fold", no_wrap=whole or (bool(keys) and number), justify=justify)
        for row, style in zip_longest(rows, styles, fillvalue=""):
            table.add_row(*[row[position] for position in group], style=str(style))
        console.print(table, crop=False, soft_wrap=whole)


GAP, _KEY = 2, 18
"""Blanks between columns; minimum width of a key."""


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _groups(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Return the column positions of each table; each begins with the first `keys` columns."""
    groups = [[*range(keys)]]
    for position in range(keys, len(widths)):
        if keys and len(groups[-1]) > keys and _across([widths[item] for item in (*groups[-1], position)]) > room:
            groups.append([*range(keys)])
        groups[-1].append(position)
    return groups


def widest(text: Text) -> int:
    """Return the width of a text's longest line, in terminal cells."""
    return max(map(cell_len, text.plain.split("\n")))


def complain(error: UserError, as_json: bool) -> None:
    """Print a user error: the problem, its place and the remedy; possible keys in quoted values are hidden."""
    from results.store.redaction import without_secrets

    if as_json:
        parts = {"code": error.code, "what": error.what, "where": error.where, "try": error.try_this}
        problem = {name: text and without_secrets(text) for name, text in parts.items()}
        sys.stderr.write(_escaped(json.dumps({"error": problem}, ensure_ascii=False)) + "\n")
        return
    first, *rest = map(without_secrets, error.lines())
    # The terminal wraps what is too long: a path that was broken here could not be copied.
    err.print(Text("error: ", style="bold red") + Text(first), soft_wrap=True)
    for line in rest:
        err.print(Text(line), soft_wrap=True)


@contextmanager
def offering_score() -> Iterator[None]:
    """Add a hint to use `ragmeter judge score` to errors of the block about metrics that no run was scored on."""
    from judges.metric import parse
    from results.store.score_queries import NotScored

    try:
        yield
    except NotScored as error:
        try:
            parse(error.metric)
        except UserError:
            raise error from None
        offered = f"`ragmeter judge score --metric '{error.metric}'` scores the stored answers on it"
        raise UserError(error.what, code=error.code, where=error.where, try_this=offered) from None
