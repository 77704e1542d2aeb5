"""The process group of a training: one process per GPU, or several on a CPU; on this machine or in a Ray cluster."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.core.errors import Broke, UserError
from methods.training import Progress, Silent
from ragmeter.runner.executors.processes import processes, reporting

PATIENCE_S = 5.0
"""Seconds for processes to end after one has failed; the first noticed one may have failed because of another."""
PLACED_S = 60.0
"""Maximum seconds in which a cluster must place all processes."""
LOSSES = 3
"""Maximum number of lost processes per group in a cluster; it continues from its last snapshot."""
KILLED = "training-killed"
TAIL = 4000
"""Bytes of other processes' output that are shown if one of them is killed."""
Function = Callable[..., Any]
"""Function called in each process with its arguments and a `Progress`."""


def ranks(wanted: int | None, device: str | None) -> int:
    """Return the number of processes of this machine that carry out one training together.

    Args:
        wanted: Requested number; None: one per GPU.
        device: Device to train on; None: the best available.

    Raises:
        UserError: There are too few GPUs, or one device is requested for several processes.
    """
    # RANK: another launcher has started this process.
    if wanted == 1 or "RANK" in os.environ:
        return 1
    try:
        import torch
    except ImportError:
        return wanted or 1
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    alone = (device or "").startswith("cuda:")
    if wanted is None:
        return 1 if alone else max(1, gpus)
    if wanted > 1 and (alone or 0 < gpus < wanted):
        raise UserError(
            f"{wanted} processes cannot share the one device {device}"
            if alone
            else f"{wanted} processes need {wanted} GPUs, and {gpus} are here",
            code="too-few-gpus",
            where="--processes",
            try_this=f"--processes {max(1, gpus)}, or --device cpu",
        )
    return wanted


def ray_gpus() -> int:
    """Return the number of GPUs of the connected Ray cluster."""
    import ray

    return int(ray.cluster_resources().get("GPU", 0))


def in_group(function: Function, arguments: Sequence[Any], count: int, progress: Progress) -> Any:
    """Call a function in several processes of this machine that train together; if one fails, the others are stopped.

    Args:
        function: The function to call in each process.
        arguments: Its arguments, the same in each.
        count: Number of processes.
        progress: Displays the first process's reports.

    Returns:
        The return value of the first process.

    Raises:
        Broke: A process was killed.
    """
    store = meeting_point("127.0.0.1")
    shared = _shared("127.0.0.1", store.port, count) | {"LOCAL_WORLD_SIZE": str(count)}
    with ExitStack() as stack:
        quiet = stack.enter_context(tempfile.NamedTemporaryFile())
        reports = stack.enter_context(_shown(progress))
        futures: list[Future[Any]] = []
        for rank in range(count):
            own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            submit = stack.enter_context(processes(1, count, own, None if rank else reports))
            futures.append(submit(_rank, function, arguments, quiet.name if rank else None))
        left, errors = set(futures), list[BaseException]()
        while left:
            done, left = wait(left, timeout=PATIENCE_S if errors else None, return_when=FIRST_COMPLETED)
            if not done:
                break
            errors += [error for future in done if (error := future.exception()) is not None]
        if errors:
            cause = _cause(errors, BrokenProcessPool)
            if not isinstance(cause, UserError) or cause.code == KILLED:
                sys.stderr.write(quiet.read()[-TAIL:].decode("utf-8", "replace"))
            raise cause
        return futures[0].result()


