"""Command line, Python API, experiment files, the run loop.

In a notebook, `from ragmeter import run, load_results, compare` (docs/experiments.md). In the code, start at `cli/` (the
commands) and `api.py` (those functions), then `experiment.py` (what an experiment file may say), `runner/experiment.py`
(how one is carried through) and `runner/loop.py` (what a run does). Imports every other package; nobody imports it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from benchmarks.core.errors import Broke, UserError
    from ragmeter.api import Compared, Results, compare, load_results, run


_BESIDE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_PACKAGES = ("benchmarks", "methods", "judges", "results", "leaderboard")


class _Finder:
    """Import finder for ragmeter's packages with common names, which prefers the folder of this one on any import path."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        start = os.path.join(_BESIDE, name, "__init__.py")
        # In an archive there is no such file, and Python's own finders look.
        if name not in _PACKAGES or not os.path.isfile(start):
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, start, submodule_search_locations=[os.path.dirname(start)])


def _refuse_others() -> None:
    """Refuse other packages with the names of ragmeter's, because later imports would use them instead."""
    for name in _PACKAGES:
        if (other := sys.modules.get(name)) is None:
            continue
        position = getattr(other, "__file__", None) or next(iter(getattr(other, "__path__", ())), "no file")
        folder = os.path.dirname(position) if getattr(other, "__file__", None) else position
        if os.path.realpath(folder) != os.path.realpath(os.path.join(_BESIDE, name)):
            raise ImportError(
                f"ragmeter's package {name!r} cannot be imported: another one of that name was imported before\n"
                f"  where: {position}\n"
                f"  try:   `import ragmeter` before it, in a new process; where you need both, give yours another name",
                name=name,
                path=position,
            )


_refuse_others()
sys.meta_path.insert(0, _Finder)

_HOME = {
    "run": "ragmeter.api",
    "load_results": "ragmeter.api",
    "compare": "ragmeter.api",
    "Results": "ragmeter.api",
    "Compared": "ragmeter.api",
    "UserError": "benchmarks.core.errors",
    "Broke": "benchmarks.core.errors",
}
__all__ = ["Broke", "Compared", "Results", "UserError", "compare", "load_results", "run"]


def __getattr__(name: str) -> Any:
    """Import what is asked for only now: `import ragmeter` and `ragmeter --help` stay fast."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Return what a notebook completes."""
    return sorted([*globals(), *__all__])
