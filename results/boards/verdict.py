"""The verdict of a board or suite: the best method, what is not different from it or not tested, by how much, at what cost.

Every place that states a result renders this object with `verdict_text.py`: the first line of pages and reports, the
terminal, the JSON exports and the gate's comment. A verdict is computed from the figures of a matrix (`matrix.py`), so it
agrees with its ranks: all pairs of methods are tested together (Holm). `verdict_of.py` reads all of an experiment. Over
several benchmarks the best method is that with the highest mean, each benchmark weighing the same, and differences are
pooled (`results.statistics.pooled`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from benchmarks.core.errors import counted
from results.boards.markup import plain
from results.boards.matrix import Cell, Column, Matrix, kind_of, pooled_from, size_of, strata_of
from results.boards.systems import Figures, System
from results.boards.tables import labels
from results.boards.unread import range_of_metric
from results.statistics.core import LEVEL, Floats
from results.statistics.difference import AtBothEnds, Side, compared, generalizes
from results.statistics.gate import clusters_needed
from results.statistics.holm import holm_array, holm_levels
from results.statistics.places import Standing
from results.statistics.planning import seeds_needed
from results.statistics.pooled import Added, pilot
from results.statistics.tested import FEWEST_CLUSTERS, Mask, Tested
from results.store.cost_queries import Cost

ALPHA = 1 - LEVEL
Outcome = Literal["best", "tied", "insufficient_data", "single", "none"]
"""Outcomes: all others are significantly worse; some are not significantly different; some could not be tested; one method; nothing is
ranked.
"""
COST_FIELDS = (("cost", "cost_usd"), ("tokens", "tokens"), ("time", "seconds"))
"""Fields of `Cost` in order; the first one that both methods have is compared."""
LEAST_SECONDS = 0.001
"""Minimum seconds per question for a comparison; shorter times vary more between runs than between methods."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """Method that competes in a verdict (see `BoardVerdict`).

    Attributes:
        name: The method's name in tables.
        value, low, high, n: Mean over n questions with its 95 % interval.
        apart: Why it is not ranked; empty if it is.
        failed: Number of failed questions.
        cost: Mean cost of its answers; None if unknown.
        position: Its position in the arrays of `Figures`.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    apart: str = ""
    failed: int = 0
    cost: Cost | None = None
    position: int = -1


@dataclass(frozen=True, slots=True)
class CostRatio:
    """Cost per question of the best method divided by another's; `what` names the kind of cost, one of `COST_FIELDS`."""

    what: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Needed:
    """Sample size at which the observed difference would be detected with 80 % power, at the corrected level.

    Attributes:
        clusters, questions: Number needed with the present number of trainings; None if no number suffices.
        seeds: Trainings per method needed with the present questions; None if no number suffices, or if each method was trained
            once.
    """

    clusters: int | None
    questions: int | None
    seeds: int | None = None


@dataclass(frozen=True, slots=True)
class Against:
    """Comparison of the best method with another one, on the questions that both were scored on.

    Attributes:
        name: Name of the other method.
        value, low, high: Best minus other, with an interval adjusted for the correction: it excludes 0 exactly if the
            difference is significant.
        p: Corrected p-value; NaN if there is insufficient data.
        n, clusters: Number of common questions and of their clusters.
        insufficient_data: Why the difference cannot be tested; empty if it can.
        generalizes: What a significant difference generalizes to: new questions, new trainings or this checkpoint only,
            this judge only.
        cost: Ratio of their costs; None if unknown for either.
        needed: Sample size needed; None if the difference is significant or 0, or if its variance is unknown.
        open: Whether it is not significant only because failed answers or missing verdicts could reverse it.
    """

    name: str
    value: float
    low: float
    high: float
    p: float
    n: int = 0
    clusters: int = 0
    insufficient_data: str = ""
    generalizes: str = "new questions"
    cost: CostRatio | None = None
    needed: Needed | None = None
    open: bool = False

    @property
    def significant(self) -> bool:
        return self.p <= ALPHA


