"""Build the method page: card, options, results, cost, checkpoints, curves, and the timeline with the gate's outcomes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import ALL_RUNS, board_key, scale_of
from leaderboard.elements.marks import doubt_marks, outcome_badge, row_marks, status_badge
from leaderboard.elements.nodes import Node, aside, badge, button, el, facts, flat, link, named, note, prose, show_value
from leaderboard.elements.pictures import Picture, Point, plot, point_of
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, metric_columns, table, value_cell
from results.errors import counted
from results.gate.timeline import Point as TimelinePoint
from results.gate.timeline import outcome_of
from results.statistics.core import Estimate
from results.store.checkpoints import Checkpoint
from results.store.cost_queries import Cost
from results.store.provenance import Result, thinned
from results.store.queries import RunRow
from results.store.store import shortened

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
        return note("The store has no card of this method.")
    trained = known.get("training_data") or []
    presets = known.get("presets") or {}
    rows: list[tuple[str, Node | str]] = [
        ("Id", f"{method}, version {known.get('version')}"),
        ("Kind", str(known.get("kind") or "")),
        ("Paper", paper(known.get("paper")) or "none given"),
        ("Trained on", ", ".join(map(str, trained)) or ("see the checkpoints below" if checkpoints else "none declared")),
        ("Presets", "; ".join(f"{name}: {show_value(values)}" for name, values in presets.items())),
    ]
    return el("section", el("p", *prose(str(known.get("summary") or ""))), facts(rows), cls="stack")


def paper(text: str | None) -> Node | str:
    """Format a method's paper, as a link if it is or contains an arXiv number; empty if there is none."""
    stripped = (text or "").strip()
    result = _ARXIV.search(stripped) or _ARXIV_NUMBER.fullmatch(stripped)
    return link(stripped, f"https://arxiv.org/abs/{result['number']}") if result else stripped


def options(runs: Sequence[RunRow]) -> Node | None:
    """Build the table of options: those that all runs share, and those that differ; None without options."""
    described = [(run.method, dict(flat(run.description))) for run in runs]
    rows = []
    for key in dict.fromkeys(key for _, options in described for key in options):
        values: dict[str, dict[str, None]] = {}
        for method, options in described:
            values.setdefault(show_value(options[key]) if key in options else formats.NOTHING, {})[method] = None
        rows += [(key, value, ", ".join(where) if len(values) > 1 else "all runs") for value, where in values.items()]
    columns: list[Column[tuple[str, str, str]]] = [
        Column("Option", lambda row: row[0]),
        WideColumn("Value", lambda row: row[1]),
        WideColumn("In", lambda row: row[2]),
    ]
    return table("Options of this method's runs", "options", rows, columns) if rows else None


def results(rows: Sequence[Result], metrics: Sequence[str], definitions: Definitions, contaminated: Mapping[str, Sequence[str]]) -> Node:
    """Build the table of a method's runs: dataset, setting and values with intervals.

    Args:
        contaminated: Training data that cover the test questions, by run (`systems.contaminated_by`).
    """

    def value(metric: str, row: Result) -> Cell:
        return value_cell(row.values.get(metric), scale_of(metric, definitions))

    columns: list[Column[Result]] = [
        Column("Dataset · setting · seed", _benchmark),
        WideColumn("Run as", lambda row: _run_name(row.run, contaminated.get(row.run.run, ()))),
        *metric_columns(metrics, definitions, value, metrics),
        NumberColumn("Questions", _answered, "answered"),
    ]
    return table("All results of this method", "results", rows, columns)


def _benchmark(row: Result) -> str:
    return f"{row.run.dataset} · {row.run.setting} · {row.run.seed}"


def _answered(row: Result) -> Cell:
    return Cell(f"{row.run.done:,} of {row.run.questions:,}", f"{row.run.failed:,} failed" if row.run.failed else "")


def _run_name(run: RunRow, contaminated: Sequence[str]) -> Node:
    marks = [*row_marks([run], reference=False), *doubt_marks(run, contaminated)]
    return el("span", el("span", run.method), *marks, status_badge(run), aside(run.experiment))


