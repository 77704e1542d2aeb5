"""Boards as tables in a terminal: value ± half interval, paired difference to the reference below it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.plurals import counted
from ragmeter.console import folded, parts
from results.battle_board import BattleBoard, Pairing
from results.board import Board, Cell, Row
from results.contestants import CONTAMINATED
from results.statistics import Estimate, Strength, WinRate
from results.tables import doubts, labels, mark, plus_minus, remarks

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
        console.print(_table(board, chunk, heads, with_cost=number == len(chunks) - 1))
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


def _table(board: Board, metrics: Sequence[str], heads: dict[str, str], *, with_cost: bool) -> Table:
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
