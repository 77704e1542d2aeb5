"""Trainings carried out: each stage's checkpoint with its card, entered into the store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmarks.core.errors import UserError, make_folder
from benchmarks.core.fingerprint import fingerprint
from benchmarks.read_questions import Recorder, recording, write_record
from judges.llm.match import MatchVerdicts
from methods.api import Judge, Services
from methods.training import TRAININGS, Progress, Silent, TrainedStage, TrainingConfig, TrainingContext, TrainingEntry
from ragmeter.runner import side_by_side
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.rewriting import judge_measuring
from ragmeter.trainings import TrainingPlan, checkpoint_home, identity
from results.store import checkpoints
from results.store.checkpoints import Checkpoint
from results.store.store import Store

MEASURE = "accuracy"
"""What a judge must measure to say of an answer whether it is right."""


def judge_for(config: TrainingConfig, cache: Path | None, device: str | None) -> Judge | None:
    """The judge that a training's options ask for, checked, reached and built; None where they ask for none.

    Raises:
        UserError: There is no such judge of answers, or its options are not right.
        Broke: Its endpoint does not answer.
    """
    if config.wanted_judge is None:
        return None
    name, options = config.wanted_judge
    judge = judge_measuring(MEASURE, name, options, "the judge of the training")
    judge.config.reach(cache)
    return MatchVerdicts(judge.build(Services(config.seed, device=device, cache=cache)), fingerprint(judge.identity))


@dataclass(frozen=True)
class TrainingJob:
    """A training that is to be carried out.

    Attributes:
        entry, config: What, and how.
        store: Provides folders and the cache of replies; the checkpoints are stored there.
        output: Folder of the checkpoints; None: the store's own.
        device: None to choose.
    """

    entry: TrainingEntry
    config: TrainingConfig
    store: Store
    output: Path | None = None
    device: str | None = None

    @property
    def work(self) -> Path:
        """Folder of the artifacts."""
        return self.store.artifacts / "training" / f"{self.entry.id}-{identity(self.entry, self.config)}"

    @property
    def home(self) -> Path:
        """Folder of the checkpoints."""
        return (self.output or checkpoint_home(self.entry, self.config, self.store.folder)).absolute()

    def run(self, progress: Progress, until: str | None = None) -> list[tuple[TrainedStage, Checkpoint]]:
        """Train; what was finished before is taken over.

        Args:
            progress: Reports steps.
            until: Stop after this stage.

        Raises:
            UserError: Data or options do not allow it, or there is no such folder as `output` names.
            Broke: A model that it needs cannot be used.
        """
        if self.output is not None:
            # A checkpoint that has nowhere to go would be known only after hours.
            make_folder(self.home, self.output)
        with self._alone():
            return self._run(progress, until)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other commands from the same training; processes that share it (`accelerate`) come in with the first.

        Raises:
            UserError: Another one carries it out.
        """
        if os.environ.get("RANK", "0") != "0":
            yield
            return
        make_folder(self.work.parent)
        try:
            with FileLock(f"{self.work}.lock", timeout=0):
                yield
        except Timeout:
            raise UserError(
                f"another process carries out this training of {self.entry.id}",
                code="training-in-progress",
                where=str(self.work),
                try_this="wait until it has ended; what it made is then taken over",
            ) from None

    def _run(self, progress: Progress, until: str | None) -> list[tuple[TrainedStage, Checkpoint]]:
        judge = judge_for(self.config, self.store.cache, self.device)
        services = Services(self.config.seed, self.store.artifacts, self.device, judge=judge, cache=self.store.cache)
        earlier: dict[str, Checkpoint] = {}
        trained = []
        read = Recorder()
        with recording(read):
            for stage in self.entry.factory(self.config).run(TrainingContext(self.work, self.home, services, progress)):
                earlier[stage.stage] = self._enter(stage, earlier, read)
                trained.append((stage, earlier[stage.stage]))
                if stage.stage == until:
                    break
        return trained

    def _enter(self, stage: TrainedStage, earlier: Mapping[str, Checkpoint], read: Recorder) -> Checkpoint:
        """Write a stage's card and what was read, unless it has them already, and register the checkpoint."""
        parents = [earlier[parent].sha256 if parent in earlier else parent for parent in stage.parents]
        card = stage.folder / checkpoints.CARD
        # A stage that was trained before read more than this process did.
        if stage.fresh and (hashes := read.read()) is not None:
            write_record(stage.folder, hashes)
        if stage.fresh or not card.exists():
            result = checkpoints.describe(
                stage.folder,
                method=self.entry.id,
                stage=stage.stage,
                version=self.entry.version,
                config=self.config.model_dump(mode="json"),
                parents=parents,
                data=stage.data,
            )
        else:
            result = checkpoints.verify(stage.folder)
        return checkpoints.register(self.store, result.path)


def run_trainings(plans: Iterable[TrainingPlan], store: Store, device: str | None, progress: TrainingProgress, *, processes: bool) -> None:
    """Train what is not trained yet, each after those that it needs.

    Args:
        plans: Trainings; what one needs stands before it.
        store: Takes the checkpoints.
        device: None to choose.
        progress: Shows them.
        processes: Whether those that do not wait for one another may be carried out side by side on a CPU, each in a process
            of its own; from the main thread only. `multiprocessing` imports the main module in each: a script does its work
            under `__name__ == "__main__"`.

    Raises:
        UserError: Data or options do not allow it.
        Broke: A model that one needs cannot be used, or a process was killed.
    """
    # Two of the same options are one training.
    every: dict[Path, TrainingPlan] = {}
    for plan in plans:
        every.setdefault(plan.folder(store.folder), plan)
    left = [plan for plan in every.values() if plan.trained(store.folder) != plan.stages]
    if processes and left and len(every) > 1:
        workers = side_by_side.at_once([*every.values()], side_by_side.cores(), side_by_side.memory(device), store.folder)
        if workers > 1:
            side_by_side.train_side_by_side(left, workers, train_alone, store, device, progress)
            return
    for plan in left:
        progress.begin(plan.name_and_seed)
        _train(plan.entry, plan.config, store, device, progress)


def train_alone(training: str, options: Mapping[str, Any], store: Path, device: str | None) -> None:
    """Carry out a training in a process of its own; another process shows the progress."""
    entry = TRAININGS.get(training)
    _train(entry, entry.validate(options), Store(store), device, Silent())


def _train(entry: TrainingEntry, config: TrainingConfig, store: Store, device: str | None, progress: Progress) -> None:
    # Only now are the checkpoints there that its options may name.
    entry.preflight(config)
    config.reach(store.cache)
    TrainingJob(entry, config, store, device=device).run(progress)
