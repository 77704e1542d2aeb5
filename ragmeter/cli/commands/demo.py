"""`demo`: every approach trained small and measured beside its baselines, and what that came to in one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.core.errors import UserError, counted
from ragmeter import experiment as experiments
from ragmeter.cli.commands.run import carry_and_show
from ragmeter.console import Folding, cell_text, complain, emit, err, in_words, listing, out
from ragmeter.experiment import Experiment
from ragmeter.plan.shapes import absences
from ragmeter.runner.experiment import How
from results import store_folder
from results.board import Board, boards
from results.budget import budget_curves
from results.store import Store
from results.style import style_drops
from results.tables import labels, plus_minus, stars

# -- What the demo says behind its parts: what style costs, what compression saves, each approach in one table --


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


PARTS: Mapping[str, Sequence[str]] = {
    "demo": ("f1", "recall@5"),
    "demo-graph": ("f1", "answer_entity_recall@20"),
    "demo-styles": ("f1", "mrr@5"),
    "demo-compression": ("cover_em", "f1"),
}
"""The experiments, in their order, and the metrics of each that the last table shows."""
BEHIND: Mapping[str, tuple[Callable[[Store, str, str], None], str]] = {
    "demo-styles": (show_styles, "mrr@5"),
    "demo-compression": (show_compression, "cover_em"),
}
"""What is shown behind a part, of which metric."""
REAL_SAMPLES = "demo-real"


@dataclass(frozen=True)
class Request:
    """What of the demo was asked for.

    Attributes:
        limit: Only so many questions of every benchmark.
        device: None to choose.
        training: Whether the approaches are trained; otherwise they are left out.
    """

    limit: int | None = None
    device: str | None = None
    training: bool = True


def demo(request: Request, folder: Path | None, as_json: bool, quiet: bool, verbose: bool) -> int:
    """Run the shipped demo, then the real samples that are here; returns the lowest code of the parts that failed."""
    store = Store(store_folder(folder))
    names = list(PARTS)
    if os.environ.get("RAGMETER_DATA"):
        names.append(REAL_SAMPLES)
    elif not quiet and not as_json:
        err.print("RAGMETER_DATA is not set: worlds only (set it to a folder of real samples to add HotpotQA, 2Wiki, MuSiQue)")
    # All are read before the first begins: a checkpoint of another store is a mistake that shows at once.
    chosen = [_chosen(experiments.load(name, store=folder), request) for name in names]
    chosen = [part for one in chosen if (part := _here(one, quiet or as_json)).benchmarks]
    codes, shown = [], []
    talk = not (quiet or as_json)
    if talk and chosen:
        err.print(Text(_coming(chosen, request)))
    for number, experiment in enumerate(chosen, start=1):
        if talk:
            err.print(Text(f"{number} of {len(chosen)}: {experiment.name}", style="bold"))
        how = How(request.limit, device=request.device)
        try:
            code, value = carry_and_show(experiment, how, store, as_json, quiet, verbose)
        except UserError as error:
            if experiment.name != REAL_SAMPLES:
                raise
            # Strangers' files may be at fault; what was measured before them is shown all the same.
            complain(error, as_json)
            codes.append(error.exit_code)
            continue
        if experiment.name in BEHIND and not as_json:
            view, metric = BEHIND[experiment.name]
            # Where a part has failed nothing may be there to be shown; the parts behind it go on.
            with suppress(UserError):
                view(store, experiment.name, metric)
        codes.append(code)
        shown.append(value)
    emit({"experiments": shown}, as_json, lambda: None)
    if not as_json:
        parts = [(experiment, PARTS[experiment.name]) for experiment in chosen if experiment.name in PARTS]
        show_approaches(parts, store, trained=request.training)
        # The command as it was called: outside an activated environment its bare name would not be found.
        out.print(Text(f"leaderboard: {sys.argv[0]} serve --open --store {store.folder}"), soft_wrap=True)
    return min((code for code in codes if code), default=0)


def _coming(chosen: Sequence[Experiment], request: Request) -> str:
    """What the demo is about to do, and how long that takes."""
    names = ", ".join(experiment.name for experiment in chosen)
    whole = request.training and request.limit is None and len(chosen) >= len(PARTS)
    long = "; seven to eight minutes on two cores, more on a busy machine" if whole else ""
    known = "; what the store already holds is not done again" if whole else ""
    return f"{counted(len(chosen), 'part')}: {names}{long}{known}"


def _here(experiment: Experiment, silent: bool) -> Experiment:
    """Of the real samples those whose data are on this machine: a demo downloads nothing."""
    if experiment.name != REAL_SAMPLES:
        return experiment
    lacking = {str(one.reference): None for one in experiment.benchmarks if any(absences(one.reference, one.config))}
    if lacking and not silent:
        err.print(
            Text(f"left out, not found in RAGMETER_DATA: {', '.join(lacking)} (ragmeter datasets fetch REF gets one)"), soft_wrap=True
        )
    kept = tuple(one for one in experiment.benchmarks if str(one.reference) not in lacking)
    return replace(experiment, benchmarks=kept)


def _chosen(experiment: Experiment, request: Request) -> Experiment:
    """The experiment, without what is trained first where no training is wanted."""
    if request.training:
        return experiment
    ready = tuple(method for method in experiment.methods if not method.needs)
    if experiment.reference not in {method.name for method in ready}:
        raise UserError("its reference is trained", where=experiment.name, try_this="leave out --no-training")
    return replace(experiment, methods=ready, trainings=())
