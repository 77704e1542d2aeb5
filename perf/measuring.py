"""The harness of all benchmarks: sides that take turns, ratios beside their targets, and a record of what was measured.

A benchmark times its sides with `in_turns` or `timed`, hands each ratio to a `Bench`, and ends with `bench.finish()`, which
writes `measured/NAME.json` with the command, the commit, the date and the machine.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from ragmeter.runner.provenance import processor

T = TypeVar("T")
MEASURED = "RAGMETER_PERF_RECORDS"
"""Environment variable: folder of records."""


def parser(document: str | None) -> ArgumentParser:
    """Make a command-line parser with `--quick`, whose help is the module's docstring."""
    result = ArgumentParser(description=(document or "").splitlines()[0])
    result.add_argument("--quick", action="store_true", help="small sizes, no targets: only that the sides agree")
    return result


def say(text: str) -> None:
    """Print a line immediately, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def timed(work: Callable[[], T], clock: Callable[[], float] = time.process_time) -> tuple[float, T]:
    """Measure the seconds of a function call; return them with its result."""
    start = clock()
    result = work()
    return clock() - start, result


def in_turns(
    turns: int, sides: Mapping[str, Callable[[], Any]], *, warm: bool = True, clock: Callable[[], float] = time.process_time
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Time several functions alternately, so that other load on the machine affects all of them equally.

    Args:
        turns: Number of timed calls per function.
        sides: Functions by name.
        warm: Call each function once before timing, because the first call imports and compiles.
        clock: Returns the time; CPU seconds by default.

    Returns:
        By name, the seconds of every call, and the last result.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    results: dict[str, Any] = {name: side() for name, side in sides.items()} if warm else {}
    for _ in range(turns):
        for name, side in sides.items():
            results.pop(name, None)
            gc.collect()
            spent, results[name] = timed(side, clock)
            seconds[name].append(spent)
    return seconds, results


def medians(
    turns: int, *sides: Callable[[], Any], warm: bool = False, clock: Callable[[], float] = time.process_time
) -> tuple[list[float], list[Any]]:
    """Time functions alternately (`in_turns`); return their median seconds and last results."""
    seconds, results = in_turns(turns, {str(number): side for number, side in enumerate(sides)}, warm=warm, clock=clock)
    return [median(spent) for spent in seconds.values()], [results[name] for name in seconds]


def ratio_of(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return the median ratio of their seconds to ours, over turns."""
    return median(a / b for a, b in zip(theirs, ours, strict=True))


def compiling() -> dict[str, str]:
    """Return this process's environment for short commands, with compiled modules and the threads that users have."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS")}


def command_seconds(command: Sequence[str], **options: Any) -> float:
    """Measure the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_megabytes() -> float:
    """Return the peak resident memory of this process in MB; after a fork it is at least the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return kilobytes / 1024


class Bench:
    """Collects the figures of one benchmark: prints each with its target, and writes one record.

    Args:
        name: Name of the benchmark.
        quick: Whether to ignore targets and record nothing.
    """

    def __init__(self, name: str, *, quick: bool = False) -> None:
        self.name, self.quick, self.failed = name, quick, False
        self.figures: dict[str, dict[str, Any]] = {}

    def ratio(self, name: str, ours: float, theirs: float, target: float | None = None, *, equal: bool = True, remark: str = "") -> None:
        """Report the seconds of ragmeter and of an alternative.

        `target` is the minimum ratio of theirs to ours; `equal` states whether the results agree.
        """
        self.figure(
            name,
            theirs / ours,
            "x",
            at_least=target,
            equal=equal,
            remark=f" ({ours:.3g} s, {theirs:.3g} s){remark}",
            ours_s=ours,
            theirs_s=theirs,
        )

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        equal: bool = True,
        remark: str = "",
        **more: Any,
    ) -> None:
        """Report a value and whether it meets its target."""
        missed = not self.quick and ((at_least is not None and value < at_least) or (at_most is not None and value > at_most))
        self.failed |= missed or not equal
        bounds = {key: bound for key, bound in (("at_least", at_least), ("at_most", at_most)) if bound is not None}
        targets = "" if self.quick else "".join(f", target {key.replace('_', ' ')} {bound:,g}" for key, bound in bounds.items())
        shown = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        say(f"{name}: {shown} {unit}{targets}{remark}{'  MISSED' if missed else ''}{'' if equal else '  DIFFERENT RESULTS'}")
        self.figures[name] = {"value": float(value), "unit": unit, "equal": bool(equal), **bounds, **more}

    def finish(self) -> int:
        """Write the record; return the exit code: 1 if a target was missed or results differ."""
        if not self.quick:
            record(self.name, self.figures)
        return int(self.failed)


@contextmanager
def made_as(dtype: str, device: str) -> Iterator[None]:
    """Create models of the block directly with this type on this device, which avoids 28 GB of float32 on the CPU.

    Args:
        dtype: "float32", "bfloat16" or "float16".
        device: "cpu", "cuda" …; "meta" allocates nothing.
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
    """Return a function that waits until a device has finished; it does nothing for a CPU."""
    if not device.startswith("cuda"):
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def record(name: str, value: Mapping[str, Any], folder: Path | None = None) -> Path:
    """Write figures to `NAME.json` in a folder, with command, commit, date and machine.

    Parts of a benchmark that were not measured this time are kept in the file.

    Args:
        name: Name of the record.
        value: Figures by part.
        folder: Folder of records; None: the one that the environment variable `MEASURED` names, else `measured`.
    """
    folder = folder or Path(os.environ.get(MEASURED) or Path(__file__).parent / "measured")
    root = Path(__file__).parents[1]
    git = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    about = {
        "command": shlex.join(["python", "-m", f"perf.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
        "commit": git.stdout.strip() or None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "hardware": f"{processor()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    known |= {part: {**about, **figures} for part, figures in value.items()}
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
    return path
