"""An experiment's trainings carried out: one after another, or on a CPU, where one has no use of many cores, side by side."""

from __future__ import annotations

import math
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterable, Mapping
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, UserError
from methods.models.weights import device_of
from methods.training import TRAININGS, Progress, TrainingConfig, TrainingEntry
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.training import Job
from ragmeter.sizes import size_of
from ragmeter.trainings import TrainingPlan
from results.store import Store

PROCESS = 4e9
"""Bytes that a training takes beside its models: libraries, and what a step keeps of a small model."""
LEARNED = 16
"""Bytes of a parameter that learns: weight, gradient and two means of AdamW in float32."""


def run_trainings(plans: Iterable[TrainingPlan], store: Store, device: str | None, progress: TrainingProgress, *, processes: bool) -> None:
    """Train what is not trained yet, each after those that it needs.

    Args:
        plans: Trainings; what one needs stands before it.
        store: Takes the checkpoints.
        device: None to choose.
        progress: Shows them.
        processes: Whether those that do not wait for one another may be carried out side by side on a CPU, each in a process
            of its own. `multiprocessing` imports the main module there: a script does its work under `__name__ == "__main__"`.

    Raises:
        UserError: Data or options do not allow it.
        Broke: A model that one needs cannot be used, or a process was killed.
    """
    # Two of the same options are one training.
    left = {plan.folder(store.folder): plan for plan in plans if plan.trained(store.folder) != plan.stages}
    cores = _cores() if processes and len(left) > 1 and parent_process() is None and device_of(device) == "cpu" else 1
    if cores > 1:
        _side_by_side([*left.values()], store, cores, progress)
        return
    for plan in left.values():
        progress.begin(_name(plan))
        _train(plan.entry, plan.config, store, device, progress)


def _name(plan: TrainingPlan) -> str:
    return f"{plan.name}, seed {plan.config.seed}"


def _train(entry: TrainingEntry, config: TrainingConfig, store: Store, device: str | None, progress: Progress) -> None:
    # Only now are the checkpoints there that its options may name.
    entry.preflight(config)
    config.reach(store.cache)
    Job(entry, config, store, device=device).run(progress)


# -- Side by side: two small models of one thread each learn more than one after the other of two --


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bytes(plan: TrainingPlan) -> float:
    """Memory of a training; infinite where nobody can say, or where it asks a model whose calls at once are counted by process."""
    needs = plan.entry.needs(plan.config) if plan.entry.needs else None
    if needs is None or needs.endpoints or plan.config.wanted_judge is not None:
        return math.inf
    sizes = (size_of(model.model, model.revision).parameters for model in needs.checkpoints)
    return PROCESS + LEARNED * sum(math.inf if size is None else size for size in sizes)


def _side_by_side(left: list[TrainingPlan], store: Store, cores: int, progress: TrainingProgress) -> None:
    """As many at once as there are cores and memory allows; one that does not fit beside any other is alone."""
    import psutil

    memory = psutil.virtual_memory().available
    running: dict[connection.Connection, tuple[SpawnProcess, TrainingPlan, float]] = {}
    progress.begin("trainings", len(left))
    try:
        while left or running:
            for plan in [*left]:
                taken = _bytes(plan)
                # What the first of all that are left needs was trained when none is running any more.
                if running and (
                    len(running) == cores
                    or any(need.trained(store.folder) != need.stages for need in plan.needs)
                    or taken + sum(others for *_, others in running.values()) > memory
                ):
                    continue
                beside = max(1, min(cores, len(left) + len(running), int(memory // taken)))
                left.remove(plan)
                ours, process = _started(plan, store, cores // beside)
                running[ours] = process, plan, taken
                progress.begin("", name=_name(plan))
            for ours in running.keys() & connection.wait(list(running)):
                process, plan, _ = running[ours]
                if not _heard(ours, process, _name(plan), progress):
                    del running[ours]
    finally:
        for process, *_ in running.values():
            process.terminate()
        for process, *_ in running.values():
            process.join()


def _started(plan: TrainingPlan, store: Store, threads: int) -> tuple[connection.Connection, SpawnProcess]:
    ours, theirs = get_context("spawn").Pipe(duplex=False)
    # As text: an options' class may have been made by a call, and such a one does not go from process to process.
    what = TRAININGS.source(plan.entry.id), plan.entry.id, plan.config.model_dump(mode="json"), store.folder
    process = get_context("spawn").Process(target=_work, args=(theirs, threads, *what))
    process.start()
    # The end of the process is to be the end of the pipe.
    theirs.close()
    return ours, process


def _heard(ours: connection.Connection, process: SpawnProcess, name: str, progress: TrainingProgress) -> bool:
    """Take one message of a training; False when it has ended."""
    try:
        what, *values = ours.recv()
    except EOFError:
        process.join()
        if process.exitcode:
            raise Broke(
                f"the process of the training {name} ended with {process.exitcode}",
                try_this="the same command goes on with it; if it was killed for want of memory, with fewer cores (`taskset -c 0 …`)",
            ) from None
        progress.end(name)
        progress.advance()
        return False
    if what == "failed":
        raise values[0]
    getattr(progress, what)(*values, name=name)
    return True


# -- In the process of a training --


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


def _work(there: connection.Connection, threads: int, module: str, training: str, options: dict[str, Any], store: Path) -> None:
    # A terminal interrupts all processes; the one that shows progress then ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    try:
        import_module(module)
        entry = TRAININGS.get(training)
        _train(entry, entry.config.model_validate(options), Store(store), "cpu", _Sent(there))
    except Exception as error:
        there.send(("failed", _sendable(error)))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
