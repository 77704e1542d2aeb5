"""`demo`: every approach trained small and measured beside its baselines, and what that came to in one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.errors import UserError
from ragmeter import experiment as experiments
from ragmeter.commands.running import carry_and_show
from ragmeter.console import emit, err, out
from ragmeter.experiment import Experiment
from ragmeter.experiment_run import How
from ragmeter.options import store_folder
from ragmeter.render import METHOD_WIDTH, cell_text
from results.board import boards
from results.store import Store
from results.tables import labels
from results.told import told

PARTS: Mapping[str, Sequence[str]] = {
    "demo": ("f1", "recall@5"),
    "demo-graph": ("f1", "answer_entity_recall@20"),
    "demo-styles": ("f1", "mrr@5"),
    "demo-compression": ("cover_em", "f1"),
}
"""The experiments, in their order, and the metrics of each that the last table shows."""
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
    """Run the shipped demo, then the real samples where there are some; returns the worst exit code."""
    store = Store(store_folder(folder))
    names = list(PARTS)
    if os.environ.get("RAGMETER_DATA"):
        names.append(REAL_SAMPLES)
    elif not quiet and not as_json:
        err.print(
            "RAGMETER_DATA is not set: worlds only (set it to a folder of real samples to add HotpotQA, 2Wiki, MuSiQue)"
        )
    # All are read before the first begins: a checkpoint of another store is a mistake that shows at once.
    chosen = [_chosen(experiments.load(name, store=folder), request) for name in names]
    codes, shown = [], []
    for experiment in chosen:
        how = How(request.limit, device=request.device)
        code, value = carry_and_show(experiment, how, store, as_json, quiet, verbose)
        codes.append(code)
        shown.append(value)
    emit({"experiments": shown}, as_json, lambda: None)
    if not as_json:
        _show_trained(chosen, store)
        # The command as it was called: outside an activated environment its bare name would not be found.
        out.print(Text(f"leaderboard: {sys.argv[0]} serve --open --store {store.folder}"), soft_wrap=True)
    return max(codes)


def _chosen(experiment: Experiment, request: Request) -> Experiment:
    """The experiment, without what is trained first where no training is wanted."""
    if request.training:
        return experiment
    ready = tuple(method for method in experiment.methods if not method.needs)
    if experiment.reference not in {method.name for method in ready}:
        raise UserError("its reference is trained", where=experiment.name, try_this="leave out --no-training")
    return replace(experiment, methods=ready, trainings=())


def _show_trained(chosen: Sequence[Experiment], store: Store) -> None:
    """One table of what was trained, each against the reference of its board."""
    rows = [row for experiment in chosen for row in _trained(experiment, store)]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("trained here", max_width=METHOD_WIDTH, overflow="fold")
    table.add_column("asked", overflow="fold")
    table.add_column("metric", overflow="fold")
    table.add_column("value, and against", justify="right", no_wrap=True)
    table.add_column("reference", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(Text("What a few minutes of training come to", style="bold"))
    out.print(table)
    out.print(Text("value × 100 ± half its 95 % interval; below: paired difference to the reference; * p < .05, ** "
                   "p < .01. Trainings of hours: docs/methods/", style="dim"))  # fmt: skip


def in_words(dataset: str) -> str:
    """A dataset without its options, which the tables above give; of one told in some style, which."""
    how = told(dataset)
    base = how.base.partition("(")[0]
    return base if how.base == dataset else f"{base}, {how.name}"


def _trained(experiment: Experiment, store: Store) -> Iterator[tuple[Text, ...]]:
    names = {method.name for method in experiment.methods if method.needs}
    for board in boards(store, experiment.name):
        heads = labels(board.metrics)
        shown = [metric for name in PARTS.get(experiment.name, ()) for metric in board.metrics if heads[metric] == name]
        for row in board.rows:
            if row.run.method in names and row.run.method != board.reference:
                asked = Text(in_words(board.dataset))
                for metric in shown:
                    value = cell_text(row.cells.get(metric))
                    yield Text(row.run.method), asked, Text(heads[metric]), value, Text(board.reference or "–")
