"""Compute from the plan how long processes of a training wait for each other within a step."""

from __future__ import annotations

from ragmeter.plan.plan import plan_training
from ragmeter.trainings import TrainingPlan
from results.store.store import Store

STEPS = 20.0
"""Time-out in steps on the slowest GPU of the plan."""


def group_timeout(plan: TrainingPlan, store: Store) -> float:
    """Return how many seconds the processes of a joint training should wait for each other, from its estimated steps; 0 if unknown."""
    steps = [(max(filter(None, row.hours.values()), default=0.0), row.key["steps"]) for row in plan_training(plan, store).rows]
    return STEPS * max((3600 * hours / number for hours, number in steps if number), default=0.0)
