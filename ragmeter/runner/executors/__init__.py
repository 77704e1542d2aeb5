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
    """Builds methods, somewhere."""

    def check(self, experiment: Experiment, store: Store, device: str | None) -> None:
        """Check what can be checked before anything is spent."""

    def build(self, task: Task, services: Services) -> Method:
        """Make the method of a task."""

    def release(self, method: Method) -> None:
        """Give back what a method holds."""

    def interrupt(self) -> None:
        """End what is under way; a caller that waits for it gets `methods.flow.Cancelled`."""


class Local:
    """Builds methods in this process."""

    def check(self, experiment: Experiment, store: Store, device: str | None) -> None:
        """Check nothing: `preflight` looks at this process."""

    def build(self, task: Task, services: Services) -> Method:
        return task.build(services)

    def release(self, method: Method) -> None:
        """Do nothing: the method ends with its last reference."""

    def interrupt(self) -> None:
        """Do nothing: `methods.flow.interrupt` ends the programs of this process."""
