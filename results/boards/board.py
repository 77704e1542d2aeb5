"""The board: methods against metrics on one dataset in one setting, with intervals and paired differences.

Runs share a board only if dataset fingerprint, setting and seed are equal. Controls are
listed and badged, never ranked and never tested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.clusters import Sampled
from benchmarks.core.errors import UserError, unknown_name
from judges.metric import parse
from results.boards.controls import ABOUT_ANSWERS, wrongly_ranked
from results.boards.folded import folded_columns, folded_costs, folded_runs, series_of
from results.boards.health import health
from results.boards.health_lines import HealthLine
from results.boards.names import base_name, is_called
from results.boards.primary import Primary, primary_of
from results.boards.sides import sides, trainings_of
from results.boards.systems import IMPLAUSIBLE, Wanted, contaminated_by, figures, implausible, systems, why_not_ranked
from results.boards.unread import Bounds, bounds_of_rows, range_of_metric, without_incomplete
from results.boards.untouched import ReadBefore, read_before
from results.statistics.core import Clusters, Difference, Estimate
from results.statistics.intervals import compared_together, estimates
from results.statistics.places import Band, bands
from results.store import checkpoints, cost_queries, provenance, queries, score_queries
from results.store.cost_queries import Cost, IndexCost
from results.store.failures import Failures, failures
from results.store.invariants import violations
from results.store.queries import RunRow
from results.store.reuse import Reuse, merged, reuse
from results.store.store import Store
from results.store.training_data import Cards, Checkpoints, read_none, read_unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray


def with_zeros(value: float, n: int, further: int) -> float:
    """Return the mean over n questions with mean `value` and `further` more questions that count as zero."""
    return value * n / (n + further)


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of a results table: the result of one method on one metric.

    Attributes:
        estimate: Mean score with its interval.
        difference: Paired difference from the board's reference method; None for the reference, for controls, and if the board
            has no reference.
        p_holm: p-value of the difference, Holm-corrected within the column.
        unscored: Number of questions that the judge gave no value; the estimate leaves them out.
        bounds: Bounds of the value over all possible missing verdicts; None if the metric has no judge. With too many
            missing, the value is NaN.
        scale: Factor for displaying the value: 100 for fractions.
        by_seed: If the row is the mean over several training seeds, the value of each.
        by_repeat: If it is the mean over several repeats of one method, the value of each.
        apart: Why it must not be compared with others; it is then neither ranked nor tested. Empty if it may be compared.
        zero_elsewhere: Whether the script whose rules the metric follows counts unscorable questions as zero.
    """

    estimate: Estimate
    difference: Difference | None = None
    p_holm: float | None = None
    unscored: int = 0
    bounds: Bounds | None = None
    scale: float = 100.0
    by_seed: tuple[float, ...] = ()
    by_repeat: tuple[float, ...] = ()
    apart: str = ""
    zero_elsewhere: bool = False

    @property
    def over_all(self) -> float | None:
        """Return the mean with unscorable questions counted as 0, as the official script does; None if the script or the data
        have no such questions.
        """
        value = self.estimate
        counted = self.zero_elsewhere and value.n and value.unscorable
        return with_zeros(value.value, value.n, value.unscorable) if counted else None

    @property
    def incomplete(self) -> str:
        """Explain why the value is hidden (the judge left too many questions without a verdict); empty if it is shown."""
        return self.bounds.incomplete if self.bounds is not None else ""


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a results table: one method's run (or several seeds and repeats combined), with its cells, cost and remarks.

    Attributes:
        run: The run; for a combined row, the first one.
        cells: Cells by metric id.
        cost: None if nothing was measured.
        violations: Broken invariants between its metrics (for example recall@5 above recall@10), one sentence each.
        contaminated: Which of its training data cover the evaluated questions, one sentence each.
        indexing: Cost of indexing the corpus, which `cost` does not include; None if unknown.
        failures: How many questions failed, by kind.
        reuse: Number and age of the cached model replies that it reused.
        accepted: Number of failures in ragmeter's or a plug-in's code that the user accepted as wrong answers.
        read: Benchmark questions that occur in its training data, with the scores without them; None if none are known.
        read_unknown: Whether it uses weights without a record of their training questions.
        read_none: Whether it is a positive control whose records contain none of the benchmark's questions.
        reason: The most frequent reason why questions failed; "" if none did.
    """

    run: RunRow
    cells: dict[str, Cell]
    cost: Cost | None
    violations: tuple[str, ...] = ()
    contaminated: tuple[str, ...] = ()
    indexing: IndexCost | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    reuse: Reuse | None = None
    accepted: int = 0
    read: ReadBefore | None = None
    read_unknown: bool = False
    reason: str = ""
    read_none: bool = False

    @property
    def control(self) -> bool:
        return self.run.kind == "control"


@dataclass(frozen=True, slots=True)
class Board:
    """Results table: methods (rows) by metrics (columns) on one dataset in one retrieval setting.

    Attributes:
        dataset, dataset_fingerprint, setting: What they have in common.
        seed: Seed of the first run; several seeds of one experiment share a board.
        reference: Name of the method that the others are compared with; None if it has no run here.
        metrics: Metric ids, the columns.
        rows: In the experiment's order.
        questions: Number of questions.
        sampled: Kind of cluster, for example "document"; questions of one cluster are not independent.
        flags: By metric, sentences of `wrongly_ranked`.
        health: Warnings about its runs (`results.boards.health`).
        primary: The metric and the comparison that the experiment declares; None if it declares none.
        seeds: All seeds of its runs.
        lower_is_better: Metrics where lower is better.
    """

    dataset: str
    dataset_fingerprint: str
    setting: str
    seed: int
    reference: str | None
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    questions: int
    sampled: Sampled
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    health: tuple[HealthLine, ...] = ()
    primary: Primary | None = None
    seeds: tuple[int, ...] = ()
    lower_is_better: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the board as a JSON object; values are fractions, None means "no value"."""
        return {
            "dataset": self.dataset,
            "dataset_fingerprint": self.dataset_fingerprint,
            "setting": self.setting,
            "seed": self.seed,
            "seeds": list(self.seeds),
            "questions": self.questions,
            "cluster": self.sampled.kind,
            "clusters": self.sampled.count(self.questions),
            "reference": self.reference,
            "primary": None if self.primary is None else asdict(self.primary),
            "metrics": list(self.metrics),
            "lower_is_better": sorted(self.lower_is_better),
            "flags": {metric: list(wrong) for metric, wrong in self.flags.items()},
            "health": [line.to_json() for line in self.health],
            "rows": [_row_json(row) for row in self.rows],
        }


