"""Runs as page elements: running ones, the list of all, and the provenance of one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.marks import SOURCES, doubt_marks, row_marks, status_badge
from leaderboard.elements.nodes import Node, aside, button, el, facts, fold, fold_facts, named, note, show_value
from leaderboard.elements.tables import Cell, Column, NumberColumn, WideColumn, table
from results.boards.diff import Setting
from results.store.checkpoints import Checkpoint
from results.store.cost_queries import IndexCost
from results.store.doubts import not_rescored
from results.store.queries import NO_EXPERIMENT, Running, RunRow


def settings(results: Sequence[Setting]) -> Node:
    """Build the table of settings in which two runs differ."""
    if not results:
        return note("Both runs have the same data, settings, versions and machine.")
    columns: list[Column[Setting]] = [
        Column("Setting", lambda item: item.key),
        WideColumn("First", lambda item: _side(item.first, item.in_first)),
        WideColumn("Second", lambda item: _side(item.second, item.in_second)),
    ]
    return table("How the two were made", "settings-scroll", results, columns)


def _side(value: Any, there: bool) -> Cell | str:
    return show_value(value) if there else Cell(formats.NOTHING, tip="This run has no such entry")


WINDOW = timedelta(minutes=2)
"""Time window for the speed; older answers don't describe the present speed."""
_LEAST = timedelta(seconds=3)
_ENOUGH = 5
"""Minimum seconds and answers for a speed; writes come once a second, so less is chance."""
_LONG = timedelta(seconds=30)
"""Seconds after which the observed speed is used even with few answers."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a running run.

    Attributes:
        per_second: Questions per second; None if unknown.
        remaining_s: Estimated remaining seconds; None if unknown.
        quiet_s: Seconds since the last new answer; 0.0 at the first observation.
    """

    per_second: float | None
    remaining_s: float | None
    quiet_s: float


_Changes = deque[tuple[datetime, int]]
"""Times at which a run was seen to have answered more questions, with their number."""


class Sightings:
    """Observations of running runs over time, from which their speed is estimated; shared by all visitors of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, _Changes] = {}

    def look(self, runs: Sequence[Running], now: datetime) -> dict[str, Speed]:
        """Record the progress of runs and return their speed, by run id; other runs are forgotten."""
        with self._lock:
            self._seen = {run.run: self._seen.get(run.run, deque()) for run in runs}
            return {run.run: _pace(run, self._seen[run.run], now) for run in runs}


def _pace(run: Running, changes: _Changes, now: datetime) -> Speed:
    if changes and run.done < changes[-1][1]:
        # Restarted, or failed questions are asked again: earlier figures belong to another execution.
        changes.clear()
    if not changes or run.done > changes[-1][1]:
        changes.append((now, run.done))
    while len(changes) > 1 and now - changes[1][0] > WINDOW:
        changes.popleft()
    rate = _rate(run, *changes[0], now)
    return Speed(rate, (run.questions - run.done) / rate if rate else None, (now - changes[-1][0]).total_seconds())


def _rate(run: Running, since: datetime, before: int, now: datetime) -> float | None:
    watched, answered = now - since, run.done - before
    if (answered >= _ENOUGH and watched >= _LEAST) or watched >= _LONG:
        return answered / watched.total_seconds() or None
    spent = (now - run.resumed_at).total_seconds()
    # For a resumed run, the number of questions that the present execution answered is unknown.
    return run.done / spent if run.done and spent > 0 and not run.resumed else None


QUIET_S = 60.0
"""Seconds without an answer after which a page checks the run's process."""


def live(runs: Sequence[Running], speeds: Mapping[str, Speed]) -> Node:
    """Build the table of running runs: questions done and failed, speed, cost and remaining time."""

    def left(run: Running) -> str | None:
        seconds = speeds[run.run].remaining_s
        return None if seconds is None else formats.span(seconds)

    def began(run: Running) -> Cell:
        again = f"first started {run.started_at:%Y-%m-%d %H:%M}" if run.resumed else ""
        return Cell(f"{run.resumed_at:%Y-%m-%d %H:%M}", again)

    window = "Over the last two minutes that this page was open"
    columns: list[Column[Running]] = [
        Column("Run", lambda run: named(run.method, aside(f"{run.experiment} · {run.dataset} · {run.setting} · seed {run.seed}"))),
        Column("Answered", _progress, "questions"),
        NumberColumn("Failed", lambda run: run.failed or None, "questions"),
        NumberColumn("Speed", lambda run: _speed(speeds[run.run]), "questions / s", window),
        NumberColumn("Cost", lambda run: f"{run.dollars:.4g}" if run.dollars > 0 else None, "US$ so far"),
        NumberColumn("Remaining", left, "at this speed"),
        Column("Began", began, "UTC"),
    ]
    return table("Runs that go on", "live-scroll", runs, columns)


