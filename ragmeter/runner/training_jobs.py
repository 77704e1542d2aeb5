"""Trainings carried out: each stage's checkpoint with its card, entered into the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmarks.core.errors import UserError, make_folder
from benchmarks.core.fingerprint import LENGTH, READ_QUESTIONS, FilesRead, file_sha256, fingerprint, recording_files
from benchmarks.own.documents import listing_hash
from benchmarks.read_questions import Recorder, recording, write_record
from benchmarks.sources import DATA_VARIABLE, data_folder
from judges.llm.match import MatchVerdicts
from methods.api import Judge, Services
from methods.models.weights import file_hash
from methods.training import TRAININGS, Prepared, Progress, Silent, TrainedStage, TrainingConfig, TrainingContext, TrainingEntry
from methods.training.ranks import TIMEOUT
from methods.training.stages import read_json, write_json
from ragmeter.runner import side_by_side
from ragmeter.runner.executors import group
from ragmeter.runner.executors.cluster import variables
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.rewriting import judge_measuring
from ragmeter.trainings import TrainingPlan, checkpoint_home, identity
from results.store import checkpoints
from results.store.checkpoints import Checkpoint
from results.store.store import Store

STEP_S = 1800.0
"""Minimum seconds that a process of a group waits for the others."""
TimeoutOf = Callable[[TrainingPlan, Store], float]
"""Function from a training to the seconds that its processes wait for each other within a step."""
FILES = "files.json"
"""File in a training's work folder with the files that it read."""
MEASURE = "accuracy"
"""Measure that a judge must have to decide whether an answer is correct."""


def judge_for(config: TrainingConfig, cache: Path | None, device: str | None) -> Judge | None:
    """Build the judge that a training's options request, after checking it; None if they request none.

    Raises:
        UserError: The judge is unknown, or its options are invalid.
        Broke: The judge's endpoint does not answer.
    """
    if config.wanted_judge is None:
        return None
    name, options = config.wanted_judge
    judge = judge_measuring(MEASURE, name, options, "the judge of the training")
    judge.config.reach(cache)
    return MatchVerdicts(judge.build(Services(config.seed, device=device, cache=cache)), fingerprint(judge.identity))


@dataclass(frozen=True)
class Processes:
    """Processes that carry out one training together.

    Attributes:
        count: Number of processes.
        in_ray: Whether they are actors of the connected Ray cluster instead of processes of this machine.
        gpus: GPUs per actor.
        timeout: Minimum seconds that they wait for each other.
    """

    count: int = 1
    in_ray: bool = False
    gpus: float = 0.0
    timeout: TimeoutOf = field(default=lambda plan, store: STEP_S, compare=False)

    @classmethod
    def chosen(cls, wanted: int | None, device: str | None, timeout: TimeoutOf, *, in_ray: bool = False) -> Processes:
        """Return the requested number of processes, by default one per GPU.

        Raises:
            UserError: The machine or cluster has too few GPUs.
        """
        if not in_ray:
            return cls(group.ranks(wanted, device), timeout=timeout)
        gpus = 0 if device == "cpu" else group.ray_gpus()
        count = wanted or max(1, gpus)
        if 0 < gpus < count:
            raise UserError(
                f"{count} processes need {count} GPUs, and the cluster has {gpus}",
                code="too-few-gpus",
                where="--processes",
                try_this=f"--processes {gpus}, or --device cpu",
            )
        return cls(count, True, float(gpus > 0), timeout) if count > 1 else ALONE


ALONE = Processes()


