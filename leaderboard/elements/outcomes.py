"""Show what the gate decided, on boards and timelines."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.elements.nodes import Node, badge
from results.store.queries import RunRow

OUTCOMES = {"regressed": "failed", "inconclusive": "", "pass": "verified"}
"""Style of an outcome; the worst first."""


def outcome_badge(outcome: str, tip: str = "") -> Node:
    """Return how a gate's outcome looks."""
    return badge(outcome, OUTCOMES.get(outcome, ""), tip)


def gate_marks(runs: Iterable[RunRow]) -> list[Node]:
    """Return the mark of runs that were candidates of a gate: the worst of their newest outcomes; none without a gate."""
    outcomes = {run.gate for run in runs if run.gate}
    worst = next((name for name in OUTCOMES if name in outcomes), None)
    if worst is None:
        return []
    return [badge(f"gate: {worst}", OUTCOMES[worst], "The newest gate about this method; its page shows the timeline")]
