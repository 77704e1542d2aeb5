"""Runs as page elements: running ones, the list of all, and the provenance of one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import explanation, scale_of
from leaderboard.elements.marks import SIGNS, SOURCES, is_better
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, facts, flat, fold, plain_table, show_value
from results.boards.diff import Apart, Diff, Number, Setting
from results.statistics.core import Estimate
from results.store.checkpoints import Checkpoint
from results.store.doubts import NOT_RESCORED, not_rescored
from results.store.queries import AnswerRow, IndexCost, Running, RunRow

Definitions = Mapping[str, Mapping[str, Any]]
_ANSWER = 300


def settings(results: Sequence[Setting]) -> Node:
    """Build the table of settings in which two runs differ."""
    if not results:
        return el("p", "Both runs have the same data, settings, versions and machine.", cls="note")
    lines = [Line(item.key, [_side(item.first, item.in_first), _side(item.second, item.in_second)]) for item in results]
    heads = [Head("Setting"), Head("First", wide=True), Head("Second", wide=True)]
    return plain_table("How the two were made", heads, lines, "settings-scroll")


def _side(value: Any, there: bool) -> Cell | str:
    return show_value(value) if there else Cell(formats.NOTHING, tip="This run has no such entry")


def numbers(result: Diff, definitions: Definitions) -> Node:
    """Build the table of both runs' scores, with the paired difference if they have the same questions."""
    heads = [
        Head("Metric"),
        Head("First", "95 % interval", number=True),
        Head("Second", "95 % interval", number=True),
        Head(
            "Difference",
            "second minus first",
            "Paired, on the questions with a value for both; 95 % interval. ▲ better, ▼ worse at 5 %",
            True,
        ),
        Head("p", "Holm-corrected", "Sign-flip permutation test, corrected over the metrics shown", True),
        Head("Higher", "questions", number=True),
        Head("Equal", "questions", number=True),
        Head("Lower", "questions", number=True),
    ]
    lines = [_number(number, definitions) for number in result.numbers]
    return plain_table("Both runs on each metric", heads, lines, "numbers-scroll")


def _number(item: Number, definitions: Definitions) -> Line:
    scale = scale_of(item.metric, definitions)
    name = el("span", formats.metric_label(item.metric), el("span", scale.unit, cls="unit"), tip=explanation(item.metric, definitions))
    apart = item.difference
    if apart is None:
        rest: list[Cell | Node | str] = [formats.NOTHING] * 5
    else:
        mark = SIGNS[is_better(apart.value, item.p_holm, higher_is_better=item.higher_is_better)]
        rest = [
            Cell(mark + scale.difference(apart.value), scale.differences(apart.low, apart.high), apart.insufficient_data),
            formats.p_value(item.p_holm),
            f"{apart.wins:,}",
            f"{apart.ties:,}",
            f"{apart.losses:,}",
        ]
    return Line(name, [_estimate(item.first, scale), _estimate(item.second, scale), *rest])


def _estimate(item: Estimate | None, scale: formats.Scale) -> Cell | str:
    if item is None or formats.missing(item.value):
        return formats.NOTHING
    return Cell(scale.value(item.value), scale.interval(item.low, item.high), item.insufficient_data)


def questions(result: Diff, definitions: Definitions) -> Node:
    """Build the list of questions on which two runs differ most, with both answers."""
    scale = scale_of(result.by or "", definitions)
    heads = [
        Head("Question"),
        Head("First", scale.unit, number=True),
        Head("said", wide=True),
        Head("Second", scale.unit, number=True),
        Head("said", wide=True),
    ]
    return plain_table(
        "Where they differ most", heads, [_difference_line(question, scale) for question in result.questions], "apart-scroll"
    )


def _difference_line(item: Apart, scale: formats.Scale) -> Line:
    gold = f"gold: {' · '.join(item.question.golds) or 'none'}"
    return Line(
        el("span", item.question.text, el("span", gold, cls="aside")),
        [scale.value(item.first_value), _message(item.first), scale.value(item.second_value), _message(item.second)],
    )


def _message(item: AnswerRow) -> str:
    text = f"failed: {item.failed}" if item.failed else item.answer or "(none)"
    return text if len(text) <= _ANSWER else f"{text[:_ANSWER]}…"


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


@dataclass(slots=True)
class _Seen:
    looks: deque[tuple[datetime, int]] = field(default_factory=deque)
    changed_at: datetime | None = None


