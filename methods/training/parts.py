"""A step in parts: each process learns from its own parts, and parts become smaller if memory runs out.

The losses of all trainings are sums over parts, divided by what the whole batch holds. So a batch in parts has the
gradient of the whole: exactly, but for dropout, which is drawn from the seed, the step and the part's number.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.core.errors import Broke
from benchmarks.core.fingerprint import fingerprint
from methods.training.ranks import backward, own

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T", bound=Sized)
Figures = Mapping[str, float]


class TooLarge(Exception):
    """Memory ran out in a process; all processes of the group raise it at the same point of a step.

    Args:
        largest: Size of the step's largest part, as `MicroBatch.size` counts.
        single: The part that did not fit cannot be divided.
    """

    def __init__(self, largest: int, single: bool) -> None:
        super().__init__(f"a part of size {largest} does not fit into memory")
        self.largest, self.single = largest, single


@dataclass
class MicroBatch:
    """Size of the parts into which a step is divided.

    Attributes:
        size: Rows, pairs, texts or tokens, as the training counts.
        option: The option that sets it.
    """

    size: int
    option: str

    def halve(self, error: TooLarge, device: Any) -> None:
        """Read less from now on.

        Raises:
            Broke: A single item does not fit into memory.
        """
        smaller = min(self.size, error.largest) // 2
        if error.single or smaller < 1:
            raise Broke(
                f"even the smallest part of a step does not fit into the memory of {device}",
                code="batch-out-of-memory",
                where=self.option,
                try_this="a device with more memory; or a new training with precision bf16, shorter texts or a smaller model",
            )
        warnings.warn(
            f"{self.option} {self.size} is too much for the memory of {device}: the training continues with {smaller}", stacklevel=2
        )
        self.size = smaller


def over_parts(parts: Sequence[T], learn: Callable[[int, T], Figures], process: Any, size: Callable[[T], int] = len) -> dict[str, float]:
    """Learn from each part of a step; each process learns from its own parts.

    Args:
        parts: Of the step, the same in every process.
        learn: Adds the gradient of a part, and returns figures that are added up. It gets the part's number first.
        process: An `Accelerator`; None: there is only one process.
        size: From a part to its size, as `MicroBatch.size` counts.

    Returns:
        The sums over all parts and processes.

    Raises:
        TooLarge: Memory ran out in one of the processes; gradients of some parts were added.
    """
    import torch

    sums: dict[str, float] = {}
    full = single = False
    for number, part in own(list(enumerate(parts)), process):
        try:
            figures = learn(number, part)
        except torch.OutOfMemoryError:
            full, single = True, len(part) == 1
            break
        for name, value in figures.items():
            sums[name] = sums.get(name, 0.0) + value
    every = agreed((full, single, sums), process)
    if any(full for full, _, _ in every):
        raise TooLarge(max(map(size, parts)), any(single for _, single, _ in every))
    if len(every) == 1:
        return sums
    names = dict.fromkeys(name for _, _, some in every for name in some)
    return {name: sum(some.get(name, 0.0) for _, _, some in every) for name in names}


def agreed(value: Any, process: Any) -> list[Any]:
    """Return the values of all processes within a step: unlike `ranks.gathered`, it fails after the group's time-out."""
    if process is None or process.num_processes == 1:
        return [value]
    from accelerate.utils import gather_object

    results: list[Any] = gather_object([value])
    return results


def in_parts(parts: Sequence[T], loss: Callable[[T], Tensor], key: Sequence[Any], process: Any, device: torch.device) -> float:
    """Add the gradient of a step whose loss is a sum over parts; each process adds that of its own parts.

    Args:
        parts: Of the step.
        loss: From a part to its summand.
        key: Seed of dropout, together with the part's number.
        process: Of `accelerate`; None: no mixed precision.
        device: Of the model.

    Returns:
        The loss.

    Raises:
        TooLarge: Memory ran out in one of the processes.
    """
    import torch

    devices = [device] if device.type == "cuda" else []

    def learn(number: int, part: T) -> Figures:
        with torch.random.fork_rng(devices=devices), nullcontext() if process is None else process.autocast():
            torch.manual_seed(int(fingerprint(*key, number), 16) % 2**63)
            result = loss(part)
        backward(result, process)
        return {"loss": float(result.detach())}

    return over_parts(parts, learn, process).get("loss", 0.0)
