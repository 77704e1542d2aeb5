"""Show what the gate decided, on boards and timelines."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.elements.nodes import Node, badge
from results.store.queries import RunRow

OUTCOMES = {"regressed": "failed", "inconclusive": "", "pass": "verified"}
"""Style of an outcome; the worst first."""


def outcome_badge(outcome: str, tip: str = "") -> Node:
    """Make the label for a gate's outcome."""
    return badge(outcome, OUTCOMES.get(outcome, ""), tip)


def gate_marks(runs: Iterable[RunRow]) -> list[Node]:
    """Make the gate label of runs that were gate candidates: the worst of their newest outcomes; empty without a gate."""
    outcomes = {run.gate for run in runs if run.gate}
    worst = next((name for name in OUTCOMES if name in outcomes), None)
    if worst is None:
        return []
    return [badge(f"gate: {worst}", OUTCOMES[worst], "The newest gate about this method; its page shows the timeline")]