def boards(
    store: Store,
    experiment: str | None = None,
    *,
    metrics: Sequence[str] | None = None,
    over_seeds: bool = False,
    reference: str | None = None,
) -> list[Board]:
    """Build the results tables of an experiment (or of the whole store), one per dataset and setting, in the experiment's
    order.

    Args:
        store: The store to read.
        experiment: Name of the experiment; None uses every run in the store, without a reference.
        metrics: Metric ids to show, or their beginnings (`f1`, `recall@5`); None shows the experiment's metrics, or all that
            were scored.
        over_seeds: One row for all training seeds of a method.
        reference: Name of the method to compare with; None: the experiment's.

    Raises:
        UserError: No run was scored on one of the metrics, or no method has the reference's name.
    """
    runs = queries.runs(store, experiment)
    stored = queries.experiment(store, experiment) if experiment else None
    if reference is None:
        reference = stored.reference if stored else None
    elif not any(reference == base_name(run.method) or is_called(reference, run.method) for run in runs):
        raise unknown_name("method", reference, {run.method for run in runs}, where="--reference")
    results = groups(runs)
    every = [run.run for group in results for run in group]
    if metrics is not None:
        own = {metric for group in results for run in group for metric in run.metrics or ()}
        metrics = score_queries.named_metrics(store, every, metrics, own)
    elif experiment is None:
        metrics = score_queries.metric_ids(store, every)
    learned = _learned(store)
    of = primary_of(stored) if stored else None
    every_board = (
        board(store, group, reference=reference, metrics=metrics, over_seeds=over_seeds, facts=Facts.read(store, group, learned))
        for group in results
    )
    shown = [replace(item, primary=of) for item in every_board]
    return shown if experiment is not None else _named_apart(shown, results, learned)