@dataclass(frozen=True, slots=True)
class Place:
    """Benchmark (or suite of benchmarks), setting and metric that a verdict is about.

    Attributes:
        benchmarks: Dataset and setting of each benchmark; several are a suite.
        metric: The metric's id; None for a suite whose benchmarks have it in several versions or with several parameters.
        name: The metric as tables call it.
        higher_is_better: False if lower is better.
        scale: Factor for displaying values.
        questions: Number over all benchmarks; questions that several benchmarks share (in other settings or styles) count once.
        clusters: Number of independent clusters, counted in the same way.
        kind: Kind of cluster, for example "document".
        fingerprints: Data fingerprint of each benchmark; two benchmarks may differ only in it.
        seed: Seed of the first benchmark's first run, as in its `Board`.
    """

    benchmarks: tuple[tuple[str, str], ...]
    metric: str | None
    name: str
    higher_is_better: bool = True
    scale: float = 100.0
    questions: int = 0
    clusters: int = 0
    kind: str = "question"
    fingerprints: tuple[str, ...] = ()
    seed: int = 0

    @property
    def suite(self) -> bool:
        return len(self.benchmarks) > 1


@dataclass(frozen=True, slots=True)
class BoardVerdict:
    """Conclusion from a results table: the best method, and which others are significantly worse.

    Attributes:
        place: Benchmarks and metric that it is about.
        best: The method with the best value; None if nothing is ranked.
        equal: Methods that were tested and are not significantly different from the best, the best value first.
        level: Those of `equal` that have the same value as the best.
        untested: Methods that could not be tested against it, for example with fewer than ten clusters.
        worse: Methods that are significantly worse.
        left_out: Methods that are not ranked, with the reason; controls are not named.
        next: Comparison of the best method with the runner-up; if either is the reference and the marks agree, with the table's
            interval.
        reference: Comparison of the best method with the experiment's reference, corrected as in the table. None if the
            reference is the best, or there is none.
    """

    place: Place
    best: Entrant | None = None
    equal: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    next: Against | None = None
    reference: Against | None = None
    level: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        if self.best is None:
            return "none"
        if self.equal:
            return "tied"
        if self.untested:
            return "insufficient_data"
        return "best" if self.worse else "single"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; values are fractions, None means "no value"."""
        known = {name: getattr(self, name) for name in ("equal", "level", "untested", "worse", "left_out")}
        best = None if self.best is None else {name: getattr(self.best, name) for name in ("name", "value", "low", "high", "n", "failed")}
        pairs = {
            name: None if item is None else asdict(item) | {"significant": item.significant}
            for name, item in (("next", self.next), ("reference", self.reference))
        }
        return dict(plain(asdict(self.place) | {"outcome": self.outcome, "best": best} | known | pairs))


def matrix_verdicts(
    board: Matrix, figures: Mapping[str, Figures], definitions: Mapping[str, Mapping[str, Any]], names: Mapping[str, str] | None = None
) -> list[BoardVerdict]:
    """Compute the verdict on each benchmark of a matrix, after the verdict over all benchmarks if they share one metric.

    Args:
        board: The overview matrix.
        figures: Scores by column key, from which the cells were made.
        definitions: Definitions of metrics by id.
        names: Display names of metrics by id; None uses the shortest that distinguish the matrix's metrics.
    """
    names = names or labels([column.metric for column in board.columns if column.metric is not None])
    columns = [column for column in board.columns if column.metric is not None and column.ranked and column.key in figures]
    verdicts = [_column(board, column, figures[column.key], definitions, names) for column in columns]
    if len(columns) == len(board.columns) > 1 and len({(kind_of(column), column.higher_is_better) for column in columns}) == 1:
        verdicts.insert(0, _suite(board, figures, definitions, names))
    return verdicts


def _column(
    board: Matrix, column: Column, figures: Figures, definitions: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]
) -> BoardVerdict:
    cells = {row.name: board.cells[row.key, column.key] for row in board.rows if (row.key, column.key) in board.cells}
    entrants = [_entrant(name, cell, figures, board.costs.get(cell.run.run)) for name, cell in cells.items() if cell.run.may_win]
    place = _place([column], {column.key: figures}, definitions, names, board.kin)
    decided = figures.once(("verdict", place, tuple(entrants)), lambda: decide(place, entrants, figures))
    pairs = {name: cell.paired for name, cell in cells.items()}
    verdict = _as_in_table(decided, board.reference, {name: (pair.low, pair.high, pair.corrected) for name, pair in pairs.items() if pair})
    paired = None if verdict.best is None else cells[verdict.best.name].paired
    if verdict.best is None or paired is None or board.reference is None:
        return verdict
    theirs = next((item for item in entrants if item.name == board.reference), None)
    ratio = None if theirs is None else cost_ratio(verdict.best.cost, theirs.cost)
    clusters = 0 if theirs is None else int(figures.pairs.clusters[verdict.best.position, theirs.position])
    numbers = (paired.value, paired.low, paired.high, paired.corrected, paired.n, clusters)
    why = paired.insufficient_data or too_few(clusters, verdict.place.kind, paired.corrected)
    against = Against(board.reference, *numbers, insufficient_data=why, generalizes=paired.generalizes, cost=ratio)
    return replace(verdict, reference=against)


def _as_in_table(verdict: BoardVerdict, reference: str | None, shown: Mapping[str, tuple[float, float, float]]) -> BoardVerdict:
    """Take the table's interval of the difference from the next method if either is the reference and the marks agree.

    Args:
        shown: Interval and corrected p-value of each method's difference from the reference.
    """
    best, next_ = verdict.best, verdict.next
    if best is None or next_ is None or reference not in (best.name, next_.name):
        return verdict
    low, high, p = shown.get(best.name if next_.name == reference else next_.name, (math.nan,) * 3)
    if math.isnan(low) or (p <= ALPHA) != next_.significant:
        return verdict
    return replace(verdict, next=replace(next_, low=low, high=high) if next_.name == reference else replace(next_, low=-high, high=-low))


def _entrant(name: str, cell: Cell, figures: Figures, cost: Cost | None) -> Entrant:
    position = figures.runs[cell.run.run]
    apart = cell.apart or ("" if cell.n else "no question could be scored")
    return Entrant(name, cell.value, cell.low, cell.high, cell.n, apart, cell.run.failed, cost, position)


def _place(
    columns: Sequence[Column],
    figures: Mapping[str, Figures],
    definitions: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
    kin: Mapping[str, int],
) -> Place:
    """Describe the common subject of several columns with one kind of metric."""
    first = columns[0].metric or ""
    metrics = {column.metric for column in columns}
    known = definitions.get(first, {})
    kinds = {figures[column.key].sampled.kind for column in columns}
    return Place(
        tuple((column.first.dataset, column.first.setting) for column in columns),
        first if len(metrics) == 1 else None,
        kind_of(columns[0]) if len(metrics) > 1 else names[first],
        columns[0].higher_is_better,
        1.0 if known.get("unit") == "number" else 100.0,
        *size_of(columns, figures, kin),
        kinds.pop() if len(kinds) == 1 else "cluster",
        tuple(column.first.dataset_fingerprint for column in columns),
        columns[0].first.seed,
    )


def decide(place: Place, entrants: Sequence[Entrant], figures: Figures) -> BoardVerdict:
    """Compute the verdict on one benchmark: find the best method and test it against the others.

    Args:
        place: The benchmark and metric.
        entrants: The competing methods, without controls.
        figures: Scores and pairwise tests of the methods.
    """
    left_out = {item.name: item.apart for item in entrants if item.apart}
    able = [item for item in entrants if not item.apart and item.n]
    if not able:
        return BoardVerdict(place, left_out=left_out)
    at = np.array([item.position for item in able], dtype=np.int64)
    standings = [band.standing for band in figures.bands(at, higher_is_better=place.higher_is_better)]
    sign = 1.0 if place.higher_is_better else -1.0
    order = sorted(range(len(able)), key=lambda row: (standings[row] is not Standing.BEST, -sign * round(able[row].value, 12)))
    first, *others = order
    if standings[first] is not Standing.BEST:
        # On different questions, each can be behind another.
        return BoardVerdict(place, left_out=left_out | {able[row].name: "each is behind another, on different questions" for row in order})
    others.sort(key=lambda row: -sign * round(able[row].value, 12))

    best = able[first]
    # Equal values of too few clusters are not evidence of a tie.
    known = {row: float(figures.pairs.clusters[best.position, able[row].position]) >= FEWEST_CLUSTERS for row in others}
    stands = {row: Standing.UNTESTED if standings[row] is Standing.BEST and not known[row] else standings[row] for row in others}

    def names(*wanted: Standing) -> tuple[str, ...]:
        return tuple(able[row].name for row in others if stands[row] in wanted)

    nearest = _against(place, best, able[others[0]], figures, *_corrected(figures, at, first, others[0])) if others else None
    equal = names(Standing.BEST, Standing.NO_DIFFERENCE)
    level = _level(best, [able[row] for row in others], equal)
    return BoardVerdict(place, best, equal, names(Standing.UNTESTED), names(Standing.BEHIND), left_out, nearest, level=level)


def _level(best: Entrant, others: Sequence[Entrant], equal: Sequence[str]) -> tuple[str, ...]:
    return tuple(item.name for item in others if item.name in equal and round(item.value - best.value, 12) == 0)


def _corrected(figures: Figures, at: np.ndarray[Any, np.dtype[np.int64]], row: int, other: int) -> tuple[float, float]:
    """Return the corrected p-value of one pair among all of these methods, and the level at which Holm's procedure tests it."""
    square = np.ix_(at, at)
    p, n = (figures.pairs.p if figures.p is None else figures.p)[square], figures.pairs.n[square]
    upper = np.triu_indices(len(at), 1)
    every = np.where(np.isnan(p) & (n > 0), 1.0, p)[upper]
    low, high = sorted((row, other))
    index = int(np.flatnonzero((upper[0] == low) & (upper[1] == high))[0])
    corrected = math.nan if math.isnan(p[low, high]) else float(holm_array(every)[index])
    return corrected, float(holm_levels(every)[index])