class Sightings:
    """Observations of running runs over time, from which their speed is estimated; shared by all visitors of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def look(self, runs: Sequence[Running], now: datetime) -> dict[str, Speed]:
        """Record the progress of runs and return their speed, by run id; other runs are forgotten.

        Args:
            runs: All running runs.
            now: The current time, UTC without a zone.
        """
        with self._lock:
            self._seen = {run.run: self._seen.get(run.run, _Seen()) for run in runs}
            return {run.run: _pace(run, self._seen[run.run], now) for run in runs}


def _pace(run: Running, seen: _Seen, now: datetime) -> Speed:
    looks = seen.looks
    if looks and run.done < looks[-1][1]:
        # Restarted, or failed questions are asked again: earlier figures belong to another execution.
        looks.clear()
    if not looks or run.done > looks[-1][1]:
        seen.changed_at = now
    looks.append((now, run.done))
    while len(looks) > 2 and now - looks[1][0] > WINDOW:
        looks.popleft()
    rate = _rate(run, looks)
    left = run.questions - run.done
    quiet = (now - seen.changed_at).total_seconds() if seen.changed_at else 0.0
    return Speed(rate, left / rate if rate else None, quiet)


def _rate(run: Running, looks: deque[tuple[datetime, int]]) -> float | None:
    (first, before), (last, done) = looks[0], looks[-1]
    watched, answered = last - first, done - before
    if (answered >= _ENOUGH and watched >= _LEAST) or watched >= _LONG:
        return answered / watched.total_seconds() or None
    spent = (last - run.resumed_at).total_seconds()
    # For a resumed run, the number of questions that the present execution answered is unknown.
    return done / spent if done and spent > 0 and not run.resumed else None


QUIET_S = 60.0
"""Seconds without an answer after which a page checks the run's process."""
_KINDS = {"running": "running", "failed": "failed", "incomplete": "failed"}


def status(run: RunRow) -> Node | None:
    """Make the label for a run's status; None if it simply finished."""
    return None if run.status == "finished" else badge(run.status, _KINDS.get(run.status, ""), run.error or "")


def live(runs: Sequence[Running], speeds: Mapping[str, Speed]) -> Node:
    """Build the table of running runs: questions done and failed, speed, cost and remaining time."""
    heads = [
        Head("Run"),
        Head("Answered", "questions"),
        Head("Failed", "questions", number=True),
        Head("Speed", "questions / s", "Over the last two minutes that this page was open", True),
        Head("Cost", "US$ so far", number=True),
        Head("Remaining", "at this speed", number=True),
        Head("Began", "UTC"),
    ]
    return plain_table("Runs that go on", heads, [_live(run, speeds[run.run]) for run in runs], "live-scroll")


def _live(run: Running, speed: Speed) -> Line:
    share = run.done / run.questions if run.questions else 0.0
    bar = el("span", cls="whisker", numbers={"low": 0.0, "high": share}, role="img", label=f"{share:.0%} answered")
    where = f"{run.experiment} · {run.dataset} · {run.setting} · seed {run.seed}"
    name = el("span", el("span", run.method, cls="method"), el("span", where, cls="aside"))
    answered = el("span", el("span", f"{run.done:,} of {run.questions:,}", cls="top"), el("span", f"{share:.0%}", cls="interval"), bar)
    again = f"first started {run.started_at:%Y-%m-%d %H:%M}" if run.resumed else ""
    return Line(
        name,
        [
            answered,
            f"{run.failed:,}" if run.failed else formats.NOTHING,
            _speed(speed),
            f"{run.dollars:.4g}" if run.dollars > 0 else formats.NOTHING,
            formats.NOTHING if speed.remaining_s is None else formats.span(speed.remaining_s),
            Cell(f"{run.resumed_at:%Y-%m-%d %H:%M}", again),
        ],
    )


def _speed(speed: Speed) -> Cell:
    silence = f"nothing new for {formats.span(speed.quiet_s)}" if speed.quiet_s >= QUIET_S else ""
    tip = "Building and indexing can take long; a killed process sends no more answers" if silence else ""
    return Cell(formats.NOTHING if speed.per_second is None else f"{speed.per_second:.3g}", silence, tip)


def listing(runs: Sequence[RunRow], chosen: str) -> Node:
    """Build the list of runs; a click on a name shows the run below.

    Args:
        runs: The runs to list.
        chosen: Id of the run that is shown below.
    """
    heads = [
        Head("Run", "fingerprint"),
        Head("Experiment"),
        Head("Dataset", "setting · seed"),
        Head("State"),
        Head("Answered", "questions", number=True),
        Head("Failed", "questions", number=True),
        Head("Started", "UTC"),
        Head("Ended", "UTC"),
    ]
    return plain_table("Runs", heads, [_listed(run, number, chosen) for number, run in enumerate(runs)], "runs-scroll")


