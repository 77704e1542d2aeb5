"""The style gap of each method of an experiment: from formal candidates to the same ones in another style.

Runs of one method over several styles of one base are paired question by question. A style gap is formal minus style,
so that a loss is positive; the part of it on questions that lost content in the rewriting is reported separately,
since no reranker can restore what is not there. `benchmarks.styles.mix` defines what counts as lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.styles import STYLED
from benchmarks.styles.mix import Survival, survival
from results.boards.folded import folded_columns, folded_runs
from results.boards.markup import plain
from results.boards.names import is_called
from results.statistics.core import Difference, Estimate
from results.statistics.intervals import difference, differences_together, estimates
from results.statistics.style_gaps import StyleGap, style_robustness
from results.store import queries, score_queries
from results.store.queries import RunRow
from results.store.score_queries import Columns
from results.store.store import Store
from results.store.variants import StyledRun


@dataclass(frozen=True, slots=True)
class Side:
    """Runs on one style (for example formal or informal candidates) of a base dataset; sides of one base share their questions.

    Attributes:
        styled: The base dataset and the styles of the candidates.
        setting, seed: Retrieval setting and seed of the runs.
        fingerprint: Fingerprint of the restyled dataset.
        runs: The runs, in the experiment's order.
    """

    styled: StyledRun
    setting: str
    seed: int
    fingerprint: str
    runs: tuple[RunRow, ...]


def sides(runs: Sequence[RunRow]) -> dict[str, list[Side]]:
    """Group runs by base dataset, and within each base by style; runs on the base itself are the formal side."""
    results: dict[tuple[str, str, int], list[RunRow]] = {}
    for run in runs:
        results.setdefault((run.dataset_fingerprint, run.setting, run.seed), []).append(run)
    bases: dict[str, list[Side]] = {}
    for (dataset, setting, seed), members in results.items():
        how = members[0].styled
        bases.setdefault(how.base, []).append(Side(how, setting, seed, dataset, tuple(members)))
    return bases


def survivals(store: Store, fingerprint: str) -> dict[str, Survival] | None:
    """Return, by question id, how much of the gold answer survived rewriting the candidates; None if the store has no record."""
    with store.database.reading() as connection:
        rows = connection.execute("SELECT question, record FROM questions WHERE dataset_fingerprint = ?", [fingerprint]).fetchall()
    met = {question: survival(json.loads(record).get(STYLED) or {}) for question, record in rows if record}
    known = {question: item for question, item in met.items() if item is not None}
    return known if known and len(known) == len(met) else None


def aligned(ids: Sequence[str], values: NDArray[np.float64], wanted: Sequence[str]) -> NDArray[np.float64]:
    """Reorder per-question values to the order of `wanted` ids; NaN for questions without a value."""
    positions = {identifier: position for position, identifier in enumerate(ids)}
    return np.array([values[positions[item]] if item in positions else np.nan for item in wanted], dtype=np.float64)


# Curves: a method's value by the share of formal candidates, or by the number that its reader gets.
# SARK's figure 5 is the first, its figure 4 the second.


Over = Literal["formal", "k"]
_DEPTH = re.compile(r"[\s,:]*\(?\b[kK]\s*=\s*\d+\)?$")


@dataclass(frozen=True, slots=True)
class Curve:
    """Curve of one method over the share of formal candidates, or over k.

    Attributes:
        method: The method's name, without the part that differs between points.
        points: Mean score by x.
        change: Score at the last x minus score at the first, paired by question.
    """

    method: str
    points: dict[float, Estimate]
    change: Difference


@dataclass(frozen=True, slots=True)
class CurveTable:
    """Curves of several methods over the same x on one metric.

    Attributes:
        over: `formal` (share of formal candidates) or `k` (passages given to the reader).
        title: Their title.
        metric, scale: The metric, and the factor for displaying its values.
        positions: All values of x, ascending.
        curves: In the experiment's order.
    """

    over: Over
    title: str
    metric: str
    scale: float
    positions: tuple[float, ...]
    curves: tuple[Curve, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions; None means "no value"."""
        methods = [
            {
                "method": curve.method,
                "points": [{"x": x, **asdict(value)} for x, value in curve.points.items()],
                "change": asdict(curve.change),
            }
            for curve in self.curves
        ]
        return dict(plain({"over": self.over, "title": self.title, "metric": self.metric, "methods": methods}))


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
    """Build the curves of an experiment's methods over the share of formal candidates or over k.

    Args:
        store: The store to read.
        experiment: Name of the experiment.
        over: The x axis: `formal` or `k`.
        metrics: Metric ids or their beginnings; None uses the experiment's metrics.
        over_seeds: One curve for all training seeds of a method.

    Raises:
        UserError: No method has runs at two values of x.
    """
    runs = queries.runs(store, experiment)
    ids = [run.run for run in runs]
    named = dict.fromkeys(metric for run in runs for metric in run.metrics or ())
    shown = score_queries.named_metrics(store, ids, metrics) if metrics else [*named] or score_queries.metric_ids(store, ids)
    known = score_queries.definitions(store)
    tables = []
    for title, points in _grouped(store, runs, over, shown, over_seeds).items():
        for metric in shown:
            curves = _curves(points, metric)
            positions = tuple(sorted({x for curve in curves for x in curve.points}))
            if curves:
                scale = score_queries.scale_of(metric, known)
                tables.append(CurveTable(over, title, metric, scale, positions, tuple(curves)))
    if not tables:
        what, remedy = {
            "formal": ("no mixes of a base with two shares of formal candidates", "benchmarks `styled` with two mixes"),
            "k": ("no method with two values of k", "methods that differ only in `k`"),
        }[over]
        raise UserError(
            f"the experiment {experiment!r} has {what}", code="experiment-without-curve", where=str(store.folder), try_this=remedy
        )
    return tables


