"""Curves over an experiment: a method's value by the share of formal candidates, or by how many it hands to its reader.

SARK's figure 5 is the first, its figure 4 the second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.errors import UserError
from benchmarks.fingerprint import fingerprint
from results import queries
from results.queries import Columns, RunRow
from results.series import folded_columns, folded_runs
from results.statistics import Difference, Estimate, differences, estimates
from results.store import Store
from results.told import Side, aligned, sides

Over = Literal["formal", "k"]
_DEPTH = re.compile(r"[\s,:]*\(?\b[kK]\s*=\s*\d+\)?$")


@dataclass(frozen=True, slots=True)
class Curve:
    """One method.

    Attributes:
        method: Its name, without what tells its points apart.
        points: By x, the value there.
        change: Last minus first, paired by question.
    """

    method: str
    points: dict[float, Estimate]
    change: Difference


@dataclass(frozen=True, slots=True)
class CurveTable:
    """Curves that share everything but x.

    Attributes:
        over: `formal` (share of formal candidates) or `k` (passages handed to the reader).
        title: What they are over.
        metric, scale: The metric, and what its values are multiplied by where they are shown.
        places: The values of x of any curve, ascending.
        curves: In the experiment's order.
    """

    over: Over
    title: str
    metric: str
    scale: float
    places: tuple[float, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """A run as a point of a curve."""

    curve: tuple[str, ...]
    name: str
    x: float
    run: RunRow
    columns: Columns


def style_curves(
    store: Store, experiment: str, over: Over, metrics: Sequence[str] | None = None, *, over_seeds: bool = False
) -> list[CurveTable]:
    """The curves of an experiment's methods.

    Args:
        store: Where to read.
        experiment: Its name.
        over: What x is.
        metrics: Ids or their beginnings; None: what the experiment shows.
        over_seeds: One curve for all training seeds of a method.

    Raises:
        UserError: Nothing has two points.
    """
    runs = queries.runs(store, experiment)
    ids = [run.run for run in runs]
    named = dict.fromkeys(metric for run in runs for metric in run.metrics or ())
    shown = queries.named_metrics(store, ids, metrics) if metrics else [*named] or queries.metric_ids(store, ids)
    known = queries.definitions(store)
    tables = []
    for title, points in _grouped(store, runs, over, shown, over_seeds).items():
        for metric in shown:
            curves = _curves(points, metric)
            places = tuple(sorted({x for curve in curves for x in curve.points}))
            if curves:
                scale = queries.scale_of(metric, known)
                tables.append(CurveTable(over, title, metric, scale, places, tuple(curves)))
    if not tables:
        what, remedy = {
            "formal": ("no mixes of a base with two shares of formal candidates", "benchmarks `styled` with two mixes"),
            "k": ("no method with two values of k", "methods that differ in `k` alone"),
        }[over]
        raise UserError(f"the experiment {experiment!r} has {what}", where=str(store.folder), try_this=remedy)
    return tables


def _grouped(store: Store, runs: Sequence[RunRow], over: Over, metrics: Sequence[str], over_seeds: bool) -> dict[str, list[_Point]]:
    """Points by the title of the table that they belong to."""
    found: dict[str, list[_Point]] = {}
    for told in sides(runs).values():
        for side in told:
            columns = queries.score_columns(store, side.fingerprint, [run.run for run in side.runs], metrics)
            rows: Sequence[RunRow] = side.runs
            if over_seeds:
                columns, _ = folded_columns(columns, rows, metrics)
                rows = folded_runs(rows)
            for title in _mixes(side, told) if over == "formal" else [_titled(side, side.told.name)]:
                point = _by_share if over == "formal" else _by_depth
                found.setdefault(title, []).extend(filter(None, (point(run, side, columns) for run in rows)))
    return found


def _titled(side: Side, *parts: str) -> str:
    seed = [f"seed {side.seed}"] if side.seed else []
    return ", ".join([side.told.base, *filter(None, parts), f"setting {side.setting}", *seed])


def _mixes(side: Side, told: Sequence[Side]) -> list[str]:
    """The curves over shares on which a side is a point: formal candidates alone end that of every style."""
    if side.told.shares:
        return [_titled(side, side.told.style, side.told.drawn)] if side.told.style else []
    others = (one.told for one in told if (one.setting, one.seed) == (side.setting, side.seed) and one.told.style)
    return list(dict.fromkeys(_titled(side, str(one.style), one.drawn) for one in others))


def _by_share(run: RunRow, side: Side, columns: Columns) -> _Point:
    return _Point((run.method,), run.method, side.told.formal, run, columns)


def _by_depth(run: RunRow, side: Side, columns: Columns) -> _Point | None:
    """A method with what differs in k alone."""
    k = run.description.get("k")
    if k is None:
        return None
    name = _DEPTH.sub("", run.method) or run.method
    return _Point((fingerprint(_without_depth(run.description)),), name, float(k), run, columns)


def _without_depth(description: dict[str, Any]) -> dict[str, Any]:
    # A ranking is kept at least as long as what is handed on, so its length may follow k.
    return {key: value for key, value in description.items() if key not in ("k", "depth")}


def _curves(points: Sequence[_Point], metric: str) -> list[Curve]:
    groups: dict[tuple[str, ...], list[_Point]] = {}
    for point in points:
        if (point.run.run, metric) in point.columns.values:
            groups.setdefault(point.curve, []).append(point)
    return [_curve(sorted(group, key=lambda point: point.x), metric) for group in groups.values() if len(group) > 1]


def _curve(points: Sequence[_Point], metric: str) -> Curve:
    first = points[0].columns
    scores = [aligned(point.columns.questions, point.columns.values[point.run.run, metric], first.questions) for point in points]
    clusters = first.documents if any(first.documents) else None
    values = estimates(np.stack(scores), clusters=clusters)
    change = differences(scores[-1][None, :], scores[0][None, :], clusters=clusters)[0]
    return Curve(points[0].name, {point.x: value for point, value in zip(points, values, strict=True)}, change)
