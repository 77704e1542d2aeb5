"""The board: methods against metrics on one dataset in one setting, with intervals and paired differences.

Runs share a board only when what must be equal is equal: dataset fingerprint, setting and seed. Controls are
listed and badged, never ranked and never tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from results import queries
from results.queries import Cost, RunRow
from results.statistics import Difference, Estimate, differences, estimates, holm
from results.store import Store


@dataclass(frozen=True, slots=True)
class Cell:
    """One method on one metric.

    Attributes:
        estimate: The value with its interval.
        difference: Against the board's reference on the same questions; None for the reference, for controls,
            and where there is no reference.
        p_holm: The difference's p-value, Holm-corrected within the column.
    """

    estimate: Estimate
    difference: Difference | None = None
    p_holm: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One run on a board."""

    run: RunRow
    cells: dict[str, Cell]
    cost: Cost | None

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
            "rows": [_row_json(row) for row in self.rows],
        }


def boards(store: Store, experiment: str | None = None, *, metrics: Sequence[str] | None = None) -> list[Board]:
    """The boards of an experiment (or of everything in the store), in the experiment's order.

    Args:
        store: Where to read.
        experiment: Its name; None takes every run and no reference.
        metrics: Ids to show, or their beginnings (`f1`, `recall@5`); None shows those that the experiment names, or
            all that were scored.

    Raises:
        UserError: No run was scored on one of the metrics.
    """
    reference = queries.experiment(store, experiment).reference if experiment else None
    found = groups(queries.runs(store, experiment))
    every = [run.run for group in found for run in group]
    if metrics is not None:
        metrics = queries.named_metrics(store, every, metrics)
    elif experiment is None:
        metrics = queries.metric_ids(store, every)
    return [board(store, group, reference=reference, metrics=metrics) for group in found]


def groups(runs: Sequence[RunRow]) -> list[list[RunRow]]:
    """Runs split into those that may share a board, each run once, in the order given."""
    found: dict[tuple[str, str, int], dict[str, RunRow]] = {}
    for run in runs:
        found.setdefault((run.dataset_fingerprint, run.setting, run.seed), {}).setdefault(run.run, run)
    return [list(group.values()) for group in found.values()]


def board(
    store: Store, runs: Sequence[RunRow], *, reference: str | None = None, metrics: Sequence[str] | None = None
) -> Board:
    """One board from runs that share dataset, setting and seed.

    Args:
        store: Where to read.
        runs: The rows.
        reference: Name of the method to compare with.
        metrics: Columns; None for what the experiment shows of these runs, or all that were scored.
    """
    first = runs[0]
    ids = [run.run for run in runs]
    if metrics is None and all(run.metrics is not None for run in runs):
        metrics = list(dict.fromkeys(metric for run in runs for metric in run.metrics or ()))
    shown = list(metrics) if metrics is not None else queries.metric_ids(store, ids)
    scores = queries.score_columns(store, first.dataset_fingerprint, ids, shown)
    names, documents, columns = scores.questions, scores.documents, scores.values
    clusters = documents if any(documents) else None
    base = next((run.run for run in runs if run.method == reference and run.kind != "control"), None)
    costs = queries.costs(store, ids)

    keys = [(run.run, metric) for run in runs for metric in shown if (run.run, metric) in columns]
    cells: dict[str, dict[str, Cell]] = {run: {} for run in ids}
    if keys:
        found = estimates(np.stack([columns[key] for key in keys]), clusters=clusters)
        for (run_id, metric), value in zip(keys, found, strict=True):
            # Questions without a row (not answered yet, or not scored on this metric) are not unscorable.
            cells[run_id][metric] = Cell(replace(value, unscorable=scores.unscorable[run_id, metric]))
    controls = {run.run for run in runs if run.kind == "control"}
    pairs = [key for key in keys if key[0] not in controls | {base} and (base, key[1]) in columns]
    if pairs and base:
        candidates = np.stack([columns[key] for key in pairs])
        against = np.stack([columns[base, metric] for _, metric in pairs])
        compared = dict(zip(pairs, differences(candidates, against, clusters=clusters), strict=True))
        for metric in shown:
            column = {key: paired for key, paired in compared.items() if key[1] == metric}
            corrected = holm([paired.p if paired.n else float("nan") for paired in column.values()])
            for ((run_id, _), paired), p in zip(column.items(), corrected, strict=True):
                cells[run_id][metric] = replace(cells[run_id][metric], difference=paired, p_holm=p)
    rows = tuple(Row(run, cells[run.run], costs.get(run.run)) for run in runs)
    return Board(
        first.dataset, first.dataset_fingerprint, first.setting, first.seed, reference if base else None,
        tuple(shown), rows, len(names), clusters is not None,
    )  # fmt: skip


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
        "metrics": cells,
    }
