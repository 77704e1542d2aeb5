"""Methods against benchmarks: one metric per benchmark, every cell with interval, rank band and paired difference.

Ranks and tests include only runs that may be compared with each other; the others are shown with the reason against it.
All statistics are those of the board of one benchmark (`results.statistics.difference`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clusters import Sampled
from results.boards.systems import COSTS, Figures, System, Wanted, contaminated_by, why_not_ranked
from results.boards.unread import Bounds, Missing, bounds_of, range_of_metric
from results.statistics.core import LEVEL
from results.statistics.difference import Differences, compared, generalizes
from results.statistics.holm import holm_array, holm_levels
from results.statistics.places import Band
from results.statistics.pooled import Pooled, Stratum, borda, labels_over, pooled
from results.store.cost_queries import NOT_STATED, Cost
from results.store.queries import OURS, RunRow
from results.store.training_data import Cards, Checkpoints


@dataclass(frozen=True, slots=True)
class Column:
    """Column of the overview matrix: one benchmark in one setting.

    Attributes:
        key: Short id of the column, safe in a URL.
        runs: The runs on this benchmark, with equal data, setting and seed.
        metric: The metric of its cells; None if no metric of this kind was scored.
        higher_is_better: False if lower is better.
        ranked: Whether its cells are ranked; costs are not, since machines and prices differ.
        task: Task named on the dataset's card, for example multi-hop QA; empty if the card names none.
    """

    key: str
    runs: tuple[RunRow, ...]
    metric: str | None
    higher_is_better: bool = True
    ranked: bool = True
    task: str = ""

    @property
    def first(self) -> RunRow:
        """Return the first run, from which to read the dataset, setting and seed that all runs of the column share."""
        return self.runs[0]


def wanted_of(columns: Sequence[Column], series: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Wanted, ...]:
    """Make the requests for the columns' scores; `series` lists, by run, all seeds that it represents."""
    return tuple(
        Wanted(
            column.key,
            column.first.dataset_fingerprint,
            tuple(run.run for run in column.runs),
            column.metric,
            series or {},
            frozenset(run.experiment for run in column.runs),
        )
        for column in columns
        if column.metric is not None
    )


