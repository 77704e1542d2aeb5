"""Build the method page: card, options, results, cost, checkpoints, curves, and what the gate decided."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import scale_of
from leaderboard.elements.marks import outcome_badge
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, facts, flat, link, metric_head, plain_table, prose, show_value
from leaderboard.elements.pictures import Picture, Point, plot
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE, implausible
from results.gate.history import Decided
from results.store.checkpoints import Checkpoint
from results.store.doubts import NOT_RESCORED, not_rescored
from results.store.provenance import Result, thinned
from results.store.queries import RunRow
from results.store.store import shortened

Definitions = Mapping[str, Mapping[str, Any]]

_NUMBER = r"(?P<number>(?:[0-9]{4}\.[0-9]{4,5}|[a-z-]{2,20}(?:\.[A-Z]{2})?/[0-9]{7})(?:v[0-9]{1,3})?)(?![\w-]|\.[0-9])"
_ARXIV_NUMBER = re.compile(_NUMBER)
_ARXIV = re.compile(
    r"(?<![\w.-])(?:(?:https?://)?(?:www\.|export\.)?(?i:arxiv)\.org/(?:abs|pdf|html)/"
    rf"|(?:10\.48550/)?(?i:arxiv)[:.\s]\s?){_NUMBER}"
)
"""Pattern of a paper on arXiv: address of its page or file, DOI, or "arXiv:" and its number."""


def card(method: str, known: Mapping[str, Any] | None, *, checkpoints: bool = False) -> Node:
    """Build the method's description and training data; `checkpoints`: whether checkpoints are listed below it."""
    if known is None:
        return el("section", el("p", "The store has no card of this method.", cls="note"), cls="stack")
    trained = known.get("training_data") or []
    presets = known.get("presets") or {}
    return el(
        "section",
        el("p", *prose(str(known.get("summary") or ""))),
        facts(
            [
                ("Id", f"{method}, version {known.get('version')}"),
                ("Kind", str(known.get("kind") or "")),
                ("Paper", paper(known.get("paper")) or "none given"),
                ("Trained on", ", ".join(map(str, trained)) or ("see the checkpoints below" if checkpoints else "none declared")),
                ("Presets", "; ".join(f"{name}: {show_value(values)}" for name, values in presets.items())),
            ]
        ),
        cls="stack",
    )


def paper(text: str | None) -> Node | str:
    """Format a method's paper, as a link if it is or contains an arXiv number; empty if there is none."""
    stripped = (text or "").strip()
    result = _ARXIV.search(stripped) or _ARXIV_NUMBER.fullmatch(stripped)
    return link(stripped, f"https://arxiv.org/abs/{result['number']}") if result else stripped


def options(runs: Sequence[RunRow]) -> Node | None:
    """Build the table of options: those that all runs share, and those that differ; None without options."""
    rows = [dict(flat(run.description)) for run in runs]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if not keys:
        return None
    lines = []
    for key in keys:
        values: dict[str, list[str]] = {}
        for run, row in zip(runs, rows, strict=True):
            values.setdefault(show_value(row[key]) if key in row else formats.NOTHING, []).append(run.method)
        if len(values) == 1:
            lines.append(Line(key, [next(iter(values)), "all runs"]))
            continue
        for value, where in values.items():
            lines.append(Line(key, [value, ", ".join(dict.fromkeys(where))]))
    heads = [Head("Option"), Head("Value", wide=True), Head("In", wide=True)]
    return plain_table("Options of this method's runs", heads, lines, "options")


