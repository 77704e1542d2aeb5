"""The board: methods against metrics on one dataset in one setting, with intervals and paired differences.

Runs share a board only when what must be equal is equal: dataset fingerprint, setting and seed. Controls are
listed and badged, never ranked and never tested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.errors import unknown_name
from results import method_record, queries, training_data
from results.contestants import contaminated_by, why_not_ranked
from results.flags import ABOUT_ANSWERS, wrongly_ranked
from results.invariants import violations
from results.queries import Cost, IndexCost, RunRow
from results.series import folded_columns, folded_costs, folded_runs, series_of, stem
from results.statistics import Difference, Estimate, differences, estimates, holm
from results.store import Store
from results.training_data import Cards, Checkpoints


def with_failures(value: float, n: int, unscored: int) -> float:
    """The mean of n questions and of further ones that a judge gave no value, each of which counts as zero."""
    if not n + unscored:
        return float("nan")
    return value * n / (n + unscored) if n else 0.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One method on one metric.

    Attributes:
        estimate: The value with its interval.
        difference: Against the board's reference on the same questions; None for the reference, for controls,
            and where there is no reference.
        p_holm: The difference's p-value, Holm-corrected within the column.
        unscored: Questions that a judge gave no value, and that the estimate leaves out.
        scale: What the value is multiplied by where it is shown.
        by_seed: Where the row stands for several training seeds, the value of each.
        apart: Why it must not be compared with others; empty where it may. It is then neither ranked nor tested.
    """

    estimate: Estimate
    difference: Difference | None = None
    p_holm: float | None = None
    unscored: int = 0
    scale: float = 100.0
    by_seed: tuple[float, ...] = ()
    apart: str = ""

    @property
    def with_failures(self) -> float:
        """The value if every question that the judge gave none counted as zero; NaN where there is neither."""
        return with_failures(self.estimate.value, self.estimate.n, self.unscored)


@dataclass(frozen=True, slots=True)
class Row:
    """One run on a board.

    Attributes:
        run: The run.
        cells: By metric id.
        cost: None where nothing was measured.
        violations: What does not hold between its scores and must.
        contaminated: Which of its training data cover what is asked, one sentence each.
        indexing: What preparing for the questions took; no part of `cost`. None where nothing is known.
    """

    run: RunRow
    cells: dict[str, Cell]
    cost: Cost | None
    violations: tuple[str, ...] = ()
    contaminated: tuple[str, ...] = ()
    indexing: IndexCost | None = None

    @property
    def control(self) -> bool:
        return self.run.kind == "control"