def _listed(run: RunRow, number: int, chosen: str) -> Line:
    name = el(
        "span",
        el(
            "button",
            run.method,
            cls="turn",
            action={"run": run.run},
            key=f"open-{number}",
            pressed="true" if run.run == chosen else "false",
        ),
        el("span", run.short, cls="aside"),
    )
    marks = [badge(run.origin, run.origin)] if run.origin != "run" else []
    marks += [badge(NOT_RESCORED, "failed", theirs)] if (theirs := not_rescored(run)) else []
    state = el("span", status(run) or "finished", *marks)
    run_command = formats.NOTHING if run.status == "running" else _moment(run.updated_at)
    return Line(
        name,
        [
            run.experiment,
            Cell(run.dataset, f"{run.setting} · {run.seed}"),
            state,
            f"{run.done:,} of {run.questions:,}",
            f"{run.failed:,}" if run.failed else formats.NOTHING,
            _moment(run.started_at),
            run_command,
        ],
    )


def _moment(when: datetime) -> Cell:
    return Cell(f"{when:%Y-%m-%d}", f"{when:%H:%M}")


def made(run: RunRow, indexing: IndexCost | None = None) -> Node:
    """Build the table of a run's facts: identity, data, status and indexing cost."""
    prepared = [] if indexing is None else [("Indexing", f"{indexing.in_words()}; not included in the figures per question")]
    return facts(
        [
            ("Run", run.run if run.execution == 1 else f"{run.run} (execution {run.execution} of this fingerprint)"),
            ("Called", f"{run.method}, in the experiment {run.experiment}" if run.experiment != "-" else run.method),
            ("Method", f"{run.method_id} ({run.kind})"),
            ("Origin", "; ".join(filter(None, [SOURCES[run.origin][2], not_rescored(run)]))),
            ("Dataset", run.dataset),
            (
                "Dataset fingerprint",
                el("span", run.dataset_fingerprint, tip="Hash of questions, gold and corpus; runs share a board only if it is equal"),
            ),
            ("Setting", run.setting),
            ("Seed", str(run.seed)),
            ("Answered", f"{run.done:,} of {run.questions:,} questions" + (f", {run.failed:,} failed" if run.failed else "")),
            ("State", run.status + (f": {run.error}" if run.error else "")),
            (
                "Time",
                f"started {run.started_at:%Y-%m-%d %H:%M:%S} UTC"
                + (f", ended {run.updated_at:%Y-%m-%d %H:%M:%S} UTC" if run.status != "running" else ""),
            ),
            *prepared,
        ]
    )


def weights(used: Sequence[Checkpoint]) -> Node | None:
    """Build the table of registered checkpoints that a run uses; None if it uses none."""
    if not used:
        return None
    heads = [Head("Checkpoint", "SHA-256"), Head("Method"), Head("Stage"), Head("Registered", "UTC")]
    lines = [
        Line(
            el("span", item.sha256[:16], cls="method"),
            [item.method, item.stage, f"{item.added_at:%Y-%m-%d %H:%M}" if item.added_at else formats.NOTHING],
        )
        for item in used
    ]
    return plain_table("Checkpoints", heads, lines, "weights-scroll")


def folds(run: RunRow) -> list[Node]:
    """Build the folds with a run's provenance; empty parts are left out."""
    parts = [
        ("Settings of the method, of all its parts", run.description, True),
        ("Data, parts and metrics", run.provenance, False),
        ("Machine, versions and code", run.environment, False),
        ("Card of the submission", run.card or {}, False),
    ]
    return [
        fold(title, [(key, show_value(inner)) for key, inner in flat(value)], f"fold-{number}", opened=opened)
        for number, (title, value, opened) in enumerate(parts)
        if value
    ]


def sources(runs: Sequence[RunRow]) -> Node:
    """Build the provenance of several runs, one fold per run, for the report."""
    title = el(
        "summary",
        el("span", "Where the numbers come from", cls="name"),
        el("span", "settings, data, versions and machine of each run", cls="aside"),
    )
    inner = [
        el(
            "details",
            el("summary", el("span", run.method, cls="name"), el("span", run.short, cls="aside")),
            made(run),
            *folds(run),
            cls="evidence",
            key=f"source-{run.run}",
        )
        for run in runs
    ]
    return el("details", title, *inner, cls="evidence", key="sources")