def in_ray_group(function: Function, arguments: Sequence[Any], count: int, gpus: float, variables: Mapping[str, str], shared: Path) -> Any:
    """Call a function in actors of the connected Ray cluster that train together; like `in_group`.

    Args:
        function: The function to call in each actor.
        arguments: Its arguments; all nodes must be able to access their folders.
        count: Number of actors.
        gpus: GPUs per actor.
        variables: Environment variables of the actors.
        shared: Folder that all nodes must be able to access.

    Raises:
        UserError: The cluster lacks resources, or a node cannot access the folder.
        Broke: Actors are lost repeatedly.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from ragmeter.runner.executors.ray_method import value_of

    shared.mkdir(parents=True, exist_ok=True)
    mark = shared / f".seen-{secrets.token_hex(8)}"
    mark.touch()
    bundles = placement_group([{"CPU": 1.0} | ({"GPU": gpus} if gpus else {})] * count, strategy="PACK")
    try:
        if not ray.wait([bundles.ready()], timeout=PLACED_S)[0]:
            raise UserError(
                f"the cluster has no room for {count} processes with one {'GPU' if gpus else 'CPU'} each",
                code="cluster-too-small",
                where="--processes",
                try_this="fewer processes, or more nodes",
            )
        for _ in range(LOSSES):
            actors: list[Any] = []
            try:
                for rank in range(count):
                    there = PlacementGroupSchedulingStrategy(bundles, placement_group_bundle_index=rank)
                    actors.append(ray.remote(Rank).options(num_cpus=1, num_gpus=gpus, scheduling_strategy=there).remote())
                (host, port), *_ = [value_of(reference) for reference in [actor.place.remote(mark) for actor in actors]]
                own = {**variables, **_shared(host, port, count)}
                return _ended([actor.call.remote({**own, "RANK": str(rank)}, function, arguments) for rank, actor in enumerate(actors)])
            except ray.exceptions.RayActorError as error:
                lost = str(error).strip().splitlines()[-1]
            finally:
                for actor in actors:
                    ray.kill(actor)
        raise Broke(
            f"a process of the training was lost {LOSSES} times; the last time: {lost}",
            code=KILLED,
            try_this="fewer processes per node if memory ran out, then the same command: it continues",
        )
    finally:
        mark.unlink(missing_ok=True)
        remove_placement_group(bundles)


class Rank:
    """Ray actor that is one process of a group that trains together."""

    def place(self, mark: Path) -> tuple[str, int]:
        """Open the port of this node at which the processes of the group meet, and return its address.

        Raises:
            UserError: The node cannot access a file that the starting process wrote.
        """
        import ray

        if not mark.exists():
            raise UserError(
                f"node {os.uname().nodename} does not see {mark.parent}",
                code="node-without-folder",
                where="--executor ray",
                try_this="mount the folder of the store at the same path on every node, or train in one process: --processes 1",
            )

        host = ray.util.get_node_ip_address()
        self._store = meeting_point(host)
        return host, self._store.port

    def call(self, environment: Mapping[str, str], function: Function, arguments: Sequence[Any]) -> Any:
        """Call the function as a process of the group."""
        from ragmeter.runner.executors.work import sendable

        # Ray shows each process its own GPU only: there it is the first one.
        os.environ.update({**environment, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
        try:
            return function(*arguments, Silent())
        except Exception as error:
            raise sendable(error) from error


def _ended(references: Sequence[Any]) -> Any:
    """Return the result of the first process."""
    import ray

    from ragmeter.runner.executors.ray_method import value_of

    left, errors = list(references), list[BaseException]()
    while left:
        done, left = ray.wait(left, timeout=PATIENCE_S if errors else None)
        if not done:
            break
        for reference in done:
            try:
                value_of(reference)
            except Exception as error:
                errors.append(error)
    if errors:
        raise _cause(errors, ray.exceptions.RayActorError)
    return value_of(references[0])


def _cause(errors: Sequence[BaseException], lost: type[BaseException]) -> BaseException:
    """Return why a group ended; the other processes fail only because a connection was closed."""
    cause = next((error for kind in (UserError, lost) for error in errors if isinstance(error, kind)), errors[0])
    if isinstance(cause, BrokenProcessPool):
        hint = "run the same command again: it continues; with fewer --processes if memory ran out"
        return Broke("a process of the training was killed", code=KILLED, try_this=hint)
    return cause


def _shared(host: str, port: int, count: int) -> dict[str, str]:
    # As torchrun states that the store runs already; else the first process would start one.
    running = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    return {"WORLD_SIZE": str(count), "MASTER_ADDR": host, "MASTER_PORT": str(port), **running}


def meeting_point(host: str) -> Any:
    """Start the `TCPStore` at which the processes of one group meet; it keeps its port until it is deleted.

    It also keeps the group's keys: processes that destroy their group cannot initialize a second one at the same store.
    """
    from torch.distributed import TCPStore

    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


class _Reported:
    """Progress that is sent to another process, which shows it."""

    def __init__(self, reports: Any) -> None:
        self._reports = reports

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        self._reports.put(("begin", (what, total, done)))

    def advance(self, steps: int = 1) -> None:
        self._reports.put(("advance", (steps,)))

    def log(self, figures: Mapping[str, float]) -> None:
        self._reports.put(("log", (dict(figures),)))


def _rank(function: Function, arguments: Sequence[Any], quiet: str | None) -> Any:
    if quiet is not None:
        # What libraries print is the same in each process.
        with open(quiet, "ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    return function(*arguments, Silent() if reporting() is None else _Reported(reporting()))


@contextmanager
def _shown(progress: Progress) -> Any:
    """Provide a queue whose reports are shown."""
    reports = get_context("spawn").SimpleQueue()

    def show() -> None:
        for name, values in iter(reports.get, None):
            getattr(progress, name)(*values)

    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    try:
        yield reports
    finally:
        reports.put(None)
        # A process that was killed within a report leaves the queue locked.
        shower.join(PATIENCE_S)
