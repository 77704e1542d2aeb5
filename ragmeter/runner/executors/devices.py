"""Use every GPU of this machine: a worker per GPU answers for methods that load models, and this process for all others."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from methods.api import Method, Services
from methods.models.llm import chats
from ragmeter.runner.executors import Executor, Local
from ragmeter.runner.executors.nodes import gpus_here
from ragmeter.runner.tasks import Task

if TYPE_CHECKING:
    from ragmeter.runner.executors.cluster import RayCluster


def count() -> int:
    """Count the GPUs that this process may use, without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    here = len(gpus_here())
    return here if visible is None else min(here, len([name for name in visible.split(",") if name.strip() and name != "-1"]))


class PerDevice(Local):
    """Executor that builds methods in one worker per GPU if they load models, else in this process.

    Args:
        devices: Number of GPUs of this machine.
        stack: Closes the cluster, which is started for the first method that needs it.
    """

    def __init__(self, devices: int, stack: ExitStack) -> None:
        self._devices = devices
        self._stack = stack
        self._cluster: RayCluster | None = None
        self._lock = threading.Lock()

    def build(self, task: Task, services: Services) -> Method:
        needs = [part.needs for part in task.method.components]
        loads = any(need and (need.gpu_gb or need.checkpoints) for need in needs)
        # One process collects the requests of a batch.
        if not loads or any(chat.batch for chat in chats([part.config for part in task.method.components])):
            return super().build(task, services)
        with self._lock:
            if self._cluster is None:
                from ragmeter.runner.executors.cluster import Shares, connected

                sys.stderr.write(f"note: a worker on each of {self._devices} GPUs answers (--executor local: one process on one GPU)\n")
                self._cluster = self._stack.enter_context(connected(Shares("local", devices=self._devices)))
        return self._cluster.build(task, services)

    def release(self, method: Method) -> None:
        if self._cluster is not None:
            self._cluster.release(method)

    def interrupt(self) -> None:
        if self._cluster is not None:
            self._cluster.interrupt()


@contextmanager
def every_device() -> Iterator[Executor]:
    """Provide an executor that uses all GPUs of this machine while the block runs."""
    devices = count()
    if devices > 1 and find_spec("ray") is None:
        sys.stderr.write(f"note: methods answer on one of {devices} GPUs; `pip install 'ragmeter[ray]'` lets `run` use all of them\n")
    if devices < 2 or find_spec("ray") is None:
        yield Local()
        return
    with ExitStack() as stack:
        yield PerDevice(devices, stack)
