"""Measure the structure of the checkout on the import path, and print it as JSON; run by `perf.structure` with `python -c`.

Imports nothing from `perf`, so that it also measures checkouts of other commits.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tools.count import PACKAGES, code_lines

SMALL = """\
name: small
benchmarks: [{id: worlds/multihop, split: test, limit: 60, config: {questions: 60}}]
methods: [{id: bm25}, {id: random}]
"""
ROUNDS = 3
IN_FUNCTION = 2
"""Flag of code that runs in a function, not in a module or class body."""


def main() -> dict[str, Any]:
    """Measure all figures on the structure of the code."""
    import ragmeter

    root = Path(str(ragmeter.__file__)).parents[1]
    sources = [path.read_text("utf-8") for package in PACKAGES for path in (root / package).rglob("*.py")]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "small.yaml"
        file.write_text(SMALL)
        run = ["run", str(file), "-q", "--store"]
        seconds = [_seconds(run, Path(folder) / f"store{number}") for number in range(ROUNDS)]
        passed, stack, climbs = _traced([*run, str(Path(folder) / "traced")])
    return {
        "files": len(sources),
        "code_lines": sum(map(code_lines, sources)),
        "yaml_lines": sum(path.read_text("utf-8").count("\n") for path in (root / "ragmeter/experiments").rglob("*.yaml")),
        "options": _options(),
        "run": {"stack": stack, "modules": len(passed), "climbs": climbs, "passed": passed},
        "small_run_cpu_s": round(min(seconds), 3),
    }


def _options() -> dict[str, int]:
    """Return the numbers of options of everything that is registered, and of commands."""
    import typer.main

    registries = {"methods": ("methods.registry", "METHODS"), "trainings": ("methods.training", "TRAININGS")}
    registries |= {"datasets": ("benchmarks.registry", "DATASETS"), "judges": ("judges.judge", "JUDGES")}
    counts = {}
    for kind, (module, name) in registries.items():
        counts[kind] = sum(len(entry.config.model_fields) for entry in getattr(import_module(module), name))
    commands: list[Any] = [typer.main.get_command(import_module("ragmeter.cli").app)]
    for command in commands:  # the list grows by what groups hold
        if hasattr(command, "list_commands"):
            commands += [command.get_command(None, name) for name in command.list_commands(None)]
    counts["commands"] = sum(item.param_type_name == "option" for command in commands for item in command.params)
    return {**counts, "all": sum(counts.values())}


def _seconds(arguments: list[str], store: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "ragmeter.cli", *arguments, str(store)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _traced(arguments: list[str]) -> tuple[list[str], list[str], int]:
    """Follow a run from the command's function to the first write of finished questions.

    Returns:
        Modules of `ragmeter` in which a function ran, by first entry; those on the call stack of the write, outermost
        first; and how many pairs of modules have a call from one into another that was entered before it.
    """
    passed: dict[str, int] = {}
    calls: set[tuple[str, str]] = set()
    stack: list[str] = []
    started = False

    def own(frame: FrameType) -> str | None:
        name = str(frame.f_globals.get("__name__", ""))
        return name if name.partition(".")[0] == "ragmeter" else None

    def importing(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "<module>" or "importlib" in frame.f_code.co_filename:
                return True
            frame = frame.f_back if frame.f_globals.get("__name__") != "ragmeter.cli.run" else None
        return False

    def enter(frame: FrameType, event: str, argument: object) -> None:
        nonlocal started
        code: CodeType = frame.f_code
        name = own(frame) if event == "call" else None
        if name is None or stack or not code.co_flags & IN_FUNCTION:
            return
        started |= (name, code.co_name) == ("ragmeter.cli.run", "run")
        if not started or importing(frame):
            return
        passed.setdefault(name, len(passed))
        caller = frame.f_back
        while caller is not None and own(caller) is None:
            caller = caller.f_back
        if caller is not None:
            calls.add((str(own(caller)), name))
        if (name, code.co_name) == ("ragmeter.runner.loop", "write"):
            outer: FrameType | None = frame
            while outer is not None:
                if (module := own(outer)) is not None and module not in stack:
                    stack.append(module)
                outer = outer.f_back

    from ragmeter.cli import app

    sys.setprofile(enter)
    try:
        app(arguments, standalone_mode=False)
    finally:
        sys.setprofile(None)
    climbs = sum(passed[callee] < passed[caller] for caller, callee in calls if caller in passed)
    return list(passed), stack[::-1], climbs


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()))
