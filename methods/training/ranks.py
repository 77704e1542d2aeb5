"""Coordinate processes that train together: waiting, comparing prepared data, and dividing steps.

Collective operations fail after the process group's time-out, but one process may prepare data for hours while the others wait.
Therefore `first`, `wait` and `gathered` use a second group without a time-out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.core.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
TIMEOUT = "RAGMETER_GROUP_TIMEOUT"
"""Environment variable: seconds that a process waits for the others within a step."""
UNLIMITED = timedelta(days=365)


def accelerator(precision: str, device: str | None) -> Any:
    """Create an `Accelerator` for this process, replacing an earlier one.

    Raises:
        UserError: The device does not support this precision or a group, or the time-out is not a number.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import InitProcessGroupKwargs

    if AcceleratorState._shared_state and AcceleratorState().num_processes == 1:
        AcceleratorState._reset_state(reset_partial_state=True)
    within = timeout()
    handlers = [] if within is None else [InitProcessGroupKwargs(timeout=within)]
    count = int(os.environ.get("WORLD_SIZE", "1"))
    # Without a GPU the library forms a group only if the CPU is requested.
    cpu = device == "cpu" or (count > 1 and not torch.accelerator.is_available())
    try:
        made = Accelerator(mixed_precision=precision, cpu=cpu, kwargs_handlers=handlers)
    except ValueError as error:
        raise _lacks(precision, str(error)) from None
    kind = made.device.type
    if made.num_processes != count:
        # Each process would carry out the whole training and overwrite the others' files.
        raise UserError(
            f"{count} processes cannot train together on a device of kind {kind}",
            code="no-process-group",
            where="--processes",
            try_this="--processes 1, or --device cpu",
        )
    # On a CPU the library would leave fp16 out without a word; on an older GPU bf16 is emulated.
    if precision == "fp16" and kind == "cpu":
        raise _lacks(precision, "it is a CPU")
    if precision == "bf16" and kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise _lacks(precision, torch.cuda.get_device_name())
    if made.num_processes > 1:
        # All processes are here now, so the second group cannot miss one.
        _patient()
    return made


def timeout() -> timedelta | None:
    """Return the group's time-out from the environment; None for the backend's default.

    Raises:
        UserError: The variable is not a number of seconds above 0.
    """
    value = os.environ.get(TIMEOUT)
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= UNLIMITED.total_seconds():
        raise UserError(f"{value!r} is not a number of seconds", code="bad-group-timeout", where=TIMEOUT, try_this=f"export {TIMEOUT}=1800")
    return timedelta(seconds=seconds)


def _lacks(precision: str, why: str) -> UserError:
    return UserError(
        f"this processor does not compute in {precision}: {why}",
        code="precision-not-supported",
        where="precision",
        try_this="precision: no",
    )


@cache
def _patient() -> Any:
    """Return the process group without time-out; all processes create it together."""
    import torch.distributed

    return torch.distributed.new_group(backend="gloo", timeout=UNLIMITED)


def gathered(value: T, process: Any) -> list[T]:
    """Gather a value from all processes, in order of their ranks; waits without a time-out.

    Args:
        value: This process's value; it must be picklable.
        process: An `Accelerator`; None: there is only one process.
    """
    if process is None or process.num_processes == 1:
        return [value]
    import torch.distributed

    results: list[Any] = [None] * process.num_processes
    torch.distributed.all_gather_object(results, value, group=_patient())
    return results


def wait(process: Any) -> None:
    """Wait until every process calls this function."""
    gathered(None, process)


@contextmanager
def first(process: Any) -> Iterator[None]:
    """Context manager that runs its block in the main process first, then in the others."""
    main = process is None or process.is_main_process
    if not main:
        wait(process)
    yield
    if main:
        wait(process)


def require_equal(what: Mapping[str, Any], process: Any, where: str) -> None:
    """Check that all processes of a group have the same inputs.

    Args:
        what: Values by name.
        process: An `Accelerator`; None: there is only one process.
        where: The folder that the processes share.

    Raises:
        UserError: A process has another value than the first one; every process raises it.
    """
    leader, *others = gathered(dict(what), process)
    for rank, other in enumerate(others, 1):
        different = [f"{name} {value} instead of {leader[name]}" for name, value in other.items() if value != leader[name]]
        if different:
            raise UserError(
                f"the processes of this training differ: process {rank} has {', '.join(different)}",
                code="ranks-differ",
                where=where,
                try_this="give all nodes the same files and packages, and a store that all of them see; then run it again",
            )


def own(parts: Sequence[T], process: Any) -> Sequence[T]:
    """Return this process's share of a step's parts.

    Args:
        parts: Parts of the step, in the same order in every process.
        process: An `Accelerator`; None: there is only one process.
    """
    return parts if process is None else parts[process.process_index :: process.num_processes]


def backward(loss: Tensor, process: Any) -> None:
    """Compute and add the gradient of a loss, through the `Accelerator` if there is one."""
    if process is None:
        loss.backward()
    else:
        process.backward(loss)


def summed(value: float, process: Any, device: Any) -> float:
    """Sum a number over all processes."""
    if process is None or process.num_processes == 1:
        return value
    import torch

    return float(process.reduce(torch.tensor(value, device=device), "sum"))
