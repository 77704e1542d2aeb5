"""Build methods and answer with them in this process or in workers of a Ray cluster.

Start here, then read `cluster.py` and `ray_method.py`. An executor builds the method of a task (`build`). What it
returns keeps the contract of `methods.api.Method`, so the run loop makes indexes and asks questions through it in one way,
and the rows do not depend on the executor. `group.py` starts the processes of a
training.
"""

from __future__ import annotations

from typing import Protocol

from methods.api import Method, Services
from ragmeter.experiment import Experiment
from ragmeter.runner.tasks import Task
from results.store.store import Store


class Executor(Protocol):
    """Interface for where methods run: this process, worker processes or a Ray cluster."""

    def check(self, experiment: Experiment, store: Store, device: str | None) -> None:
        """Check, before anything is spent, that the experiment can run there."""

    def build(self, task: Task, services: Services) -> Method:
        """Build the method of a task."""

    def release(self, method: Method) -> None:
        """Release the resources of a method."""

    def interrupt(self) -> None:
        """Stop work in progress; waiting callers get `methods.flow.Cancelled`."""


class Local:
    """Executor that builds methods in this process."""

    def check(self, experiment: Experiment, store: Store, device: str | None) -> None:
        """Do nothing, because `preflight` already checks this process."""

    def build(self, task: Task, services: Services) -> Method:
        return task.build(services)

    def release(self, method: Method) -> None:
        """Do nothing, because the method is freed with its last reference."""

    def interrupt(self) -> None:
        """Do nothing, because `methods.flow.interrupt` stops the coroutines of this process."""