def _against(place: Place, best: Entrant, other: Entrant, figures: Figures, p: float, level: float) -> Against:
    one, two = figures.sides[best.position], figures.sides[other.position]
    tested = compared([one], [two], clusters=figures.sampled.labels, metric=range_of_metric(figures.definition))
    low, high = tested.interval(np.array([level]))
    value, n, clusters = float(tested.value[0]), int(tested.n[0]), int(tested.clusters[0])
    why = str(tested.insufficient_data(f"{place.kind}s")[0]) or too_few(clusters, place.kind, p)
    lacking: tuple[Needed | None, bool] = None, False
    if not why and not p <= ALPHA:
        lacking = _sample_needed(tested.plain if isinstance(tested, AtBothEnds) else tested, (one, two), value, n, level)
    holds = generalizes(one, two, judged=figures.definition.get("judge") is not None)
    ratio = cost_ratio(best.cost, other.cost)
    return Against(other.name, value, float(low[0]), float(high[0]), p, n, clusters, why, holds, ratio, *lacking)


def _sample_needed(known: Tested | Added, sides: tuple[Side, Side], value: float, n: int, level: float) -> tuple[Needed | None, bool]:
    """Return the sample that shows a difference, and whether it would be shown without missing values.

    There is no such sample if the difference is 0, or if nothing is known of its spread.
    """
    (low,), (high,) = known.interval(np.array([level]))
    if low > 0 or high < 0:
        return None, True
    if not round(value, 12) or math.isnan(float(known.detectable()[0])):
        return None, False
    clusters = int(known.clusters[0])
    count = clusters_needed(known, value, level=level, least=max(clusters, 2))
    questions = None if count is None else math.ceil(count * n / clusters)
    return Needed(count, questions, seeds_needed(known, sides, value, level=level)), False


