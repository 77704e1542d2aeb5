"""Store the gate's decisions and read them: the history of a method over its checkpoints."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from results.gate.decision import Gate, verdict_json
from results.store.database import now
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    """A stored decision on one metric: one point of a checkpoint's history.

    Attributes:
        baseline, candidate: Ids of the runs.
        margin: The tolerated loss.
        value, low, high: Candidate minus baseline as the metric counts; None if no question was paired.
        n: Paired questions.
        details: p-values, minimum detectable loss, clusters needed, unpaired questions, the arguments of the command.
    """

    baseline: str
    candidate: str
    metric: str
    margin: float
    strict: bool
    outcome: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    details: dict[str, Any]
    decided_at: datetime


def record(store: Store, gate: Gate, **how: Any) -> None:
    """Store a decision, one row per metric; if nothing was tested, nothing is stored.

    Args:
        store: Where to write.
        gate: The decision.
        how: Further details: how baseline and candidate were named, the checkpoint's hash …
    """
    decided_at = now()
    rows = []
    for verdict in gate.verdicts if gate.outcome != "not tested" else ():
        value, low, high = (None if math.isnan(number) else number for number in verdict.change)
        details = {**verdict_json(verdict), **how, "gate": gate.outcome, "partial": gate.partial, "remarks": list(gate.remarks)}
        rows.append(
            [
                gate.baseline.run,
                gate.candidate.run,
                verdict.metric,
                verdict.decision.margin,
                gate.strict,
                verdict.outcome,
                value,
                low,
                high,
                verdict.decision.difference.n,
                json.dumps(details, ensure_ascii=False, allow_nan=False),
                decided_at,
            ]
        )
    if not rows:
        return
    with store.database.writing() as connection:
        connection.executemany("INSERT INTO gates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def history(store: Store, run: str | None = None) -> list[Decided]:
    """Return stored decisions, newest first: all, or those with this run on either side."""
    rows = store.database.rows(
        """SELECT baseline, candidate, metric, margin, strict, outcome, value, low, high, n, details, decided_at
               FROM gates WHERE ? IS NULL OR baseline = ? OR candidate = ? ORDER BY decided_at DESC, rowid""",
        [run, run, run],
        lenient=True,
    )
    return [Decided(*(*row[:10], json.loads(row[10]), row[11])) for row in rows]
