"""Trainings side by side on a CPU, each in a process of its own: a small model gains little from a second core."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, UserError
from methods.training import TRAININGS
from ragmeter.runner.executors.processes import THREADS, cores, processes
from ragmeter.runner.progress import TrainingProgress
from ragmeter.runner.sizes import size_of
from ragmeter.trainings import TrainingPlan
from results.store.store import Store

PROCESS, LEARNED = 4e9, 16
"""Bytes that a training takes besides its models, and bytes per parameter: weight, gradient and AdamW's two moments."""
Train = Callable[[str, str, Mapping[str, Any], Path, str | None], None]
"""Function that trains; its arguments are the module that registers the training, its id, its options, the store and the device."""


def memory(device: str | None) -> float:
    """Return the memory available for parallel trainings on this CPU, in bytes; 0 if they use another device or several
    processes already.
    """
    try:
        import psutil
        import torch
    except ImportError:
        return 0.0
    if device not in (None, "cpu") or (device is None and torch.accelerator.is_available()) or "RANK" in os.environ:
        return 0.0
    with suppress(OSError, ValueError):
        return min(float(psutil.virtual_memory().total), float(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    return float(psutil.virtual_memory().total)


def at_once(plans: Sequence[TrainingPlan], cores: int, memory: float, store: Path) -> int:
    """Return how many trainings can run in parallel: independent ones that fit into memory and have enough CPU cores.

    A model of unknown size is trained alone, and so is a training that calls an endpoint, because the limit on calls holds per
    process.
    """
    independent, largest = max(Counter(map(_depth, plans)).values()), max(_memory(plan, store) for plan in plans)
    threads = os.environ.get(THREADS, "")
    free = cores // max(1, int(threads)) if threads.isdigit() else cores
    return max(1, min(independent, free, int(memory // largest)))


def _depth(plan: TrainingPlan) -> int:
    return 1 + max(map(_depth, plan.needs), default=0)


def _memory(plan: TrainingPlan, store: Path) -> float:
    alone = plan.models is None or plan.models.endpoints or plan.config.wanted_judge is not None
    return math.inf if alone else PROCESS + LEARNED * sum(_parameters(plan, store).values())


def _parameters(plan: TrainingPlan, store: Path) -> dict[tuple[str, str | None], float]:
    """Return the parameters of each model of a training; a checkpoint counts with the models of its own training."""
    if plan.models is None:
        return {(plan.name, None): math.inf}
    trained = tuple(str(need.folder(store)) for need in plan.needs)
    results = {key: value for need in plan.needs for key, value in _parameters(need, store).items()}
    for item in plan.models.checkpoints:
        if item.own and not item.model.startswith(trained):
            size = size_of(item.model, item.revision).parameters
            results[item.model, item.revision] = math.inf if size is None else size
    return results


def train_side_by_side(
    left: list[TrainingPlan], workers: int, train: Train, store: Store, device: str | None, progress: TrainingProgress
) -> None:
    """Run several trainings in parallel, each after those that it needs; the first failure stops the others."""
    progress.begin("trainings", len(left))
    running: dict[Future[None], tuple[str, ExitStack]] = {}
    with ExitStack() as every:
        while left or running:
            ready = [plan for plan in left if all(need.trained(store.folder) == need.stages for need in plan.needs)]
            for plan in ready[: workers - len(running)]:
                left.remove(plan)
                own = every.enter_context(ExitStack())
                submit = own.enter_context(processes(1, workers))
                what = (TRAININGS.source(plan.entry.id), plan.entry.id, plan.options, store.folder, device)
                running[submit(train, *what)] = plan.name_and_seed, own
                progress.begin("", name=plan.name_and_seed)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, own = running.pop(future)
                _conclude(future, name)
                own.close()
                progress.end(name)
                progress.advance()


def _conclude(future: Future[None], name: str) -> None:
    try:
        future.result()
    except BrokenProcessPool:
        hint = f"run the same command again; if memory ran out, with {THREADS}={cores()}: trainings run one after another"
        raise Broke(f"the process of the training {name} was killed", code="training-killed", try_this=hint) from None
    except UserError as error:
        error.also_at(f"training {name}")
        raise
