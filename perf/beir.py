"""A BEIR folder at scale: peak memory and time of loading it, by number of passages.

Each step is a process of its own, whose highest resident memory the kernel reports (VmHWM): the shortest program that makes the same
questions and passages in memory (`perf._plain_loaders`), the first load (which builds the corpus folder) and every later one. The
folder is made up: a hundred words per passage.

python -m perf.beir [--quick] [--sizes 100000 1000000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

import benchmarks.datasets.beir  # noqa: F401  # so that no step pays for importing it
from benchmarks.registry import load
from perf._plain_loaders import beir
from perf.measuring import peak_megabytes, record

MILLION = 1_000_000
MEMORY_MB = 1024
"""Target: highest resident memory of loading a million passages."""
TIMES = 2.0
"""Target: CPU time of a load over that of the plain loop; the median of the repetitions."""
QUESTIONS = 1000
ROUNDS = 3
JUDGED = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and record; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m perf.beir", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, MILLION])
    parser.add_argument("--quick", action="store_true", help="10,000 passages; nothing is recorded")
    parser.add_argument("--folder", help="where the data go (deleted afterwards)")
    parser.add_argument("--step", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.step:
        print(json.dumps(_measured(options.step[0], Path(options.step[1]))))
        return 0
    missed = 0
    for size in [10_000] if options.quick else options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            write_folder(Path(folder) / "made", size)
            results = _results(Path(folder), 1 if options.quick else ROUNDS)
        for name, values in results.items():
            print(f"{name} {size:,}: " + ", ".join(f"{value:,.2f} {unit}" for unit, value in values.items()), flush=True)
        loads = [results[name] for name in ("first load", "load again")]
        missed += any(
            (size <= MILLION and values["MB"] > MEMORY_MB) or (not options.quick and values["times plain"] > TIMES) for values in loads
        )
        if not options.quick:
            record("beir", {f"{size} passages": {"target_MB": MEMORY_MB, "target_times_plain": TIMES, **results}})
    return int(missed > 0)


def _results(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Run the steps in turns, each time with an empty cache, and take the medians."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in STEPS}
    for _ in range(rounds):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        for name, steps in taken.items():
            steps.append(_step(name, folder))
    results = {name: {unit: median(each[unit] for each in steps) for unit in steps[0]} for name, steps in taken.items()}
    for values in results.values():
        values["times plain"] = values["s of CPU"] / results["plain loop"]["s of CPU"]
    return results


def _step(name: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "perf.beir", "--step", name, str(folder)]
    environment = {**os.environ, "RAGMETER_CACHE": str(folder / "cache")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


def write_folder(folder: Path, size: int) -> None:
    """Write a synthetic corpus, questions and judgments in BEIR's layout, with about 700 bytes per passage."""
    draw = np.random.default_rng(0)
    words = np.array(["".join(chr(97 + letter) for letter in draw.integers(0, 26, 2 + i % 9)) for i in range(60_000)])
    phrases = [" ".join(line) for line in words[np.minimum(draw.zipf(1.3, (8_000, 25)), len(words) - 1)]]
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for start in range(0, size, 10_000):
            for row, parts in enumerate(draw.integers(0, len(phrases), (min(10_000, size - start), 4)), start):
                text = " ".join(phrases[part] for part in parts)
                file.write(json.dumps({"_id": f"doc{row}", "title": f"Article {row // 30}", "text": text, "metadata": {}}) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": f"q{number}", "text": f"question {number}"}) + "\n" for number in range(QUESTIONS))
    with (folder / "qrels" / "test.tsv").open("w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for number in range(QUESTIONS):
            judged = np.unique(draw.integers(0, size, JUDGED))
            file.writelines(f"q{number}\tdoc{row}\t{int(draw.integers(0, 4))}\n" for row in judged)


def _measured(name: str, folder: Path) -> dict[str, float]:
    started, working = time.perf_counter(), time.process_time()
    STEPS[name](folder / "made")
    return {"s": time.perf_counter() - started, "s of CPU": time.process_time() - working, "MB": peak_megabytes()}


def _plain(folder: Path) -> None:
    questions, corpus = beir(folder)
    for question in questions:
        [corpus[name] for name in question.grades]


def _load(folder: Path) -> None:
    benchmark = load("beir:test", {"path": str(folder)})
    assert len(benchmark.questions) == QUESTIONS
    # What a run reads: passages by id, those of the judgments among them.
    for question in benchmark.questions:
        benchmark.corpus.get(question.grades)


STEPS: dict[str, Callable[[Path], None]] = {"plain loop": _plain, "first load": _load, "load again": _load}

if __name__ == "__main__":
    sys.exit(main())
