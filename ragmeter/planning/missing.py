"""What must be there before an experiment can run and is not: keys, packages, weights, data; each with its remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.errors import MissingPackage, UserError
from methods.models.weights import locate
from methods.registry import require_extra
from methods.training import TrainingConfig
from ragmeter.candidates import candidate_retriever
from ragmeter.experiment import Experiment
from ragmeter.planning.needed_models import needed_models
from ragmeter.planning.shape import Shape
from ragmeter.planning.weights import Weights
from ragmeter.sizing.sizes import files_of
from ragmeter.tasks import MINIMUM_FREE_BYTES
from ragmeter.trainings import TrainingPlan

Kind = Literal["data", "key", "package", "model", "disk", "other"]


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is not there.

    Attributes:
        kind: What kind of thing.
        what: What is missing.
        where: Where it was looked for.
        remedy: How to get it.
        needed_by: Who needs it.
    """

    kind: Kind
    what: str
    where: str | None
    remedy: str | None
    needed_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"kind": self.kind, "what": self.what, "where": self.where, "try": self.remedy, "needed_by": list(self.needed_by)}


def missing(
    experiment: Experiment, shapes: Iterable[Shape], taught: Iterable[Shape], weights: Weights, store: Path, needed_disk: float
) -> list[Missing]:
    """All that an experiment lacks here, each thing once.

    Args:
        experiment: Validated.
        shapes: Of its benchmarks.
        taught: Of the data of trainings that are still to be carried out.
        weights: Knows which checkpoints its own trainings will make.
        store: Where results and checkpoints will lie.
        needed_disk: Bytes that the plan comes to, at most.
    """
    left = [plan for plan in experiment.trainings if plan.trained(store) != plan.stages]
    models = [one for model, who in needed_models(experiment, left, weights) for one in _of_model(*model, who)]
    found = [
        *_of_data(shapes, "benchmarks"),
        *_of_data(taught, "trainings"),
        *_of_trainings(left),
        *_of_methods(experiment, weights, store),
        *_of_judges(experiment),
        *models,
        *_of_disk(store, needed_disk),
    ]
    merged: dict[tuple[str, str, str | None], Missing] = {}
    for one in found:
        key = (one.kind, one.what, one.remedy)
        known = merged.get(key)
        who = tuple(dict.fromkeys((*known.needed_by, *one.needed_by))) if known else one.needed_by
        merged[key] = Missing(one.kind, one.what, one.where, one.remedy, who)
    return list(merged.values())


def checked(check: Callable[[], object], who: str) -> Iterator[Missing]:
    """What a check finds missing."""
    try:
        check()
    except UserError as error:
        yield _of_error(error, who)


def _of_error(error: UserError, who: str) -> Missing:
    kind: Kind = "other"
    if isinstance(error, MissingPackage):
        kind = "package"
    elif error.where == "key_variable":
        kind = "key"
    return Missing(kind, error.what, error.where, error.try_this, (who,))


def _of_data(shapes: Iterable[Shape], who: str) -> Iterator[Missing]:
    for shape in shapes:
        for error in shape.absent:
            yield Missing("data", error.what, error.where, error.try_this, (who,))


def _of_trainings(plans: Iterable[TrainingPlan]) -> Iterator[Missing]:
    for plan in plans:
        yield from checked(lambda plan=plan: require_extra(plan.entry.extra, f"training {plan.name}"), plan.name)  # type: ignore[misc]
        yield from _chats(plan.config, plan.name)
        # What a checkpoint of another training must say cannot be checked before it is there.
        if not plan.needs:
            yield from checked(plan.config.preflight, plan.name)


def _chats(config: TrainingConfig, who: str) -> Iterator[Missing]:
    """Every key, not only the first one that a preflight would stop at."""
    for chat in getattr(config, "chats", ()):
        yield from checked(chat.key, who)


def _of_methods(experiment: Experiment, weights: Weights, store: Path) -> Iterator[Missing]:
    for method in experiment.methods:
        waits = any(plan.trained(store) != plan.stages for plan in method.needs)
        for component in method.components:
            if waits and weights.training(str(getattr(component.config, "model", ""))) is not None:
                extra = component.entry.extra
                yield from checked(lambda extra=extra, c=component: require_extra(extra, c.id), method.name)  # type: ignore[misc]
                continue
            yield from checked(component.preflight, method.name)
    for plan in experiment.benchmarks:
        retriever = candidate_retriever(plan.setting)
        if retriever is not None:
            yield from checked(retriever.preflight, f"setting {plan.setting}")


def _of_judges(experiment: Experiment) -> Iterator[Missing]:
    for plan in experiment.judges:
        yield from checked(plan.judge.config.preflight, f"judge {plan.judge}")


def _of_model(model: str, revision: str | None, who: str) -> Iterator[Missing]:
    """Weights that are neither in a folder nor in the hub's cache."""
    try:
        located = Path(locate(model))
    except UserError as error:
        yield Missing("model", error.what, error.where, error.try_this, (who,))
        return
    if not located.is_dir() and files_of(model, revision) is None:
        at = f" --revision {revision}" if revision else ""
        yield Missing(
            "model", f"the weights of {model} are not here", None, f"hf download {model}{at}, or let `run` fetch them from the hub", (who,)
        )


def _of_disk(store: Path, needed: float) -> Iterator[Missing]:
    folder = store.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    wanted = max(float(MINIMUM_FREE_BYTES), needed)
    if free < wanted:
        yield Missing(
            "disk",
            f"{wanted / 1e9:,.1f} GB may be needed on the store's disk, and {free / 1e9:,.1f} GB are free",
            str(store),
            "free some space, or choose another disk with --store FOLDER",
            ("the whole",),
        )
