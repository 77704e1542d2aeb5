"""Store the gate's decisions and read them: the history of a method over its checkpoints."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from results.gate.memory import Memory, identity, newest_of, remembered
from results.gate.verdicts import Gate, verdict_json
from results.store.queries import RunRow
from results.store.schema import after_all
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    """Stored gate decision on one metric.

    Attributes:
        baseline, candidate: Ids of the runs.
        margin: The tolerated loss, as a fraction.
        value, low, high: Candidate minus baseline with its interval, in the metric's own direction; None if no question was
            paired.
        n: Number of paired questions.
        details: Further figures: p-values, minimum detectable loss, clusters needed, unpaired questions, attempt, loss since
            the anchor, command-line arguments.
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


def record(store: Store, *gates: Gate, **how: Any) -> bool:
    """Store gate decisions in one transaction, one row per metric; if nothing was tested, store nothing.

    Args:
        store: The store to write.
        gates: The decisions.
        how: Further details to store: the names of baseline and candidate, the checkpoint's hash …

    Returns:
        False if another process stored a decision in the meantime, which makes the attempt numbers wrong; the caller must then
        decide again. Else True.
    """
    with store.database.writing() as connection:
        for gate in gates:
            margins = {verdict.metric: verdict.decision.margin for verdict in gate.verdicts}
            known = remembered(connection, _members(gate, "baseline"), _members(gate, "candidate"), margins, gate.anchor)
            if any(_counts(verdict.memory) != _counts(known[verdict.metric]) for verdict in gate.verdicts):
                return False
        decided_at = after_all(connection, "gates", "decided_at")
        for gate in gates:
            for row in _rows(gate, decided_at, how):
                connection.execute(f"INSERT INTO gates VALUES ({', '.join('?' * len(row))})", row)
    return True


def _members(gate: Gate, role: str) -> tuple[RunRow, ...]:
    return gate.members.get(role, (gate.baseline if role == "baseline" else gate.candidate,))


def _counts(memory: Memory) -> tuple[int, int]:
    return memory.attempt, memory.number


def _rows(gate: Gate, decided_at: datetime, how: dict[str, Any]) -> list[list[Any]]:
    rows = []
    for verdict in gate.verdicts if gate.outcome != "not tested" else ():
        value, low, high = (None if math.isnan(number) else number for number in verdict.change)
        details = {**verdict_json(verdict), **how, "gate": gate.outcome, "partial": gate.partial, "remarks": list(gate.remarks)}
        rows.append(
            [
                newest_of(_members(gate, "baseline")).run,
                newest_of(_members(gate, "candidate")).run,
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
                identity(gate.candidate),
                gate.anchor,
            ]
        )
    return rows


def history(store: Store, run: str | None = None) -> list[Decided]:
    """List stored gate decisions, newest first: all, or those with this run as baseline or candidate."""
    rows = store.database.rows(
        """SELECT baseline, candidate, metric, margin, strict, outcome, value, low, high, n, details, decided_at
               FROM gates WHERE ? IS NULL OR baseline = ? OR candidate = ? ORDER BY decided_at DESC, rowid""",
        [run, run, run],
        lenient=True,
    )
    return [Decided(*(*row[:10], json.loads(row[10]), row[11])) for row in rows]
