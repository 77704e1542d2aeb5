"""Resolve the two sides of a gate to runs: a run, a tag, a checkpoint, or a method of an experiment on its benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.core.errors import UserError
from results.boards.board import groups
from results.boards.names import base_name
from results.store import checkpoints, queries, tags
from results.store.checkpoints import Checkpoint
from results.store.queries import NO_EXPERIMENT, RunRow
from results.store.store import Store


@dataclass(frozen=True)
class Rows:
    """Side of a gate that names a method of an experiment, with its runs on several benchmarks.

    Attributes:
        text: The user's name for it.
        runs: Its runs, in the order of the experiment's table.
    """

    text: str
    runs: tuple[RunRow, ...]


Side = RunRow | Checkpoint | Rows


def side_of(store: Store, text: str, over_seeds: bool = False) -> Side:
    """Resolve `--baseline` or `--candidate` to a run, a checkpoint or a method's runs.

    Args:
        store: The store to read.
        text: The user's text.
        over_seeds: Whether a method's name without its seed means all of its seeds.

    Raises:
        UserError: The text matches nothing, or several things.
    """
    if tags.tag_named(store, text) is None and not checkpoints.matching(store, text):
        # Runs of no experiment may be several executions of one method: they are named one by one.
        every = [run for run in queries.runs(store) if run.experiment != NO_EXPERIMENT]
        rows = {run.run: run for run in every if f"{run.experiment}/{run.method}" == text}
        if not rows and over_seeds:
            rows = {run.run: run for run in every if f"{run.experiment}/{base_name(run.method)}" == text}
        # Seeds and repeats on one board count together, so one of them represents all.
        firsts = tuple(group[0] for group in groups(list(rows.values())))
        if len(rows) > 1:
            return Rows(text, firsts) if len(firsts) > 1 else firsts[0]
    return tags.resolve(store, text)


def runs_of(store: Store, text: str) -> list[RunRow]:
    """Return the runs that one side of a gate names, without knowing the other side.

    Raises:
        UserError: As for `side_of`, or a checkpoint was used on several benchmarks.
    """
    side = side_of(store, text)
    if isinstance(side, Rows):
        return list(side.runs)
    return [side if isinstance(side, RunRow) else tags.run_of(store, side, None)]


def pairs_of(store: Store, first: Side, second: Side) -> tuple[list[tuple[RunRow, RunRow]], list[str]]:
    """Pair the runs of baseline and candidate by benchmark, setting and seed.

    Args:
        store: The store to read.
        first, second: Baseline and candidate.

    Returns:
        (Baseline, candidate) runs per benchmark, and notes on benchmarks that only the candidate has.

    Raises:
        UserError: A side has no run on a benchmark of the other, or several.
    """
    if isinstance(first, Rows) and not isinstance(second, RunRow):
        pairs = [(run, _on(store, second, run)) for run in first.runs]
        known = {benchmark(run) for run in first.runs}
        new = [benchmark(run) for run in second.runs if benchmark(run) not in known] if isinstance(second, Rows) else []
        return pairs, [f"{name}: not decided, the baseline {first.text} has no run on it" for name in dict.fromkeys(new)]
    if isinstance(first, Checkpoint) and isinstance(second, Rows):
        return [(tags.run_of(store, first, run), run) for run in second.runs], []
    if not isinstance(first, RunRow) and isinstance(second, RunRow):
        # A checkpoint's run is sought on the benchmark of the other side.
        return [(_on(store, first, second), second)], []
    run = first if isinstance(first, RunRow) else _on(store, first, None)
    return [(run, _on(store, second, run))], []


def _on(store: Store, side: Side, like: RunRow | None) -> RunRow:
    """Return the run of a side on another run's benchmark."""
    if not isinstance(side, Rows):
        return tags.run_of(store, side, like)
    assert like is not None, "two sides with several benchmarks are paired one by one"
    here = [run for run in side.runs if benchmark(run) == benchmark(like)]
    # An experiment may ask about a benchmark twice, with different limits or options.
    here = [run for run in here if run.dataset_fingerprint == like.dataset_fingerprint] or here
    if len(here) == 1:
        return here[0]
    listed = ", ".join(dict.fromkeys(benchmark(run) for run in side.runs))
    raise UserError(
        f"{side.text} has {'several runs' if here else 'no run'} on {benchmark(like)}",
        code="ambiguous-run",
        where=f"its benchmarks: {listed}",
        try_this="name one run on each side" if here else "run it there, or name the benchmarks in a gate file: ragmeter gate --file FILE",
    )


def benchmark(run: RunRow) -> str:
    """Return the name of a run's benchmark in gate files: dataset/setting/seed."""
    return f"{run.dataset}/{run.setting}/{run.seed}"