@dataclass(frozen=True)
class TrainingJob:
    """Training to be carried out.

    Attributes:
        entry, config: The registered training and its options.
        store: The store, for checkpoints, artifacts and the reply cache.
        output: Folder for the checkpoints; None: in the store.
        device: Device to train on; None chooses automatically.
    """

    entry: TrainingEntry
    config: TrainingConfig
    store: Store
    output: Path | None = None
    device: str | None = None

    @property
    def work(self) -> Path:
        """Return the folder of the training's intermediate artifacts."""
        return self.store.artifacts / "training" / f"{self.entry.id}-{identity(self.entry, self.config)}"

    @property
    def home(self) -> Path:
        """Return the folder of the training's checkpoints."""
        return (self.output or checkpoint_home(self.entry, self.config, self.store.folder)).absolute()

    def run(self, progress: Progress, until: str | None = None) -> list[tuple[TrainedStage, Checkpoint]]:
        """Train all stages; finished stages are reused.

        Args:
            progress: Receives a report of every step.
            until: Stop after this stage; None trains all.

        Raises:
            UserError: Data or options are invalid, or the folder `output` does not exist.
            Broke: A required model cannot be used.
        """
        if self.output is not None:
            # A checkpoint that has nowhere to go would be known only after hours.
            make_folder(self.home, self.output)
        with self._alone():
            return self.carry_out(progress, until)

    def run_in_group(
        self, processes: Processes, options: Mapping[str, Any], progress: Progress, until: str | None = None
    ) -> list[tuple[TrainedStage, Checkpoint]]:
        """Train in several processes that train together; otherwise like `run`.

        Args:
            processes: Number and kind of processes.
            options: The training's options before validation.
            progress: Receives a report of every step.
            until: Stop after this stage; None trains all.
        """
        if self.output is not None:
            make_folder(self.home, self.output)
        source, store = TRAININGS.source(self.entry.id), self.store.folder.absolute()
        arguments = source, self.entry.id, dict(options), store, self.device, self.output and self.output.absolute(), until
        results: list[tuple[TrainedStage, Checkpoint]] = []
        models = self.entry.needs(self.config) if self.entry.needs else None
        if processes.in_ray or models is None or models.endpoints or self.config.wanted_judge is not None:
            # Limits on calls and the cache of replies are those of this process.
            self.prepare(progress)
        plan = TrainingPlan(self.entry.id, self.entry, self.config, options)
        with self._alone(), _timeout(processes.timeout(plan, self.store)):
            try:
                if processes.in_ray:
                    sent = variables([self.config])
                    results = group.in_ray_group(train_rank, arguments, processes.count, processes.gpus, sent, store)
                else:
                    results = group.in_group(train_rank, arguments, processes.count, progress)
            finally:
                # A stage that was finished before the group ended counts.
                made = [self.home / stage for stage in self.config.stages_of(self.entry.stages)]
                known = {path: checkpoints.register(self.store, path) for path in made if (path / checkpoints.CARD).is_file()}
        return [(stage, known[stage.folder]) for stage, _ in results]

    def prepare(self, progress: Progress) -> Prepared | None:
        """Prepare the next stage without training: data, model replies, training rows.

        Returns:
            The stage and figures about its data; None if all stages are trained.
        """
        try:
            with self._alone():
                self.carry_out(progress, None, prepares=True)
        except Prepared as prepared:
            return prepared
        return None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock a training against other commands; processes that share it (`accelerate`) enter with the first.

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
                f"another process is already running this training of {self.entry.id}",
                code="training-in-progress",
                where=str(self.work),
                try_this="wait until it has ended; its result is then used",
            ) from None

    def carry_out(
        self, progress: Progress, until: str | None, *, prepares: bool = False, registers: bool = True
    ) -> list[tuple[TrainedStage, Checkpoint]]:
        """Train and write each stage's card; with `registers`, also register the checkpoint in the store."""
        judge = judge_for(self.config, self.store.cache, self.device)
        services = Services(self.config.seed, self.store.artifacts, self.device, judge=judge, cache=self.store.cache)
        earlier: dict[str, Checkpoint] = {}
        trained = []
        read = Recorder()
        with recording(read), recording_files() as files:
            context = TrainingContext(self.work, self.home, services, progress, prepares)
            for stage in self.entry.factory(self.config).run(context):
                if stage.fresh or self._same_data(stage):
                    self._record_files(files)
                result = self._described(stage, earlier, read)
                earlier[stage.stage] = checkpoints.register(self.store, result.path) if registers else result
                trained.append((stage, earlier[stage.stage]))
                if stage.stage == until:
                    break
        return trained

    def _same_data(self, stage: TrainedStage) -> bool:
        """Return whether a finished stage was trained on the data that were read now; True if it has no card yet."""
        return not (stage.folder / checkpoints.CARD).exists() or checkpoints.read(stage.folder).data == tuple(stage.data)

    def _record_files(self, files: FilesRead) -> None:
        """Record the files that the training read, with their hashes; those that changed meanwhile get none."""
        own = [folder.absolute() for folder in (self.work, self.home, self.store.artifacts)]
        results = self._files_read()
        for name, (size, modified, digest) in files.items():
            path = Path(name)
            if path.exists() and not any(path.is_relative_to(folder) for folder in own):
                results[_portable(path)] = size, modified, digest or ("" if _touched(path, size, modified) else file_sha256(path))
        write_json(self.work / FILES, results)

    def _files_read(self) -> FilesRead:
        path = self.work / FILES
        return {name: (size, modified, digest) for name, (size, modified, digest) in read_json(path).items()} if path.exists() else {}

    def changed_file(self) -> Path | None:
        """Return a file that has other content than when the training read it, or a folder with other files; None if there is none.

        A file with the recorded size and modification time counts as the same, so that large models are not hashed in every run.
        """
        files = self._files_read()
        same: FilesRead = {}
        for name, (size, modified, digest) in files.items():
            path = _placed(name)
            if path.is_dir():
                if listing_hash(path) != digest:
                    return path
            elif path.is_file() and _touched(path, size, modified):
                if path.stat().st_size != size or digest != (file_hash(path) if len(digest) == LENGTH else file_sha256(path)):
                    return path
                same[name] = size, path.stat().st_mtime_ns, digest
        if same:
            with suppress(OSError):  # a store that is only read
                write_json(self.work / FILES, files | same)
        return None

    def _described(self, stage: TrainedStage, earlier: Mapping[str, Checkpoint], read: Recorder) -> Checkpoint:
        """Write a stage's card and the record of training questions, unless they exist."""
        parents = [earlier[parent].sha256 if parent in earlier else parent for parent in stage.parents]
        card = stage.folder / checkpoints.CARD
        # A stage that was trained before read more than this process did. Shipped trainings save the record with the weights.
        if stage.fresh and not (stage.folder / READ_QUESTIONS).exists() and (hashes := read.read()) is not None:
            write_record(stage.folder, hashes)
        if stage.fresh or not card.exists():
            return checkpoints.describe(
                stage.folder,
                method=self.entry.id,
                stage=stage.stage,
                version=self.entry.version,
                config=self.config.model_dump(mode="json"),
                parents=parents,
                data=stage.data,
            )
        return checkpoints.verify(stage.folder)


