"""`demo`: every approach trained small and measured beside its baselines, and what that came to in one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.text import Text

from benchmarks.errors import UserError
from benchmarks.plurals import counted
from ragmeter import experiment as experiments
from ragmeter.commands.demo_views import show_approaches, show_compression, show_styles
from ragmeter.commands.running import carry_and_show
from ragmeter.console import complain, emit, err, out
from ragmeter.experiment import Experiment
from ragmeter.experiment_run import How
from ragmeter.planning.shapes import absences
from results import store_folder
from results.store import Store

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