def _named_apart(shown: Sequence[Board], runs: Sequence[Sequence[RunRow]], learned: tuple[Cards, Checkpoints]) -> list[Board]:
    """Distinguish runs of several experiments that have one name and different parts, as the verdict does (`systems`), and
    tables on different data of one name.
    """
    method_of = {run.run: run.method for group in runs for run in group}
    rows = systems({str(place): group for place, group in enumerate(runs)}, *learned)
    added = {run.run: row.name.removeprefix(method_of[run.run]) for row in rows for run in row.runs.values()}

    def named(item: Board) -> Board:
        renamed = [replace(row, run=replace(row.run, method=row.run.method + added[row.run.run])) for row in item.rows]
        base = next((new.run.method for old, new in zip(item.rows, renamed, strict=True) if old.run.method == item.reference), None)
        health = [replace(line, method=line.method + added.get(line.run, "") if line.method else "") for line in item.health]
        if len({other.dataset_fingerprint for other in shown if other.dataset == item.dataset}) > 1:
            data = item.dataset_fingerprint[:8]
            text = f"its data ({data}) differ from those of another table of {item.dataset}"
            health.append(HealthLine("other_data", "", text, {"data": data}))
        return replace(item, rows=tuple(renamed), reference=base, health=tuple(health))

    return list(map(named, shown))