def _portable(path: Path) -> str:
    """Return the name under which a file that a training read is recorded: data may lie in another folder later."""
    root = data_folder()
    if root is None or not path.is_relative_to(root.absolute()):
        return str(path)
    return (Path(DATA_VARIABLE) / path.relative_to(root.absolute())).as_posix()


def _placed(name: str) -> Path:
    """Return the present place of a recorded file."""
    path, root = Path(name), data_folder()
    return path if root is None or path.is_absolute() else root / path.relative_to(DATA_VARIABLE)


def _touched(path: Path, size: int, modified: int) -> bool:
    """Return whether a file was written since it had this size and modification time."""
    return (path.stat().st_size, path.stat().st_mtime_ns) != (size, modified)


def require_same_files(plans: Iterable[TrainingPlan], store: Store) -> None:
    """Check that the files that finished trainings read (data, prompts, models) have not changed since.

    Folders of checkpoints follow from the options only, so an edited file would leave the old checkpoint in use. Files that
    do not exist any more are not checked.

    Raises:
        UserError: A file has changed.
    """
    for plan in plans:
        if plan.trained(store.folder) != plan.stages:
            continue
        job = TrainingJob(plan.entry, plan.config, store)
        changed = job.changed_file()
        if changed is not None:
            raise UserError(
                f"{changed.name} has changed since the training {plan.name!r} read it",
                code="training-data-changed",
                where=f"{changed} ({plan.where})",
                try_this=f"to train again, delete {job.home} and {job.work}; to keep the checkpoint, write its folder in place of "
                f"{{checkpoint: {plan.name}}}",
            )


