"""Runs as page elements: those that go on, the list of all, and where one's numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from leaderboard.elements import formats
from leaderboard.elements.flattening import flat, shown
from leaderboard.elements.nodes import Node, badge, el
from leaderboard.elements.plain_table import Cell, Head, Line, facts, plain_table
from leaderboard.views.run_pace import Pace
from results.checkpoints import Checkpoint
from results.live import Running
from results.queries import IndexCost, RunRow

QUIET_S = 60.0
"""After so long without an answer a page asks whether the run's process is still there."""
_KINDS = {"running": "running", "failed": "failed"}


def status(run: RunRow) -> Node | None:
    """A badge for what is not simply finished."""
    return None if run.status == "finished" else badge(run.status, _KINDS.get(run.status, ""), run.error or "")


def live(runs: Sequence[Running], paces: Mapping[str, Pace]) -> Node:
    """What goes on: how far each run is, how fast, and how long still."""
    heads = [
        Head("Run"),
        Head("Answered", "questions"),
        Head("Failed", "questions", number=True),
        Head("Pace", "questions / s", "Over the last two minutes in which somebody watched", True),
        Head("Remaining", "at this pace", number=True),
        Head("Began", "UTC"),
    ]
    return plain_table("Runs that go on", heads, [_live(run, paces[run.run]) for run in runs], "live-scroll")


def _live(run: Running, pace: Pace) -> Line:
    share = run.done / run.questions if run.questions else 0.0
    bar = el("span", cls="whisker", numbers={"low": 0.0, "high": share}, role="img", label=f"{share:.0%} answered")
    where = f"{run.experiment} · {run.dataset} · {run.setting} · seed {run.seed}"
    name = el("span", el("span", run.method, cls="method"), el("span", where, cls="aside"))
    answered = el("span", el("span", f"{run.done:,} of {run.questions:,}", cls="top"), el("span", f"{share:.0%}", cls="interval"), bar)
    again = f"first begun {run.started_at:%Y-%m-%d %H:%M}" if run.resumed else ""
    return Line(
        name,
        [
            answered,
            f"{run.failed:,}" if run.failed else formats.NOTHING,
            _speed(pace),
            formats.NOTHING if pace.remaining_s is None else formats.span(pace.remaining_s),
            Cell(f"{run.begun_at:%Y-%m-%d %H:%M}", again),
        ],
    )


def _speed(pace: Pace) -> Cell:
    silence = f"nothing new for {formats.span(pace.quiet_s)}" if pace.quiet_s >= QUIET_S else ""
    tip = "Building and indexing take their time; a process that was killed answers no more" if silence else ""
    return Cell(formats.NOTHING if pace.per_second is None else f"{pace.per_second:.3g}", silence, tip)


def listing(runs: Sequence[RunRow], chosen: str) -> Node:
    """One line a run; a click on its name asks for it.

    Args:
        runs: To list.
        chosen: The fingerprint of the one that is shown below.
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
        el("span", run.run[:8], cls="aside"),
    )
    state = el("span", status(run) or "finished", *([badge(run.origin, run.origin)] if run.origin != "run" else []))
    ended = formats.NOTHING if run.status == "running" else _moment(run.updated_at)
    return Line(
        name,
        [
            run.experiment,
            Cell(run.dataset, f"{run.setting} · {run.seed}"),
            state,
            f"{run.done:,} of {run.questions:,}",
            f"{run.failed:,}" if run.failed else formats.NOTHING,
            _moment(run.started_at),
            ended,
        ],
    )


def _moment(when: datetime) -> Cell:
    return Cell(f"{when:%Y-%m-%d}", f"{when:%H:%M}")


def made(run: RunRow, indexing: IndexCost | None = None) -> Node:
    """What a run is: identity, data, state, and what preparing for its questions took."""
    prepared = [] if indexing is None else [("Indexing", f"{indexing.in_words()}; apart from what the questions took")]
    return facts(
        [
            ("Run", run.run),
            ("Called", f"{run.method}, in the experiment {run.experiment}" if run.experiment != "-" else run.method),
            ("Method", f"{run.method_id} ({run.kind})"),
            ("Origin", _ORIGINS.get(run.origin, run.origin)),
            ("Dataset", run.dataset),
            (
                "Dataset fingerprint",
                el("span", run.dataset_fingerprint, tip="Of questions, gold and corpus; runs share a board only where it is the same"),
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


_ORIGINS = {
    "run": "run here",
    "submitted": "submitted: predictions were sent in and scored here",
    "verified": "verified: sent in, and confirmed by a run made here",
}


def weights(used: Sequence[Checkpoint]) -> Node | None:
    """The registered checkpoints that a run was made with; None where it names none."""
    if not used:
        return None
    heads = [Head("Checkpoint", "SHA-256"), Head("Method"), Head("Stage"), Head("Registered", "UTC")]
    lines = [
        Line(
            el("span", one.sha256[:16], cls="method"),
            [one.method, one.stage, f"{one.added_at:%Y-%m-%d %H:%M}" if one.added_at else formats.NOTHING],
        )
        for one in used
    ]
    return plain_table("Checkpoints", heads, lines, "weights-scroll")


def folds(run: RunRow) -> list[Node]:
    """What was stored of how the run was made, part by part, each to be opened; empty parts are left out."""
    parts = [
        ("Settings of the method, of all its parts", run.description, True),
        ("Data, parts and metrics", run.provenance, False),
        ("Machine, versions and code", run.environment, False),
        ("Card of the submission", run.card or {}, False),
    ]
    return [_fold(title, value, number, opened=opened) for number, (title, value, opened) in enumerate(parts) if value]


def sources(runs: Sequence[RunRow]) -> Node:
    """Where the numbers of several runs come from, one fold a run; for a report, which has no other page."""
    title = el(
        "summary",
        el("span", "Where the numbers come from", cls="name"),
        el("span", "settings, data, versions and machine of each run", cls="aside"),
    )
    inner = [
        el(
            "details",
            el("summary", el("span", run.method, cls="name"), el("span", run.run[:8], cls="aside")),
            made(run),
            *folds(run),
            cls="evidence",
            key=f"source-{run.run}",
        )
        for run in runs
    ]
    return el("details", title, *inner, cls="evidence", key="sources")


def _fold(title: str, value: Mapping[str, object], number: int, *, opened: bool) -> Node:
    rows: list[tuple[str, Node | str]] = [(key, shown(inner)) for key, inner in flat(value)]
    head = el(
        "summary", el("span", title, cls="name"), el("span", f"{len(rows):,} {'entry' if len(rows) == 1 else 'entries'}", cls="aside")
    )
    return el("details", head, facts(rows), cls="evidence", key=f"fold-{number}", open=opened)
