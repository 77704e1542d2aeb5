"""`ragmeter demo`: the four approaches as they ship, or trained small, next to their baselines, in one table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.progress import track
from rich.text import Text

from benchmarks.core.errors import UserError
from ragmeter.cli.options import App, Common, DeviceOption, LimitOption, option
from ragmeter.cli.run import conclude, show_where
from ragmeter.show.console import complain, err, out, print_table

if TYPE_CHECKING:
    from ragmeter.experiment import Experiment
    from ragmeter.show.gains import Against, Gain

app = App(help="Compare the four approaches with their baselines, as shipped or trained small.")

REAL_SAMPLES = "demo-real"
PARTS: Mapping[str, Sequence[str]] = {
    "demo": ("recall@5", "recall@20"),
    "demo-graph": ("answer_entity_recall@20", "answer_entity_recall@5"),
    "demo-styles": ("mrr@5", "recall@5"),
    "demo-compression": ("cover_em", "f1"),
    REAL_SAMPLES: ("recall@5",),
}
"""The experiments, in their order, and the metrics of each that are shown."""
RIVALS = {"demo-compression": ("the best whole passages at equal tokens", "Whole passages, as many tokens")}
"""Rows besides the base and the strongest baseline, with their description."""
LONGEST_FIRST = ("demo", "demo-graph", REAL_SAMPLES, "demo-styles", "demo-compression")
"""Start order of the parallel parts, the longest first."""


@app.command(offline=True)
def demo(
    common: Common,
    limit: LimitOption = None,
    device: DeviceOption = None,
    train: Annotated[bool, option("Train four small models first (minutes) instead of using the shipped ones.", "--train")] = False,
) -> int:
    """Compare the four approaches with their baselines in minutes, also on real samples if RAGMETER_DATA is set."""
    from ragmeter import experiment as experiments
    from ragmeter.runner.experiment import How, run_experiment
    from ragmeter.show.gains import gains

    # All are read before the first begins: a checkpoint of another store is a mistake that shows at once.
    every = [experiments.load(name, profile="train" if train else None, store=common.folder) for name in PARTS]
    chosen = [part for item in every if (part := _here(item, common.talk)).benchmarks]
    whole = _measure_at_once(chosen, common, limit, device) if not train and device in (None, "cpu") else set()
    codes: list[int] = []
    results: list[Gain] = []
    for number, part in enumerate(chosen, start=1):
        what = f"{number} of {len(chosen)}: {part.description}"
        try:
            with err.status(Text(what)) if common.talk else nullcontext():
                outcomes = [] if part.name in whole else run_experiment(part, common.store, How(limit, device=device), talk=False)
            results += gains(part, common.store, PARTS[part.name], rival=RIVALS.get(part.name), by_set=True)
        except UserError as error:
            if part.name != REAL_SAMPLES:
                raise
            # External files may be damaged; earlier results are shown anyway.
            complain(error, common.json)
            codes.append(error.exit_code)
            continue
        if common.talk:
            err.print(Text(what), soft_wrap=True)
        codes.append(conclude(outcomes, len(part.benchmarks) * len(part.methods), common.verbose))

    def show() -> None:
        show_gains(results, trained=train)
        out.print(Text(f"every method and metric of a part: ragmeter results table {chosen[0].name if chosen else 'NAME'}"), soft_wrap=True)
        show_where(common)

    common.emit({"experiments": [part.name for part in chosen], "approaches": [gain.to_json() for gain in results]}, show)
    return min((code for code in codes if code), default=0)


def _measure_at_once(parts: Sequence[Experiment], common: Common, limit: int | None, device: str | None) -> set[str]:
    """Measure each part in a process of its own, as many at a time as there are cores: two processes with one thread do more than one with
    two.

    Returns:
        Names of those that were measured whole; of others what went wrong is said where they are run again.
    """
    from concurrent.futures import as_completed

    from ragmeter.runner.executors.processes import cores, processes
    from ragmeter.runner.loop import stoppable

    workers = min(cores(), len(parts))
    if workers < 2:
        return set()
    with stoppable("the same command continues it"), processes(workers) as submit:
        names = sorted((part.name for part in parts), key=LONGEST_FIRST.index)
        futures = {submit(_measure, name, common.store.folder, limit, device): name for name in names}
        progress = track(as_completed(futures), "measuring", len(parts), console=err, transient=True, disable=not common.talk)
        return {futures[future] for future in progress if future.exception() is None and future.result()}


def _measure(name: str, folder: Path, limit: int | None, device: str | None) -> bool:
    from ragmeter import experiment as experiments
    from ragmeter.runner.experiment import How, run_experiment
    from results.store.store import FINISHED, Store

    with suppress(Exception):
        part = _here(experiments.load(name, store=folder), False)
        return all(outcome.status == FINISHED for outcome in run_experiment(part, Store(folder), How(limit, device=device), talk=False))
    return False


def _here(experiment: Experiment, talk: bool) -> Experiment:
    """Return the real samples with local data, because a demo downloads nothing."""
    from benchmarks.availability import absences

    if experiment.name != REAL_SAMPLES:
        return experiment
    lacking = [benchmark for benchmark in experiment.benchmarks if any(absences(benchmark.reference, benchmark.config))]
    if lacking and talk and os.environ.get("RAGMETER_DATA"):
        names = ", ".join(dict.fromkeys(str(item.reference) for item in lacking))
        err.print(Text(f"left out, not found in RAGMETER_DATA: {names} (ragmeter data download REF gets one)"), soft_wrap=True)
    elif lacking and talk:
        err.print("RAGMETER_DATA is not set: worlds only (set it to a folder of real samples to add HotpotQA, 2Wiki, MuSiQue)")
    return replace(experiment, benchmarks=tuple(benchmark for benchmark in experiment.benchmarks if benchmark not in lacking))


def show_gains(results: Sequence[Gain], *, trained: bool) -> None:
    """Print one line per approach, then one table, then why some gains are not claimed."""
    from ragmeter.show.gains import headline

    if not results:
        return
    first = headline(results)
    how = "trained small just now" if trained else "as they ship (--train trains all four small)"
    out.print(Text("What the approaches gain", style="bold") + Text(f"  {how}; on questions that were not used for any choice\n"))
    for gain in first:
        others = (item for item in results if item.approach == gain.approach and item.metric == gain.metric and item is not gain)
        worse = [f"{item.base.verdict} its base ({item.base.shown}) on {item.asked}" for item in others if item.lost and item.base]
        lost = "".join(f"; but {what}" for what in worse)
        out.print(
            Text(f"{gain.approach}  ", style="bold green" if gain.significant and not lost else "bold") + Text(gain.sentence() + lost)
        )
    out.print()
    print_gains(results)
    note = "× 100 ± half the 95 % interval, or [low, high]; paired differences, * p < .05, ** p < .01 after Holm's correction"
    by_set = any(gain.base and gain.base.sets for gain in first)
    notes = [
        note,
        *(["thirds: disjoint parts of one sample of clusters, not three samples"] if by_set else []),
        *(f"no gain over its base can be claimed for {gain.approach}: {gain.why_not()}" for gain in first if not gain.significant),
    ]
    notes += [
        f"{item.approach}: ahead here, but a gain over its base cannot be claimed ({item.why_not()})"
        for item in first
        if item.significant and not item.beats
    ]
    notes.append("several training seeds: `make experiments-small`; the papers' figures: `ragmeter results paper`\n")
    for line in notes:
        out.print(Text(line, style="dim"))


def print_gains(results: Sequence[Gain]) -> None:
    """Print the gains of every approach on every dataset and metric."""
    from results.store.variants import without_options

    heads = ("", "asked", "metric", "value", "over its base", "over the strongest baseline")
    rows = []
    for gain in results:
        names = gain.approach, without_options(gain.board.dataset), gain.metric, gain.value
        rows.append([*map(Text, names), _difference(gain.base), _difference(gain.strongest)])
    print_table(out, [Text(head) for head in heads], rows)


def _difference(item: Against | None) -> Text:
    """Format a difference as `+6.5 ± 3.9 **`, with its reference below."""
    from ragmeter.show.gains import AHEAD, BEHIND
    from results.boards.tables import mark

    if item is None:
        return Text("–", style="dim")
    style = {AHEAD: "green", BEHIND: "red"}.get(item.verdict, "dim")
    return Text(f"{item.shown} {mark(item.cell)}".rstrip(), style=style) + Text(f"\n{item.name}", style="dim")