@dataclass(frozen=True, slots=True)
class Paired:
    """A method's paired difference from the reference on one benchmark; `corrected` is its corrected p-value, NaN with
    insufficient data.

    The interval's level is adjusted for the correction: it excludes 0 exactly if `corrected` is at most 5 %.
    """

    value: float
    low: float
    high: float
    n: int
    p: float
    corrected: float
    insufficient_data: str = ""
    generalizes: str = "new questions"


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of the overview matrix: the result of one method on one benchmark.

    Attributes:
        run: The method's run on the benchmark.
        value, low, high: Mean over scorable questions with its 95 % interval; NaN if there are none.
        n: Number of scorable questions.
        unscorable, unscored: Number of questions without gold for the metric, and of questions that the judge gave no value.
        insufficient_data: Why there is no interval; empty if there is one.
        apart: Why it is neither ranked nor tested; empty if it is.
        contaminated: Whether its training data cover the evaluated questions.
        band: Its rank with the range of possible ranks; None if it is not ranked.
        paired: Difference from the reference method; None for the reference itself, and if either of the two is not ranked.
        bounds: Bounds of the value over all possible missing verdicts; None if none is missing.
    """

    run: RunRow
    value: float
    low: float
    high: float
    n: int
    unscorable: int
    unscored: int
    insufficient_data: str
    apart: str
    contaminated: bool
    band: Band | None = None
    paired: Paired | None = None
    bounds: Bounds | None = None


@dataclass(frozen=True, slots=True)
class Mean:
    """A method's mean over all benchmarks of the matrix, with equal weights, and its interval.

    Benchmarks that share questions (settings or styles of one dataset) are treated as fully correlated, which is conservative;
    all others as independent. Each side of the interval adds up the same sides of the benchmarks' intervals, as squares (MOVER,
    Zou and Donner, 2008), so that it stays within the metric's range.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Overall:
    """A method's summary over all benchmarks of the matrix, with equal weights.

    Attributes:
        row: The method.
        borda: Borda count: the number of methods that it beats, summed over benchmarks; ties count half. Only methods with a
            value on every benchmark take part.
        pooled: Mean difference from the reference; None for the reference itself, and if benchmarks use different metrics.
        by_task: Mean over the benchmarks of each task; empty if there is one task only, or if benchmarks use different metrics.
        generalizes: What a significant pooled difference generalizes to.
    """

    row: System
    borda: float
    pooled: Pooled | None = None
    by_task: Mapping[str, float] = field(default_factory=dict)
    generalizes: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with values as fractions."""
        pooled = None if self.pooled is None else asdict(self.pooled)
        known = {"pooled": pooled, "by_task": dict(self.by_task), "generalizes": self.generalizes}
        return {"method": self.row.name, "borda": self.borda, **known}


@dataclass(frozen=True, slots=True)
class Matrix:
    """Overview matrix: methods (rows) by benchmarks (columns).

    Attributes:
        columns: In the experiment's order.
        rows: The methods, including controls.
        cells: Cells by (row key, column key); a pair without a scored run is missing.
        costs: Cost by run id.
        reference: Name of the method that differences are from.
        sampled: Kind of cluster by column key.
        questions: Number of questions by column key.
        kin: Group number by column key; columns with equal numbers share questions.
        overall: Methods with a comparable value on every benchmark, by Borda count; empty for a single benchmark.
        size: Numbers of questions and of clusters over all columns; see `size_of`.
    """

    columns: tuple[Column, ...]
    rows: tuple[System, ...]
    cells: Mapping[tuple[str, str], Cell]
    costs: Mapping[str, Cost] = field(default_factory=dict)
    reference: str | None = None
    sampled: Mapping[str, Sampled] = field(default_factory=dict)
    questions: Mapping[str, int] = field(default_factory=dict)
    kin: Mapping[str, int] = field(default_factory=dict)
    overall: tuple[Overall, ...] = ()
    size: tuple[int, int] = (0, 0)
    _means: dict[str, Mean | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _spent: dict[str, Cost | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def averaged(self) -> bool:
        """Return whether rows can have a mean: the columns are several benchmarks, not the metrics of one."""
        return len({(column.first.dataset_fingerprint, column.first.setting, column.first.seed) for column in self.columns}) > 1

    def line(self, row: System) -> list[Cell | None]:
        """Return a method's cells in column order; None where it has no value."""
        return [self.cells.get((row.key, column.key)) for column in self.columns]

    def without_reference(self) -> dict[str, str]:
        """List the columns in which the chosen reference has no ranked value, by column key, with the reason."""
        if self.reference is None:
            return {}
        base = next((row for row in self.rows if row.name == self.reference), None)
        results = {}
        for column in self.columns:
            cell = None if base is None else self.cells.get((base.key, column.key))
            if base is None:
                results[column.key] = "it is filtered out"
            elif cell is None:
                results[column.key] = "it has no value there"
            elif cell.apart:
                results[column.key] = cell.apart
        return results

    def mean(self, row: System) -> Mean | None:
        """Return a method's mean over all columns; None if a value is missing or not comparable, or if columns use different
        metrics.
        """
        if row.key not in self._means:
            self._means[row.key] = self._mean(row)
        return self._means[row.key]

    def cost(self, row: System) -> Cost | None:
        """Return a method's cost averaged over the columns (total US dollars are added up); None if unknown."""
        if row.key not in self._spent:
            self._spent[row.key] = self._cost(row)
        return self._spent[row.key]

    def _mean(self, row: System) -> Mean | None:
        line = self.line(row)
        if not self.averaged or len({kind_of(column) for column in self.columns}) > 1:
            return None
        results = [cell for cell in line if cell is not None and (not cell.apart or row.control) and cell.n]
        if len(results) < len(line):
            return None
        below, above = dict[int, float](), dict[int, float]()
        for position, (column, cell) in enumerate(zip(self.columns, results, strict=True)):
            group = self.kin.get(column.key, -1 - position)
            below[group] = below.get(group, 0.0) + cell.value - cell.low
            above[group] = above.get(group, 0.0) + cell.high - cell.value
        value = float(np.mean([cell.value for cell in results]))
        return Mean(value, *(value + sign * math.hypot(*side.values()) / len(results) for sign, side in ((-1, below), (1, above))))

    def _cost(self, row: System) -> Cost | None:
        spent = [self.costs[run.run] for run in self._runs(row) if run.run in self.costs]
        if not spent:
            return None
        means = {name: float(np.mean([getattr(item, name) for item in spent])) for name in Cost.__slots__}
        return Cost(**means | {"cost_usd": sum(item.cost_usd for item in spent)})

    def _runs(self, row: System) -> list[RunRow]:
        runs = (row.runs[column.key] for column in self.columns if column.key in row.runs)
        return list({run.run: run for run in runs}.values())


