"""What measuring speed takes: models of random weights where real ones cannot be had, and clocks that wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def made_as(dtype: str, device: str) -> Iterator[None]:
    """Within this block models are made in this type and place: 28 GB of float32 need not pass through the CPU.

    Args:
        dtype: float32, bfloat16, float16.
        device: cpu, cuda …; meta: nothing is allocated.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def synchronizer(device: str) -> Callable[[], None]:
    """What waits for a device; nothing has to wait for a CPU."""
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)
