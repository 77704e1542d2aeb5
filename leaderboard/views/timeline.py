"""Draw the timeline of a method: one row per run, oldest first, with its value, the gate's outcome and the anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from leaderboard.elements import formats
from leaderboard.elements.formats import scale_of
from leaderboard.elements.marks import outcome_badge
from leaderboard.elements.nodes import Node, aside, badge, el
from leaderboard.elements.pictures import Point as ChartPoint
from leaderboard.elements.pictures import point_of
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, table, value_cell
from results.errors import counted
from results.gate.timeline import Point, outcome_of
from results.statistics.core import Estimate
from results.store.store import shortened

Values = Mapping[str, Mapping[str, Estimate]]
"""Values by run and metric."""


def timeline_table(points: Sequence[Point], values: Values, metric: str, definitions: Definitions) -> Node:
    """Build the table of a timeline: one line per run, with value, tags and gate decisions."""
    scale = scale_of(metric, definitions)

    def change(point: Point) -> Cell | None:
        decided = outcome_of(point.decided, metric)
        return Cell(scale.difference(decided.value), scale.differences(decided.low, decided.high)) if decided else None

    def since_anchor(point: Point) -> Cell | None:
        decided = outcome_of(point.decided, metric)
        anchor = decided.details.get("anchor") if decided else None
        if anchor is None:
            return None
        item = anchor["difference"]
        return Cell(scale.difference(item["value"]), scale.differences(item["low"], item["high"]))

    columns: list[Column[Point]] = [
        Column(
            "Revision", lambda point: el("span", f"{point.number}  {point.revision}", cls="method", title=point.revision), "oldest first"
        ),
        Column("Started", lambda point: point.run.started_at, "UTC"),
        WideColumn("Run", _run),
        NumberColumn(
            formats.metric_name(metric)[0],
            lambda point: value_cell(values.get(point.run.run, {}).get(metric), scale),
            f"{scale.unit} [95 %]",
        ),
        Column("Gate", lambda point: _gate(point, metric, definitions), tip="The newest decision about this run as candidate"),
        NumberColumn("Change", change, "points, interval", "Candidate minus baseline on this metric, as the gate measured it"),
        NumberColumn("Since the anchor", since_anchor, "points, interval", "Candidate minus the pinned run of the baseline"),
    ]
    return table("The method over its runs and revisions", "timeline", points, columns)


def _run(point: Point) -> Node:
    marks = [badge(f"tag {name}", "", "The tag points to this run or to its checkpoint") for name in point.tags]
    marks += [badge(f"anchor of {name}", "reference", "Losses of later candidates are measured from this run") for name in point.anchors]
    if point.changed_data:
        marks.append(badge("other questions", "failed", "Questions or gold differ from the run before: values are not comparable"))
    if point.run.status != "finished":
        marks.append(badge(point.run.status, "failed"))
    return el("span", point.run.method, aside(f"{point.run.short} · seed {point.run.seed}"), *marks)


def _gate(point: Point, metric: str, definitions: Definitions) -> Node | None:
    """Return the outcome on the metric; if the gate used only other metrics, their outcome with the metric's name."""
    decided = outcome_of(point.decided, metric)
    shown = [decided] if decided else [*{item.metric: item for item in reversed(point.decided)}.values()]
    tips = (
        f"{formats.metric_label(item.metric)}, {item.decided_at:%Y-%m-%d %H:%M} UTC: baseline {shortened(item.baseline)}, tolerated loss "
        f"{scale_of(item.metric, definitions).value(item.margin)}, {counted(item.n, 'question')}"
        for item in shown
    )
    return el("span", *(outcome_badge(item.outcome, tip) for item, tip in zip(shown, tips, strict=True))) if shown else None


def chart_points(points: Sequence[Point], values: Values, metric: str, definitions: Definitions, name: str) -> list[ChartPoint]:
    """Convert a timeline to chart points; a new curve begins where the questions changed."""
    scale, results, series = scale_of(metric, definitions), [], name
    for point in points:
        series = f"{name} ({point.run.dataset_fingerprint[:6]})" if point.changed_data else series
        value = values.get(point.run.run, {}).get(metric)
        if value is None:
            continue
        decided, words = outcome_of(point.decided, metric), []
        words += [f"gate: {decided.outcome}"] if decided else []
        words += [f"anchor of {anchor}" for anchor in point.anchors]
        item = point_of(series, float(point.number), value, scale, point.revision)
        results.append(replace(item, shown="; ".join((item.shown, *words))))
    return results