def results(rows: Sequence[Result], metrics: Sequence[str], definitions: Definitions, contaminated: Mapping[str, Sequence[str]]) -> Node:
    """Build the table of a method's runs: dataset, setting and values with intervals.

    Args:
        rows: The runs with their values.
        metrics: Metric ids of the columns.
        definitions: Definitions of metrics by id.
        contaminated: Training data that cover the test questions, by run (`systems.contaminated_by`).
    """
    heads = [Head("Dataset · setting · seed"), Head("Run as", wide=True)]
    heads += [metric_head(metric, definitions, metrics) for metric in metrics]
    heads.append(Head("Questions", "answered", number=True))
    lines = []
    for row in rows:
        cells: list[Cell | Node | str] = [_run_name(row.run, contaminated.get(row.run.run, ()))]
        for metric in metrics:
            item = row.values.get(metric)
            if item is None or formats.missing(item.value):
                cells.append(formats.NOTHING)
                continue
            scale = scale_of(metric, definitions)
            cells.append(Cell(scale.value(item.value), scale.interval(item.low, item.high), item.insufficient_data))
        failed = f"{row.run.failed:,} failed" if row.run.failed else ""
        cells.append(Cell(f"{row.run.done:,} of {row.run.questions:,}", failed))
        lines.append(Line(f"{row.run.dataset} · {row.run.setting} · {row.run.seed}", cells))
    return plain_table("All results of this method", heads, lines, "results")


def _run_name(run: RunRow, contaminated: Sequence[str]) -> Node:
    marks = [badge(run.origin, run.origin)] if run.origin != "run" else []
    if theirs := not_rescored(run):
        marks.append(badge(NOT_RESCORED, "failed", theirs))
    if contaminated:
        marks.append(badge(CONTAMINATED, "failed", "; ".join(contaminated)))
    if doubts := implausible(run):
        marks.append(badge(IMPLAUSIBLE, "failed", f"A maintainer decides: {'; '.join(doubts)}"))
    if run.status != "finished":
        marks.append(badge(run.status, run.status if run.status in ("running", "failed", "incomplete") else ""))
    return el("span", run.method, *marks, el("span", run.experiment, cls="aside"))


def costs(rows: Sequence[Result]) -> Node | None:
    """Build the table of the mean cost per question; None if nothing was measured."""
    lines = []
    for row in rows:
        cost = row.cost
        if cost is None:
            continue
        spent = sum(row.stages.values())
        stages = "; ".join(
            f"{name} {formats.duration(value)}" + (f" ({value / spent:.0%})" if spent else "")
            for name, value in row.stages.items()
            if not formats.missing(cost.seconds)
        )
        stages += f"; not counted: {formats.duration(row.waited_s)} of waiting for a slot" if row.waited_s else ""
        peak = f"{row.peak_memory_bytes / 2**20:,.0f}" if row.peak_memory_bytes else formats.NOTHING
        lines.append(
            Line(
                f"{row.run.dataset} · {row.run.setting} · {row.run.seed}",
                [
                    row.run.method,
                    Cell(formats.duration(cost.seconds), formats.percentiles(cost)) if cost.seconds > 0 else formats.NOTHING,
                    stages,
                    formats.count(cost.prompt_tokens),
                    formats.count(cost.completion_tokens),
                    formats.count(cost.memory_tokens),
                    formats.count(cost.model_calls),
                    peak,
                    formats.dollars(cost.cost_usd),
                ],
            )
        )
    if not lines:
        return None
    heads = [
        Head("Dataset · setting · seed"),
        Head("Run as", wide=True),
        Head("Time", "per question", "Mean, and below it p50 to p95", number=True),
        Head("By stage", "mean per question", wide=True),
        Head("Prompt", "tokens / question", number=True),
        Head("Completion", "tokens / question", number=True),
        Head("Memory", "tokens / question", "Continuous memory tokens in place of text", True),
        Head("Calls", "per question", number=True),
        Head("Peak memory", "MiB", number=True),
        Head("Cost", "US$ total", number=True),
    ]
    return plain_table("Time and tokens per question", heads, lines, "costs")


