"""Carry out trainings: each stage's checkpoint gets its card and enters the store; on a CPU several run at once.

A model as small as those that train on a CPU gains little from a second core.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from benchmarks.core.errors import Broke, UserError, make_folder
from benchmarks.core.fingerprint import fingerprint
from judges.llm.match import MatchVerdicts
from methods.api import Judge, Services
from methods.training import TRAININGS, Progress, TrainedStage, TrainingConfig, TrainingContext, TrainingEntry
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.rewriting import judge_measuring
from ragmeter.runner.sizes import size_of
from ragmeter.trainings import TrainingPlan, checkpoint_home, identity
from results.store import checkpoints
from results.store.checkpoints import Checkpoint
from results.store.store import Store

MEASURE = "accuracy"
"""What a judge must measure to say of an answer whether it is right."""
PROCESS = 4e9
"""Bytes of memory that a training takes besides its models: libraries, and what a step keeps of a small model."""
LEARNED = 16
"""Bytes of a parameter: weight, gradient and two means of AdamW in float32."""
THREADS = "OMP_NUM_THREADS"
PATIENCE_S = 10.0
"""Seconds that an ended process has to remove its unfinished files."""


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
                where=str(self.work),
                try_this="wait until it has ended; what it made is then taken over",
            ) from None

    def _run(self, progress: Progress, until: str | None) -> list[tuple[TrainedStage, Checkpoint]]:
        judge = judge_for(self.config, self.store.cache, self.device)
        services = Services(self.config.seed, self.store.artifacts, self.device, judge=judge, cache=self.store.cache)
        earlier: dict[str, Checkpoint] = {}
        trained = []
        for stage in self.entry.factory(self.config).run(TrainingContext(self.work, self.home, services, progress)):
            earlier[stage.stage] = self._enter(stage, earlier)
            trained.append((stage, earlier[stage.stage]))
            if stage.stage == until:
                break
        return trained

    def _enter(self, stage: TrainedStage, earlier: Mapping[str, Checkpoint]) -> Checkpoint:
        """Write a stage's card, unless it has the same already, and register the checkpoint."""
        parents = [earlier[parent].sha256 if parent in earlier else parent for parent in stage.parents]
        card = stage.folder / checkpoints.CARD
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
        processes: Whether several may run at once on a CPU, each in a process of its own. `multiprocessing` imports the main
            module in each: a script does its work under `__name__ == "__main__"`.

    Raises:
        UserError: Data or options do not allow it.
        Broke: A model that one needs cannot be used, or a process was killed.
    """
    # Two of the same options are one training.
    every: dict[Path, TrainingPlan] = {}
    for plan in plans:
        every.setdefault(plan.folder(store.folder), plan)
    left = [plan for plan in every.values() if plan.trained(store.folder) != plan.stages]
    # The whole experiment decides, however much of it is trained already: threads may change the last digits.
    at_once = min(len(every), processes_that_fit(every.values(), device, store.folder)) if processes and left and len(every) > 1 else 1
    if at_once > 1:
        _run_at_once(left, at_once, store, device, progress)
        return
    for plan in left:
        progress.begin(plan.name_and_seed)
        _train(plan.entry, plan.config, store, device, progress)


def _train(entry: TrainingEntry, config: TrainingConfig, store: Store, device: str | None, progress: Progress) -> None:
    # Only now are the checkpoints there that its options may name.
    entry.preflight(config)
    config.reach(store.cache)
    TrainingJob(entry, config, store, device=device).run(progress)


def cores() -> int:
    """Return how many processor cores this process may use."""
    result = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # a container's; ValueError: it has no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split())
        result = min(result, max(1, quota // period))
    return result


def memory() -> float:
    """Return how many bytes of memory this process may use."""
    import psutil

    result = float(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):
        result = min(result, float(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    return result


def processes_that_fit(plans: Collection[TrainingPlan], device: str | None, store: Path) -> int:
    """Return how many of these trainings may run at once: as many as the largest fits into memory, one per OMP_NUM_THREADS cores.

    It is 1 if they use another device, if they run in several processes already, and if one has models of unknown size or asks
    a judge or an endpoint, whose limit on concurrent calls holds for one process.
    """
    try:
        import torch
    except ImportError:
        return 1
    if device not in (None, "cpu") or (device is None and torch.accelerator.is_available()) or "RANK" in os.environ:
        return 1
    trained, largest = tuple(str(plan.folder(store)) for plan in plans), PROCESS
    for plan in plans:
        needs = plan.models
        if needs is None or needs.endpoints or plan.config.wanted_judge is not None:
            return 1
        # A checkpoint of this experiment has the parameters of its own training.
        models = {(item.model, item.revision) for item in needs.checkpoints if not item.adapter and not item.model.startswith(trained)}
        sizes = [size_of(*model).parameters for model in models]
        if None in sizes:
            return 1
        largest = max(largest, PROCESS + LEARNED * sum(size for size in sizes if size))
    threads = os.environ.get(THREADS, "")
    return max(1, min(cores() // max(1, int(threads) if threads.isdigit() else 1), int(memory() // largest)))


def _run_at_once(left: list[TrainingPlan], at_once: int, store: Store, device: str | None, progress: TrainingProgress) -> None:
    """Train in processes of their own, each as soon as those that it needs are trained."""
    running: dict[connection.Connection, tuple[SpawnProcess, str]] = {}
    progress.begin("trainings", len(left))
    threads = os.environ.get(THREADS)
    try:
        os.environ[THREADS] = threads or str(cores() // at_once)
        while left or running:
            for plan in [*left] if len(running) < at_once else []:
                # If none is running, all that the first one needs has been trained.
                ready = not running or all(need.trained(store.folder) == need.stages for need in plan.needs)
                if ready and len(running) < at_once:
                    left.remove(plan)
                    here, process = _start(plan, store, device)
                    running[here] = process, plan.name_and_seed
                    progress.begin("", name=plan.name_and_seed)
            for here in running.keys() & connection.wait(list(running)):
                if not _took_report(here, *running[here], progress):
                    del running[here]
    finally:
        os.environ.pop(THREADS) if threads is None else os.environ.update({THREADS: threads})
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join(PATIENCE_S)
            process.kill()
            process.join()


def _start(plan: TrainingPlan, store: Store, device: str | None) -> tuple[connection.Connection, SpawnProcess]:
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    what = TRAININGS.source(plan.entry.id), plan.entry.id, plan.options, store.folder, device
    process = context.Process(target=_work, args=(there, *what))
    # A terminal interrupts all processes of a command; this one then ends the others.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, interrupt)
        # The end of the process is to be the end of the pipe.
        there.close()
    return here, process


def _took_report(here: connection.Connection, process: SpawnProcess, name: str, progress: TrainingProgress) -> bool:
    """Take one report of a training; return False when it has ended."""
    try:
        what, *values = here.recv()
    except (EOFError, OSError):
        process.join()
        raise Broke(
            f"the process of the training {name} ended with {process.exitcode}",
            try_this=f"run the same command again; if memory ran out, with {THREADS}={cores()}: trainings run one after another",
        ) from None
    if what == "failed":
        if isinstance(values[0], UserError):
            values[0].also_at(f"training {name}")
        raise values[0]
    if what != "done":
        getattr(progress, what)(*values, name=name)
        return True
    process.join()
    progress.end(name)
    progress.advance()
    return False


class _SentProgress:
    """Progress that is shown by the process that began this one."""

    def __init__(self, there: connection.Connection) -> None:
        self._there = there

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        self._there.send(("begin", what, total, done))

    def advance(self, steps: int = 1) -> None:
        self._there.send(("advance", steps))

    def log(self, figures: Mapping[str, float]) -> None:
        self._there.send(("log", dict(figures)))


def _work(there: connection.Connection, module: str, training: str, options: Mapping[str, Any], store: Path, device: str | None) -> None:
    # What is half written is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        import_module(module)  # it alone, and not all that register something
        entry = TRAININGS.get(training)
        _train(entry, entry.validate(options), Store(store), device, _SentProgress(there))
        there.send(("done",))
    except Exception as error:
        there.send(("failed", error if isinstance(error, UserError) else RuntimeError(traceback.format_exc())))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