def too_few(clusters: int, kind: str, p: float) -> str:
    """Explain why a non-significant difference counts as untested (fewer than ten clusters); empty if it counts as tested."""
    return "" if clusters >= FEWEST_CLUSTERS or p <= ALPHA else f"{counted(clusters, kind)}, fewer than {FEWEST_CLUSTERS}"


def cost_ratio(ours: Cost | None, theirs: Cost | None) -> CostRatio | None:
    """Compute the cost ratio of two methods: in US dollars, else in tokens, else in seconds; None if unknown for either.

    Times below `LEAST_SECONDS` are not compared.
    """
    if ours is None or theirs is None:
        return None
    for what, name in COST_FIELDS:
        one, other = getattr(ours, name), getattr(theirs, name)
        least = LEAST_SECONDS if name == "seconds" else 0.0
        if min(one, other) > least and math.isfinite(one) and math.isfinite(other):
            return CostRatio(what, one / other)
    return None


def _suite(
    board: Matrix, figures: Mapping[str, Figures], definitions: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]
) -> BoardVerdict:
    """Return the verdict over all benchmarks, for the methods that are ranked on each."""
    place = _place(board.columns, figures, definitions, names, board.kin)
    able: list[tuple[System, Entrant]] = []
    left_out: dict[str, str] = {}
    for row in board.rows:
        if not row.may_win:
            continue
        cells = board.line(row)
        apart = [
            (cell.apart.partition(":")[0], c.first.dataset) for c, cell in zip(board.columns, cells, strict=True) if cell and cell.apart
        ]
        why = f"{apart[0][0]} on {apart[0][1]}" if apart else ""
        ranked = [cell for cell in cells if cell is not None and not cell.apart and cell.n]
        mean = board.mean(row)
        if len(ranked) < len(board.columns) or mean is None:
            left_out[row.name] = why or f"ranked on {len(ranked)} of {len(board.columns)} benchmarks"
            continue
        failed, n = sum(cell.run.failed for cell in ranked), sum(cell.n for cell in ranked)
        able.append((row, Entrant(row.name, mean.value, mean.low, mean.high, n, failed=failed, cost=board.cost(row))))
    if not able:
        return BoardVerdict(place, left_out=left_out)
    sign = 1.0 if place.higher_is_better else -1.0
    able.sort(key=lambda pair: -sign * round(pair[1].value, 12))
    (base, best), others = able[0], able[1:]
    if not others:
        return BoardVerdict(place, best, left_out=left_out)
    rows = [row for row, _ in others]
    differences, clusters = pooled_from(base, rows, board.columns, figures, board.kin)
    corrected, levels = _of_all_pairs(np.array([item.p for item in differences]), len(able))
    few = clusters < FEWEST_CLUSTERS

    def named(mask: Mask) -> tuple[str, ...]:
        return tuple(item.name for (_, item), kept in zip(others, mask, strict=True) if kept)

    is_worse = corrected <= ALPHA
    lacking = np.isnan(corrected) | few
    equal = named(~is_worse & ~lacking)
    verdict = BoardVerdict(
        place,
        best,
        equal,
        named(~is_worse & lacking),
        named(is_worse),
        left_out,
        _pooled_against(board, figures, (base, best), others[0], float(corrected[0]), float(levels[0]), clusters),
        level=_level(best, [item for _, item in others], equal),
    )
    pools = {line.row.name: line.pooled for line in board.overall}
    verdict = _as_in_table(verdict, board.reference, {name: (pool.low, pool.high, pool.p_holm) for name, pool in pools.items() if pool})
    line = next((line for line in board.overall if line.row.key == base.key), None)
    if line is None or line.pooled is None or board.reference is None:
        return verdict
    against, theirs = line.pooled, next((item for _, item in others if item.name == board.reference), None)
    ratio = None if theirs is None else cost_ratio(best.cost, theirs.cost)
    numbers = (against.value, against.low, against.high, against.p_holm)
    why = too_few(clusters, "cluster", against.p_holm)
    difference = Against(board.reference, *numbers, clusters=clusters, insufficient_data=why, generalizes=line.generalizes, cost=ratio)
    return replace(verdict, reference=difference)


