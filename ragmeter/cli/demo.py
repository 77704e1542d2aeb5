"""`ragmeter demo`: every approach trained small and measured beside its baselines, and what that came to in one table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from rich.table import Column, Table
from rich.text import Text

from benchmarks.core.errors import UserError, counted
from ragmeter.cli.options import App, Common, DeviceOption, LimitOption, option
from ragmeter.cli.run import run_and_show, show_where
from ragmeter.console import Folding, complain, err, listing, out

if TYPE_CHECKING:
    from ragmeter.experiment import Experiment
    from results.board import Board
    from results.store import Store

app = App(help="Train the four approaches small and measure them beside baselines.")

APPROACHES = ("ARK", "GPR", "SARK", "CLaRa")
PARTS: Mapping[str, Sequence[str]] = {
    "demo": ("f1", "recall@5"),
    "demo-graph": ("f1", "answer_entity_recall@20"),
    "demo-styles": ("f1", "mrr@5"),
    "demo-compression": ("cover_em", "f1"),
}
"""The experiments, in their order, and the metrics of each that the last table shows."""
REAL_SAMPLES = "demo-real"


@app.command(offline=True)
def demo(
    common: Common,
    limit: LimitOption = None,
    device: DeviceOption = None,
    training: Annotated[bool, option("Train the approaches first, or leave them out.", "--training/--no-training")] = True,
) -> int:
    """Train the four approaches small and measure them beside baselines (RAGMETER_DATA: on real samples, too)."""
    from ragmeter import experiment as experiments
    from ragmeter.runner.experiment import How

    names = list(PARTS)
    if os.environ.get("RAGMETER_DATA"):
        names.append(REAL_SAMPLES)
    elif common.talk:
        err.print("RAGMETER_DATA is not set: worlds only (set it to a folder of real samples to add HotpotQA, 2Wiki, MuSiQue)")
    # All are read before the first begins: a checkpoint of another store is a mistake that shows at once.
    every = [experiments.load(name, store=common.folder) for name in names]
    chosen = [part for item in every if (part := _here(item if training else _untrained(item), common.talk)).benchmarks]
    if common.talk and chosen:
        parts = f"{counted(len(chosen), 'part')}: {', '.join(part.name for part in chosen)}"
        if training and limit is None and len(chosen) >= len(PARTS):
            parts += "; seven to eight minutes on two cores, more on a busy machine; what the store already holds is not done again"
        err.print(Text(parts))
    codes, shown = [], []
    for number, part in enumerate(chosen, start=1):
        if common.talk:
            err.print(Text(f"{number} of {len(chosen)}: {part.name}", style="bold"))
        try:
            code, value = run_and_show(part, How(limit, device=device), common)
            shown.append(value)
        except UserError as error:
            if part.name != REAL_SAMPLES:
                raise
            # Files of others may be at fault; what was measured before them is shown all the same.
            complain(error, common.json)
            code = error.exit_code
        codes.append(code)
        if part.name in BEHIND and not common.json:
            show, metric = BEHIND[part.name]
            # Where a part has failed nothing may be there to be shown; the parts behind it go on.
            with suppress(UserError):
                show(common.store, part.name, metric)

    def end() -> None:
        show_approaches([part for part in chosen if part.name in PARTS], common.store, trained=training)
        show_where(common)

    common.emit({"experiments": shown}, end)
    return min((code for code in codes if code), default=0)


def _here(experiment: Experiment, talk: bool) -> Experiment:
    """Of the real samples those whose data are on this machine: a demo downloads nothing."""
    from benchmarks.sources import absences

    if experiment.name != REAL_SAMPLES:
        return experiment
    lacking = [benchmark for benchmark in experiment.benchmarks if any(absences(benchmark.reference, benchmark.config))]
    if lacking and talk:
        names = ", ".join(dict.fromkeys(str(item.reference) for item in lacking))
        err.print(Text(f"left out, not found in RAGMETER_DATA: {names} (ragmeter data download REF gets one)"), soft_wrap=True)
    return replace(experiment, benchmarks=tuple(benchmark for benchmark in experiment.benchmarks if benchmark not in lacking))


def _untrained(experiment: Experiment) -> Experiment:
    """The experiment without what is trained first."""
    ready = tuple(method for method in experiment.methods if not method.needs)
    if experiment.reference not in {method.name for method in ready}:
        raise UserError("its reference is trained", where=experiment.name, try_this="leave out --no-training")
    return replace(experiment, methods=ready, trainings=())


def _metrics(board: Board, heads: Iterable[str]) -> list[str]:
    """Metrics of a board by what tables call them."""
    from results.tables import labels

    known = labels(board.metrics)
    return [metric for head in heads for metric in board.metrics if known[metric] == head]


def show_styles(store: Store, experiment: str, metric: str) -> None:
    """What informal passages cost each method, question by question."""
    from results.style import style_gaps
    from results.tables import labels, plus_minus, stars

    for table in style_gaps(store, experiment, [metric]):
        lines = []
        for row in table.rows:
            formal = plus_minus(row.formal.value, row.formal.low, row.formal.high, scale=table.scale)
            for gap in row.gaps if row.kind != "control" else ():
                cost, more = gap.result.gap, gap.beyond
                beyond = "–" if more is None else plus_minus(more.value, more.low, more.high, "{:+.1f}", table.scale) + stars(gap.beyond_p)
                lines.append((row.method, formal, plus_minus(cost.value, cost.low, cost.high, "{:+.1f}", table.scale), beyond))
        name = labels([table.metric])[table.metric]
        out.print(Text("What informal passages cost", style="bold") + Text(f"  {name}, × 100"))
        listing(("method", "formal", "style gap", f"beyond {table.reference}'s"), lines, empty="nothing was scored")
        out.print(Text(f"more: ragmeter results style gap {experiment}\n", style="dim"))


def show_compression(store: Store, experiment: str, metric: str) -> None:
    """How much each method reads, and what it answers from that."""
    from results.board import boards
    from results.budget import budget_curves
    from results.tables import plus_minus

    for board in boards(store, experiment):
        for chosen in _metrics(board, [metric]):
            points = [point for curve in budget_curves(board, chosen) for point in curve.points]
            lines = []
            for point in sorted(points, key=lambda point: -point.delivered):
                value = plus_minus(point.value.value, point.value.low, point.value.high)
                memory = f"{point.memory:,.0f}" if point.memory else "–"
                lines.append((point.row.run.method, value, f"{point.delivered:,.0f}", memory, f"{point.ratio:.1f} ×"))
            out.print(Text("What is read, and what is made of it", style="bold") + Text(f"  {board.setting}"))
            heads = ("method", f"{metric} × 100", "tokens read", "of them memory", "fewer than the most")
            listing(heads, lines, empty="nothing was read")
            out.print()


BEHIND: Mapping[str, tuple[Callable[[Store, str, str], None], str]]
"""What is shown behind a part, of which metric."""
BEHIND = {"demo-styles": (show_styles, "mrr@5"), "demo-compression": (show_compression, "cover_em")}
Row = tuple[str, str, str, Text, str]  # approach, dataset, metric, value, reference


def show_approaches(parts: Sequence[Experiment], store: Store, *, trained: bool) -> None:
    """One table of the four approaches, each against the reference of its board."""
    rows = [row for part in parts for row in _approaches(part, store)]
    if not rows:
        return
    out.print(Text("What a few minutes of training come to" if trained else "What ships, untrained here", style="bold"))
    out.print(approaches_table(rows))
    just_now = "ARK, GPR and SARK were trained just now; " if trained else ""
    what = "value × 100 ± half its 95 % interval; below: paired difference to the reference; * p < .05, ** p < .01"
    how = f"{just_now}CLaRa's adapters ship, and took three quarters of an hour of one core"
    more = "Trainings of hours: the documentation's pages of the methods. What the papers print: `ragmeter results paper`"
    out.print(Text(f"{what}. {how}. {more}", style="dim"))


def approaches_table(rows: Iterable[Row]) -> Table:
    """The table of the approaches; what does not fit is broken between the parts of a name."""
    first, value_column = Column("approach", no_wrap=True), Column("value, and against", justify="right", no_wrap=True)
    columns = (first, "dataset", "metric", value_column, "reference")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for approach, dataset, metric, value, reference in rows:
        table.add_row(Text(approach), Folding(dataset), Folding(metric), value, Folding(reference))
    return table


def _approaches(experiment: Experiment, store: Store) -> Iterator[Row]:
    from ragmeter.board_text import cell_text, in_words
    from results.board import boards
    from results.tables import labels

    for board in boards(store, experiment.name):
        known, dataset, reference = labels(board.metrics), in_words(board.dataset), board.reference or "–"
        for row in [row for row in board.rows if row.run.method in APPROACHES]:
            for metric in _metrics(board, PARTS[experiment.name]):
                yield row.run.method, dataset, known[metric], cell_text(row.cells.get(metric)), reference
