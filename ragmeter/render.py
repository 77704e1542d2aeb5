"""Boards as tables in a terminal: value ± half interval, paired difference to the reference below it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    title = Text(f"{board.dataset}", style="bold") + Text(f"  setting {board.setting}  ·  {board.questions} questions")
    if board.seed:
        title += Text(f"  ·  seed {board.seed}")
    console.print(title)
    chunks = [board.metrics[start : start + room] for start in range(0, len(board.metrics), room)] or [()]
    for number, chunk in enumerate(chunks):
        console.print(_table(board, chunk, heads, with_cost=number == len(chunks) - 1))
    unit = "documents" if board.clustered else "questions"
    notes = [f"value × 100 ± half its 95 % interval (bootstrap over {unit})"]
    if board.reference:
        notes.append(
            f"below: paired difference to {board.reference}; * p < .05, ** p < .01 (sign flips, Holm per column)"
        )
    console.print(Text("; ".join(notes), style="dim"))
    long = [f"{head} = {metric}" for metric, head in heads.items() if head != metric]
    console.print(Text(", ".join(long), style="dim"))
    for line in doubts(board):
        console.print(Text(line, style="dim"))
    for metric, wrong in board.flags.items():
        console.print(Text(f"⚑ {heads.get(metric, metric)} {'; '.join(wrong)}", style="yellow"))
    for row in board.rows:
        for line in remarks(row):
            console.print(Text(f"{row.run.method}: {line}", style="yellow"))
    console.print()


FEW_PAIRINGS = 12
LEGEND = (
    "questions by their mean over orders and repetitions: above ½ won, at ½ tied; uns.: no verdict; decided = won / "
    "(won + lost); ties counted half in with ties; × 100 ± half the 95 % interval of the pair alone; ▲ ▼ surely won "
    "more or fewer than lost (tests of all pairs, Holm-corrected, 5 %); flips: orders at odds; sd: over repetitions"
)
RANKS = "rank: what tests of all pairs leave open (Holm-corrected, 5 %); whether two intervals overlap says little"


def show_battles(board: BattleBoard, console: Console) -> None:
    """Print what a pair judge says: win rates by criterion, and strengths where several methods have met.

    Where many pairs have met, only the main criterion is printed.
    """
    judged = Text("  by rules, not by a model", style="yellow") if board.rule else Text("")
    console.print(Text(board.dataset, style="bold") + Text(f"  setting {board.setting}  ·  {board.judge}") + judged)
    criteria = list(dict.fromkeys(one.criterion for one in board.pairings))
    many = len(board.pairings) > FEW_PAIRINGS * len(criteria)
    for criterion in criteria[:1] if many else criteria:
        chosen = [one for one in board.pairings if one.criterion == criterion]
        said = sum(sum(one.rate.verdicts.values()) for one in chosen)
        lost = sum(one.rate.verdicts["unscored"] for one in chosen)
        console.print(Text(f"{criterion}: {said:,} verdicts, {lost:,} of them unscored"))
        console.print(_battles(chosen))
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
        notes.append(f"{one.pending:,} answers of both are not judged yet: the same judging goes on with them")
    if one.unscorable:
        notes.append(f"{one.unscorable:,} questions have nothing to judge by and are left out")
    return [f"{one.method} against {one.opponent}: {note}" for note in notes]


def _battles(pairings: Sequence[Pairing]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("method", max_width=METHOD_WIDTH, overflow="fold", no_wrap=True)
    repeated = any(one.rate.repetitions.repetitions > 1 for one in pairings)
    heads = ("won/tied/lost", "none", "uns.", "decided", "with ties", "flips")
    for head in (*heads, *(("sd",) if repeated else ())):
        table.add_column(head, justify="right", overflow="fold")
    for one in pairings:
        rate = one.rate
        cells = [
            f"{rate.wins}/{rate.ties}/{rate.losses}", str(rate.none), str(rate.unscored), shown_share(rate.decided),
            _sure(one) + shown_share(rate.with_ties), f"{rate.flips.flips}/{rate.flips.both_decided}",
        ]  # fmt: skip
        name = Text(one.method) + Text(f"\n against {one.opponent}", style="dim")
        table.add_row(name, *cells, *((_spread(rate),) if repeated else ()))
    return table


def _ranked(strengths: Sequence[tuple[str, Strength]]) -> str:
    return ", ".join(
        f"{name} {strength.elo[0]:.0f} ({strength.elo[1]:.0f}–{strength.elo[2]:.0f})"
        + ("‡" if strength.separated else "")
        + f" rank {strength.places}"
        for name, strength in strengths
    ) + (
        "; ‡ won or lost everything: how far away it stands cannot be known"
        if any(strength.separated for _, strength in strengths)
        else ""
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