def _of_all_pairs(p: Floats, methods: int) -> tuple[Floats, Floats]:
    """Correct tests against the best as if every pair was tested, because the best was selected with the same data.

    The other pairs count as not significant, which only makes Holm's procedure stricter.
    """
    tests = np.ones(methods * (methods - 1) // 2)
    tests[: len(p)] = np.where(np.isnan(p), 1.0, p)
    return np.where(np.isnan(p), np.nan, holm_array(tests)[: len(p)]), holm_levels(tests)[: len(p)]


def _pooled_against(
    board: Matrix,
    figures: Mapping[str, Figures],
    best: tuple[System, Entrant],
    other: tuple[System, Entrant],
    p: float,
    level: float,
    clusters: int,
) -> Against:
    ((result,), _) = pooled_from(other[0], [best[0]], board.columns, figures, board.kin, level)
    sides = [_sides(figures[column.key], column, best[0], other[0]) for column in board.columns]
    judged = any(figures[column.key].definition.get("judge") is not None for column in board.columns)
    holds = "; ".join(dict.fromkeys(generalizes(one, two, judged=judged) for one, two in sides))
    why = "a benchmark has insufficient data" if math.isnan(p) else too_few(clusters, "cluster", p)
    n = len(
        {
            (board.kin[column.key], figures[column.key].question_ids[at])
            for column, (one, two) in zip(board.columns, sides, strict=True)
            for at in np.flatnonzero(~np.isnan(one.mean) & ~np.isnan(two.mean))
        }
    )
    equal_seeds = len({(one.seeds, two.seeds) for one, two in sides}) == 1
    lacking: tuple[Needed | None, bool] = None, False
    if not why and not p <= ALPHA and equal_seeds:
        lacking = _sample_needed(pilot(strata_of(other[0], [best[0]], board.columns, figures, board.kin)), sides[0], result.value, n, level)
    ratio = cost_ratio(best[1].cost, other[1].cost)
    return Against(other[1].name, result.value, result.low, result.high, p, n, clusters, why, holds, ratio, *lacking)


def _sides(figures: Figures, column: Column, one: System, other: System) -> tuple[Side, Side]:
    first, second = (figures.sides[figures.runs[row.runs[column.key].run]] for row in (one, other))
    return first, second
