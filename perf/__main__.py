"""Run every benchmark of this folder, and print one table with targets, stored values and regressions.

Each benchmark is a process of its own with a time limit and writes its record to `perf/measured`; one that fails or takes
too long does not stop the others. One with a figure that is worse than the committed record runs twice more, and counts as
regressed if the median is worse by more than the noise. Exit code 1 if a target is missed, a benchmark breaks or a figure
regressed. The page is written from all records.

`LONG` benchmarks run only with `--long` or by name; their stored figures stay. `--quick` takes smaller sizes, repeats nothing and
changes neither records nor page. `--resume` continues a run that was interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from perf.measuring import MEASURED as FOLDER
from perf.measuring import say
from perf.page import PAGE, page
from perf.table import MEASURED, ROOT, Figure, committed, figures, regressed, stored, table

NO_BENCHMARKS = frozenset({"table", "gpu_real"})
"""Commands of this folder that `make perf` does not run: this table, and what needs a GPU (`make gpu-real`)."""
REPEATS = 2
LIMIT_S = 300.0
LONG_LIMIT_S = 3600.0
QUICK_LIMIT_S = 60.0
QUICK: dict[str, list[str]] = {
    "bradley_terry": ["--turns", "1"],
    "clara": ["--queries", "1"],
    "encoders": ["--texts", "32", "--turns", "1", "--vectors", "20000"],
    "first_runs": ["--runs", "1"],
    "flow": ["--questions", "300"],
    "leaderboard": ["--methods", "10", "--datasets", "3", "--questions", "100"],
    "llm_reranking": ["--queries", "10"],
    "store": ["--millions", "1"],
    "triple_reading": ["--questions", "60"],
}
"""Options with which a benchmark takes less time; the others have no size to choose."""
LONG = frozenset({"backends", "beir", "corpus", "flow", "leaderboard", "loaders", "verdicts"})
"""Benchmarks of full sizes, several minutes to an hour each."""
STATE = MEASURED / ".ended"
"""Names of the benchmarks that ended well in this or an interrupted run; not committed, not written by `--quick`."""


def benchmarks() -> list[str]:
    """List the names of all performance benchmarks."""
    names = (path.stem for path in Path(__file__).parent.glob("[!_]*.py") if "\ndef main(" in path.read_text("utf-8"))
    return sorted(set(names) - NO_BENCHMARKS)


def _runs(name: str, options: Sequence[str], limit_s: float) -> str:
    """Run a benchmark; return why it counts as failed, or ""."""
    say(f"\n== {name} {' '.join(options)}".rstrip())
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", f"perf.{name}", *options], cwd=ROOT, start_new_session=True)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"over {limit_s:g} s"
    finally:
        # Its servers and workers end with it, also if this command is interrupted.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    say(f"-- {name}: {time.monotonic() - began:.0f} s")
    return f"exit code {code}" if code else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run performance benchmarks by name."""
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks (default: all)")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, without repetitions; changes no records")
    parser.add_argument("--long", action="store_true", help=f"also run {', '.join(sorted(LONG))}")
    parser.add_argument("--resume", action="store_true", help="leave out benchmarks that ended in the run that was interrupted")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no benchmark after so many; --resume continues")
    parser.add_argument(
        "--limit", type=float, help=f"seconds per benchmark (default: {LIMIT_S:g}; long {LONG_LIMIT_S:g}; with --quick {QUICK_LIMIT_S:g})"
    )
    chosen = parser.parse_args(argv)
    if chosen.quick and (chosen.resume or chosen.long):
        parser.error("--quick changes no records, so it has no --resume, and it leaves out what --long adds")
    names = chosen.names or [name for name in benchmarks() if chosen.long or name not in LONG]
    if unknown := set(names) - set(benchmarks()):
        parser.error(f"unknown benchmarks: {', '.join(sorted(unknown))}; choose from {', '.join(benchmarks())}")
    with ExitStack() as stack:
        if chosen.quick:
            # The processes of the benchmarks inherit it.
            os.environ[FOLDER] = stack.enter_context(tempfile.TemporaryDirectory())
            stack.callback(os.environ.pop, FOLDER)
        return _run_all(names, chosen)


def _run_all(names: Sequence[str], chosen: argparse.Namespace) -> int:
    folder = Path(os.environ.get(FOLDER) or MEASURED)
    ended = STATE.read_text("utf-8").split() if chosen.resume and STATE.exists() else []
    if not chosen.quick:
        STATE.write_text("".join(f"{name}\n" for name in ended), "utf-8")
    before = figures(committed())
    failed: dict[str, str] = {}
    flags: dict[str, str] = {}
    began, left = time.monotonic(), []
    for name in names:
        if name in ended:
            now = figures(stored(folder))
            flags |= regressed({key: old for key, old in before.items() if key in now and now[key].benchmark == name}, [now])
            continue
        if time.monotonic() - began > 60 * chosen.minutes:
            left.append(name)
            continue
        options = QUICK.get(name, []) if chosen.quick else []
        limit_s = chosen.limit or (QUICK_LIMIT_S if chosen.quick else LONG_LIMIT_S if name in LONG else LIMIT_S)
        why = _runs(name, options, limit_s)
        if why:
            failed[name] = why
        rounds: list[dict[str, Figure]] = [figures(stored(folder))]
        own = {key: old for key, old in before.items() if key in rounds[0] and rounds[0][key].benchmark == name}
        for _ in range(REPEATS if not chosen.quick and regressed(own, rounds) else 0):
            _runs(name, options, limit_s)
            rounds.append(figures(stored(folder)))
        flags |= regressed(own, rounds)
        if not why and not chosen.quick:
            with STATE.open("a", encoding="utf-8") as state:
                state.write(f"{name}\n")
    say("\n" + table(figures(stored(folder)).values(), before, flags))
    if not chosen.quick:
        PAGE.write_text(page(stored(folder)), "utf-8")
    if left:
        say(f"\nnot begun in {chosen.minutes:g} minutes{'' if chosen.quick else ', --resume continues'}: {', '.join(left)}")
    elif not failed and not chosen.quick:
        STATE.unlink()
    lines = [f"{name}: {why}" for name, why in failed.items()]
    say(f"\n{'missed or broken: ' + ', '.join(lines) if failed else 'every benchmark that ran met its targets'}; {len(flags)} regressions")
    return int(bool(failed or flags))


if __name__ == "__main__":
    sys.exit(main())
