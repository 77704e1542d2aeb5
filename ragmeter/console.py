"""How commands speak: tables for people on standard output, JSON for programs, messages on standard error."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchmarks.core.errors import MissingPackage, UserError, counted, unwritable
from benchmarks.verify import Distribution
from judges.metric import parse
from results.battles import BattleBoard, Pairing
from results.board import Board, Cell, Row
from results.contestants import CONTAMINATED
from results.queries import NotScored
from results.redaction import without_secrets
from results.statistics.battles import WinRate
from results.statistics.bradley_terry import Strength
from results.statistics.core import Estimate
from results.tables import doubts, labels, mark, plus_minus, remarks
from results.variants import told_by_name


class _Console(Console):
    """A console that tells of a reader who went away, where rich's own would end the process with an error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the reader of this output went away")


out: Console = _Console(highlight=False, soft_wrap=False)
"""Results. Rich honours NO_COLOR and drops colours where output is no terminal."""
err: Console = _Console(stderr=True, highlight=False)
"""Messages and progress."""


def emit(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print a value as JSON, or let `show` print it for people."""
    if as_json:
        text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
        if not _holds(sys.stdout.encoding, text):
            text = json.dumps(value, indent=2, default=str)
        sys.stdout.write(text + "\n")
        # Whoever reads a server's address waits for it.
        sys.stdout.flush()
    else:
        show()


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
    # Cells are strangers' text: never read them as markup.
    lines = [[cell if isinstance(cell, Text) else Text(str(cell)) for cell in row] for row in rows]
    if not lines:
        err.print(Text(empty))
        return
    used = [place for place, head in enumerate(columns) if head or any(line[place].plain for line in lines)]
    heads = [columns[place] for place in used]
    lines = [[line[place] for place in used] for line in lines]
    width = [max(cell_len(head), *(widest(line[place]) for line in lines)) for place, head in enumerate(heads)]
    if below and len(used) > 1:
        last = min(below, width[-1])
        if fitted(heads[:-1], lines, out.width - _GAP - last) != width[:-1]:
            _in_two(heads, lines, whole=below == WHOLE)
            return
    for places in parts(width, keys, out.width):
        chosen = [heads[place] for place in places]
        out.print(_table(chosen, [[line[place] for place in places] for line in lines]))


def _table(heads: Sequence[str], lines: Sequence[Sequence[Text]], widths: Sequence[int] | None = None) -> Table:
    widths = widths or fitted(heads, lines, out.width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0), show_header=bool(heads))
    for place, width in enumerate(widths):
        head = folded(Text(heads[place]), width) if heads else ""
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
    """A text in lines that are not wider than told, as far as it can be broken behind words, else separators."""
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
    cells = [[Text(head), *(line[place] for line in lines)] for place, head in enumerate(heads)]
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
            place = next(p for p, width in enumerate(widths) if width == most and width > floors[p])
            widths[place] -= 1
    return widths


def parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Which columns stand in each part of a table, by place.

    Args:
        widths: Of the columns, without the gaps between them.
        keys: So many of the first columns stand in each part; 0: all columns are one part.
        room: How wide the terminal is.
    """
    width = [_GAP + one for one in widths]
    if not keys or sum(width) - _GAP <= room:
        return [list(range(len(width)))]
    first = list(range(keys))
    left, found = room + _GAP - sum(width[:keys]), [first.copy()]
    free = left
    for place in range(keys, len(width)):
        if width[place] > free and len(found[-1]) > keys:
            found.append(first.copy())
            free = left
        found[-1].append(place)
        free -= width[place]
    return found


def complain(error: UserError, as_json: bool) -> None:
    """Show a user's mistake: what, where, what to do. What it quotes may be a key that was put in the wrong place."""
    if as_json:
        said = {"what": error.what, "where": error.where, "try": error.try_this}
        problem = {name: text and without_secrets(text) for name, text in said.items()}
        sys.stderr.write(json.dumps({"error": problem}, ensure_ascii=False) + "\n")
        return
    first, *rest = map(without_secrets, error.lines())
    # The terminal wraps what is too long: a path that was broken here could not be copied.
    err.print(Text("error: ", style="bold red") + Text(first), soft_wrap=True)
    for line in rest:
        err.print(Text(line), soft_wrap=True)


# -- Length distributions as pictures: bars in a terminal, or a chart in a file --


FORMATS = (".html", ".svg", ".png")
BAR = 40
_TERMINAL_BINS = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def draw(distributions: Mapping[str, Distribution], console: Console) -> None:
    """Draw a histogram of each distribution in a terminal."""
    for name, distribution in distributions.items():
        console.print(Text(name, style="bold"))
        bins = distribution.histogram(_TERMINAL_BINS)
        most = max((count for _, _, count in bins), default=1)
        labels = [_label(low, high) for low, high, _ in bins]
        width = max(map(len, labels), default=0)
        for label, (_, _, count) in zip(labels, bins, strict=True):
            console.print(Text(f"{label:>{width}} ") + Text(_bar(count / most), style="cyan") + Text(f" {count:,}"))


def _label(low: float, high: float) -> str:
    first, last = -int(-low // 1), -int(-high // 1) - 1
    return f"{first:,}" if first >= last else f"{first:,}–{last:,}"


def _bar(share: float) -> str:
    eighths = round(share * BAR * 8)
    # What is there is seen, however little it is.
    eighths = max(eighths, 1) if share else 0
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def check(path: Path) -> None:
    """Whether a chart can be written to a file of this name.

    Raises:
        UserError: Not in this format.
        MissingPackage: Altair is not installed, or for pictures what renders them.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(
            f"a chart is written as {', '.join(FORMATS)}, not as {path.suffix or 'a file without a suffix'}",
            where=f"--plot {path}",
            try_this="--plot terminal draws here",
        )
    if importlib.util.find_spec("altair") is None:
        raise MissingPackage("altair", "leaderboard", f"--plot {path}")
    if path.suffix.lower() != ".html" and importlib.util.find_spec("vl_convert") is None:
        raise UserError(
            f"altair needs the package 'vl-convert-python' to write {path.suffix}",
            where=f"--plot {path}",
            try_this=f"--plot {path.with_suffix('.html')}, --plot terminal, or pip install vl-convert-python",
        )


def save(distributions: Mapping[str, Distribution], title: str, path: Path) -> None:
    """Write a chart with a histogram of each distribution.

    Raises:
        UserError: The file cannot be written (also: what `check` raises).
    """
    check(path)
    import altair

    charts: list[Any] = []
    for name, distribution in distributions.items():
        values = [{"from": low, "to": high, "count": count} for low, high, count in distribution.histogram()]
        base = altair.Chart(altair.Data(values=values), title=name, width=420, height=110)
        charts.append(
            base.mark_bar().encode(
                x=altair.X("from:Q", bin="binned", title=None),
                x2="to:Q",
                y=altair.Y("count:Q", title=None),
                tooltip=["from:Q", "to:Q", "count:Q"],
            )
        )
    try:
        altair.vconcat(*charts, title=title).save(str(path))
    except OSError as error:
        raise unwritable(error, path, what="the chart") from error


# -- Boards as tables in a terminal: value ± half interval, paired difference to the reference below it --


CELL_WIDTH = 15
METHOD_WIDTH = 26
COST_COLUMNS = ("s/question", "tokens", "memory")
"""What answers took per question: time, all tokens, and the memory tokens among them where any run has some."""


def show_board(board: Board, console: Console) -> None:
    """Print a board, in several tables where it is wider than the terminal."""
    heads = labels(board.metrics)
    room = max(1, (console.width - METHOD_WIDTH - 22) // CELL_WIDTH)
    asked = counted(board.questions, "question")
    title = Text(f"{board.dataset}", style="bold") + Text(f"  setting {board.setting}  ·  {asked}")
    if board.seed:
        title += Text(f"  ·  seed {board.seed}")
    console.print(title)
    chunks = [board.metrics[start : start + room] for start in range(0, len(board.metrics), room)] or [()]
    for number, chunk in enumerate(chunks):
        console.print(_scores_table(board, chunk, heads, with_cost=number == len(chunks) - 1))
    unit = "documents" if board.clustered else "questions"
    notes = [f"value × 100 ± half its 95 % interval (bootstrap over {unit})"]
    if board.reference:
        notes.append(f"below: paired difference to {board.reference}; * p < .05, ** p < .01 (sign flips, Holm per column)")
    console.print(Text("; ".join(notes), style="dim"))
    long = [f"{head} = {metric}" for metric, head in heads.items() if head != metric]
    console.print(Text(", ".join(long), style="dim"))
    for line in doubts(board):
        console.print(Text(line, style="dim"))
    for metric, wrong in board.flags.items():
        console.print(Text(f"⚑ {heads.get(metric, metric)} {'; '.join(wrong)}", style="yellow"))
    said: dict[str, list[str]] = {}
    for row in board.rows:
        for line in remarks(row):
            said.setdefault(line, []).append(row.run.method)
    for line, names in said.items():
        who = f"{len(names)} methods" if len(names) > _NAMED else ", ".join(names)
        console.print(Text(f"{who}: {line}", style="yellow"))
    console.print()


_NARROW = 18
"""Names of pairs are broken down to this before the numbers stand in several tables."""
_NAMED = 2
"""So many methods of which the same must be known are named; more are counted."""
FEW_PAIRINGS = 12
LEGEND = (
    "questions by their mean over orders and repetitions: above ½ won, at ½ tied; uns.: no verdict; decided = won / "
    "(won + lost); ties counted half in with ties; × 100 ± half the 95 % interval of the pair alone; ▲ ▼ surely won "
    "more or fewer than lost (tests of all pairs, Holm-corrected, 5 %); flips: orders at odds; sd: over repetitions; "
    "none: both answers disqualified, neither wins and neither gets half, so that the shares of a pair need not sum "
    "to 100, and 50 is even only without such questions"
)
RANKS = "rank: what tests of all pairs leave open (Holm-corrected, 5 %); whether two intervals overlap says little"


def show_battles(board: BattleBoard, console: Console, controls: Collection[str] = ()) -> None:
    """Print what a pair judge says: win rates by criterion, and strengths where several methods have met.

    Where many pairs have met, only the main criterion is printed; of criteria with the same numbers the first.

    Args:
        board: What to print.
        console: Where to.
        controls: Names of methods that are controls, which are marked.
    """
    judged = Text("  by rules, not by a model", style="yellow") if board.rule else Text("")
    console.print(Text(board.dataset, style="bold") + Text(f"  setting {board.setting}  ·  {board.judge}") + judged)
    criteria = list(dict.fromkeys(one.criterion for one in board.pairings))
    many = len(board.pairings) > FEW_PAIRINGS * len(criteria)
    printed: dict[str, list[list[str]]] = {}
    for criterion in criteria[:1] if many else criteria:
        chosen = [one for one in board.pairings if one.criterion == criterion]
        cells = [[one.method, one.opponent, *_numbers(one), _spread(one.rate)] for one in chosen]
        cells.append([_ranked(board.strengths.get(criterion, ()))])
        twin = next((name for name, known in printed.items() if known == cells), None)
        if twin is not None:
            console.print(Text(f"{criterion}: the same numbers as {twin}"))
            continue
        printed[criterion] = cells
        said = sum(sum(one.rate.verdicts.values()) for one in chosen)
        lost = sum(one.rate.verdicts["unscored"] for one in chosen)
        console.print(Text(f"{criterion}: {said:,} verdicts, {lost:,} of them unscored"))
        for table in _battles(chosen, controls, console.width):
            console.print(table)
        if criterion in board.strengths:
            console.print(Text("strength (Bradley–Terry, Elo scale): ") + Text(_ranked(board.strengths[criterion])))
    for note in dict.fromkeys(note for one in board.pairings for note in _lacking(one)):
        console.print(Text(note, style="yellow"))
    notes = [LEGEND, *([RANKS] if board.strengths else ())]
    notes += [f"by {', '.join(criteria[1:])}: `ragmeter judge table --json`"] if many else []
    for note in notes:
        console.print(Text(note, style="dim"))
    console.print()


def _lacking(one: Pairing) -> list[str]:
    """What a reader must know of a pairing beside its numbers: what is not judged, and what cannot be."""
    notes = []
    if one.pending:
        said = "is" if one.pending == 1 else "are"
        notes.append(f"{counted(one.pending, 'answer')} of both {said} not judged yet: the same judging goes on")
    if one.unscorable:
        notes.append(f"left out, with nothing to judge by: {counted(one.unscorable, 'question')}")
    return [f"{one.method} against {one.opponent}: {note}" for note in notes]


def _numbers(one: Pairing) -> list[str]:
    rate = one.rate
    return [
        f"{rate.wins}/{rate.ties}/{rate.losses}",
        str(rate.none),
        str(rate.unscored),
        shown_share(rate.decided),
        _sure(one) + shown_share(rate.with_ties),
        f"{rate.flips.flips}/{rate.flips.both_decided}",
    ]


def _battles(pairings: Sequence[Pairing], controls: Collection[str], room: int) -> list[Table]:
    """The numbers of pairs: in several tables where they are wider than the terminal, and none of them broken."""
    heads = ["won/tied/lost", "none", "uns.", "decided", "with ties", "flips"]
    lines = [_numbers(one) for one in pairings]
    if any(one.rate.repetitions.repetitions > 1 for one in pairings):
        heads.append("sd")
        lines = [[*line, _spread(one.rate)] for line, one in zip(lines, pairings, strict=True)]
    # What never occurs takes no column.
    kept = [place for place, head in enumerate(heads) if head not in ("none", "uns.") or any(line[place] != "0" for line in lines)]
    widths = [max(len(heads[place]), *(len(line[place]) for line in lines)) for place in kept]
    names = [_pair_name(one, controls) for one in pairings]
    widest = max(len(line) for name in names for line in name.plain.split("\n"))
    free = room - sum(widths) - 2 * len(widths)
    first = min(widest, METHOD_WIDTH, max(free, _NARROW))
    tables = []
    for places in parts([first, *widths], 1, room):
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        table.add_column("method", width=first, overflow="fold")
        chosen = [kept[place - 1] for place in places[1:]]
        for place in chosen:
            table.add_column(heads[place], justify="right", no_wrap=True)
        for name, line in zip(names, lines, strict=True):
            table.add_row(folded(name, first), *[line[place] for place in chosen])
        tables.append(table)
    return tables


def _pair_name(one: Pairing, controls: Collection[str]) -> Text:
    name = Text(one.method)
    name += Text(" (control)" if one.method in controls else "", style="dim")
    return name + Text(f"\n against {one.opponent}" + (" (control)" if one.opponent in controls else ""), style="dim")


def _ranked(strengths: Sequence[tuple[str, Strength]]) -> str:
    return ", ".join(
        f"{name} {strength.elo[0]:.0f} ({strength.elo[1]:.0f}–{strength.elo[2]:.0f})"
        + ("‡" if strength.separated else "")
        + f" rank {strength.places}"
        for name, strength in strengths
    ) + (
        "; ‡ won or lost everything: how far away it stands cannot be known" if any(strength.separated for _, strength in strengths) else ""
    )


def _sure(one: Pairing) -> str:
    return "" if one.won is None else "▲ " if one.won else "▼ "


def shown_share(estimate: Estimate) -> str:
    """A share × 100 with half its interval, and † where that may not cover as it says; – without a value."""
    if math.isnan(estimate.value):
        return "–"
    return plus_minus(estimate.value, estimate.low, estimate.high) + ("†" if estimate.doubt else "")


def _spread(rate: WinRate) -> str:
    spread = rate.repetitions.with_ties_sd
    return "–" if math.isnan(spread) else f"{100 * spread:.1f}"


def _scores_table(board: Board, metrics: Sequence[str], heads: dict[str, str], *, with_cost: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("method", max_width=METHOD_WIDTH, overflow="fold")
    for metric in metrics:
        table.add_column(Text(heads[metric]), justify="right", no_wrap=True)
    costs = _cost_columns(board) if with_cost else ()
    for column in costs:
        table.add_column(column, justify="right", no_wrap=True)
    for row in board.rows:
        name = Text(row.run.method)
        if row.control:
            name += Text(" (control)", style="dim")
        elif row.run.method == board.reference:
            name += Text(" (reference)", style="dim")
        marks = [row.run.origin] * (row.run.origin != "run") + [CONTAMINATED] * bool(row.contaminated)
        if marks:
            name += Text(f" ({', '.join(marks)})", style="dim")
        cells = [cell_text(row.cells.get(metric)) for metric in metrics]
        table.add_row(name, *cells, *_cost(row)[: len(costs)], style="dim" if row.control else "")
    return table


def cell_text(cell: Cell | None) -> Text:
    """A cell: `63.4 ± 4.2`, and below it `+2.1 ± 3.0 *` where there is a difference."""
    if cell is None or math.isnan(cell.estimate.value):
        return Text("–", style="dim")
    text = Text(plus_minus(cell.estimate.value, cell.estimate.low, cell.estimate.high, scale=cell.scale))
    text += Text("†" if cell.estimate.doubt else "", style="dim")
    if cell.difference is not None and not math.isnan(cell.difference.value):
        found = cell.difference
        stars = mark(cell)
        style = "dim" if not stars else "green" if found.value > 0 else "red"
        text += Text("\n" + plus_minus(found.value, found.low, found.high, "{:+.1f}", cell.scale) + stars, style=style)
        text += Text("†" if found.doubt else "", style="dim")
    return text


def _cost_columns(board: Board) -> tuple[str, ...]:
    remembers = any(row.cost is not None and row.cost.memory_tokens > 0 for row in board.rows)
    return COST_COLUMNS if remembers else COST_COLUMNS[:-1]


def _cost(row: Row) -> tuple[Text, ...]:
    if row.cost is None:
        return (Text("–"),) * len(COST_COLUMNS)
    counted = (row.cost.tokens, row.cost.memory_tokens)
    seconds = "–" if math.isnan(row.cost.seconds) else f"{row.cost.seconds:.4f}"
    return Text(seconds), *(Text(f"{number:.0f}" if number > 0 else "–") for number in counted)


# -- Datasets by names short enough for a table or a progress bar --


def in_words(dataset: str) -> str:
    """A dataset without its options, which tables above give; of one told in some style, which."""
    how = told_by_name(dataset)
    base = how.base.partition("(")[0]
    return base if how.base == dataset else f"{base}, {how.name}"


# -- What to do about a metric that is known and that stored runs were not scored on --


@contextmanager
def offering_score() -> Iterator[None]:
    """Where a metric was asked for that no run here was scored on: offer to score it, if it is a metric at all."""
    try:
        yield
    except NotScored as error:
        try:
            parse(error.metric)
        except UserError:
            raise error from None
        offered = f"`ragmeter score --add '{error.metric}'` scores the stored answers on it"
        raise UserError(error.what, where=error.where, try_this=offered) from None
