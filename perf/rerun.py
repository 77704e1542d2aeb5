"""What unchanged work costs: a rerun with nothing to do, and the store after ten `--fresh` runs.

python -m perf.rerun [--against CHECKOUT]

The seconds are compared with those of another checkout, which runs in turn with this one; without it they are only
recorded. Both use this Python and the packages of its environment. Modules are compiled beforehand, as an installation has them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perf.measuring import command_seconds, compiling, record

HERE = Path(__file__).resolve().parents[1]
ROUNDS, EXECUTIONS = 7, 10
TARGET, MOST_S = 1.1, 1.0
"""Most of the other checkout's seconds; most processor seconds."""
EXPERIMENT = """\
name: rerun
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, config: {worlds: 30, questions: 300}}]
methods: [{id: bm25, name: bm25}, {id: random, name: random}]
metrics: [em, recall@5, ndcg@10]
"""


def run(checkout: Path, folder: Path, *options: str) -> float:
    """Measure the CPU seconds of `ragmeter run` with the code of a checkout."""
    command = [sys.executable, "-m", "ragmeter.cli", "run", str(folder / "x.yaml"), "--store", str(folder / "store"), "-q", *options]
    return command_seconds(command, cwd=folder, env={**compiling(), "PYTHONPATH": str(checkout)})


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and record; 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout")
    against = parser.parse_args(argv).against
    checkouts = {"here": HERE} | ({} if against is None else {"there": against.resolve()})
    with tempfile.TemporaryDirectory() as made:
        folders = {name: Path(made) / name for name in checkouts}
        for name, folder in folders.items():
            folder.mkdir()
            (folder / "x.yaml").write_text(EXPERIMENT)
            run(checkouts[name], folder)
        spent: dict[str, list[float]] = {name: [] for name in checkouts}
        for _ in range(ROUNDS):
            for name, folder in folders.items():
                spent[name].append(run(checkouts[name], folder))
        least = {name: round(min(values), 3) for name, values in spent.items()}
        file = folders["here"] / "store" / "store.duckdb"
        sizes = [file.stat().st_size]
        for _ in range(EXECUTIONS):
            run(HERE, folders["here"], "--fresh")
            sizes.append(file.stat().st_size)
    ratio = least["here"] / least["there"] if against is not None else None
    nothing: dict[str, float | str] = {"cpu_s": least["here"], "rounds": ROUNDS, "target_ratio": TARGET, "target_s": MOST_S}
    if ratio is not None:
        git = subprocess.run(["git", "-C", str(against), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        nothing |= {"against_commit": git.stdout.strip(), "against_cpu_s": least["there"], "ratio": round(ratio, 3)}
    record("rerun", {"nothing_to_do": nothing, "fresh": {"runs": EXECUTIONS, "questions": 600, "store_bytes": sizes}})
    compared = "" if ratio is None else f", {ratio:.2f} x {least['there']:.2f} s of the other checkout (target <= {TARGET:g})"
    sys.stdout.write(
        f"rerun.nothing_to_do {least['here']:.2f} s of CPU (target <= {MOST_S:g}){compared}\n"
        f"rerun.fresh {sizes[0] / 2**20:.1f} MiB, after {EXECUTIONS} runs {sizes[-1] / 2**20:.1f} MiB\n"
    )
    return 0 if least["here"] <= MOST_S and (ratio is None or ratio <= TARGET) else 1


if __name__ == "__main__":
    sys.exit(main())
