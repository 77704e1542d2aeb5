"""Run every benchmark of this folder, and print one table with targets, stored values and regressions.

Each benchmark is a process of its own and writes its record to `perf/measured`. One with a figure that is worse than the
committed record runs twice more, and counts as regressed if the median is worse by more than the noise. Exit code 1 if a
target is missed, a benchmark breaks or a figure regressed. The page is written from all records.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from perf.measuring import say
from perf.page import PAGE, page
from perf.table import ROOT, Figure, committed, figures, regressed, stored, table

NO_BENCHMARKS = frozenset({"table", "gpu_real"})
"""Commands of this folder that `make perf` does not run: this table, and what needs a GPU (`make gpu-real`)."""
REPEATS = 2


def benchmarks() -> list[str]:
    """List the names of all performance benchmarks."""
    names = (path.stem for path in Path(__file__).parent.glob("[!_]*.py") if "\ndef main(" in path.read_text("utf-8"))
    return sorted(set(names) - NO_BENCHMARKS)


def _runs(name: str) -> bool:
    say(f"\n== {name}")
    return subprocess.run([sys.executable, "-m", f"perf.{name}"], cwd=ROOT, check=False).returncode == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run performance benchmarks by name."""
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks (default: all)")
    names = parser.parse_args(argv).names or benchmarks()
    if unknown := set(names) - set(benchmarks()):
        parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}; choose from {', '.join(benchmarks())}")
    before = figures(committed())
    failed: list[str] = []
    flags: dict[str, str] = {}
    for name in names:
        if not _runs(name):
            failed.append(name)
        rounds: list[dict[str, Figure]] = [figures(stored())]
        own = {key: old for key, old in before.items() if key in rounds[0] and rounds[0][key].benchmark == name}
        for _ in range(REPEATS if regressed(own, rounds) else 0):
            _runs(name)
            rounds.append(figures(stored()))
        flags |= regressed(own, rounds)
    say("\n" + table(figures(stored()).values(), before, flags))
    PAGE.write_text(page(stored()), "utf-8")
    say(f"\n{'missed or broken: ' + ', '.join(failed) if failed else 'every benchmark that ran met its targets'}; {len(flags)} regressions")
    return int(bool(failed or flags))


if __name__ == "__main__":
    sys.exit(main())