def register_finished(plans: Iterable[TrainingPlan], store: Store) -> None:
    """Register the checkpoints of finished stages that are not in the store, as a killed process leaves them."""
    known = {item.sha256 for item in checkpoints.checkpoints(store)}
    for plan in plans:
        for stage in plan.trained(store.folder):
            folder = plan.folder(store.folder) / stage
            with suppress(UserError):  # a folder that was edited is no longer the training's
                if checkpoints.read(folder).sha256 not in known:
                    checkpoints.register(store, folder)


def run_trainings(
    plans: Iterable[TrainingPlan],
    store: Store,
    device: str | None,
    progress: TrainingProgress,
    *,
    processes: bool,
    together: Processes = ALONE,
) -> None:
    """Run the trainings that lack checkpoints, each after those that it needs.

    Args:
        plans: The trainings, sorted so that each one comes after those that it needs.
        store: The store for the checkpoints.
        device: Device to train on; None chooses automatically.
        progress: Displays the progress.
        processes: Whether independent trainings may run in parallel on a CPU, each in its own process (only from the main
            thread). `multiprocessing` imports the main module in each process, so scripts must guard their work with `if
            __name__ == "__main__"`.
        together: Processes that carry out one training together.

    Raises:
        UserError: Data or options are invalid.
        Broke: A required model cannot be used, or a process was killed.
    """
    # Two of the same options are one training.
    every: dict[Path, TrainingPlan] = {}
    for plan in plans:
        every.setdefault(plan.folder(store.folder), plan)
    left = [plan for plan in every.values() if plan.trained(store.folder) != plan.stages]
    if processes and together == ALONE and left and len(every) > 1:
        workers = side_by_side.at_once([*every.values()], side_by_side.cores(), side_by_side.memory(device), store.folder)
        if workers > 1:
            side_by_side.train_side_by_side(left, workers, train_alone, store, device, progress)
            return
    for plan in left:
        progress.begin(plan.name_and_seed)
        _train(plan.entry, plan.config, store, device, progress, plan.options, together)


def train_alone(module: str, training: str, options: Mapping[str, Any], store: Path, device: str | None) -> None:
    """Run a training in this separate process; another process displays its progress."""
    import_module(module)  # only this module, not all that register something
    entry = TRAININGS.get(training)
    _train(entry, entry.validate(options), Store(store), device, Silent())


def train_rank(
    module: str,
    training: str,
    options: Mapping[str, Any],
    store: Path,
    device: str | None,
    output: Path | None,
    until: str | None,
    progress: Progress,
) -> list[tuple[TrainedStage, Checkpoint]]:
    """Run a training as one process of a group; the process that started the group registers the checkpoints."""
    import_module(module)
    entry = TRAININGS.get(training)
    return TrainingJob(entry, entry.validate(options), Store(store), output, device).carry_out(progress, until, registers=False)


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """Set the group's time-out, unless the environment does."""
    if os.environ.get(TIMEOUT):
        yield
        return
    os.environ[TIMEOUT] = str(max(STEP_S, seconds))
    try:
        yield
    finally:
        del os.environ[TIMEOUT]


def _train(
    entry: TrainingEntry,
    config: TrainingConfig,
    store: Store,
    device: str | None,
    progress: Progress,
    options: Mapping[str, Any] | None = None,
    together: Processes = ALONE,
) -> None:
    # Only now are the checkpoints there that its options may name.
    entry.preflight(config)
    config.reach(store.cache)
    job = TrainingJob(entry, config, store, device=device)
    if together == ALONE or options is None:
        job.run(progress)
    else:
        job.run_in_group(together, options, progress)
