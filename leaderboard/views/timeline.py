"""Draw the timeline of a method: one row per run, oldest first, with its value, the gate's outcome and the anchor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import scale_of
from leaderboard.elements.marks import outcome_badge
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, plain_table
from leaderboard.elements.pictures import Point as ChartPoint
from leaderboard.elements.pictures import point_of
from results.gate.timeline import Point, outcome_of
from results.statistics.core import Estimate

Definitions = Mapping[str, Mapping[str, Any]]
Values = Mapping[str, Mapping[str, Estimate]]
"""Decisions by run and metric."""


def table(points: Sequence[Point], values: Values, metric: str, definitions: Definitions) -> Node:
    """Build the table of a timeline: one line per run, with value, tags and gate decisions.

    Args:
        points: Points of one timeline, oldest first.
        values: Values of the runs.
        metric: Id of the metric.
        definitions: Definitions of metrics by id.
    """
    scale = scale_of(metric, definitions)
    lines = []
    for point in points:
        value = values.get(point.run.run, {}).get(metric)
        marks = [badge(f"tag {name}", "", "The tag points to this run or to its checkpoint") for name in point.tags]
        marks += [
            badge(f"anchor of {name}", "reference", "Losses of later candidates are measured from this run") for name in point.anchors
        ]
        if point.changed_data:
            marks.append(badge("other questions", "failed", "Questions or gold differ from the run before: values are not comparable"))
        if point.run.status != "finished":
            marks.append(badge(point.run.status, "failed"))
        decided = outcome_of(point.decided, metric)
        lines.append(
            Line(
                el("span", f"{point.number}  {point.revision}", cls="method", title=point.revision),
                [
                    f"{point.run.started_at:%Y-%m-%d %H:%M}",
                    el("span", point.run.method, el("span", f"{point.run.short} · seed {point.run.seed}", cls="aside"), *marks),
                    formats.NOTHING if value is None else Cell(scale.value(value.value), scale.interval(value.low, value.high)),
                    _gate(point, metric),
                    formats.NOTHING
                    if decided is None
                    else Cell(scale.difference(decided.value), scale.differences(decided.low, decided.high)),
                    _since_anchor(decided.details.get("anchor"), scale) if decided else formats.NOTHING,
                ],
            )
        )
    heads = [
        Head("Revision", "oldest first"),
        Head("Started", "UTC"),
        Head("Run", wide=True),
        Head(formats.metric_name(metric)[0], f"{scale.unit} [95 %]", number=True),
        Head("Gate", tip="The newest decision about this run as candidate"),
        Head("Change", "points, interval", "Candidate minus baseline on this metric, as the gate measured it", True),
        Head("Since the anchor", "points, interval", "Candidate minus the pinned run of the baseline", True),
    ]
    return plain_table("The method over its runs and revisions", heads, lines, "timeline")


def _gate(point: Point, metric: str) -> Node | str:
    """Return the outcome on the metric; if the gate used only other metrics, their outcome with the metric's name."""
    decided = outcome_of(point.decided, metric)
    shown = [decided] if decided else [*{item.metric: item for item in reversed(point.decided)}.values()]
    if not shown:
        return formats.NOTHING
    return el(
        "span",
        *(outcome_badge(item.outcome, f"{formats.metric_label(item.metric)}, {item.decided_at:%Y-%m-%d %H:%M} UTC") for item in shown),
    )


def _since_anchor(since: Mapping[str, Any] | None, scale: formats.Scale) -> Cell | str:
    if since is None:
        return formats.NOTHING
    change = since["difference"]
    return Cell(scale.difference(change["value"]), scale.differences(change["low"], change["high"]))


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