@dataclass(frozen=True, slots=True)
class Board:
    """All runs that may be compared with each other.

    Attributes:
        dataset, dataset_fingerprint, setting, seed: What they have in common.
        reference: Name of the method that differences are taken to, None if it has no run here.
        metrics: Metric ids, the columns.
        rows: In the experiment's order.
        questions: Number of questions.
        clustered: Whether intervals resample whole documents, because questions share them.
        flags: By metric, what it ranks wrongly among the controls (`results.flags`).
    """

    dataset: str
    dataset_fingerprint: str
    setting: str
    seed: int
    reference: str | None
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    questions: int
    clustered: bool
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The board as a JSON object; values are fractions, None stands for "no value"."""
        return {
            "dataset": self.dataset,
            "dataset_fingerprint": self.dataset_fingerprint,
            "setting": self.setting,
            "seed": self.seed,
            "questions": self.questions,
            "resampled": "documents" if self.clustered else "questions",
            "reference": self.reference,
            "metrics": list(self.metrics),
            "flags": {metric: list(wrong) for metric, wrong in self.flags.items()},
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
    """The boards of an experiment (or of everything in the store), in the experiment's order.

    Args:
        store: Where to read.
        experiment: Its name; None takes every run and no reference.
        metrics: Ids to show, or their beginnings (`f1`, `recall@5`); None shows those that the experiment names, or
            all that were scored.
        over_seeds: One row for all training seeds of a method.
        reference: Name of the method to compare with; None: the experiment's.

    Raises:
        UserError: No run was scored on one of the metrics, or no method has the reference's name.
    """
    runs = queries.runs(store, experiment)
    if reference is None:
        reference = queries.experiment(store, experiment).reference if experiment else None
    elif not any(reference in (run.method, stem(run.method)) for run in runs):
        raise unknown_name("method", reference, {run.method for run in runs}, where="--reference")
    found = groups(runs)
    every = [run.run for group in found for run in group]
    if metrics is not None:
        metrics = queries.named_metrics(store, every, metrics)
    elif experiment is None:
        metrics = queries.metric_ids(store, every)
    learnt = _learnt(store)
    return [board(store, group, reference=reference, metrics=metrics, over_seeds=over_seeds, learnt=learnt) for group in found]


def groups(runs: Sequence[RunRow]) -> list[list[RunRow]]:
    """Runs split into those that may share a board, each run once, in the order given."""
    found: dict[tuple[str, str, int], dict[str, RunRow]] = {}
    for run in runs:
        found.setdefault((run.dataset_fingerprint, run.setting, run.seed), {}).setdefault(run.run, run)
    return [list(group.values()) for group in found.values()]


def board(
    store: Store,
    runs: Sequence[RunRow],
    *,
    reference: str | None = None,
    metrics: Sequence[str] | None = None,
    over_seeds: bool = False,
    learnt: tuple[Cards, Checkpoints] | None = None,
) -> Board:
    """One board from runs that share dataset, setting and seed.

    Args:
        store: Where to read.
        runs: The rows.
        reference: Name of the method to compare with.
        metrics: Columns; None for what the experiment shows of these runs, or all that were scored.
        over_seeds: One row for all training seeds of a method (`results.series`).
        learnt: What tells which data parts were trained on; None: read here, which takes longer than a small board.
    """
    first = runs[0]
    ids = [run.run for run in runs]
    if metrics is None and all(run.metrics is not None for run in runs):
        metrics = list(dict.fromkeys(metric for run in runs for metric in run.metrics or ()))
    shown = list(metrics) if metrics is not None else queries.metric_ids(store, ids)
    scores = queries.score_columns(store, first.dataset_fingerprint, ids, shown)
    costs = queries.costs(store, ids)
    broken = violations(store, ids)
    base = _base(runs, reference)
    apart: Mapping[tuple[str, str], Any] = {}
    if over_seeds:
        scores, apart = folded_columns(scores, runs, shown)
        costs, members = folded_costs(costs, runs), series_of(runs)
        broken = {run: [what for one in rows for what in broken.get(one.run, ())] for run, rows in members.items()}
        base = next((run for run, rows in members.items() if base in [one.run for one in rows]), None)
        runs = folded_runs(runs)
        ids = [run.run for run in runs]
    reference = next((run.method for run in runs if run.run == base), None)
    names, documents, columns = scores.questions, scores.documents, scores.values
    clusters = documents if any(documents) else None
    known = queries.definitions(store)

    keys = [(run.run, metric) for run in runs for metric in shown if (run.run, metric) in columns]
    cells: dict[str, dict[str, Cell]] = {run: {} for run in ids}
    if keys:
        found = estimates(np.stack([columns[key] for key in keys]), clusters=clusters)
        for (run_id, metric), value in zip(keys, found, strict=True):
            # Questions without a row (not answered yet, or not scored on this metric) are not unscorable.
            missing = scores.unscorable[run_id, metric], scores.unscored[run_id, metric]
            cells[run_id][metric] = Cell(
                replace(value, unscorable=missing[0]),
                unscored=missing[1],
                scale=queries.scale_of(metric, known),
                by_seed=tuple(map(float, apart.get((run_id, metric), ()))),
            )
    known_training = learnt or _learnt(store)
    contaminated = {run.run: contaminated_by(run, *known_training) for run in runs}
    for (run_id, metric), why in _apart(runs, cells, contaminated, broken).items():
        cells[run_id][metric] = replace(cells[run_id][metric], apart=why)
    able = {key for key in keys if not cells[key[0]][key[1]].apart}
    pairs = [key for key in keys if key in able and key[0] != base and (base, key[1]) in able]
    if pairs and base:
        candidates = np.stack([columns[key] for key in pairs])
        against = np.stack([columns[base, metric] for _, metric in pairs])
        compared = dict(zip(pairs, differences(candidates, against, clusters=clusters), strict=True))
        for metric in shown:
            column = {key: paired for key, paired in compared.items() if key[1] == metric}
            corrected = holm([paired.p if paired.n else float("nan") for paired in column.values()])
            for ((run_id, _), paired), p in zip(column.items(), corrected, strict=True):
                cells[run_id][metric] = replace(cells[run_id][metric], difference=paired, p_holm=p)
    indexing = {} if over_seeds else queries.index_costs(store, ids)
    rows = tuple(
        Row(run, cells[run.run], costs.get(run.run), tuple(broken.get(run.run, ())), contaminated[run.run], indexing.get(run.run))
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
        clusters is not None,
        _flags(rows, shown, known),
    )


def _learnt(store: Store) -> tuple[Cards, Checkpoints]:
    return method_record.cards(store), training_data.known_checkpoints(store)


def _apart(
    runs: Sequence[RunRow],
    cells: Mapping[str, Mapping[str, Cell]],
    contaminated: Mapping[str, Sequence[str]],
    broken: Mapping[str, Sequence[str]],
) -> dict[tuple[str, str], str]:
    """Why values must not be compared with others, by run and metric.

    A metric that all were scored on in the same part, as judges are asked about a sample, compares them on that part.
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
    """The run that differences are taken to: of the reference's name, or the first of its seeds."""
    able = [run for run in runs if run.kind != "control"]
    exact = (run.run for run in able if run.method == reference)
    return next(exact, None) or next((run.run for run in able if stem(run.method) == reference), None)


