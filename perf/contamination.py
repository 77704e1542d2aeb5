"""Looking for evaluation questions in training files, and for near-duplicates, against plain loops.

The training file is made up of worlds' passages with questions among them. The plain loop holds the same grams as
tuples in a set and looks every tuple of the stream up; it reads and normalizes the same texts. Both are timed in turns
in one process; memory is the process' highest (VmHWM) before and after the larger file.

python -m perf.contamination [--quick] [--megabytes 200]
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.leakage import N, contamination, near_duplicates, texts
from benchmarks.registry import Benchmark, load
from benchmarks.text import normalize
from perf.measuring import Bench, medians, parser, peak_megabytes, timed

FASTER = 2.0
"""Target: contamination against the plain loop, parsing and normalizing included in both."""
GROWTH_MB = 30
"""Target: memory from a tenth of the training file to the whole of it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 if the targets are met."""
    arguments = parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=200)
    query = arguments.parse_args(argv)
    bench = Bench("contamination", quick=query.quick)
    megabytes = 20 if query.quick else query.megabytes
    benchmark = load("worlds/multihop:test", {"questions": 2000, "worlds": 5})
    with tempfile.TemporaryDirectory() as folder:
        whole, tenth = Path(folder) / "whole.jsonl", Path(folder) / "tenth.jsonl"
        write(benchmark, whole, megabytes << 20)
        write(benchmark, tenth, (megabytes << 20) // 10)
        turns = 1 if query.quick else 3
        sides = (lambda: touched(benchmark, tenth), lambda: plainly(benchmark, tenth))
        (ours, plain), matched = medians(turns, *sides, clock=time.perf_counter)
        before = peak_megabytes()
        seconds, report = timed(lambda: contamination([benchmark], [whole]), time.perf_counter)
        growth = peak_megabytes() - before
    bench.ratio(f"{megabytes / 10:.0f} MB against a plain loop", ours, plain, FASTER, equal=matched[0] == matched[1])
    bench.figure(f"{megabytes} MB", megabytes / seconds, "MB/s", remark=f" ({report.words / seconds / 1e6:.2f} million words/s)")
    bench.figure("memory from a tenth of the file to the whole", growth, "MB", at_most=GROWTH_MB)
    measure_near_duplicates(bench, benchmark)
    return bench.finish()


def write(benchmark: Benchmark, path: Path, size: int) -> None:
    """Write training prompts made of passages, with a test question in every fiftieth."""
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
    """Count the test questions that the index finds in the training file."""
    return sum(overlap.share > 0 for overlap in contamination([benchmark], [path]).overlaps)


def plainly(benchmark: Benchmark, path: Path) -> int:
    """Count the test questions found with a plain set of tuples, for comparison."""
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
    """List all n-grams of consecutive words as tuples."""
    return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]


def measure_near_duplicates(bench: Bench, benchmark: Benchmark) -> None:
    """Measure the near-duplicate search of 2,000 questions against 20,000 of other worlds."""
    first = [question.text for question in benchmark.questions]
    second = [q.text for q in load("worlds/multihop:train", {"questions": 20_000, "worlds": 40}).questions]
    seconds, pairs = timed(lambda: near_duplicates(first, second), time.perf_counter)
    bench.figure(f"near-duplicates of {len(first):,} and {len(second):,} questions", seconds, "s", remark=f" ({len(pairs)} matched)")


if __name__ == "__main__":
    raise SystemExit(main())