def checkpoints(matches: Sequence[Checkpoint], runs: Mapping[str, Sequence[RunRow]]) -> Node:
    """Build the table of a method's checkpoints, one line each.

    Args:
        matches: The method's checkpoints, newest first.
        runs: Runs that use a checkpoint, by its hash.
    """
    lines = []
    for item in matches:
        used = runs.get(item.sha256, ())
        parents = ", ".join(parent[:8] for parent in item.parents) or "none"
        lines.append(
            Line(
                el("span", item.sha256[:12], cls="method"),
                [
                    Cell(item.stage, item.name),
                    f"{item.added_at:%Y-%m-%d %H:%M}" if item.added_at else formats.NOTHING,
                    parents,
                    ", ".join(data[:8] for data in item.data) or "none named",
                    f"{len(used):,}",
                ],
            )
        )
    heads = [
        Head("Checkpoint", "SHA-256"),
        Head("Stage", "folder", wide=True),
        Head("Registered", "UTC"),
        Head("Began from", tip="Checkpoints that training started from or used"),
        Head("Training data", "fingerprints", wide=True),
        Head("Runs", "made with it", number=True),
    ]
    return plain_table("Checkpoints", heads, lines, "checkpoints")


def curve_chart(curves: Mapping[str, Sequence[tuple[float, float]]], figure: str) -> Picture | None:
    """Draw a training curve (one quantity over the steps), with one line per checkpoint; None without points.

    Args:
        curves: (Step, value) pairs by the checkpoint's label.
        figure: Name of the quantity.
    """
    nan = math.nan
    points = [
        Point(name, step, value, nan, nan, name, f"{value:.4g} at step {step:,.0f}")
        for name, each in curves.items()
        for step, value in thinned(each)
    ]
    label = "The value over the steps of each training; first, smallest, largest and last values are in the table"
    return plot(points, "step", figure.replace("_", " "), label)


def curve_ends(curves: Mapping[str, Sequence[tuple[float, float]]]) -> Node:
    """Build the table of training curves: first, smallest, largest and last value."""
    lines = []
    for name, points in curves.items():
        values = [value for _, value in points]
        ends = (values[0], min(values), max(values), values[-1])
        lines.append(Line(name, [f"{len(values):,}", *(f"{value:.4g}" for value in ends)]))
    heads = [Head("Checkpoint"), *(Head(name, number=True) for name in ("Points", "First", "Least", "Largest", "Last"))]
    return plain_table("The curves in numbers", heads, lines, "curves")


def decisions(matches: Sequence[Decided], runs: Mapping[str, RunRow], definitions: Definitions) -> Node:
    """Build the table of gate decisions, newest first."""
    lines = []
    for item in matches:
        scale = scale_of(item.metric, definitions)
        lines.append(
            Line(
                f"{item.decided_at:%Y-%m-%d %H:%M}",
                [
                    outcome_badge(item.outcome),
                    _name_run(item.candidate, runs),
                    _name_run(item.baseline, runs),
                    formats.metric_label(item.metric),
                    Cell(scale.difference(item.value), scale.differences(item.low, item.high)),
                    scale.value(item.margin),
                    f"{item.n:,}",
                    *_remembered(item, scale),
                ],
            )
        )
    heads = [
        Head("Decided", "UTC"),
        Head("Outcome"),
        Head("Candidate", wide=True),
        Head("Baseline", wide=True),
        Head("Metric"),
        Head("Change", "points, interval", "Candidate minus baseline", True),
        Head("Margin", "tolerated loss", number=True),
        Head("Questions", number=True),
        Head("Attempt", tip="How many times this candidate has answered these questions, this time included", number=True),
        Head("Since the anchor", "points, interval", "Candidate minus the pinned run of the baseline", True),
    ]
    return plain_table("Decisions of the gate", heads, lines, "decisions")


def _remembered(item: Decided, scale: formats.Scale) -> tuple[str, Cell | str]:
    """Return the number of a decision's attempt, and the loss since the anchor; decisions of older versions have neither."""
    since = item.details.get("anchor")
    if since is None:
        return str(item.details.get("attempt", formats.NOTHING)), formats.NOTHING
    change = since["difference"]
    shown = Cell(scale.difference(change["value"]), scale.differences(change["low"], change["high"]))
    return str(item.details["attempt"]), shown


def _name_run(run: str, runs: Mapping[str, RunRow]) -> Cell:
    row = runs.get(run)
    return Cell(row.method, f"{row.dataset} · {shortened(run)}") if row else Cell(shortened(run), "no longer in the store")