def _flags(rows: Sequence[Row], metrics: Sequence[str], definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    found = {}
    for metric in metrics:
        known = definitions.get(metric, {})
        if known.get("group") not in ABOUT_ANSWERS or known.get("unit") == "number":
            continue
        sign = 1.0 if known["higher_is_better"] else -1.0
        scored = [(row, sign * row.cells[metric].estimate.value) for row in rows if metric in row.cells and row.cells[metric].estimate.n]
        controls = {row.run.method_id: value for row, value in scored if row.control}
        wrong = wrongly_ranked(controls, {row.run.method: value for row, value in scored if not row.control})
        if wrong:
            found[metric] = wrong
    return found


def _number(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)


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
            "doubt": value.doubt,
        }
        if cell.by_seed:
            entry["by_seed"] = [_number(one) for one in cell.by_seed]
        if cell.apart and not row.control:
            entry["not_comparable"] = cell.apart
        if cell.unscored:
            entry |= {"unscored": cell.unscored, "value_with_failures_as_zero": _number(cell.with_failures)}
        if cell.difference is not None:
            entry["difference"] = {
                "value": _number(cell.difference.value),
                "low": _number(cell.difference.low),
                "high": _number(cell.difference.high),
                "n": cell.difference.n,
                "p": _number(cell.difference.p),
                "p_holm": _number(cell.p_holm),
                "wins": cell.difference.wins,
                "ties": cell.difference.ties,
                "losses": cell.difference.losses,
                "doubt": cell.difference.doubt,
            }
        cells[metric] = entry
    cost = None if row.cost is None else {name: _number(getattr(row.cost, name)) for name in Cost.__slots__}
    return {
        "run": row.run.run,
        "path": row.run.path,
        "method": row.run.method,
        "kind": row.run.kind,
        "status": row.run.status,
        "done": row.run.done,
        "failed": row.run.failed,
        "cost": cost,
        "indexing": None if row.indexing is None else asdict(row.indexing),
        "violations": list(row.violations),
        "contaminated": list(row.contaminated),
        "metrics": cells,
    }