def kind_of(column: Column) -> str:
    """Return a metric's name without parameters; only columns with equal names are averaged."""
    return (column.metric or "").partition("(")[0].partition("#")[0]


Key = tuple[str, str]
"""Keys of a row and of a column."""


def ranked_cells(
    columns: Sequence[Column],
    rows: Sequence[System],
    results: Mapping[str, Figures],
    *,
    cards: Cards,
    known: Checkpoints,
    violations: Mapping[str, Sequence[str]],
) -> dict[Key, Cell]:
    """Build all cells with value and rank, or with the reason why a cell is not ranked; `matrix` adds the comparisons.

    Args:
        columns: The columns to show.
        rows: The methods to rank.
        results: Scores by column key.
        cards: Cards of methods by method id.
        known: Registered checkpoints by their hash.
        violations: Broken invariants between metrics, by run id.
    """
    cells: dict[Key, Cell] = {}
    for column in columns:
        if column.key not in results:
            continue
        figures = results[column.key]
        ends = figures.means.interval()
        for row in rows:
            run = row.runs.get(column.key)
            if run is not None and (cell := _cell(run, column, figures, ends, cards, known, violations)) is not None:
                cells[row.key, column.key] = cell
        able = [(row.key, column.key) for row in rows if _is_comparable(cells, row, column) and row.runs[column.key].may_win]
        if column.ranked and able:
            positions = np.array([figures.runs[cells[key].run.run] for key in able], dtype=np.int64)
            for key, band in zip(able, figures.bands(positions, higher_is_better=column.higher_is_better), strict=True):
                cells[key] = replace(cells[key], band=band)
    return cells


def matrix(
    columns: Sequence[Column],
    rows: Sequence[System],
    results: Mapping[str, Figures],
    cells: Mapping[Key, Cell],
    *,
    costs: Mapping[str, Cost],
    reference: str | None = None,
) -> Matrix:
    """Assemble the overview matrix, and compare every ranked method with the reference.

    Args:
        columns, rows, results: As in `ranked_cells`; p-values are corrected for the number of these rows.
        cells: The result of `ranked_cells`.
        costs: Cost by run id.
        reference: Name of the method to compare with.
    """
    pairs: list[_Pairs] = []
    for column in columns:
        base = next((row for row in rows if row.name == reference and _is_comparable(cells, row, column)), None)
        if base is None:
            continue
        figures = results[column.key]
        at = {row.key: figures.runs[row.runs[column.key].run] for row in rows if row is base or _is_comparable(cells, row, column)}
        against = at.pop(base.key)
        if some := {(key, column.key): place for key, place in at.items() if figures.pairs.n[place, against]}:
            pairs.append(_Pairs.of(figures, some, against))
    whole = dict(cells)
    for key, item in _paired(pairs).items():
        whole[key] = replace(cells[key], paired=item)
    sampled = {column.key: results[column.key].sampled for column in columns if column.key in results}
    questions = {column.key: results[column.key].questions for column in columns if column.key in results}
    kin = kin_of(columns, results)
    overall = _overall(columns, rows, results, whole, reference, kin)
    size = size_of(columns, results, kin)
    return Matrix(tuple(columns), tuple(rows), whole, costs, reference, sampled, questions, kin, overall, size)


def size_of(columns: Sequence[Column], results: Mapping[str, Figures], kin: Mapping[str, int]) -> tuple[int, int]:
    """Count the questions and the clusters of several columns; those that columns share (in other settings or styles) count once."""
    parts = [(kin.get(column.key, 0), results[column.key]) for column in columns if column.key in results]
    questions = {(group, question) for group, part in parts for question in part.question_ids}
    return len(questions), len({label for group, part in parts for label in labels_over(group, part.question_ids, part.sampled.labels)})


