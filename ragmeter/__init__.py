"""The front door: command line, Python API, experiment files, the run loop.

In a notebook, `from ragmeter import run, load_results, compare` (docs/api.md). In the code, start at `cli.py` (the
commands) and `api.py` (those functions), then `experiment.py` (what an experiment file may say), `experiment_run.py`
(how one is carried through) and `run_loop.py` (what a run does). Imports every other room; nobody imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.errors import Broke, UserError
    from ragmeter.api import Results, load_results, run
    from ragmeter.compared import Compared, compare

_HOME = {
    "run": "ragmeter.api",
    "load_results": "ragmeter.api",
    "compare": "ragmeter.compared",
    "Results": "ragmeter.api",
    "Compared": "ragmeter.compared",
    "UserError": "benchmarks.errors",
    "Broke": "benchmarks.errors",
}
__all__ = ["Broke", "Compared", "Results", "UserError", "compare", "load_results", "run"]


def __getattr__(name: str) -> Any:
    """Import what is asked for only now: `import ragmeter` and `ragmeter --help` stay fast."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """What a notebook completes."""
    return sorted([*globals(), *__all__])
