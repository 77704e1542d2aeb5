"""Divide a training step into parts, distribute them over processes, and shrink them if memory runs out.

Losses are sums over parts, divided by totals of the whole batch. The gradient therefore does not depend on the division, except
for dropout, which is seeded by the seed, the step and the part's number.
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
    """Raised by all processes of a group at the same point of a step if memory ran out in one of them.

    Args:
        largest: Size of the step's largest part, as `MicroBatch.size` counts.
        single: Whether the part that did not fit is a single item.
    """

    def __init__(self, largest: int, single: bool) -> None:
        super().__init__(f"a part of size {largest} does not fit into memory")
        self.largest, self.single = largest, single


@dataclass
class MicroBatch:
    """Maximum size of the parts into which a step is divided.

    Attributes:
        size: Maximum size in the training's unit: rows, pairs, texts or tokens.
        option: The option that sets it.
    """

    size: int
    option: str

    def halve(self, error: TooLarge, device: Any) -> None:
        """Halve the size after memory ran out.

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
    """Process the parts of a step, distributed over processes, and sum their metrics.

    Args:
        parts: Parts of the step, the same in every process.
        learn: Function that adds the gradient of a part, given its number and the part, and returns metrics to sum.
        process: An `Accelerator`; None: there is only one process.
        size: Function from a part to its size, in the unit of `MicroBatch.size`.

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
    """Gather a value from all processes within a step. Unlike `ranks.gathered`, it fails after the group's time-out."""
    if process is None or process.num_processes == 1:
        return [value]
    from accelerate.utils import gather_object

    results: list[Any] = gather_object([value])
    return results


def in_parts(parts: Sequence[T], loss: Callable[[T], Tensor], key: Sequence[Any], process: Any, device: torch.device) -> float:
    """Add the gradient of a step whose loss is a sum over parts; each process handles its own parts.

    Args:
        parts: Parts of the step.
        loss: Function from a part to its summand of the loss.
        key: Seed parts of dropout; the part's number is added.
        process: `accelerate` process; None for no mixed precision.
        device: Device of the model.

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
