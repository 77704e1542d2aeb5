"""What the demo says behind its parts: what style costs, what compression saves, each approach in one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from ragmeter.console import Folding, listing, out
from ragmeter.experiment import Experiment
from ragmeter.render import cell_text
from ragmeter.short_names import in_words
from results.board import Board, boards
from results.budgets import budget_curves
from results.store import Store
from results.style_drops import style_drops
from results.tables import labels, plus_minus, stars

APPROACHES = ("ARK", "GPR", "SARK", "CLaRa")


def named(board: Board, heads: Sequence[str]) -> list[str]:
    """Metrics of a board by what tables call them."""
    known = labels(board.metrics)
    return [metric for head in heads for metric in board.metrics if known[metric] == head]


def show_styles(store: Store, experiment: str, metric: str) -> None:
    """What informal passages cost each method, question by question."""
    for table in style_drops(store, experiment, [metric]):
        lines = [
            (
                row.method,
                plus_minus(row.formal.value, row.formal.low, row.formal.high, scale=table.scale),
                plus_minus(drop.found.drop.value, drop.found.drop.low, drop.found.drop.high, "{:+.1f}", table.scale),
                "–"
                if drop.beyond is None
                else plus_minus(drop.beyond.value, drop.beyond.low, drop.beyond.high, "{:+.1f}", table.scale) + stars(drop.beyond_p),
            )
            for row in table.rows
            if row.kind != "control"
            for drop in row.drops
        ]
        name = labels([table.metric])[table.metric]
        out.print(Text("What informal passages cost", style="bold") + Text(f"  {name}, × 100"))
        listing(("method", "formal", "drop", f"beyond {table.reference}'s"), lines, empty="nothing was scored")
        out.print(Text(f"more: ragmeter styles drops {experiment}\n", style="dim"))


def show_compression(store: Store, experiment: str, metric: str) -> None:
    """How much each method reads, and what it answers from that."""
    for board in boards(store, experiment):
        for chosen in named(board, [metric]):
            points = [point for curve in budget_curves(board, chosen) for point in curve.points]
            lines = [
                (
                    point.row.run.method,
                    plus_minus(point.value.value, point.value.low, point.value.high),
                    f"{point.delivered:,.0f}",
                    f"{point.memory:,.0f}" if point.memory else "–",
                    f"{point.ratio:.1f} ×",
                )
                for point in sorted(points, key=lambda point: -point.delivered)
            ]
            out.print(Text("What is read, and what is made of it", style="bold") + Text(f"  {board.setting}"))
            heads = ("method", f"{metric} × 100", "tokens read", "of them memory", "fewer than the most")
            listing(heads, lines, empty="nothing was read")
            out.print()


def show_approaches(parts: Sequence[tuple[Experiment, Sequence[str]]], store: Store, *, trained: bool) -> None:
    """One table of the four approaches, each against the reference of its board.

    Args:
        parts: Experiments, with what tables call the metrics to be shown.
        store: Where they were carried out.
        trained: Whether those were trained that do not ship.
    """
    rows = [row for experiment, heads in parts for row in _approaches(experiment, heads, store)]
    if not rows:
        return
    out.print(Text("What a few minutes of training come to" if trained else "What ships, untrained here", style="bold"))
    out.print(approaches_table(rows))
    just_now = "ARK, GPR and SARK were trained just now; " if trained else ""
    out.print(
        Text(
            "value × 100 ± half its 95 % interval; below: paired difference to the reference; * p < .05, ** "
            f"p < .01. {just_now}CLaRa's adapters ship, and took three quarters of an hour of one core. "
            "Trainings of hours: the documentation's pages of the methods",
            style="dim",
        )
    )
    names = ", ".join(f"`ragmeter published {name.lower()}`" for name in APPROACHES)
    out.print(Text(f"What the papers print, with larger models on other data: {names}", style="dim"))


Row = tuple[str, str, str, Text, str]
"""The approach, what it was asked, the metric, the value, and what that is held against."""


def approaches_table(rows: Iterable[Row]) -> Table:
    """The table of the approaches; what does not fit is broken between the parts of a name."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("approach", no_wrap=True)
    table.add_column("asked")
    table.add_column("metric")
    table.add_column("value, and against", justify="right", no_wrap=True)
    table.add_column("reference")
    for approach, asked, metric, value, reference in rows:
        table.add_row(Text(approach), Folding(asked), Folding(metric), value, Folding(reference))
    return table


def _approaches(experiment: Experiment, heads: Sequence[str], store: Store) -> Iterator[Row]:
    for board in boards(store, experiment.name):
        known = labels(board.metrics)
        for row in board.rows:
            if row.run.method in APPROACHES:
                asked = in_words(board.dataset)
                for metric in named(board, heads):
                    value = cell_text(row.cells.get(metric))
                    yield row.run.method, asked, known[metric], value, board.reference or "–"