def _grouped(store: Store, runs: Sequence[RunRow], over: Over, metrics: Sequence[str], over_seeds: bool) -> dict[str, list[_Point]]:
    """Group points by the title of their table."""
    results: dict[str, list[_Point]] = {}
    for styled in sides(runs).values():
        for side in styled:
            experiments = {run.experiment for run in side.runs}
            columns = score_queries.score_columns(store, side.fingerprint, [run.run for run in side.runs], metrics, experiments)
            rows: Sequence[RunRow] = side.runs
            columns, _ = folded_columns(columns, rows, metrics, over_seeds)
            rows = folded_runs(rows, over_seeds)
            for title in _mixes(side, styled) if over == "formal" else [_titled(side, side.styled.name)]:
                point = _by_share if over == "formal" else _by_depth
                results.setdefault(title, []).extend(filter(None, (point(run, side, columns) for run in rows)))
    return results


def _titled(side: Side, *parts: str) -> str:
    seed = [f"seed {side.seed}"] if side.seed else []
    return ", ".join([side.styled.base, *filter(None, parts), f"setting {side.setting}", *seed])


def _mixes(side: Side, styled: Sequence[Side]) -> list[str]:
    """Return the curves over shares on which a side is a point; a side with only formal candidates is the end of every style's curve."""
    if side.styled.shares:
        return [_titled(side, side.styled.style, side.styled.drawn)] if side.styled.style else []
    others = (item.styled for item in styled if (item.setting, item.seed) == (side.setting, side.seed) and item.styled.style)
    return list(dict.fromkeys(_titled(side, str(other.style), other.drawn) for other in others))


def _by_share(run: RunRow, side: Side, columns: Columns) -> _Point:
    return _Point((run.method,), run.method, side.styled.formal, run, columns)


def _by_depth(run: RunRow, side: Side, columns: Columns) -> _Point | None:
    """Return a method without the parts that depend on k."""
    k = run.description.get("k")
    if k is None:
        return None
    name = _DEPTH.sub("", run.method) or run.method
    return _Point((fingerprint(_without_depth(run.description)),), name, float(k), run, columns)


