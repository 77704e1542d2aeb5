"""How commands speak: tables for people on standard output, JSON for programs, messages on standard error.

Every command imports this, so it imports rich alone; how boards look is in `board_text.py`.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from benchmarks.core.errors import UserError

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, color or clear the screen (ESC, C0 and C1 codes), turn the direction of text, or have no
width. Joiners (U+200C, U+200D) stay: scripts of India and Persian need them."""


def printable(text: str) -> str:
    """Return a text without the characters that can change what a terminal shows of other texts."""
    return _UNSEEN.sub("", text)


class SafeConsole(Console):
    """Console that prints untrusted text, such as answers, names and error messages, without control characters.

    If the reader of its output went away, it raises `BrokenPipeError`; rich's own console ends the process with an error.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render as rich does; control codes come from styles only, never from text."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            # What is removed has no width, so tables stay aligned.
            yield segment if control or not _UNSEEN.search(text) else Segment(printable(text), style)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the reader of this output went away")


out: Console = SafeConsole(highlight=False, soft_wrap=False)
"""Results. Rich honors NO_COLOR and drops colors where output is no terminal."""
err: Console = SafeConsole(stderr=True, highlight=False)
"""Messages and progress."""


def emit(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print a value as JSON, or let `show` print it for people."""
    if as_json:
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
        if not _holds(sys.stdout.encoding, text):
            text = json.dumps(value, indent=2, default=str)
        sys.stdout.write(_escaped(text) + "\n")
        # Whoever reads a server's address waits for it.
        sys.stdout.flush()
    else:
        show()


def _escaped(text: str) -> str:
    """Return JSON whose unseen characters are escapes; only strings can hold them."""
    return _UNSEEN.sub(lambda match: "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", match[0].encode("utf-16-be"))), text)


def _holds(encoding: str | None, text: str) -> bool:
    """Whether an encoding has all characters of a text."""
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


PROSE = 44
"""As `below` of a listing: room for a description."""
WHOLE = 10_000
"""As `below` of a listing: the last column's cells are never broken, so that they can be copied."""


def listing(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str, keys: int = 0, below: int = 0) -> None:
    """Print a plain table of texts, styled where they are rich's.

    Args:
        columns: Heads.
        rows: A cell a column.
        empty: What to do where there are no rows.
        keys: Where the table is wider than the terminal, columns are printed in several parts, and so many of the first
            ones stand in each; 0: cells are broken instead, behind words and separators as long as that will do.
        below: How wide the last column is to be at least, as far as anything so wide stands in it; where there is no
            room for that its cells stand on lines of their own, below the others.
    """
    # Cells are untrusted text: never read them as markup.
    lines = [[cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in row] for row in rows]
    if not lines:
        err.print(Text(empty))
        return
    used = [position for position, head in enumerate(columns) if head or any(line[position].plain for line in lines)]
    heads = [columns[position] for position in used]
    lines = [[line[position] for position in used] for line in lines]
    width = [max(cell_len(head), *(widest(line[position]) for line in lines)) for position, head in enumerate(heads)]
    if below and len(used) > 1:
        last = min(below, width[-1])
        if fitted(heads[:-1], lines, out.width - _GAP - last) != width[:-1]:
            _in_two(heads, lines, whole=below == WHOLE)
            return
    for positions in parts(width, keys, out.width):
        chosen = [heads[position] for position in positions]
        out.print(_table(chosen, [[line[position] for position in positions] for line in lines]))


def _table(heads: Sequence[str], lines: Sequence[Sequence[Text]], widths: Sequence[int] | None = None) -> Table:
    widths = widths or fitted(heads, lines, out.width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_header=bool(heads))
    for position, width in enumerate(widths):
        head = folded(Text(heads[position]), width) if heads else ""
        table.add_column(head, overflow="fold", width=width)
    for line in lines:
        table.add_row(*[folded(cell, width) for cell, width in zip(line, widths, strict=False)])
    return table


def _in_two(heads: Sequence[str], lines: Sequence[Sequence[Text]], *, whole: bool) -> None:
    """Each row's last cell on lines of its own."""
    first = [line[:-1] for line in lines]
    widths = fitted(heads[:-1], first, out.width)
    out.print(_table(heads[:-1], [], widths))
    if heads[-1]:
        out.print(Text(" " * _INDENT + heads[-1], style="bold"))
    for number, line in enumerate(first):
        out.print(_table((), [line], widths))
        last = lines[number][-1]
        if last.plain and whole:
            out.print(Text(" " * _INDENT) + last, soft_wrap=True)
        elif last.plain:
            out.print(Padding(folded(last, max(1, out.width - _INDENT)), (0, 0, 0, _INDENT)))


class Folding:
    """A name in a cell: where the column is too narrow it is broken behind a separator, and not within a word."""

    def __init__(self, name: str) -> None:
        self._name = Text(name)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_longest(_SPLIT, self._name), widest(self._name)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield folded(self._name, options.max_width)