def _overall(
    columns: Sequence[Column],
    rows: Sequence[System],
    results: Mapping[str, Figures],
    cells: Mapping[Key, Cell],
    reference: str | None,
    kin: Mapping[str, int],
) -> tuple[Overall, ...]:
    """Return the means over all benchmarks of the methods that have a value on each."""
    whole = [
        row
        for row in rows
        if row.may_win and all(_is_comparable(cells, row, column) and cells[row.key, column.key].n for column in columns)
    ]
    if len(columns) < 2 or len(whole) < 2 or not all(column.ranked for column in columns):
        return ()
    values = np.array([[cells[row.key, column.key].value for row in whole] for column in columns])
    counts = borda(values, higher_is_better=[column.higher_is_better for column in columns])
    one_kind = len({kind_of(column) for column in columns}) == 1
    tasks = dict.fromkeys(column.task for column in columns) if one_kind else {}
    means = {task: values[[column.task == task for column in columns]].mean(axis=0) for task in tasks} if len(tasks) > 1 else {}
    base = next((row for row in whole if row.name == reference), None)
    others = [row for row in whole if row is not base]
    known = [] if base is None or not one_kind else pooled_from(base, others, columns, results, kin)[0]
    differences = dict(zip((row.key for row in others), known, strict=True)) if known else {}
    lines = [
        Overall(
            row,
            float(counts[at]),
            differences.get(row.key),
            {task or "other": float(mean[at]) for task, mean in means.items()},
            _holds_for([cells[row.key, column.key].paired for column in columns]) if row.key in differences else "",
        )
        for at, row in enumerate(whole)
    ]
    return tuple(sorted(lines, key=lambda line: -line.borda))


def _holds_for(pairs: Sequence[Paired | None]) -> str:
    """Return the distinct descriptions of what these differences generalize to if significant."""
    return "; ".join(dict.fromkeys(item.generalizes for item in pairs if item is not None))


def pooled_from(
    base: System,
    others: Sequence[System],
    columns: Sequence[Column],
    results: Mapping[str, Figures],
    kin: Mapping[str, int],
    level: float = LEVEL,
) -> tuple[list[Pooled], int]:
    """Return the pooled differences of methods from a base over all benchmarks, and the number of clusters, computed once."""
    every, at, groups = _parts(base, others, columns, results, kin)

    def compute() -> tuple[tuple[Figures, ...], list[Pooled], int]:
        strata = [_stratum(*part) for part in zip(every, at, groups, strict=True)]
        # The figures are kept too, so that no other object gets their ids.
        return every, pooled(strata, level), len({label for part in strata for label in part.labels})

    _, differences, clusters = every[0].once(("pooled", tuple(map(id, every)), at, groups, level), compute)
    return differences, clusters


def strata_of(
    base: System, others: Sequence[System], columns: Sequence[Column], results: Mapping[str, Figures], kin: Mapping[str, int]
) -> list[Stratum]:
    """Collect the scores of methods and of a base on each benchmark, as input for the pooled test over benchmarks."""
    return [_stratum(*part) for part in zip(*_parts(base, others, columns, results, kin), strict=True)]


