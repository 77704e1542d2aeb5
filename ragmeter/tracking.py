"""Results in an experiment tracker, Weights & Biases or MLflow: one of its runs per method and benchmark.

Results are read from the store, so that a tracker that fails loses nothing. Logging again updates the same runs.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, MissingPackage
from results.boards.board import Board, Row
from results.boards.markup import to_csv
from results.boards.tables import CSV_COLUMNS, board_notes, notes_of, tidy, title_of
from results.store.store import Store

TABLE, NOTES = "table.csv", "notes.txt"
_LONGEST = 500
"""Maximum characters of a parameter in all trackers."""


@dataclass(frozen=True, slots=True)
class Logged:
    """Data that are logged to an experiment tracker for one row.

    Attributes:
        run: Id of the run in the store, which also identifies the tracker's run.
        name: Display name.
        params: Settings and identity, as a flat mapping.
        metrics: For each metric value, low, high, n, unscored and unscorable; missing numbers are left out.
        tags: Short texts to filter by.
        table: The benchmark's complete table as CSV, with intervals, stars and notes.
        notes: Remarks on the row, then the notes below the table.
    """

    run: str
    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    table: str
    notes: str


def log(store: Store, boards: Sequence[Board], to: str, project: str) -> list[str]:
    """Log all rows of boards to an experiment tracker.

    Args:
        store: The store that holds the results.
        boards: The boards to log.
        to: "wandb" or "mlflow"; each reads its own environment variables (`WANDB_MODE`, `MLFLOW_TRACKING_URI` …).
        project: Name of the tracker's project or experiment.

    Returns:
        The ids of the runs that were logged.

    Raises:
        MissingPackage: The tracker is not installed.
        Broke: The tracker failed; results are still in the store.
    """
    send = {"wandb": _wandb, "mlflow": _mlflow}[to]
    done: list[str] = []
    for item in (logged(store, board, row) for board in boards for row in board.rows):
        try:
            send(item, project)
        except (MissingPackage, KeyboardInterrupt):
            raise
        except BaseException as error:  # trackers may raise anything, even SystemExit
            raise Broke(
                f"{to} failed at {item.name}: {type(error).__name__}: {error}",
                code="tracker-failed",
                where=f"after {len(done)} runs",
                try_this="the results are in the store: correct the tracker's settings and run the command again",
            ) from error
        done.append(item.run)
    return done


def logged(store: Store, board: Board, row: Row) -> Logged:
    """Collect the data to log for one row."""
    run = row.run
    identity = {
        "method": run.method, "method_id": run.method_id, "kind": run.kind, "dataset": run.dataset, "setting": run.setting,
        "dataset_fingerprint": run.dataset_fingerprint, "seed": run.seed, "fingerprint": run.fingerprint, "run": run.run,
        "path": run.path, "store": str(store.folder), "show": f"ragmeter results show {run.run} --store {store.folder}",
    }  # fmt: skip
    params = {name: str(value) for name, value in {**identity, **dict(_flat(run.description, "settings"))}.items()}
    metrics: dict[str, float] = {}
    for metric, name in _names(list(row.cells)).items():
        cell = row.cells[metric]
        value, params[f"metric.{name}"] = cell.estimate, metric
        parts = {"": value.value, "/low": value.low, "/high": value.high, "/n": value.n}
        parts |= {"/unscored": cell.unscored, "/unscorable": value.unscorable}
        if cell.difference is not None:
            parts |= {"/difference": cell.difference.value, "/difference_low": cell.difference.low}
            parts |= {"/difference_high": cell.difference.high, "/p_holm": math.nan if cell.p_holm is None else cell.p_holm}
        metrics |= {name + part: float(number) for part, number in parts.items() if math.isfinite(number)}
    metrics |= {"questions": float(run.questions), "answered": float(run.done), "failed": float(run.failed)}
    spent = {} if row.cost is None else {"cost_usd": row.cost.cost_usd, "seconds": row.cost.seconds, "tokens": row.cost.tokens}
    metrics |= {f"cost/{name}": float(number) for name, number in spent.items() if number is not None and math.isfinite(number)}
    own = dict.fromkeys(note for cell in row.cells.values() for note in notes_of(board, row, cell))
    return Logged(
        run.run,
        f"{run.method} on {title_of(board)}",
        {name: text[:_LONGEST] for name, text in params.items()},
        metrics,
        {"ragmeter.run": run.run, "ragmeter.status": run.status, "ragmeter.origin": run.origin, "ragmeter.kind": run.kind},
        to_csv(CSV_COLUMNS, tidy(board)),
        "\n".join([*own, "", *board_notes(board), ""]),
    )


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a description by dotted names."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{re.sub(r'[^A-Za-z0-9_. -]', '_', str(key))}")
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        for position, inner in enumerate(value):
            yield from _flat(inner, f"{name}.{position}")
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, default=str)


def _names(metrics: Sequence[str]) -> dict[str, str]:
    """Return distinct metric names that are valid in all trackers."""
    names: dict[str, str] = {}
    for metric in metrics:
        short = re.sub(r"[^A-Za-z0-9_.-]+", "_", metric).strip("_")
        taken = sum(name == short or name.startswith(f"{short}__") for name in names.values())
        names[metric] = f"{short}__{taken + 1}" if taken else short
    return names


@contextmanager
def _files(item: Logged) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / TABLE, Path(folder) / NOTES]
        for path, text in zip(paths, (item.table, item.notes), strict=True):
            path.write_text(text, "utf-8")
        yield paths


def _wandb(item: Logged, project: str) -> None:
    try:
        import wandb
    except ImportError as error:
        raise MissingPackage("wandb", "wandb", "logging to Weights & Biases") from error
    tags = [f"{name.removeprefix('ragmeter.')}:{text}"[:64] for name, text in item.tags.items() if name != "ragmeter.run"]
    shared: dict[str, Any] = {"project": project, "name": item.name, "id": item.run, "resume": "allow", "tags": tags}
    with _files(item) as paths, wandb.init(config=dict(item.params), notes=item.notes[:5000], **shared) as run:
        run.summary.update(dict(item.metrics))
        artifact = wandb.Artifact(f"table-{item.run}", type="table")
        for path in paths:
            artifact.add_file(str(path), name=path.name)
        run.log_artifact(artifact)


def _mlflow(item: Logged, project: str) -> None:
    try:
        import mlflow
    except ImportError as error:
        raise MissingPackage("mlflow-skinny", "mlflow", "logging to MLflow") from error
    experiment = mlflow.set_experiment(project)
    known = mlflow.search_runs([experiment.experiment_id], f"tags.`ragmeter.run` = '{item.run}'", output_format="list", max_results=1)
    start = {"run_id": known[0].info.run_id} if known else {"run_name": item.name}
    with _files(item) as paths, mlflow.start_run(**start):
        mlflow.set_tags({**item.tags, "mlflow.note.content": item.notes[:5000]})
        mlflow.log_params(dict(item.params))
        mlflow.log_metrics(dict(item.metrics))
        for path in paths:
            mlflow.log_artifact(str(path))