def groups(runs: Sequence[RunRow], *, seeds_apart: bool = False) -> list[list[RunRow]]:
    """Split runs into groups that share a results table: same dataset, setting and seed.

    An experiment that was executed with several seeds has them on one board: they are repeats. Of several executions of
    one fingerprint, which different experiments may show, only the newest finished one is kept.

    Args:
        runs: Runs in the order of the table's rows.
        seeds_apart: Whether to make one group per seed in that case, too.
    """
    results: dict[tuple[str, str, int], dict[str, RunRow]] = {}
    first_seed: dict[tuple[str, str, str], int] = {}
    for run in runs:
        place = run.experiment, run.dataset_fingerprint, run.setting
        first_seed[place] = min(first_seed.get(place, run.seed), run.seed)
    for run in runs:
        of_experiment = not seeds_apart and run.experiment != queries.NO_EXPERIMENT
        seed = first_seed[run.experiment, run.dataset_fingerprint, run.setting] if of_experiment else run.seed
        group = results.setdefault((run.dataset_fingerprint, run.setting, seed), {})
        group[run.fingerprint] = queries.newest([group.get(run.fingerprint, run), run])
    return [list(group.values()) for group in results.values()]


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the runs of a board, equal for all of its metrics and references.

    Attributes:
        learned: The training data of methods and their parts.
        costs, violations, reused: By run.
        health: Unusual facts.
    """

    learned: tuple[Cards, Checkpoints]
    costs: Mapping[str, Cost]
    violations: Mapping[str, Sequence[str]]
    reused: Mapping[str, Reuse]
    health: tuple[HealthLine, ...]

    @classmethod
    def read(cls, store: Store, runs: Sequence[RunRow], learned: tuple[Cards, Checkpoints] | None = None) -> Facts:
        """Read them; `learned` is the same for all boards of a store."""
        ids = [run.run for run in runs]
        return cls(
            learned or _learned(store), cost_queries.costs(store, ids), violations(store, ids), reuse(store, runs), health(store, runs)
        )


def board(
    store: Store,
    runs: Sequence[RunRow],
    *,
    reference: str | None = None,
    metrics: Sequence[str] | None = None,
    over_seeds: bool = False,
    facts: Facts | None = None,
) -> Board:
    """Build one results table from runs that share dataset, setting and seed.

    Args:
        store: The store to read.
        runs: The runs to show, in row order.
        reference: Name of the method to compare with.
        metrics: Metric ids of the columns; None uses the experiment's metrics, or all that were scored.
        over_seeds: One row for all training seeds of a method (`results.boards.board`).
        facts: Facts about these runs (`Facts.of`); None reads them from the store, which is slow.
    """
    first = runs[0]
    ids, all_seeds = [run.run for run in runs], tuple(sorted({run.seed for run in runs}))
    if metrics is None and all(run.metrics is not None for run in runs):
        metrics = list(dict.fromkeys(metric for run in runs for metric in run.metrics or ()))
    shown = list(metrics) if metrics is not None else score_queries.metric_ids(store, ids)
    scores = single = score_queries.score_columns(store, first.dataset_fingerprint, ids, shown, {run.experiment for run in runs})
    facts = facts or Facts.read(store, runs)
    costs, broken, reused, unusual = facts.costs, facts.violations, facts.reused, facts.health
    base = _base(runs, reference)
    apart: Mapping[tuple[str, str], Any] = {}
    members = {run.run: [run] for run in runs}
    series = series_of(runs, over_seeds)
    folded = over_seeds or len(series) < len(runs)
    if folded:
        scores, apart = folded_columns(scores, runs, shown, over_seeds)
        costs, members = folded_costs(costs, runs, over_seeds), series
        broken = {run: [what for row in rows for what in broken.get(row.run, ())] for run, rows in members.items()}
        reused = {run: merged(reused[row.run] for row in rows) for run, rows in members.items()}
        base = next((run for run, rows in members.items() if base in [row.run for row in rows]), None)
        runs = folded_runs(runs, over_seeds)
        ids = [run.run for run in runs]
    reference = next((run.method for run in runs if run.run == base), None)
    names, columns, clusters = scores.questions, scores.values, scores.sampled.labels
    known = score_queries.definitions(store)
    bounds = bounds_of_rows(store, scores, members, known)

    keys = [(run.run, metric) for run in runs for metric in shown if (run.run, metric) in columns]
    cells: dict[str, dict[str, Cell]] = {run: {} for run in ids}
    if keys:
        results = _estimates(columns, keys, clusters, known)
        whole = not score_queries.lacks_answers(store, first.dataset_fingerprint)
        for (run_id, metric), value in zip(keys, results, strict=True):
            # Questions without a row (not answered yet, or not scored on this metric) are not unscorable.
            open_to = bounds.get((run_id, metric))
            values = tuple(map(float, apart.get((run_id, metric), ())))
            seeds = len(set(trainings_of(members[run_id])))
            cells[run_id][metric] = Cell(
                replace(without_incomplete(value, open_to), unscorable=scores.unscorable[run_id, metric]),
                unscored=scores.unscored[run_id, metric],
                bounds=open_to,
                scale=score_queries.scale_of(metric, known),
                by_seed=values if seeds > 1 else (),
                by_repeat=values if seeds == 1 else (),
                zero_elsewhere=whole and _zero_elsewhere(metric),
            )
    known_training = facts.learned
    contaminated = {
        run.run: tuple(dict.fromkeys(line for member in members[run.run] for line in contaminated_by(member, *known_training)))
        for run in runs
    }
    for (run_id, metric), why in _apart(runs, cells, contaminated, broken).items():
        why = why or cells[run_id][metric].incomplete
        cells[run_id][metric] = replace(cells[run_id][metric], apart=why)
    able = {key for key in keys if not cells[key[0]][key[1]].apart}
    pairs = [key for key in keys if key in able and key[0] != base and (base, key[1]) in able]
    both = sides(store, single, members, shown, known, known_training[1]) if pairs else {}
    for metric in shown:
        column = [run_id for run_id, name in pairs if name == metric]
        if not column or base is None:
            continue
        candidates, references = [both[run_id, metric] for run_id in column], [both[base, metric]] * len(column)
        judged = known.get(metric, {}).get("judge") is not None
        of = range_of_metric(known.get(metric, {}))
        together = compared_together(candidates, references, clusters=clusters, metric=of, judged=judged)
        for run_id, paired, p in zip(column, together.differences, together.p, strict=True):
            cells[run_id][metric] = replace(cells[run_id][metric], difference=paired, p_holm=p)
    indexing = {} if folded else cost_queries.index_costs(store, ids)
    of_run = failures(store, [member.run for run in runs for member in members[run.run] if member.failed])
    failed = {
        run.run: Failures.together([of_run[member.run] for member in members[run.run] if member.run in of_run])
        for run in runs
        if run.failed
    }
    rows = tuple(
        Row(
            run,
            cells[run.run],
            costs.get(run.run),
            tuple(broken.get(run.run, ())),
            contaminated[run.run],
            indexing.get(run.run),
            failed[run.run].kinds if run.run in failed else {},
            reused.get(run.run),
            failed[run.run].code if run.run in failed and failed[run.run].accepted else 0,
            _read(run, members[run.run], known_training[1], names, {m: columns[run.run, m] for m in shown if (run.run, m) in columns}),
            any(read_unknown(member, known_training[1]) for member in members[run.run]),
            failed[run.run].most_frequent if run.run in failed else "",
            run.positive_control and all(read_none(member, known_training[1]) for member in members[run.run]),
        )
        for run in runs
    )
    return Board(
        first.dataset,
        first.dataset_fingerprint,
        first.setting,
        first.seed,
        reference,
        tuple(shown),
        rows,
        len(names),
        scores.sampled,
        _flags(rows, shown, known),
        unusual,
        seeds=all_seeds,
        lower_is_better=frozenset(metric for metric in shown if not known.get(metric, {}).get("higher_is_better", True)),
    )


def _estimates(
    columns: Mapping[tuple[str, str], NDArray[np.float64]],
    keys: Sequence[tuple[str, str]],
    clusters: Clusters,
    known: Mapping[str, Mapping[str, Any]],
) -> list[Estimate]:
    """Return the mean of each key's column with its interval, metrics of one range at a time."""
    ranges = [range_of_metric(known.get(metric, {})) for _, metric in keys]
    results: dict[int, Estimate] = {}
    for of in dict.fromkeys(ranges):
        at = [number for number, other in enumerate(ranges) if other == of]
        results |= zip(at, estimates(np.stack([columns[keys[number]] for number in at]), clusters=clusters, metric=of), strict=True)
    return [results[number] for number in range(len(keys))]