def _parts(
    base: System, others: Sequence[System], columns: Sequence[Column], results: Mapping[str, Figures], kin: Mapping[str, int]
) -> tuple[tuple[Figures, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return per benchmark: its figures, the positions of the base and the methods in them, and its group of related benchmarks."""
    every = tuple(results[column.key] for column in columns)
    at = tuple(
        tuple(figures.runs[row.runs[column.key].run] for row in (base, *others)) for figures, column in zip(every, columns, strict=True)
    )
    return every, at, tuple(kin[column.key] for column in columns)


def _stratum(figures: Figures, at: Sequence[int], kin: int) -> Stratum:
    """Return the methods at some positions and the base on one benchmark."""
    base, *ours = (figures.sides[place] for place in at)
    return Stratum(ours, [base] * len(ours), figures.question_ids, figures.sampled.labels, kin, range_of_metric(figures.definition))


_MOST = 0.9
"""Share of the numbered questions of the smaller benchmark that must agree in their answers."""


def _share(one: str, two: str, results: Mapping[str, Figures]) -> bool:
    """Return whether two columns share questions."""
    if one not in results or two not in results:
        return False
    (sure, likely), (others, likely_others) = results[one].identities, results[two].identities
    fewest = min(len(likely), len(likely_others))
    return not sure.isdisjoint(others) or 0 < _MOST * fewest <= len(likely & likely_others)


def kin_of(columns: Sequence[Column], results: Mapping[str, Figures]) -> dict[str, int]:
    """Return a group number per column; columns that share questions, directly or transitively, form a group."""
    groups: list[list[str]] = []
    for column in columns:
        near = [group for group in groups if any(_share(column.key, key, results) for key in group)]
        groups = [*(group for group in groups if group not in near), [*chain.from_iterable(near), column.key]]
    return {key: number for number, keys in enumerate(groups) for key in keys}


def _is_comparable(cells: Mapping[Key, Cell], row: System, column: Column) -> bool:
    """Return whether a row has a comparable value in a column."""
    cell = cells.get((row.key, column.key))
    return cell is not None and not cell.apart


def _cell(
    run: RunRow,
    column: Column,
    figures: Figures,
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
    cards: Cards,
    known: Checkpoints,
    violations: Mapping[str, Sequence[str]],
) -> Cell | None:
    position = figures.runs.get(run.run)
    if position is None or not figures.scored[position]:
        return None
    low, high = ends
    means, scored, unscored = figures.means, int(figures.scored[position]), int(figures.unscored[position])
    n = int(means.n[position])
    contaminated = contaminated_by(run, cards, known)
    apart = why_not_ranked(run, contaminated, violations.get(run.run, ()), scored)
    # Usage that was not stated is missing, although every question has a row of it.
    unknown = not n and column.metric in COSTS and run.origin != OURS
    if not apart and not n:
        apart = NOT_STATED if unknown else "no question could be scored"
    unscorable = 0 if unknown else scored - n - unscored
    value, bottom, top = float(means.value[position]), float(low[position]), float(high[position])
    insufficient_data, bounds = figures.insufficient_data[position], None
    if unscored:
        missing = figures.missing.get(run.run, Missing())
        bounds = bounds_of(value, n, unscored, figures.definition, missing, figures.max_unscored)
        if bounds.incomplete:
            value, bottom, top, insufficient_data, apart = math.nan, math.nan, math.nan, bounds.incomplete, apart or bounds.incomplete
    return Cell(run, value, bottom, top, n, unscorable, unscored, insufficient_data, apart, bool(contaminated), bounds=bounds)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Differences of a column from the reference, row by row.

    Attributes:
        keys: Of the cells.
        tested: Shape (rows,).
        clusters: The name of clusters.
        generalizes: What a significant difference generalizes to.
    """

    keys: tuple[Key, ...]
    tested: Differences
    clusters: str
    generalizes: tuple[str, ...]

    @classmethod
    def of(cls, figures: Figures, at: Mapping[Key, int], against: int) -> _Pairs:
        """Compare the methods at some positions with the base."""
        ours, base = [figures.sides[place] for place in at.values()], figures.sides[against]
        metric, judged = range_of_metric(figures.definition), figures.definition.get("judge") is not None
        tested = figures.once(
            ("compared", tuple(at.values()), against),
            lambda: compared(ours, [base] * len(ours), clusters=figures.sampled.labels, metric=metric),
        )
        return cls(tuple(at), tested, f"{figures.sampled.kind}s", tuple(generalizes(side, base, judged=judged) for side in ours))


def _paired(pairs: Sequence[_Pairs]) -> dict[Key, Paired]:
    """Return differences with p-values corrected over their column, and intervals at the levels of these tests."""
    results: dict[Key, Paired] = {}
    for part in pairs:
        # A pair with insufficient data counts as tested and not significant.
        tested = np.where(np.isnan(part.tested.p), 1.0, part.tested.p)
        low, high = part.tested.interval(holm_levels(tested))
        why = map(str, part.tested.insufficient_data(part.clusters))
        numbers = (part.tested.value, low, high, part.tested.n, part.tested.p, holm_array(tested))
        rows = zip(*(np.asarray(column).tolist() for column in numbers), strict=True)
        for key, (value, least, most, n, p, adjusted), reason, holds in zip(part.keys, rows, why, part.generalizes, strict=True):
            results[key] = Paired(value, least, most, int(n), p, math.nan if reason else adjusted, reason, holds)
    return results
