"""Call functions in processes of their own on this machine: parts of a demo, independent trainings, the ranks of a group."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

THREADS = "OMP_NUM_THREADS"
GRACE_S = 10.0
"""Seconds for a process to remove partial files; one that waits for other processes may not react at all."""
Submit = Callable[..., Future[Any]]
"""Function that submits a call of a function with arguments, and returns the future of its result."""


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    result = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # a container's; ValueError: it has no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text("utf-8").split())
        result = min(result, max(1, quota // period))
    return result


@contextmanager
def processes(most: int, sharing: int | None = None, environment: Mapping[str, str] | None = None, reports: Any = None) -> Iterator[Submit]:
    """Provide a function that calls functions in separate processes; if the block fails, running ones are stopped.

    `multiprocessing` imports the main module in each process, so scripts must guard their work with `if __name__ ==
    "__main__"`.

    Args:
        most: Maximum number of processes at once.
        sharing: Number of processes that share the CPU cores; None: `most`.
        environment: Environment variables of the processes.
        reports: A queue that `reporting` returns in the processes.
    """
    threads, others = os.environ.get(THREADS), set(active_children())
    # Libraries read it when a process imports them.
    os.environ.setdefault(THREADS, str(max(1, cores() // (sharing or most))))
    pool = ProcessPoolExecutor(most, get_context("spawn"), initializer=_begin, initargs=(dict(environment or {}), reports))
    try:
        yield lambda function, *arguments: pool.submit(_call, function, arguments)
    except BaseException:
        _end(set(active_children()) - others)
        raise
    finally:
        if threads is None:
            os.environ.pop(THREADS, None)
        pool.shutdown()


def _end(started: set[Any]) -> None:
    for process in started:
        process.terminate()
    for process in started:
        process.join(GRACE_S)
        process.kill()


_REPORTS: list[Any] = []


def reporting() -> Any:
    """Return the report queue of this process; None if it has none."""
    return _REPORTS[-1] if _REPORTS else None


def _begin(environment: Mapping[str, str], reports: Any) -> None:
    os.environ.update(environment)
    _REPORTS.append(reports)
    # A terminal interrupts all processes of a command; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    # A handler does not run while the main thread waits in a library, e.g. for another process of a group.
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except SystemExit:
        os._exit(1)  # what was half written is removed by now; the pool would keep the process
    except Exception as error:
        from ragmeter.runner.executors.work import sendable

        raise sendable(error) from error
