"""Several processes that train one model: each takes its share of the batches, gradients and counts are averaged.

On a busy machine two processes with one thread each do more than one with two threads, whose threads wait for each
other at every matrix product.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

_RANK, _MEETING = "POCKET_WORKER", "POCKET_MEETING"


class Workers:
    """Group of processes that train together, as seen from one of them; a single process needs no communication.

    Args:
        count: Number of processes.
        arguments: Command-line arguments, with which the first process starts the others.
    """

    def __init__(self, count: int, arguments: list[str]) -> None:
        self.count = count
        self.rank = int(os.environ.get(_RANK, "0")) if count > 1 else 0
        self._others: list[subprocess.Popen[bytes]] = []
        if count == 1:
            return
        import torch.distributed

        meeting = os.environ.get(_MEETING) or tempfile.mkdtemp(prefix="pocket-")
        if self.rank == 0:
            command = [sys.executable, "-m", "tools.tiny_lm.train", *arguments]
            for rank in range(1, count):
                extra = {_RANK: str(rank), _MEETING: meeting}
                self._others.append(subprocess.Popen(command, env={**os.environ, **extra}))
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/meeting", rank=self.rank, world_size=count)

    @property
    def first(self) -> bool:
        """Return whether this process writes the log and the checkpoints."""
        return self.rank == 0

    def average_gradients(self, parameters: Iterable[Any]) -> None:
        """Replace each gradient by its mean over the processes."""
        if self.count == 1:
            return
        import torch
        import torch.distributed

        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        torch.distributed.all_reduce(flat)
        flat /= self.count
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()

    def summed(self, values: list[float]) -> list[float]:
        """Sum lists of equal length over the processes."""
        if self.count == 1:
            return values
        import torch
        import torch.distributed

        tensor = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(tensor)
        return tensor.tolist()

    def wait(self) -> None:
        """Wait for the other processes to end."""
        for other in self._others:
            other.wait()
        if self.count > 1:
            import torch.distributed

            torch.distributed.destroy_process_group()
