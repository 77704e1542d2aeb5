"""Tools for benchmarks: models of random weights, clocks that wait for a device, and a record of what was measured."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragmeter.runner.provenance import processor


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


def record(name: str, value: Mapping[str, Any], folder: Path = Path(__file__).parent / "measured") -> Path:
    """Write what was measured to `measured/NAME.json`, with the command, the commit, the date and the machine.

    A benchmark that measures several parts adds to the file: parts that are not measured now stay as they are.
    """
    root = Path(__file__).parents[1]
    git = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    about = {
        "command": shlex.join(["python", "-m", f"perf.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
        "commit": git.stdout.strip() or None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "hardware": f"{processor()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    known |= {part: {**about, **figures} for part, figures in value.items()}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    return path
