"""Carry out an experiment's trainings: one after another, or on a CPU several at once, as a small model gains little from a second core."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, UserError
from methods.training import TRAININGS, Progress, TrainingConfig, TrainingEntry
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.sizes import size_of
from ragmeter.runner.training import Job
from ragmeter.trainings import TrainingPlan
from results.store.store import Store

PROCESS = 4e9
"""Bytes of memory that a training takes besides its models: libraries, and what a step keeps of a small model."""
LEARNED = 16
"""Bytes of a parameter: weight, gradient and two means of AdamW in float32."""
THREADS = "OMP_NUM_THREADS"
PATIENCE_S = 10.0
"""Seconds that an ended process has to remove its unfinished files."""


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
    Job(entry, config, store, device=device).run(progress)


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