def _read(
    run: RunRow, members: Sequence[RunRow], known: Checkpoints, questions: Sequence[str], values: Mapping[str, NDArray[np.float64]]
) -> ReadBefore | None:
    return None if run.kind == "control" else read_before(members, known, questions, values)


def _learned(store: Store) -> tuple[Cards, Checkpoints]:
    return provenance.cards(store), checkpoints.known_checkpoints(store)


def _apart(
    runs: Sequence[RunRow],
    cells: Mapping[str, Mapping[str, Cell]],
    contaminated: Mapping[str, Sequence[str]],
    broken: Mapping[str, Sequence[str]],
) -> dict[tuple[str, str], str]:
    """Return, by run and metric, why values must not be compared with others.

    If all runs were scored on the same subset of questions, for example a sample for judges, they are compared on that subset.
    """
    scored = {
        (run.run, metric): cell.estimate.n + cell.estimate.unscorable + cell.unscored
        for run in runs
        for metric, cell in cells[run.run].items()
    }
    most: dict[str, int] = {}
    for (_, metric), count in scored.items():
        most[metric] = max(most.get(metric, 0), count)
    return {
        (run.run, metric): why_not_ranked(
            run, contaminated[run.run], broken.get(run.run, ()), run.questions if count == most[metric] else count
        )
        for run in runs
        for metric in cells[run.run]
        for count in [scored[run.run, metric]]
    }


def _base(runs: Sequence[RunRow], reference: str | None) -> str | None:
    """Return the reference run for differences: the one with the reference's name, or the first of its seeds."""
    able = [run for run in runs if run.kind != "control"]
    exact = (run.run for run in able if run.method == reference)
    return next(exact, None) or next((run.run for run in able if base_name(run.method) == reference), None)


