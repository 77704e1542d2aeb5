"""Name the runs of one method by the seed of their training and the number of earlier answers.

`ARK #1 ~2` is the second answer of the training with seed 1. The first answer has no number, so that a run keeps its
name (and its answers) if more repeats are wanted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.store.queries import RunRow

_PARTS = re.compile(r"(?P<base>.+?)(?P<seed> #\d+)?(?: ~(?P<repeat>\d+))?", re.DOTALL)
_FOLDED = re.compile(r"(.+) \(\d+ (?:seeds|seeds, \d+ answers|repeats)\)", re.DOTALL)


def seeded_name(method: str, seed: int) -> str:
    """Return the display name of a method's run with one training seed."""
    return f"{method} #{seed}"


def repeated_name(method: str, repeat: int) -> str:
    """Return the display name of one repeat of a method; repeats count from 0."""
    return f"{method} ~{repeat + 1}" if repeat else method


def base_name(name: str) -> str:
    """Return a run's display name without the suffixes for seed and repeat."""
    return _parts(name)["base"]


def first_name(name: str) -> str:
    """Return a run's display name without the suffix for the repeat."""
    parts = _parts(name)
    return parts["base"] + (parts["seed"] or "")


def repeat_of(name: str) -> int:
    """Read the number of the repeat from a run's display name; 0 for the first one."""
    return int(_parts(name)["repeat"] or 1) - 1


def folded_name(name: str, seeds: int, runs: int) -> str:
    """Return the display name of several runs of one method combined, with the number of seeds or runs.

    Args:
        name: Common beginning of their names.
        seeds: Number of trainings.
        runs: Number of runs.
    """
    if runs == 1:
        return name
    if seeds == 1:
        return f"{name} ({runs} repeats)"
    return f"{name} ({seeds} seeds)" if seeds == runs else f"{name} ({seeds} seeds, {runs} answers)"


def is_called(name: str, method: str) -> bool:
    """Return whether a row shows this method, either one run of it or several seeds and repeats combined."""
    result = _FOLDED.fullmatch(name)
    return name == method or (result is not None and result[1] in (base_name(method), first_name(method)))


def _parts(name: str) -> re.Match[str]:
    result = _PARTS.fullmatch(name)
    assert result is not None  # a name has at least one character
    return result


def run_labels(runs: Sequence[RunRow]) -> dict[str, str]:
    """Return method names by run id; a fingerprint is added to runs of the same name."""
    times = Counter(run.method for run in runs)
    return {run.run: f"{run.method} ({run.short})" if times[run.method] > 1 else run.method for run in runs}