_GAP = 2
"""Blanks between columns."""
_INDENT = 4
"""Blanks before what stands on a line of its own."""
_SHORT = 16
"""Up to so wide a column is left as it is as long as others can be narrower."""
_WORDS = re.compile(r"(?<= )(?! )")
_SPLIT = re.compile(r"(?<=[/;=_ ])(?![/:,;=_ ])|(?<=[:,])(?![/:,;=_ \d])|(?<=[a-zA-Z]-)(?=\w)")
"""Where a name may be broken: behind separators, and not within a number or a time of day."""


def widest(text: Text) -> int:
    """Cells that the longest line of a text takes."""
    return max(map(cell_len, text.plain.split("\n")))


def _longest(at: re.Pattern[str], text: Text) -> int:
    """Cells that the longest piece takes that is not to be broken."""
    return max(cell_len(piece.rstrip()) for line in text.plain.split("\n") for piece in at.split(line))


def folded(text: Text, width: int) -> Text:
    """A text in lines that are not wider than `width`, as far as it can be broken behind words, else separators."""
    lines = []
    for line in text.split("\n", allow_blank=True):
        cuts, start, at = [], 0, 0
        for word in _WORDS.split(line.plain):
            fits = cell_len(word.rstrip()) <= width
            for piece in [word] if fits else _SPLIT.split(word):
                if at > start and cell_len((line.plain[start:at] + piece).rstrip()) > width:
                    cuts.append(at)
                    start = at
                at += len(piece)
        for part in line.divide(cuts):
            part.rstrip()
            lines.append(part)
    whole = Text("\n").join(lines)
    whole.overflow = "fold"
    return whole


def fitted(heads: Sequence[str], lines: Sequence[Sequence[Text]], room: int) -> list[int]:
    """How wide the columns of a table are: the widest give way first, and only the last resort breaks words."""
    cells = [[Text(head), *(line[position] for line in lines)] for position, head in enumerate(heads)]
    widths = [max(map(widest, column)) for column in cells]
    words = [max(_longest(_WORDS, cell) for cell in column) for column in cells]
    pieces = [max(_longest(_SPLIT, cell) for cell in column) for column in cells]
    first = widths[:1]
    room -= _GAP * (len(widths) - 1)
    short = [width if width <= _SHORT else word for width, word in zip(widths, words, strict=True)]
    split = [width if width <= _SHORT else piece for width, piece in zip(widths, pieces, strict=True)]
    for floors in (first + short[1:], first + split[1:], words[:1] + pieces[1:], pieces, [1] * len(widths)):
        while sum(widths) > room:
            most = max((width for width, floor in zip(widths, floors, strict=True) if width > floor), default=0)
            if not most:
                break
            position = next(p for p, width in enumerate(widths) if width == most and width > floors[p])
            widths[position] -= 1
    return widths


def parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Which columns stand in each part of a table, by place.

    Args:
        widths: Of the columns, without the gaps between them.
        keys: So many of the first columns stand in each part; 0: all columns are one part.
        room: How wide the terminal is.
    """
    width = [_GAP + width for width in widths]
    if not keys or sum(width) - _GAP <= room:
        return [list(range(len(width)))]
    first = list(range(keys))
    left, result = room + _GAP - sum(width[:keys]), [first.copy()]
    free = left
    for position in range(keys, len(width)):
        if width[position] > free and len(result[-1]) > keys:
            result.append(first.copy())
            free = left
        result[-1].append(position)
        free -= width[position]
    return result


def complain(error: UserError, as_json: bool) -> None:
    """Show a user's mistake: what, where, what to do. What it quotes may be a key that was put in the wrong place."""
    from results.store.redaction import without_secrets

    if as_json:
        parts = {"what": error.what, "where": error.where, "try": error.try_this}
        problem = {name: text and without_secrets(text) for name, text in parts.items()}
        sys.stderr.write(_escaped(json.dumps({"error": problem}, ensure_ascii=False)) + "\n")
        return
    first, *rest = map(without_secrets, error.lines())
    # The terminal wraps what is too long: a path that was broken here could not be copied.
    err.print(Text("error: ", style="bold red") + Text(first), soft_wrap=True)
    for line in rest:
        err.print(Text(line), soft_wrap=True)


# -- What to do about a metric that is known and that stored runs were not scored on --


@contextmanager
def offering_score() -> Iterator[None]:
    """Where a metric was asked for that no run here was scored on: offer to score it, if it is a metric at all."""
    from judges.metric import parse
    from results.store.queries import NotScored

    try:
        yield
    except NotScored as error:
        try:
            parse(error.metric)
        except UserError:
            raise error from None
        offered = f"`ragmeter judge score --metric '{error.metric}'` scores the stored answers on it"
        raise UserError(error.what, where=error.where, try_this=offered) from None
