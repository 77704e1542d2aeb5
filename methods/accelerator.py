"""Query the accelerator's state from torch without importing torch; errors never affect a question.

While one task waits for its last replies, another may be importing torch in a second thread. Then `sys.modules` holds a
module that has not all of its attributes yet, so this file treats it as not loaded.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any


def loaded_torch() -> Any:
    """Return the torch module if another part has already imported it completely, else None; never import it."""
    torch = sys.modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return None
    return torch


def accelerators() -> list[str]:
    """Return the names of the GPUs that torch sees; empty if torch is not loaded, because loading it takes seconds."""
    with suppress(Exception):
        torch = loaded_torch()
        if torch is not None and torch.cuda.is_available():
            return [str(torch.cuda.get_device_name(number)) for number in range(torch.cuda.device_count())]
    return []


def peak_memory() -> int:
    """Return the peak GPU memory in bytes since `reset_peak_memory`, 0 without a GPU.

    Memory of the process itself is not measured: its peak tells more about earlier tasks than about this one.
    """
    with suppress(Exception):
        torch = loaded_torch()
        if torch is not None and torch.cuda.is_initialized():
            return int(torch.cuda.max_memory_allocated())
    return 0


def reset_peak_memory() -> None:
    """Start a new measurement of peak GPU memory for `peak_memory`."""
    with suppress(Exception):
        torch = loaded_torch()
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()