def _without_depth(description: dict[str, Any]) -> dict[str, Any]:
    # The kept ranking is at least as long as the reader's list, so its length may depend on k.
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
    clusters = first.sampled.labels
    values = estimates(np.stack(scores), clusters=clusters)
    change = difference(scores[-1], scores[0], clusters=clusters)
    return Curve(points[0].name, {point.x: value for point, value in zip(points, values, strict=True)}, change)


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Gap:
    """Style gap of one method: its score on formal candidates minus its score on candidates rewritten into another style.

    Attributes:
        styled: The base and the styles of the candidates.
        value: Score on the restyled candidates, over the questions scored in both styles.
        result: The gap, split into a content part and a style part; the parts are NaN if it is unknown which answers survived
            rewriting.
        relative: The gap as a share of the formal value over the same questions, NaN if that is 0.
        content_known: Whether the split is known.
        answers_kept: Share of the gold passages whose rewritten text still contains the answer, averaged over questions.
        beyond: Paired difference between this gap and the reference method's gap; None for the reference itself, and without a
            reference.
        beyond_p: Its p-value, Holm-corrected over the methods that are compared with the reference in this style.
    """

    styled: StyledRun
    value: Estimate
    result: StyleGap
    relative: float
    content_known: bool
    answers_kept: Estimate
    beyond: Difference | None = None
    beyond_p: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Return the gap as a JSON object; unknown parts are None."""
        result = self.result
        parts: dict[str, Estimate | Difference]
        parts = {"answers_kept": self.answers_kept, "content_lost": result.content_lost, "from_content": result.from_content}
        parts |= {"from_style": result.from_style, "gap_where_survived": result.gap_where_survived}
        return {
            "style": self.styled.name,
            "formal_share": self.styled.formal,
            "drawn": self.styled.drawn,
            "value": asdict(self.value),
            "gap": asdict(result.gap) | {"p_holm": result.p_holm},
            "relative_gap": self.relative,
            "beyond_reference": None if self.beyond is None else asdict(self.beyond) | {"p_holm": self.beyond_p},
            **{name: asdict(part) if self.content_known else None for name, part in parts.items()},
        }


@dataclass(frozen=True, slots=True)
class MethodGaps:
    """One method's value on formal candidates, and its gap in each other style, on one metric."""

    method: str
    kind: str
    formal: Estimate
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class GapTable:
    """Style gaps of all methods on one base dataset and metric.

    Attributes:
        base, setting, seed: Base dataset, retrieval setting and seed.
        metric: Id of the metric.
        scale: Factor for displaying values.
        rows: One entry per method, in the experiment's order.
        reference: The method that gaps are compared with; None if it was not run in both styles.
        average: By the name of a style, the mean gap over the methods that are not controls.
    """

    base: str
    setting: str
    seed: int
    metric: str
    scale: float
    rows: tuple[MethodGaps, ...]
    reference: str | None = None

    @property
    def average(self) -> dict[str, float]:
        """Return the mean gap of each style over all methods that are not controls, by the style's name."""
        results: dict[str, list[float]] = {}
        for row in self.rows:
            for gap in row.gaps:
                if row.kind != "control" and not math.isnan(gap.result.gap.value):
                    results.setdefault(gap.styled.name, []).append(gap.result.gap.value)
        return {name: float(np.mean(values)) for name, values in results.items()}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions; None means "no value"."""
        methods = [
            {"method": row.method, "kind": row.kind, "formal": asdict(row.formal), "styles": [gap.to_json() for gap in row.gaps]}
            for row in self.rows
        ]
        shared = {name: getattr(self, name) for name in ("base", "setting", "seed", "metric", "reference")}
        return dict(plain(shared | {"mean_gap": self.average, "methods": methods}))


class NotStyled(UserError):
    """Raised if no dataset of an experiment has runs both in formal style and in another one."""


def style_gaps(
    store: Store,
    experiment: str,
    metrics: Sequence[str] | None = None,
    *,
    styles: Sequence[str] | None = None,
    over_seeds: bool = False,
    reference: str | None = None,
) -> list[GapTable]:
    """Compute the style gaps of an experiment's methods: one table per base dataset and metric.

    Args:
        store: The store to read.
        experiment: Name of the experiment.
        metrics: Metric ids or their beginnings; None uses the experiment's metrics.
        styles: Names of styles; other mixes are left out. None keeps all.
        over_seeds: Whether to average each question over all training seeds of a method.
        reference: Name of the method that gaps are compared with; None uses the experiment's.

    Raises:
        NotStyled: No base has runs both in formal style and in another one.
    """
    against = reference or queries.experiment(store, experiment).reference
    runs = queries.runs(store, experiment)
    shown = _metrics(store, runs, metrics)
    known = score_queries.definitions(store)
    tables = []
    for base, styled in sides(runs).items():
        for formal in (side for side in styled if not side.styled.shares):
            others = [
                side
                for side in styled
                if side.styled.shares
                and (side.setting, side.seed) == (formal.setting, formal.seed)
                and (styles is None or {style for style, _ in side.styled.shares} & set(styles))
            ]
            if others:
                work = _Scored(store, formal, others, shown, over_seeds)
                for metric in shown:
                    if rows := work.rows(metric):
                        rows, named = work.compared_with(rows, against, metric)
                        scale = score_queries.scale_of(metric, known)
                        tables.append(GapTable(base, formal.setting, formal.seed, metric, scale, rows, named))
    if not tables:
        raise NotStyled(
            f"the experiment {experiment!r} has no dataset with both formal and restyled passages",
            code="experiment-without-styles",
            where=str(store.folder),
            try_this="two benchmarks `styled` over one base, with mix {informal: 0} and {informal: 1}",
        )
    return tables


def _metrics(store: Store, runs: Sequence[RunRow], wanted: Sequence[str] | None) -> list[str]:
    ids = [run.run for run in runs]
    if wanted:
        return score_queries.named_metrics(store, ids, wanted)
    named = dict.fromkeys(metric for run in runs for metric in run.metrics or ())
    stored = score_queries.metric_ids(store, ids)
    return [metric for metric in named if metric in stored] or stored


class _Scored:
    """Scores of a formal side and of other sides, aligned to the formal side's questions."""

    def __init__(self, store: Store, formal: Side, others: Sequence[Side], metrics: Sequence[str], over_seeds: bool) -> None:
        self._formal, self._others = formal, others
        self._runs: dict[str, Sequence[RunRow]] = {}
        self._columns: dict[str, Columns] = {}
        for side in (formal, *others):
            experiments = {run.experiment for run in side.runs}
            columns = score_queries.score_columns(store, side.fingerprint, [run.run for run in side.runs], metrics, experiments)
            rows: Sequence[RunRow] = side.runs
            columns, _ = folded_columns(columns, rows, metrics, over_seeds)
            rows = folded_runs(rows, over_seeds)
            self._runs[side.fingerprint], self._columns[side.fingerprint] = rows, columns
        self._ids = self._columns[formal.fingerprint].questions
        self._clusters = self._columns[formal.fingerprint].sampled.labels
        self._alive: dict[str, NDArray[np.bool_] | None] = {}
        self._kept: dict[str, Floats] = {}
        for side in others:
            self._remember(side.fingerprint, survivals(store, side.fingerprint))

    def _remember(self, side: str, results: Mapping[str, Survival] | None) -> None:
        left = [None if results is None else results.get(identifier) for identifier in self._ids]
        self._kept[side] = np.array([math.nan if item is None else item.kept for item in left])
        alive = np.array([item is None or not item.lost for item in left], dtype=bool)
        self._alive[side] = None if results is None else alive

    def rows(self, metric: str) -> tuple[MethodGaps, ...]:
        """Return the methods with scores in formal style and in another one."""
        results = []
        for run in self._runs[self._formal.fingerprint]:
            formal = self._columns[self._formal.fingerprint].values.get((run.run, metric))
            styled = {side.fingerprint: self._scores(run, side, metric) for side in self._others}
            there = {print_: values for print_, values in styled.items() if values is not None}
            if formal is not None and there:
                results.append(self._row(run, formal, there))
        return tuple(results)

    def compared_with(self, rows: tuple[MethodGaps, ...], reference: str | None, metric: str) -> tuple[tuple[MethodGaps, ...], str | None]:
        """Return rows with the difference of each gap from the reference's, and the reference's name among them."""
        runs = {run.method: run for run in self._runs[self._formal.fingerprint]}
        named = next((row.method for row in rows if reference and is_called(row.method, reference)), None)
        if named is None:
            return rows, None
        results = {row.method: list(row.gaps) for row in rows}
        for side in self._others:
            theirs = self._delta(runs[named], side, metric)
            ranked: list[tuple[str, int]] = []
            gaps: list[Floats] = []
            for row in rows:
                own = None if row.method == named else self._delta(runs[row.method], side, metric)
                position = next((n for n, gap in enumerate(row.gaps) if gap.styled == side.styled), None)
                if own is not None and theirs is not None and position is not None:
                    ranked.append((row.method, position))
                    gaps.append(own)
            if not ranked or theirs is None:
                continue
            together = differences_together(np.stack(gaps), np.stack([theirs] * len(gaps)), clusters=self._clusters)
            for (method, position), item, p in zip(ranked, together.differences, together.p, strict=True):
                results[method][position] = replace(results[method][position], beyond=item, beyond_p=p)
        return tuple(replace(row, gaps=tuple(results[row.method])) for row in rows), named

    def _delta(self, run: RunRow, side: Side, metric: str) -> Floats | None:
        """Return the style gap of a method, question by question."""
        formal = self._columns[self._formal.fingerprint].values.get((run.run, metric))
        styled = self._scores(run, side, metric)
        return None if formal is None or styled is None else formal - styled

    def _scores(self, run: RunRow, side: Side, metric: str) -> Floats | None:
        """Return scores of the same method in another style, in the formal side's order."""
        columns = self._columns[side.fingerprint]
        same = next((other for other in self._runs[side.fingerprint] if other.method == run.method), None)
        values = None if same is None else columns.values.get((same.run, metric))
        return None if values is None else aligned(columns.questions, values, self._ids)

    def _row(self, run: RunRow, formal: Floats, styled: Mapping[str, Floats]) -> MethodGaps:
        known = {name: self._alive[name] for name in styled}
        everyone = np.ones(len(formal), dtype=bool)
        alive = {name: everyone if item is None else item for name, item in known.items()}
        robust = style_robustness(formal, styled, alive, clusters=self._clusters)
        shared = np.stack([np.where(np.isnan(formal), np.nan, values) for values in styled.values()])
        kept = np.stack([np.where(np.isnan(formal - values), np.nan, self._kept[name]) for name, values in styled.items()])
        result = estimates(np.concatenate([formal[None, :], shared, kept]), clusters=self._clusters)
        values, shares = result[1 : 1 + len(styled)], result[1 + len(styled) :]
        gaps = []
        shown = (other for other in self._others if other.fingerprint in styled)
        for side, value, share in zip(shown, values, shares, strict=True):
            name = side.fingerprint
            gap = robust[name].gap.value
            before = value.value + gap
            relative = gap / before if before else float("nan")
            gaps.append(Gap(side.styled, value, robust[name], relative, known[name] is not None, share))
        return MethodGaps(run.method, run.kind, result[0], tuple(gaps))


MEASURES = ("tau", "shift", "relative_shift", "signed_shift")
"""Measures per question, with the names that `methods.sark` uses for rerankers."""


def sensitivity_estimates(measures: Mapping[str, Floats], candidates: Sequence[Iterable[str]]) -> dict[str, Estimate]:
    """Return the mean of each style-sensitivity measure over questions, with its interval.

    Args:
        measures: Per-question values of the measures in `MEASURES`, shape (questions,) each.
        candidates: Ids of each question's candidate passages; questions with the same candidates form one cluster.
    """
    shared = [content_hash(ids) for ids in candidates]
    clusters = shared if len(set(shared)) < len(shared) else None
    values = estimates(np.stack([measures[name] for name in MEASURES]), clusters=clusters)
    return dict(zip(MEASURES, values, strict=True))
