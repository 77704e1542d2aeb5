"""Looking for evaluation questions in training files, and for near-duplicates, against plain loops.

The training file is made up of worlds' passages with questions among them. The plain loop holds the same grams as
tuples in a set and looks every tuple of the stream up; it reads and normalizes the same texts. Both are timed in turns
in one process; memory is the process' highest (VmHWM) before and after the larger file.

python -m perf.contamination [--quick] [--megabytes 200]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.leakage import N, contamination, near_duplicates, texts
from benchmarks.registry import Benchmark, load
from benchmarks.text import normalize

FASTER = 2.0
"""Target: contamination against the plain loop, parsing and normalizing included in both."""
GROWTH_MB = 30
"""Target: memory from a tenth of the training file to the whole of it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 0 where the targets are met."""
    parser = argparse.ArgumentParser(prog="python -m perf.contamination", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 MB instead of --megabytes")
    parser.add_argument("--megabytes", type=int, default=200)
    query = parser.parse_args(argv)
    megabytes = 20 if query.quick else query.megabytes
    benchmark = load("worlds/multihop:test", {"questions": 2000, "worlds": 5})
    with tempfile.TemporaryDirectory() as folder:
        whole, tenth = Path(folder) / "whole.jsonl", Path(folder) / "tenth.jsonl"
        write(benchmark, whole, megabytes << 20)
        write(benchmark, tenth, (megabytes << 20) // 10)
        ours, plain = in_turns([lambda: touched(benchmark, tenth), lambda: plainly(benchmark, tenth)], 1 if query.quick else 3)
        before = peak_megabytes()
        started = time.perf_counter()
        report = contamination([benchmark], [whole])
        seconds = time.perf_counter() - started
        growth = peak_megabytes() - before
    ratio = plain / ours
    print(f"{megabytes / 10:.0f} MB: {ours:.1f} s, plain loop {plain:.1f} s: {ratio:.1f} times as fast (target {FASTER})")
    print(f"{megabytes} MB: {megabytes / seconds:.1f} MB/s, {report.words / seconds / 1e6:.2f} million words/s")
    print(f"memory grows by {growth:.0f} MB from a tenth of the file to the whole (target: under {GROWTH_MB})")
    measure_near_duplicates(benchmark)
    return 0 if ratio >= FASTER and growth < GROWTH_MB else 1


def write(benchmark: Benchmark, path: Path, size: int) -> None:
    """Prompts of passages, a question among every fifty."""
    passages = [passage.full_text for passage in benchmark.corpus]
    queries = [question.text for question in benchmark.questions]
    with path.open("w", encoding="utf-8") as file:
        number = 0
        while file.tell() < size:
            text = " ".join(passages[(number * 7 + k * 13) % len(passages)] for k in range(4))
            row = {"prompt": queries[number // 50 % len(queries)] if number % 50 == 0 else text[:80], "text": text}
            file.write(json.dumps(row) + "\n")
            number += 1


def touched(benchmark: Benchmark, path: Path) -> int:
    """Questions that were met, by the index."""
    return sum(overlap.share > 0 for overlap in contamination([benchmark], [path]).overlaps)


def plainly(benchmark: Benchmark, path: Path) -> int:
    """The same by a set of tuples."""
    words = [normalize(question.text).split() for question in benchmark.questions]
    wanted = {gram for own in words for gram in grams(own, min(N, len(own)))}
    sizes = sorted({len(gram) for gram in wanted})
    met = set()
    for text in texts(path):
        own = normalize(text.text).split()
        for size in sizes:
            met.update(gram for gram in grams(own, size) if gram in wanted)
    return sum(any(gram in met for gram in grams(own, min(N, len(own)))) for own in words)


def grams(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All tuples of so many consecutive words."""
    return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]


def in_turns(calls: Sequence[Callable[[], int]], times: int) -> list[float]:
    """Median seconds of each; all must return the same.

    Raises:
        AssertionError: They do not.
    """
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(times):
        results = set()
        for call, seconds in zip(calls, spent, strict=True):
            started = time.perf_counter()
            results.add(call())
            seconds.append(time.perf_counter() - started)
        assert len(results) == 1, results
    return [statistics.median(seconds) for seconds in spent]


def measure_near_duplicates(benchmark: Benchmark) -> None:
    """Two thousand questions against twenty thousand of other worlds."""
    first = [question.text for question in benchmark.questions]
    second = [q.text for q in load("worlds/multihop:train", {"questions": 20_000, "worlds": 40}).questions]
    started = time.perf_counter()
    pairs = near_duplicates(first, second)
    seconds = time.perf_counter() - started
    print(f"near-duplicates of {len(first):,} and {len(second):,} questions: {len(pairs)} in {seconds:.1f} s")


def peak_megabytes() -> float:
    """Highest resident memory of this process so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return kilobytes / 1024


if __name__ == "__main__":
    raise SystemExit(main())