def costs(rows: Sequence[Result]) -> Node | None:
    """Build the table of the mean cost per question; None if nothing was measured."""
    measured = [(row, row.cost) for row in rows if row.cost is not None]
    if not measured:
        return None
    columns: list[Column[tuple[Result, Cost]]] = [
        Column("Dataset · setting · seed", lambda row: _benchmark(row[0])),
        WideColumn("Run as", lambda row: row[0].run.method),
        NumberColumn("Time", lambda row: _time(row[1]), "per question", "Mean, and below it p50 to p95"),
        WideColumn("By stage", lambda row: _stages(*row), "mean per question"),
        NumberColumn("Prompt", lambda row: formats.count(row[1].prompt_tokens), "tokens / question"),
        NumberColumn("Completion", lambda row: formats.count(row[1].completion_tokens), "tokens / question"),
        NumberColumn(
            "Memory", lambda row: formats.count(row[1].memory_tokens), "tokens / question", "Continuous memory tokens in place of text"
        ),
        NumberColumn("Calls", lambda row: formats.count(row[1].model_calls), "per question"),
        NumberColumn("Peak memory", lambda row: round(row[0].peak_memory_bytes / 2**20) or None, "MiB"),
        NumberColumn("Cost", lambda row: formats.dollars(row[1].cost_usd), "US$ total"),
    ]
    return table("Time and tokens per question", "costs", measured, columns)


def _time(cost: Cost) -> Cell | None:
    return Cell(formats.duration(cost.seconds), formats.percentiles(cost)) if cost.seconds > 0 else None


def _stages(row: Result, cost: Cost) -> str:
    spent = sum(row.stages.values())
    parts = [
        f"{name} {formats.duration(value)}" + (f" ({value / spent:.0%})" if spent else "")
        for name, value in row.stages.items()
        if not formats.missing(cost.seconds)
    ]
    return "; ".join(parts) + formats.waited(row.waited_s)


def checkpoints(matches: Sequence[Checkpoint], runs: Mapping[str, Sequence[RunRow]]) -> Node:
    """Build the table of a method's checkpoints, one line each."""
    columns: list[Column[Checkpoint]] = [
        Column("Checkpoint", lambda item: named(item.sha256[:12]), "SHA-256"),
        WideColumn("Stage", lambda item: Cell(item.stage, item.name), "folder"),
        Column("Registered", lambda item: item.added_at, "UTC"),
        Column(
            "Began from",
            lambda item: ", ".join(parent[:8] for parent in item.parents) or "none",
            tip="Checkpoints that training started from or used",
        ),
        WideColumn("Training data", lambda item: ", ".join(data[:8] for data in item.data) or "none named", "fingerprints"),
        NumberColumn("Runs", lambda item: len(runs.get(item.sha256, ())), "made with it"),
    ]
    return table("Checkpoints", "checkpoints", matches, columns)


def curve_chart(curves: Mapping[str, Sequence[tuple[float, float]]], figure: str) -> Picture | None:
    """Draw a training curve (one quantity over the steps), with one line per checkpoint; None without points."""
    points = [
        Point(name, step, value, math.nan, math.nan, name, f"{value:.4g} at step {step:,.0f}")
        for name, each in curves.items()
        for step, value in thinned(each)
    ]
    label = "The value over the steps of each training; its values can be downloaded"
    return plot(points, "step", figure.replace("_", " "), label)


Values = Mapping[str, Mapping[str, Estimate]]
"""Values by run and metric."""


