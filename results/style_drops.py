"""What style costs each method of an experiment: from formal candidates to the same ones told otherwise.

Runs of one method over several tellings of one base (`told`) are paired question by question. A drop is formal minus
style, so that a loss is positive; the part of it on questions that lost content in the retelling is told apart, since
no reranker can bring back what is not there. What counts as lost is `benchmarks.styles.survival`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import UserError
from benchmarks.styles.survival import Survival
from results import queries
from results.asked import Told
from results.queries import Columns, RunRow
from results.series import folded_columns, folded_runs, is_called
from results.statistics import Difference, Estimate, StyleDrop, difference, estimates, holm, style_robustness
from results.store import Store
from results.told import Side, aligned, sides, survivals

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drop:
    """What one telling costs one method.

    Attributes:
        told: How candidates are told.
        value: The method's value there, over the questions scored in both.
        found: The drop and its parts; the parts are NaN where the store does not know which strings survived.
        relative: The drop as a share of the formal value over the same questions, NaN where that is 0.
        content_known: Whether the parts could be told apart.
        answers_kept: Share of the passages with a gold string that still have one, as a mean over the questions scored
            in both that had such a passage.
        beyond: How much larger the drop is than the reference's, question by question; None of the reference itself,
            and where there is none.
        beyond_p: Its p-value, Holm-corrected over the methods that are held against the reference in this telling.
    """

    told: Told
    value: Estimate
    found: StyleDrop
    relative: float
    content_known: bool
    answers_kept: Estimate
    beyond: Difference | None = None
    beyond_p: float = math.nan


@dataclass(frozen=True, slots=True)
class MethodDrops:
    """One method on one metric: its value on formal candidates and what each other telling costs."""

    method: str
    kind: str
    formal: Estimate
    drops: tuple[Drop, ...]


@dataclass(frozen=True, slots=True)
class DropTable:
    """All methods over one base on one metric.

    Attributes:
        base, setting, seed: What is asked.
        metric: Its id.
        scale: What values are multiplied by where they are shown.
        rows: In the experiment's order.
        reference: The method that drops are held against; None where it was not asked both ways.
        average: By the name of a telling, the mean drop over the methods that are no controls.
    """

    base: str
    setting: str
    seed: int
    metric: str
    scale: float
    rows: tuple[MethodDrops, ...]
    reference: str | None = None

    @property
    def average(self) -> dict[str, float]:
        """Mean drop by telling, over what can be ranked."""
        found: dict[str, list[float]] = {}
        for row in self.rows:
            for drop in row.drops:
                if row.kind != "control" and not math.isnan(drop.found.drop.value):
                    found.setdefault(drop.told.name, []).append(drop.found.drop.value)
        return {name: float(np.mean(values)) for name, values in found.items()}


def style_drops(
    store: Store,
    experiment: str,
    metrics: Sequence[str] | None = None,
    *,
    styles: Sequence[str] | None = None,
    over_seeds: bool = False,
    reference: str | None = None,
) -> list[DropTable]:
    """The drops of an experiment's methods, a table for each base and metric.

    Args:
        store: Where to read.
        experiment: Its name.
        metrics: Ids or their beginnings; None: what the experiment shows.
        styles: Only tellings in which one of these occurs; None: all.
        over_seeds: One row for all training seeds of a method, each question with its mean over them.
        reference: The method that drops are held against; None: the experiment's.

    Raises:
        UserError: No base is asked about both formally and otherwise.
    """
    against = reference or queries.experiment(store, experiment).reference
    runs = queries.runs(store, experiment)
    shown = _metrics(store, runs, metrics)
    known = queries.definitions(store)
    tables = []
    for base, told in sides(runs).items():
        for formal in (side for side in told if not side.told.shares):
            others = [
                side
                for side in told
                if side.told.shares
                and (side.setting, side.seed) == (formal.setting, formal.seed)
                and (styles is None or {style for style, _ in side.told.shares} & set(styles))
            ]
            if others:
                work = _Scored(store, formal, others, shown, over_seeds)
                for metric in shown:
                    if rows := work.rows(metric):
                        rows, named = work.held_against(rows, against, metric)
                        scale = queries.scale_of(metric, known)
                        tables.append(DropTable(base, formal.setting, formal.seed, metric, scale, rows, named))
    if not tables:
        raise UserError(
            f"the experiment {experiment!r} asks about no dataset both formally and in another style",
            where=str(store.folder),
            try_this="two benchmarks `styled` over one base, with mix {informal: 0} and {informal: 1}",
        )
    return tables


def _metrics(store: Store, runs: Sequence[RunRow], wanted: Sequence[str] | None) -> list[str]:
    ids = [run.run for run in runs]
    if wanted:
        return queries.named_metrics(store, ids, wanted)
    named = dict.fromkeys(metric for run in runs for metric in run.metrics or ())
    stored = queries.metric_ids(store, ids)
    return [metric for metric in named if metric in stored] or stored


class _Scored:
    """Scores of a formal side and of others, aligned to the formal side's questions."""

    def __init__(self, store: Store, formal: Side, others: Sequence[Side], metrics: Sequence[str], over_seeds: bool) -> None:
        self._formal, self._others = formal, others
        self._runs: dict[str, Sequence[RunRow]] = {}
        self._columns: dict[str, Columns] = {}
        for side in (formal, *others):
            columns = queries.score_columns(store, side.fingerprint, [run.run for run in side.runs], metrics)
            rows: Sequence[RunRow] = side.runs
            if over_seeds:
                columns, _ = folded_columns(columns, rows, metrics)
                rows = folded_runs(rows)
            self._runs[side.fingerprint], self._columns[side.fingerprint] = rows, columns
        self._ids = self._columns[formal.fingerprint].questions
        documents = self._columns[formal.fingerprint].documents
        self._clusters = documents if any(documents) else None
        self._alive: dict[str, NDArray[np.bool_] | None] = {}
        self._kept: dict[str, Floats] = {}
        for side in others:
            self._remember(side.fingerprint, survivals(store, side.fingerprint))

    def _remember(self, side: str, found: Mapping[str, Survival] | None) -> None:
        left = [None if found is None else found.get(one) for one in self._ids]
        self._kept[side] = np.array([math.nan if one is None else one.kept for one in left])
        alive = np.array([one is None or not one.lost for one in left], dtype=bool)
        self._alive[side] = None if found is None else alive

    def rows(self, metric: str) -> tuple[MethodDrops, ...]:
        """The methods that were scored formally and otherwise."""
        found = []
        for run in self._runs[self._formal.fingerprint]:
            formal = self._columns[self._formal.fingerprint].values.get((run.run, metric))
            told = {side.fingerprint: self._told(run, side, metric) for side in self._others}
            there = {print_: values for print_, values in told.items() if values is not None}
            if formal is not None and there:
                found.append(self._row(run, formal, there))
        return tuple(found)

    def held_against(self, rows: tuple[MethodDrops, ...], reference: str | None, metric: str) -> tuple[tuple[MethodDrops, ...], str | None]:
        """Rows with how much larger each drop is than the reference's, and the reference's name among them."""
        runs = {run.method: run for run in self._runs[self._formal.fingerprint]}
        named = next((row.method for row in rows if reference and is_called(row.method, reference)), None)
        if named is None:
            return rows, None
        found = {row.method: list(row.drops) for row in rows}
        for side in self._others:
            theirs = self._delta(runs[named], side, metric)
            held: list[tuple[str, int, Difference]] = []
            for row in rows:
                own = None if row.method == named else self._delta(runs[row.method], side, metric)
                place = next((n for n, drop in enumerate(row.drops) if drop.told == side.told), None)
                if own is not None and theirs is not None and place is not None:
                    held.append((row.method, place, difference(own, theirs, clusters=self._clusters)))
            corrected = holm([one.p if one.n else math.nan for _, _, one in held])
            for (method, place, one), p in zip(held, corrected, strict=True):
                found[method][place] = replace(found[method][place], beyond=one, beyond_p=p)
        return tuple(replace(row, drops=tuple(found[row.method])) for row in rows), named

    def _delta(self, run: RunRow, side: Side, metric: str) -> Floats | None:
        """What a telling costs a method, question by question."""
        formal = self._columns[self._formal.fingerprint].values.get((run.run, metric))
        told = self._told(run, side, metric)
        return None if formal is None or told is None else formal - told

    def _told(self, run: RunRow, side: Side, metric: str) -> Floats | None:
        """Scores of the same method over another telling, in the formal side's order."""
        columns = self._columns[side.fingerprint]
        same = next((other for other in self._runs[side.fingerprint] if other.method == run.method), None)
        values = None if same is None else columns.values.get((same.run, metric))
        return None if values is None else aligned(columns.questions, values, self._ids)

    def _row(self, run: RunRow, formal: Floats, told: Mapping[str, Floats]) -> MethodDrops:
        known = {name: self._alive[name] for name in told}
        everyone = np.ones(len(formal), dtype=bool)
        alive = {name: everyone if one is None else one for name, one in known.items()}
        robust = style_robustness(formal, told, alive, clusters=self._clusters)
        shared = np.stack([np.where(np.isnan(formal), np.nan, values) for values in told.values()])
        kept = np.stack([np.where(np.isnan(formal - values), np.nan, self._kept[name]) for name, values in told.items()])
        found = estimates(np.concatenate([formal[None, :], shared, kept]), clusters=self._clusters)
        values, shares = found[1 : 1 + len(told)], found[1 + len(told) :]
        drops = []
        told_here = (one for one in self._others if one.fingerprint in told)
        for side, value, share in zip(told_here, values, shares, strict=True):
            name = side.fingerprint
            drop = robust.drops[name].drop.value
            before = value.value + drop
            relative = drop / before if before else float("nan")
            drops.append(Drop(side.told, value, robust.drops[name], relative, known[name] is not None, share))
        return MethodDrops(run.method, run.kind, found[0], tuple(drops))
