"""All that the store knows of one method: cards, runs on every board, what they took, checkpoints with their curves."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from results import queries
from results.queries import Columns, Cost, RunRow
from results.redaction import shareable
from results.statistics import Estimate, estimates
from results.store import Store

CURVE = "curve.jsonl"
"""What a training leaves in its checkpoint's folder: one JSON object a step."""
_MOST_BYTES = 32 * 2**20
"""No more of a curve is read."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a method.

    Attributes:
        run: The run, with the name that an experiment gives it.
        values: By metric id, in the order asked for; those that it was not scored on are left out.
        cost: None where nothing was measured.
        stages: Mean seconds per question by stage.
        peak_memory_bytes: The most that any question took; 0 where it was not measured.
    """

    run: RunRow
    values: dict[str, Estimate]
    cost: Cost | None
    stages: dict[str, float]
    peak_memory_bytes: int


def cards(store: Store) -> dict[str, dict[str, Any]]:
    """Cards of methods and of their parts by id, the newest version of each."""
    with store.database.reading() as connection:
        rows = connection.execute("SELECT id, card FROM methods ORDER BY id, version").fetchall()
    return {name: shareable(card) for name, card in rows}


def method_ids(store: Store) -> list[str]:
    """Ids of the methods that have runs or registered checkpoints, in alphabetical order."""
    with store.database.reading() as connection:
        rows = connection.execute("SELECT method_id FROM runs UNION SELECT method FROM checkpoints ORDER BY 1").fetchall()
    return [row[0] for row in rows]


def runs_of(store: Store, method: str) -> list[RunRow]:
    """A method's runs, each once, by dataset, setting and seed."""
    made: dict[str, RunRow] = {}
    for run in queries.runs(store, method=method):
        made.setdefault(run.run, run)
    return sorted(made.values(), key=lambda run: (run.dataset, run.setting, run.seed, run.method))


def results_of(store: Store, runs: Sequence[RunRow], metrics: Sequence[str]) -> list[Result]:
    """What runs scored and took, in their order.

    Args:
        store: Where to read.
        runs: Of whatever data.
        metrics: Ids.
    """
    ids = [run.run for run in runs]
    by_data: dict[str, list[str]] = {}
    for run in runs:
        by_data.setdefault(run.dataset_fingerprint, []).append(run.run)
    with store.database.reading():
        read = list(queries.score_columns_by_data(store, by_data, metrics).values())
        costs, stages, peaks = queries.costs(store, ids), stage_seconds(store, ids), _peaks(store, ids)
    values: dict[str, dict[str, Estimate]] = {run: {} for run in ids}
    # Columns over equally many questions, none of which shares a document, are resampled alike: once for all of them.
    alike: dict[object, list[Columns]] = {}
    for number, found in enumerate(read):
        alike.setdefault(("own", number) if any(found.documents) else len(found.questions), []).append(found)
    for group in alike.values():
        keys = [(found, *key) for found in group for key in found.values]
        if not keys:
            continue
        clusters = group[0].documents if any(group[0].documents) else None
        whole = estimates(np.stack([found.values[run, metric] for found, run, metric in keys]), clusters=clusters)
        for (found, name, metric), one in zip(keys, whole, strict=True):
            values[name][metric] = replace(one, unscorable=found.unscorable[name, metric])
    ordered = {name: {metric: had[metric] for metric in metrics if metric in had} for name, had in values.items()}
    return [Result(run, ordered[run.run], costs.get(run.run), stages.get(run.run, {}), peaks.get(run.run, 0)) for run in runs]


def stage_seconds(store: Store, runs: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean seconds per question by run and stage, the longest stage first; a stage that a question skipped took 0."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """WITH mine AS (SELECT run, stages FROM usage WHERE list_contains(?, run)),
                    counts AS (SELECT run, count(*) AS n FROM mine GROUP BY run),
                    parts AS (SELECT run, unnest(map_entries(from_json(stages, '"MAP(VARCHAR, DOUBLE)"'))) AS part
                              FROM mine)
               SELECT run, part.key, sum(part.value) / any_value(n) AS mean FROM parts JOIN counts USING (run)
               GROUP BY run, part.key ORDER BY run, mean DESC, part.key""",
            [list(runs)],
        ).fetchall()
    found: dict[str, dict[str, float]] = {}
    for run, stage, mean in rows:
        found.setdefault(run, {})[stage] = mean
    return found


def _peaks(store: Store, runs: Sequence[str]) -> dict[str, int]:
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT run, max(peak_memory_bytes) FROM usage WHERE list_contains(?, run) GROUP BY run", [list(runs)]
        ).fetchall()
    return dict(rows)


def curve(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """The curves that a training left in a checkpoint's folder: by figure, (step, value).

    Lines without a step, values that are no finite numbers, and a last line that was cut off are left out.

    Args:
        folder: The checkpoint's, as registered.

    Returns:
        Nothing where the folder has no curve or is gone.
    """
    try:
        with (folder / CURVE).open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    found: dict[str, list[tuple[float, float]]] = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if not isinstance(row, dict) or not _finite(row.get("step")):
            continue
        for name, value in row.items():
            if name != "step" and _finite(value):
                found.setdefault(str(name), []).append((float(row["step"]), float(value)))
    return found


def thinned(points: Sequence[tuple[float, float]], most: int = 400) -> list[tuple[float, float]]:
    """At most `most` points of a curve: means over equally long stretches, so that a spike moves its stretch only."""
    if len(points) <= most:
        return list(points)
    parts = np.array_split(np.asarray(points, np.float64), most)
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts]


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
