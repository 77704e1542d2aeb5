"""Boards as tables in a terminal: value ± half interval, paired difference to the reference below it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from results.board import Board, Cell, Row

CELL_WIDTH = 15
METHOD_WIDTH = 26
COST_COLUMNS = ("s/question", "tokens")


def labels(metrics: Sequence[str]) -> dict[str, str]:
    """Short column heads: parameters and versions are shown only where they tell two columns apart."""
    short = {metric: re.sub(r"\(.*\)|#v\d+$", "", metric) for metric in metrics}
    heads = list(short.values())
    return {metric: head if heads.count(head) == 1 else metric for metric, head in short.items()}


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
    for row in board.rows:
        for line in _remarks(row):
            console.print(Text(f"{row.run.method}: {line}", style="yellow"))
    console.print()


def _table(board: Board, metrics: Sequence[str], heads: dict[str, str], *, with_cost: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("method", max_width=METHOD_WIDTH, overflow="fold")
    for metric in metrics:
        table.add_column(Text(heads[metric]), justify="right", no_wrap=True)
    if with_cost:
        for column in COST_COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
    for row in board.rows:
        name = Text(row.run.method)
        if row.control:
            name += Text(" (control)", style="dim")
        elif row.run.method == board.reference:
            name += Text(" (reference)", style="dim")
        cells = [cell_text(row.cells.get(metric)) for metric in metrics]
        table.add_row(name, *cells, *(_cost(row) if with_cost else ()), style="dim" if row.control else "")
    return table


def cell_text(cell: Cell | None) -> Text:
    """A cell: `63.4 ± 4.2`, and below it `+2.1 ± 3.0 *` where there is a difference."""
    if cell is None or math.isnan(cell.estimate.value):
        return Text("–", style="dim")
    text = Text(_plus_minus(cell.estimate.value, cell.estimate.low, cell.estimate.high, "{:.1f}"))
    if cell.difference is not None and not math.isnan(cell.difference.value):
        found = cell.difference
        p = cell.p_holm if cell.p_holm is not None else 1.0
        mark = "**" if p < 0.01 else "*" if p < 0.05 else ""
        style = "dim" if not mark else "green" if found.value > 0 else "red"
        text += Text("\n" + _plus_minus(found.value, found.low, found.high, "{:+.1f}") + mark, style=style)
    return text


def _plus_minus(value: float, low: float, high: float, form: str) -> str:
    shown = form.format(100 * value)
    return shown if math.isnan(low) else f"{shown} ± {50 * (high - low):.1f}"


def _cost(row: Row) -> tuple[Text, Text]:
    if row.cost is None:
        return Text("–"), Text("–")
    tokens = row.cost.prompt_tokens + row.cost.completion_tokens
    return Text(f"{row.cost.seconds:.4f}"), Text(f"{tokens:.0f}" if tokens else "–")


def _remarks(row: Row) -> list[str]:
    lines = []
    if row.run.status != "finished":
        lines.append(f"{row.run.status}, {row.run.done} of {row.run.questions} questions answered")
    if row.run.error:
        lines.append(row.run.error)
    if row.run.failed:
        lines.append(f"{row.run.failed} questions failed and count as wrong; `ragmeter resume --retry-failed`")
    scored = {metric: cell.estimate.n + cell.estimate.unscorable for metric, cell in row.cells.items()}
    for metric, number in scored.items():
        if number < row.run.done:
            lines.append(f"only {number} of {row.run.done} answered questions are scored on {metric}")
    unscorable = {metric: cell.estimate.unscorable for metric, cell in row.cells.items() if cell.estimate.unscorable}
    if unscorable and not row.control:
        worst = max(unscorable.values())
        lines.append(f"up to {worst} questions are unscorable on some metrics and left out of them")
    return lines
