"""Trainings carried out: each stage's checkpoint with its card, entered into the store; on a CPU several side by side.

A model as small as those that train on a CPU gains little from a second core.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

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
"""For a process that is to end to remove what it has half written."""


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
        processes: Whether those that do not wait for one another may be carried out side by side on a CPU, each in a process
            of its own; from the main thread alone. `multiprocessing` imports the main module in each: a script does its work
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
    if processes and left and len(every) > 1 and (machine := _machine(device)).cores > 1:
        _side_by_side(left, shares([*every.values()], machine, store.folder), machine, store, device, progress)
        return
    for plan in left:
        progress.begin(plan.name_and_seed)
        _train(plan.entry, plan.config, store, device, progress)


def _train(entry: TrainingEntry, config: TrainingConfig, store: Store, device: str | None, progress: Progress) -> None:
    # Only now are the checkpoints there that its options may name.
    entry.preflight(config)
    config.reach(store.cache)
    TrainingJob(entry, config, store, device=device).run(progress)


class Machine(NamedTuple):
    """What trainings share, or what one takes of it.

    Attributes:
        cores: Processor cores; of a training its threads.
        memory: Bytes.
    """

    cores: int
    memory: float


def cores() -> int:
    """Processor cores that this process may use."""
    result = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # a container's; ValueError: it has no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split())
        result = min(result, max(1, quota // period))
    return result


def _machine(device: str | None) -> Machine:
    """What there is for trainings side by side; one core where they use another device, or come in several processes already."""
    try:
        import psutil
        import torch
    except ImportError:
        return Machine(1, 0.0)
    if device not in (None, "cpu") or (device is None and torch.accelerator.is_available()) or "RANK" in os.environ:
        return Machine(1, 0.0)
    memory = float(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):
        memory = min(memory, float(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    return Machine(cores(), memory)


def shares(plans: Sequence[TrainingPlan], machine: Machine, store: Path) -> dict[str, Machine]:
    """What each training takes of a machine: by the whole experiment, however much of it is trained already.

    Args:
        plans: All of the experiment.
        machine: This one.
        store: Folder of the store.

    Returns:
        By name and seed: threads, the cores divided among trainings that have as many others before them, or as
        OMP_NUM_THREADS says; and the memory of its models, infinite where their size is unknown, or a judge or an endpoint
        is asked, whose limit on concurrent calls holds for one process. One that does not fit beside another has all cores.
    """
    threads = os.environ.get(THREADS, "")
    memory = {plan.name_and_seed: _memory(plan, store) for plan in plans}
    depths = Counter(_depth(plan) for plan in plans if 2 * memory[plan.name_and_seed] <= machine.memory)
    results = {}
    for plan in plans:
        taken = memory[plan.name_and_seed]
        beside = max(1, min(depths[_depth(plan)], machine.cores, int(machine.memory // taken)))
        own = min(machine.cores, max(1, int(threads))) if threads.isdigit() else machine.cores // beside
        results[plan.name_and_seed] = Machine(own, taken)
    return results


def _memory(plan: TrainingPlan, store: Path) -> float:
    needs = plan.models
    if needs is None or needs.endpoints or plan.config.wanted_judge is not None:
        return math.inf
    return PROCESS + LEARNED * sum(_parameters(plan, store).values())


def _parameters(plan: TrainingPlan, store: Path) -> dict[tuple[str, str | None], float]:
    """Of each model of a training; for a checkpoint of this experiment stand the models of its own training."""
    if plan.models is None:
        return {(plan.name_and_seed, None): math.inf}
    trained = tuple(str(need.folder(store)) for need in plan.needs)
    results = {key: value for need in plan.needs for key, value in _parameters(need, store).items()}
    for item in plan.models.checkpoints:
        if not item.adapter and not item.model.startswith(trained):
            size = size_of(item.model, item.revision).parameters
            results[item.model, item.revision] = math.inf if size is None else size
    return results


def _depth(plan: TrainingPlan) -> int:
    return 1 + max(map(_depth, plan.needs), default=0)


def _side_by_side(
    left: list[TrainingPlan], each: Mapping[str, Machine], machine: Machine, store: Store, device: str | None, progress: TrainingProgress
) -> None:
    """As many at once as cores and memory allow; one that does not fit beside any other is alone."""
    running: dict[connection.Connection, tuple[SpawnProcess, str]] = {}
    progress.begin("trainings", len(left))
    try:
        while left or running:
            for plan in [*left]:
                taken = [each[name] for name in (plan.name_and_seed, *(name for _, name in running.values()))]
                # Where none is running, all that the first one left needs has been trained.
                if running and (
                    sum(part.cores for part in taken) > machine.cores
                    or sum(part.memory for part in taken) > machine.memory
                    or any(need.trained(store.folder) != need.stages for need in plan.needs)
                ):
                    continue
                left.remove(plan)
                _start(plan, each[plan.name_and_seed].cores, store, device, running)
                progress.begin("", name=plan.name_and_seed)
            before = len(running)
            while len(running) == before:
                for here in running.keys() & connection.wait(list(running)):
                    if not _heard(here, *running[here], progress):
                        del running[here]
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join(PATIENCE_S)
            process.kill()
            process.join()


def _start(
    plan: TrainingPlan, threads: int, store: Store, device: str | None, running: dict[connection.Connection, tuple[SpawnProcess, str]]
) -> None:
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    what = TRAININGS.source(plan.entry.id), plan.entry.id, plan.options, store.folder, device
    process = context.Process(target=_work, args=(there, *what))
    before = os.environ.get(THREADS)
    # A terminal interrupts all processes of a command; this one then ends the others.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        os.environ[THREADS] = str(threads)
        process.start()
        running[here] = process, plan.name_and_seed
    finally:
        os.environ.pop(THREADS) if before is None else os.environ.update({THREADS: before})
        signal.signal(signal.SIGINT, interrupt)
        # The end of the process is to be the end of the pipe.
        there.close()


def _heard(here: connection.Connection, process: SpawnProcess, name: str, progress: TrainingProgress) -> bool:
    """Take one message of a training; False when it has ended."""
    try:
        what, *values = here.recv()
    except (EOFError, OSError):
        process.join()
        raise Broke(
            f"the process of the training {name} ended with {process.exitcode}",
            try_this=f"run the same command again; if memory ran out, with {THREADS}={cores()}: trainings run one after another",
        ) from None
    if what == "failed":
        error: Exception = values[0]
        if isinstance(error, UserError):
            error.also_at(f"training {name}")
        raise error
    if what != "done":
        getattr(progress, what)(*values, name=name)
        return True
    process.join()
    progress.end(name)
    progress.advance()
    return False


class _Sent:
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
        _train(entry, entry.validate(options), Store(store), device, _Sent(there))
        there.send(("done",))
    except Exception as error:
        there.send(("failed", _sendable(error)))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _sendable(error: Exception) -> Exception:
    """The error with where it came from, which does not go from process to process by itself."""
    text = traceback.format_exc()
    try:
        sent: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    if not isinstance(error, UserError):
        sent.add_note(text)
    return sent
