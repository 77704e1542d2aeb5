"""Check the prerequisites of an experiment: packages, keys, weights, options, devices and disk.

A run stops at the first thing that is missing; a plan lists all of them (`ragmeter/plan`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.core.errors import MissingPackage, UserError
from judges.judge import JUDGES
from methods.models.weights import MissingWeights, missing_weights
from methods.registry import require_extra
from methods.work import Needs
from ragmeter.experiment import Experiment, candidate_retriever
from ragmeter.runner.tasks import MINIMUM_FREE_BYTES, require_device
from ragmeter.trainings import TrainingPlan
from results.store.store import Store


class MissingSpace(UserError):
    """Raised if the disk has too little free space."""


def to_train(trainings: Sequence[TrainingPlan], store: Store) -> list[TrainingPlan]:
    """Select the trainings that lack a checkpoint."""
    return [plan for plan in trainings if plan.trained(store.folder) != plan.stages]


def homes_of(trainings: Sequence[TrainingPlan], store: Store) -> Mapping[Path, TrainingPlan]:
    """Map the folders of checkpoints to their trainings."""
    return {plan.folder(store.folder).absolute(): plan for plan in trainings}


def training_of(model: str, homes: Mapping[Path, TrainingPlan]) -> TrainingPlan | None:
    """Find the training that produces a checkpoint folder (a stage's folder, or an encoder's folder in it); None if there is none."""
    path = Path(model).expanduser().absolute()
    return next(filter(None, map(homes.get, (path, *path.parents[:2]))), None)


def checks(experiment: Experiment | None, trainings: Sequence[TrainingPlan], store: Store) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield (row name, check) pairs; each check raises `UserError` if a prerequisite of a run is missing.

    Args:
        experiment: The experiment; None for trainings only.
        trainings: All of its trainings.
        store: The store that holds their checkpoints.
    """
    left, homes = to_train(trainings, store), homes_of(trainings, store)
    for plan in left:
        yield plan.name, partial(require_extra, plan.entry.extra, f"training {plan.name}")
        # The card of another training's checkpoint cannot be checked before it exists.
        if not plan.needs:
            yield plan.name, partial(plan.entry.preflight, plan.config)
    if experiment is None:
        return
    waiting = {(plan.name, plan.config.seed) for plan in left}
    for method in experiment.methods:
        waits = any((plan.name, plan.config.seed) in waiting for plan in method.needs)
        for part in method.components:
            later = waits and (part.needs is None or any(training_of(item.model, homes) for item in part.needs.checkpoints))
            yield method.name, partial(require_extra, part.entry.extra, part.id) if later else part.preflight
    for benchmark in experiment.benchmarks:
        if (retriever := candidate_retriever(benchmark.setting)) is not None:
            yield f"setting {benchmark.setting}", retriever.preflight
    for judge in experiment.judges:
        yield f"judge {judge.judge}", judge.judge.config.preflight


def preflight(experiment: Experiment, store: Store, device: str | None = None) -> None:
    """Check all prerequisites before a run starts: packages, keys, data, models, disk.

    Raises:
        UserError: A prerequisite is missing; the message explains how to provide it.
    """
    for _, check in checks(experiment, experiment.trainings, store):
        check()
    require_device(device)
    require_disk(store)


def require_disk(store: Store, needed: float = 0.0) -> None:
    """Check the free space on the store's disk.

    Raises:
        MissingSpace: There is less than `needed`, or less than every run needs.
    """
    folder = next(item for item in (store.folder.absolute(), *store.folder.absolute().parents) if item.exists())
    free, wanted = shutil.disk_usage(folder).free, max(float(MINIMUM_FREE_BYTES), needed)
    if free < wanted:
        raise MissingSpace(
            f"{wanted / 1e9:,.1f} GB may be needed on the store's disk, and {free / 1e9:,.1f} GB are free",
            code="store-disk-too-small",
            where=str(store.folder),
            try_this="free some space, or choose another disk with --store FOLDER",
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """Missing prerequisite of a run.

    Attributes:
        kind: "data", "key", "package", "model", "disk" or "other".
        needed_by: Names of the rows that need it.
    """

    kind: str
    what: str
    where: str | None
    remedy: str | None
    needed_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the missing prerequisite as a JSON object."""
        return {"kind": self.kind, "what": self.what, "where": self.where, "try": self.remedy, "needed_by": list(self.needed_by)}


def needs_of(experiment: Experiment | None, trainings: Sequence[TrainingPlan]) -> Iterator[tuple[str, Needs]]:
    """Yield (name, requirements) of trainings, methods, settings and judges."""
    for plan in trainings:
        yield plan.name, plan.models or Needs()
        if plan.config.wanted_judge is not None:
            name, value = plan.config.wanted_judge
            yield plan.name, JUDGES.get(name).config.model_validate(value).needs
    if experiment is None:
        return
    for method in experiment.methods:
        yield from ((method.name, part.needs or Needs()) for part in method.components)
    for benchmark in experiment.benchmarks:
        if (part := candidate_retriever(benchmark.setting)) is not None:
            yield f"setting {benchmark.setting}", part.needs or Needs()
    yield from ((str(judge.judge), judge.judge.config.needs) for judge in experiment.judges)


def all_missing(
    experiment: Experiment | None, trainings: Sequence[TrainingPlan], store: Store, absent: Mapping[str, Sequence[UserError]], disk: float
) -> tuple[Missing, ...]:
    """List all missing prerequisites, each once.

    Args:
        experiment: The experiment; None for trainings only.
        trainings: All of its trainings.
        store: The store for results and checkpoints.
        absent: Errors about missing data files, by the rows that need them.
        disk: Required disk space, in bytes.
    """
    absences: list[tuple[str, str, UserError]] = [("data", who, error) for who, errors in absent.items() for error in errors]
    homes = homes_of(trainings, store)
    needs = list(needs_of(experiment, to_train(trainings, store)))
    required: list[tuple[str, Callable[[], object]]] = [(who, chat.key) for who, need in needs for chat in need.endpoints]
    required += [*checks(experiment, trainings, store), ("the whole", partial(require_disk, store, disk))]
    for who, check in required:
        try:
            check()
        except MissingWeights:
            pass  # listed below, for each model
        except UserError as refusal:
            absences.append((_kind(refusal), who, refusal))
    local = [(who, item) for who, need in needs for item in need.checkpoints if training_of(item.model, homes) is None]
    for who, item in local:
        if (absence := missing_weights(item)) is not None:
            absences.append(("model", who, absence))
    merged: dict[tuple[str, str, str | None], Missing] = {}
    for kind, who, error in absences:
        key = (kind, error.what, error.try_this)
        before = merged[key].needed_by if key in merged else ()
        merged[key] = Missing(kind, error.what, error.where, error.try_this, tuple(dict.fromkeys((*before, who))))
    return tuple(merged.values())


def _kind(error: UserError) -> str:
    kinds = {MissingPackage: "package", MissingSpace: "disk"}
    return kinds.get(type(error), "key" if error.where == "key_variable" else "other")
