"""Run every benchmark in this folder one after another; exit code 1 where a target is missed."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import perf


def main() -> int:
    missed = []
    for module in sorted(info.name for info in pkgutil.iter_modules(perf.__path__) if not info.name.startswith("_")):
        sys.stdout.write(f"\n== {module}\n")
        sys.stdout.flush()
        if importlib.import_module(f"perf.{module}").main([]):
            missed.append(module)
    sys.stdout.write(f"\n{'targets missed in: ' + ', '.join(missed) if missed else 'every target was met'}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
