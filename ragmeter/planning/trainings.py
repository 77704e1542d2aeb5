"""What an experiment's trainings take, stage by stage; stages that are trained already take nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from methods.clara.training_config import ClaraTrainingConfig
from ragmeter.planning import train_ark, train_clara, train_graph, train_sark
from ragmeter.planning.cost import Cost, unknown
from ragmeter.planning.lessons import DATA, Classroom, Lesson
from ragmeter.trainings import TrainingPlan

PLANNERS: Mapping[str, Callable[[Any, Classroom], list[Lesson]]] = {
    "ark": train_ark.lessons,
    "gpr": train_graph.gpr_lessons,
    "skp": train_graph.skp_lessons,
    "graph_cross_encoder": train_graph.cross_encoder_lessons,
    "sark": train_sark.lessons,
    "clara": train_clara.lessons,
}
"""By the training's name; of any other the cost is unknown."""

Named = tuple[str, Mapping[str, Mapping[str, Any]]]
"""A data reference, and options of loaders by dataset id."""


@dataclass(frozen=True)
class TrainingRow:
    """A stage of a training.

    Attributes:
        name, id, seed: The training.
        stage: The stage, or `data` for what is prepared before the first.
        trained: Whether it is done.
        rows, steps: At most; None: unknown, or not a stage that trains.
        origin: Where the numbers of its data are from, the least sure of several.
        cost: What is left, at most.
        scratch: Bytes on disk while it runs.
    """

    name: str
    id: str
    seed: int
    stage: str
    trained: bool
    rows: float | None
    steps: float | None
    origin: str
    cost: Cost
    scratch: float

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "training": self.name,
            "id": self.id,
            "seed": self.seed,
            "stage": self.stage,
            "trained": self.trained,
            "rows": None if self.rows is None else round(self.rows),
            "steps": None if self.steps is None else round(self.steps),
            "lengths": self.origin,
            "scratch_bytes": round(self.scratch),
            "cost": self.cost.to_json(),
        }


def training_rows(plans: Sequence[TrainingPlan], room: Classroom, store: Path) -> list[TrainingRow]:
    """The stages of trainings, in order."""
    return [row for plan in plans for row in _rows(plan, room, store)]


def _rows(plan: TrainingPlan, room: Classroom, store: Path) -> list[TrainingRow]:
    planner = PLANNERS.get(plan.entry.id)
    done = set(plan.trained(store))
    if planner is None:
        reason = unknown(f"training {plan.name}: {plan.entry.id} says nothing of its cost")
        lessons = [Lesson(stage, None, None, reason) for stage in plan.stages]
    else:
        lessons = planner(plan.config, room)
    return [_row(plan, room, lesson, done) for lesson in lessons]


def _row(plan: TrainingPlan, room: Classroom, lesson: Lesson, done: set[str]) -> TrainingRow:
    # Data are made before the first stage; where all are trained, nothing of them is needed.
    trained = lesson.stage in done or (lesson.stage == DATA and done >= set(plan.stages))
    cost = Cost() if trained else room.once(lesson)
    return TrainingRow(
        plan.name,
        plan.entry.id,
        plan.config.seed,
        lesson.stage,
        trained,
        lesson.rows,
        lesson.steps,
        origin_of(plan, room),
        cost,
        0.0 if trained else lesson.scratch,
    )


def references_of(plan: TrainingPlan) -> list[Named]:
    """The data that a training names, held-out ones too, with the options of their loaders by dataset id."""
    config: Any = plan.config
    found: list[Named] = []
    if isinstance(config, ClaraTrainingConfig):
        found += [(one, config.data.options) for stage in config.planned for one in config.references(stage)]
        held = config.validation
        found += [(one, held.options) for one in (*held.scp, *held.instruction, *held.joint)]
    else:
        for name in ("graph", "data", "validation"):
            given = getattr(config, f"{name}_options", {})
            found += [(one, given) for one in getattr(config, name, ())]
    return list({one: (one, given) for one, given in found}.values())


ORDER = ("counted", "sampled", "stated", "unknown")
"""From sure to unsure."""


def origin_of(plan: TrainingPlan, room: Classroom) -> str:
    """Where the lengths of a training's data are from: the least sure of several."""
    origins = [room.shape(one, given).origin for one, given in references_of(plan)]
    return max(origins, key=ORDER.index, default="unknown")