def _flags(rows: Sequence[Row], metrics: Sequence[str], definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    results = {}
    for metric in metrics:
        known = definitions.get(metric, {})
        if known.get("group") not in ABOUT_ANSWERS or known.get("unit") == "number":
            continue
        sign = 1.0 if known["higher_is_better"] else -1.0
        shown = [row for row in rows if metric in row.cells and not math.isnan(row.cells[metric].estimate.value)]
        scored = [(row, sign * row.cells[metric].estimate.value) for row in shown]
        controls = {row.run.method_id: value for row, value in scored if row.control}
        wrong = wrongly_ranked(controls, {row.run.method: value for row, value in scored if not row.control})
        if wrong:
            results[metric] = wrong
    return results


def _zero_elsewhere(metric: str) -> bool:
    with suppress(UserError):  # judges' measures, and metrics of another version, declare nothing here
        return parse(metric).zero_elsewhere
    return False


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _row_json(row: Row) -> dict[str, Any]:
    cells = {}
    for metric, cell in row.cells.items():
        value = cell.estimate
        entry: dict[str, Any] = {
            "value": _number(value.value),
            "low": _number(value.low),
            "high": _number(value.high),
            "n": value.n,
            "unscorable": value.unscorable,
            "insufficient_data": value.insufficient_data,
        }
        if cell.over_all is not None:
            entry["value_over_all"] = _number(cell.over_all)
        if cell.by_seed:
            entry["by_seed"] = [_number(item) for item in cell.by_seed]
        if cell.by_repeat:
            entry["by_repeat"] = [_number(item) for item in cell.by_repeat]
        if cell.apart and not row.control:
            entry["not_comparable"] = cell.apart
        if cell.unscored:
            entry["unscored"] = cell.unscored
        if cell.bounds is not None:
            entry |= cell.bounds.to_json()
        if cell.difference is not None:
            entry["difference"] = {
                "value": _number(cell.difference.value),
                "low": _number(cell.difference.low),
                "high": _number(cell.difference.high),
                "alone": [_number(end) for end in cell.difference.alone],
                "n": cell.difference.n,
                "p": _number(cell.difference.p),
                "p_holm": _number(cell.p_holm),
                "wins": cell.difference.wins,
                "ties": cell.difference.ties,
                "losses": cell.difference.losses,
                "insufficient_data": cell.difference.insufficient_data,
                "detectable": _number(cell.difference.detectable),
                "generalizes": cell.difference.generalizes,
            }
        cells[metric] = entry
    cost = None if row.cost is None else {name: _number(getattr(row.cost, name)) for name in Cost.__slots__}
    return {
        "run": row.run.run,
        "path": row.run.path,
        "method": row.run.method,
        "kind": row.run.kind,
        "origin": row.run.origin,
        "gate": row.run.gate or None,
        "positive_control": row.run.positive_control,
        "status": row.run.status,
        "done": row.run.done,
        "failed": row.run.failed,
        "failures": dict(row.failures),
        "cost": cost,
        "indexing": None if row.indexing is None else asdict(row.indexing),
        "violations": list(row.violations),
        "contaminated": list(row.contaminated),
        "questions_read": "unknown" if row.read is None and row.read_unknown else row.read and row.read.to_json(),
        IMPLAUSIBLE: list(implausible(row.run)),
        "not_rescored": list(row.run.not_rescored),
        "reuse": row.reuse.to_json() if row.reuse is not None and (row.reuse.replies or row.reuse.unknown) else None,
        "metrics": cells,
    }


_KEY = "board"


def positions(store: Store, board: Board, metric: str, *, higher_is_better: bool = True) -> dict[str, Band]:
    """Return each ranked run's rank with its range (`results.statistics.places.bands`), by the run's fingerprint.

    Args:
        store: The store that the board was read from.
        board: A table with one row per run; seeds must not be combined.
        metric: Id of one of the board's metrics.
        higher_is_better: False for a metric where lower is better.
    """
    able = tuple(
        row.run.run
        for row in board.rows
        if row.run.may_win and metric in row.cells and not row.cells[metric].apart and row.cells[metric].estimate.n
    )
    if not able:
        return {}
    experiments = frozenset(row.run.experiment for row in board.rows)
    result = figures(store, [Wanted(_KEY, board.dataset_fingerprint, able, metric, experiments=experiments)])[_KEY]
    at = np.array([result.runs[run] for run in able], dtype=np.int64)
    return dict(zip(able, bands(result.pairs, positions=at, higher_is_better=higher_is_better, p=result.p), strict=True))