def timeline_table(points: Sequence[TimelinePoint], values: Values, metric: str, definitions: Definitions) -> Node:
    """Build the table of a timeline: one line per run, with value, tags and gate decisions."""
    scale = scale_of(metric, definitions)

    def change(point: TimelinePoint, *, pinned: bool = False) -> Cell | None:
        decided = outcome_of(point.decided, metric)
        if decided is None or (pinned and decided.details.get("anchor") is None):
            return None
        item = decided.details["anchor"]["difference"] if pinned else asdict(decided)
        return Cell(scale.difference(item["value"]), scale.differences(item["low"], item["high"]))

    columns: list[Column[TimelinePoint]] = [
        Column(
            "Revision", lambda point: el("span", f"{point.number}  {point.revision}", cls="method", title=point.revision), "oldest first"
        ),
        Column("Started", lambda point: point.run.started_at, "UTC"),
        WideColumn("Run", lambda point: el("span", *_timeline_run(point), _compare(point, points, metric))),
        NumberColumn(
            formats.metric_name(metric)[0],
            lambda point: value_cell(values.get(point.run.run, {}).get(metric), scale),
            f"{scale.unit} [95 %]",
        ),
        Column("Gate", lambda point: _gate(point, metric, definitions), tip="The newest decision about this run as candidate"),
        NumberColumn("Change", change, "points, interval", "Candidate minus baseline on this metric, as the gate measured it"),
        NumberColumn("Since the anchor", partial(change, pinned=True), "points, interval", "Candidate minus the baseline's pinned run"),
    ]
    return table("The method over its runs and revisions", "timeline", points, columns)


def _compare(point: TimelinePoint, points: Sequence[TimelinePoint], metric: str) -> Node | None:
    """Make the button that compares a run with its gate's baseline, else with the run before it on the same questions."""
    decided, board = outcome_of(point.decided, metric), board_key(point.run)
    before = [item.run.run for item in points[: point.number - 1] if board_key(item.run) == board]
    other = decided.baseline if decided else before[-1] if before else None
    pair = {"experiment": ALL_RUNS, "board": board, "runs": f"{other},{point.run.run}", "metric": metric}
    label = f"Compare {point.revision} question by question"
    return None if other is None else button("compare", f"compare-{point.number}", pair, label=label)


def _timeline_run(point: TimelinePoint) -> list[Node]:
    marks = [badge(f"tag {name}", "", "The tag points to this run or to its checkpoint") for name in point.tags]
    marks += [badge(f"anchor of {name}", "reference", "Losses of later candidates are measured from this run") for name in point.anchors]
    if point.changed_data:
        marks.append(badge("other questions", "failed", "Questions or gold differ from the run before: values are not comparable"))
    if point.run.status != "finished":
        marks.append(badge(point.run.status, "failed"))
    return [el("span", point.run.method), aside(f"{point.run.short} · seed {point.run.seed}"), *marks]


def _gate(point: TimelinePoint, metric: str, definitions: Definitions) -> Node | None:
    """Return the outcome on the metric; if the gate used only other metrics, their outcome with the metric's name."""
    decided = outcome_of(point.decided, metric)
    shown = [decided] if decided else [*{item.metric: item for item in reversed(point.decided)}.values()]
    tips = (
        f"{formats.metric_label(item.metric)}, {item.decided_at:%Y-%m-%d %H:%M} UTC: baseline {shortened(item.baseline)}, tolerated loss "
        f"{scale_of(item.metric, definitions).value(item.margin)}, {counted(item.n, 'question')}"
        for item in shown
    )
    return el("span", *(outcome_badge(item.outcome, tip) for item, tip in zip(shown, tips, strict=True))) if shown else None


def chart_points(points: Sequence[TimelinePoint], values: Values, metric: str, definitions: Definitions, name: str) -> list[Point]:
    """Convert a timeline to chart points; a new curve begins where the questions changed."""
    scale, drawn, series = scale_of(metric, definitions), [], name
    for point in points:
        series = f"{name} ({point.run.dataset_fingerprint[:6]})" if point.changed_data else series
        value = values.get(point.run.run, {}).get(metric)
        if value is None:
            continue
        decided, words = outcome_of(point.decided, metric), []
        words += [f"gate: {decided.outcome}"] if decided else []
        words += [f"anchor of {anchor}" for anchor in point.anchors]
        item = point_of(series, float(point.number), value, scale, point.revision)
        drawn.append(replace(item, shown="; ".join((item.shown, *words))))
    return drawn