def _progress(run: Running) -> Node:
    share = run.done / run.questions if run.questions else 0.0
    bar = el("span", cls="whisker", numbers={"low": 0.0, "high": share}, role="img", label=f"{share:.0%} answered")
    return el("span", el("span", f"{run.done:,} of {run.questions:,}", cls="top"), el("span", f"{share:.0%}", cls="interval"), bar)


def _speed(speed: Speed) -> Cell:
    silence = f"nothing new for {formats.span(speed.quiet_s)}" if speed.quiet_s >= QUIET_S else ""
    tip = "Building and indexing can take long; a killed process sends no more answers" if silence else ""
    return Cell(formats.NOTHING if speed.per_second is None else f"{speed.per_second:.3g}", silence, tip)


def listing(runs: Sequence[RunRow], chosen: str) -> Node:
    """Build the list of runs; a click on a name shows the run below."""

    def marks(run: RunRow) -> list[Node]:
        return [*row_marks([run], reference=False), *doubt_marks(run, ())]

    def name(run: RunRow) -> Node:
        return el("span", button(run.method, f"open-{run.run}", {"run": run.run}, pressed=run.run == chosen), aside(run.short))

    columns: list[Column[RunRow]] = [
        Column("Run", name, "fingerprint"),
        Column("Experiment", lambda run: run.experiment),
        Column("Dataset", lambda run: Cell(run.dataset, f"{run.setting} · {run.seed}"), "setting · seed"),
        Column("State", lambda run: el("span", status_badge(run) or el("span", "finished"), *marks(run))),
        NumberColumn("Answered", lambda run: f"{run.done:,} of {run.questions:,}", "questions"),
        NumberColumn("Failed", lambda run: run.failed or None, "questions"),
        Column("Started", lambda run: run.started_at, "UTC"),
        Column("Ended", lambda run: None if run.status == "running" else run.updated_at, "UTC"),
    ]
    return table("Runs", "runs-scroll", runs, columns)


def made(run: RunRow, indexing: IndexCost | None = None) -> Node:
    """Build the table of a run's facts: identity, data, status and indexing cost."""
    ended = f", ended {run.updated_at:%Y-%m-%d %H:%M:%S} UTC" if run.status != "running" else ""
    same = "Hash of questions, gold and corpus; runs share a board only if it is equal"
    return facts(
        [
            ("Run", run.run if run.execution == 1 else f"{run.run} (execution {run.execution} of this fingerprint)"),
            ("Called", f"{run.method}, in the experiment {run.experiment}" if run.experiment != NO_EXPERIMENT else run.method),
            ("Method", f"{run.method_id} ({run.kind})"),
            ("Origin", "; ".join(filter(None, [SOURCES[run.origin][2], not_rescored(run)]))),
            ("Dataset", run.dataset),
            ("Dataset fingerprint", el("span", run.dataset_fingerprint, tip=same)),
            ("Setting", run.setting),
            ("Seed", str(run.seed)),
            ("Answered", f"{run.done:,} of {run.questions:,} questions" + (f", {run.failed:,} failed" if run.failed else "")),
            ("State", run.status + (f": {run.error}" if run.error else "")),
            ("Time", f"started {run.started_at:%Y-%m-%d %H:%M:%S} UTC{ended}"),
            ("Indexing", f"{indexing.in_words()}; not included in the figures per question" if indexing is not None else ""),
        ]
    )


def weights(used: Sequence[Checkpoint]) -> Node | None:
    """Build the table of registered checkpoints that a run uses; None if it uses none."""
    columns: list[Column[Checkpoint]] = [
        Column("Checkpoint", lambda item: named(item.sha256[:16]), "SHA-256"),
        Column("Method", lambda item: item.method),
        Column("Stage", lambda item: item.stage),
        Column("Registered", lambda item: item.added_at, "UTC"),
    ]
    return table("Checkpoints", "weights-scroll", used, columns) if used else None


def folds(run: RunRow) -> list[Node]:
    """Build the folds with a run's provenance; empty parts are left out."""
    parts = [
        ("Settings of the method, of all its parts", run.description),
        ("Data, parts and metrics", run.provenance),
        ("Machine, versions and code", run.environment),
        ("Card of the submission", run.card or {}),
    ]
    return [fold_facts(title, value, f"fold-{number}", opened=number == 0) for number, (title, value) in enumerate(parts) if value]


def sources(runs: Sequence[RunRow]) -> Node:
    """Build the provenance of several runs, one fold per run, for the report."""
    each = [fold(run.method, run.short, made(run), *folds(run), key=f"source-{run.run}") for run in runs]
    return fold("Where the numbers come from", "settings, data, versions and machine of each run", *each, key="sources")
