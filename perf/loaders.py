"""Loaders: records per second against plain JSON, and the memory that a file of a gigabyte takes.

Every loader reads what worlds write in its format, beside the shortest program that makes the same questions and
passages (`perf._plain_loaders`; target: at most twice its time) and `datasets.load_dataset("json")` with one pass over
its rows. The three take turns, and the best of several rounds counts, in seconds of CPU. The graph datasets keep what
they have read in a cache, which is emptied before each of their turns. Memory is the highest that the kernel saw of a
process that loads the file (VmHWM).

python -m perf.loaders [--quick] [--only NAME] [--megabytes 1000]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.registry import load
from perf._plain_loaders import PLAIN
from perf.measuring import peak_megabytes, record
from tests.support.worlds_native import FORMATS, write_native

CACHE = tempfile.TemporaryDirectory()
"""Where loaders keep what they have read, in place of the user's own cache."""
MOST = 2.0
"""Target: times as long as plain."""
MEMORY_MB = 300
ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """Loader with a test file: the data reference to load, and the native format in which worlds are written."""

    reference: str
    format: str


CASES = {
    "hotpotqa": Case("hotpotqa:dev", "hotpotqa"),
    "2wikimultihopqa": Case("2wikimultihopqa:dev", "2wikimultihopqa"),
    "musique": Case("musique:dev", "musique"),
    "longbench": Case("longbench/multifieldqa_en:test", "longbench"),
    "ultradomain": Case("ultradomain/mix:test", "ultradomain"),
    "nq open": Case("nq:test", "nq_open"),
    "nq csv": Case("nq:test", "nq_csv"),
    "nq kilt": Case("nq/kilt:test", "nq_kilt"),
    "nq reader": Case("nq:test", "nq_reader"),
    "nq contexts": Case("nq:test", "nq_contexts"),
    "webqsp": Case("webqsp:test", "rog"),
    "cwq": Case("cwq:test", "rog"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 if every target is met."""
    parser = argparse.ArgumentParser(prog="python -m perf.loaders", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer questions and rounds, and 50 MB")
    parser.add_argument("--only", choices=sorted({*CASES, *LARGE}), help="this one alone")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the large files")
    parser.add_argument("--peak", nargs=2, metavar=("REFERENCE", "FILE"), help=argparse.SUPPRESS)
    query = parser.parse_args(argv)
    if query.peak:
        benchmark = load(query.peak[0], {"path": query.peak[1]})
        print(json.dumps([len(benchmark.questions), len(benchmark.corpus), peak_megabytes()]))
        return 0
    os.environ["RAGMETER_CACHE"] = CACHE.name
    met = True
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            if query.only in (None, name):
                met &= _speed(name, case, Path(folder), worlds=5 if query.quick else 15, rounds=2 if query.quick else ROUNDS)
        for name, (reference, records) in LARGE.items():
            if query.only in (None, name):
                met &= _memory(name, reference, records, Path(folder), 50 if query.quick else query.megabytes)
    return 0 if met else 1


def _speed(name: str, case: Case, folder: Path, worlds: int, rounds: int) -> bool:
    path = folder / f"{name}.jsonl"
    subset = FORMATS[case.format].subsets[0]
    world = load(f"worlds/{subset}:test", {"worlds": worlds, "questions": 200 * worlds})
    write_native(world, case.format, path)
    benchmark = load(case.reference, {"path": str(path)})
    assert len(PLAIN[name](path)[0]) == len(benchmark.questions)
    spent: dict[str, list[float]] = {}
    ways: dict[str, Callable[[], Any]] = {"ours": lambda: load(case.reference, {"path": str(path)}), "plain": lambda: PLAIN[name](path)}
    if _readable_by_datasets(path):
        ways["datasets"] = lambda: _by_datasets(path)
    for _ in range(rounds):
        for way, work in ways.items():
            gc.collect()
            shutil.rmtree(CACHE.name, ignore_errors=True)
            started = time.process_time()
            work()
            spent.setdefault(way, []).append(time.process_time() - started)
    best = {way: min(times) for way, times in spent.items()}
    count, size = len(benchmark.questions), path.stat().st_size / 2**20
    times = best["ours"] / best["plain"]
    other = f"{best['datasets'] / best['ours']:.1f} x the speed of load_dataset" if "datasets" in best else "load_dataset cannot read it"
    late = "" if times <= MOST else "  MISSED"
    print(
        f"{name}: {count / best['ours']:,.0f} records/s ({size / best['ours']:.1f} MB/s), {times:.2f} x plain "
        f"(target: at most {MOST:g} x){late}; {other}",
        flush=True,
    )
    figures = {"records_per_s": round(count / best["ours"]), "mb_per_s": round(size / best["ours"], 1), "times_plain": round(times, 2)}
    record("loaders", {name: figures | {"target_times_plain": MOST}})
    return times <= MOST


def _readable_by_datasets(path: Path) -> bool:
    try:
        _by_datasets(path)
    except Exception:  # what it raises depends on where its columns disagree
        return False
    return True


def _by_datasets(path: Path) -> int:
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        rows = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
        return sum(1 for _ in rows)


def _memory(name: str, reference: str, records: Callable[[random.Random], Iterator[str]], folder: Path, megabytes: int) -> bool:
    path = folder / "large.jsonl"
    with path.open("w", encoding="utf-8") as file:
        size = 0
        for line in records(random.Random(0)):
            file.write(line)
            size += len(line)
            if size >= megabytes * 2**20:
                break
    command = [sys.executable, "-m", "perf.loaders", "--peak", reference, str(path)]
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    spent = time.perf_counter() - started
    questions, passages, peak = json.loads(done.stdout.splitlines()[-1])
    late = "" if peak < MEMORY_MB else "  MISSED"
    print(
        f"{name}, {size / 2**20:,.0f} MB: {peak:.0f} MB at most (target: under {MEMORY_MB}){late}; "
        f"{questions:,} questions, {passages:,} passages, {spent:.0f} s",
        flush=True,
    )
    path.unlink()
    return peak < MEMORY_MB


_WORDS = ["".join(random.Random(n).choices("etaoinshrdlu", k=2 + n % 9)) for n in range(5000)]


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(_WORDS, k=words))


def _hotpotqa(draw: random.Random) -> Iterator[str]:
    for number in range(10**9):
        context = [[f"T{number} {i}", [_text(draw, 25) for _ in range(4)]] for i in range(10)]
        row = {
            "_id": f"{number:024x}",
            "answer": "x",
            "question": _text(draw, 18),
            "type": "bridge",
            "level": "hard",
            "supporting_facts": [[f"T{number} 1", 0], [f"T{number} 7", 2]],
            "context": context,
        }
        yield json.dumps(row) + "\n"


def _musique(draw: random.Random) -> Iterator[str]:
    for number in range(10**9):
        paragraphs = [{"idx": i, "title": f"T{number} {i}", "paragraph_text": _text(draw, 80), "is_supporting": i < 2} for i in range(20)]
        steps = [{"id": i, "question": _text(draw, 6), "answer": "x", "paragraph_support_idx": i} for i in range(2)]
        row = {
            "id": f"2hop__{number}",
            "paragraphs": paragraphs,
            "question": _text(draw, 15),
            "answer": "x",
            "question_decomposition": steps,
            "answer_aliases": [],
            "answerable": True,
        }
        yield json.dumps(row) + "\n"


def _contexts(draw: random.Random) -> Iterator[str]:
    for number in range(10**9):
        contexts = [
            {"id": f"{number}{i}", "title": f"T{number}", "text": _text(draw, 100), "isgold": i == 3, "hasanswer": i < 9}
            for i in range(100)
        ]
        yield json.dumps({"question": _text(draw, 9) + str(number), "answers": ["x"], "ctxs": contexts}) + "\n"


def _documents(draw: random.Random) -> Iterator[str]:
    for number in range(10**9):
        row = {
            "input": _text(draw, 12),
            "context": _text(draw, 8000),
            "answers": ["x"],
            "length": 8000,
            "dataset": "narrativeqa",
            "language": "en",
            "all_classes": None,
            "_id": f"{number:048x}",
        }
        yield json.dumps(row) + "\n"


LARGE: dict[str, tuple[str, Callable[[random.Random], Iterator[str]]]] = {
    "large hotpotqa": ("hotpotqa:dev", _hotpotqa),
    "large musique": ("musique:dev", _musique),
    "large nq contexts": ("nq:test", _contexts),
    "large longbench": ("longbench/narrativeqa:test", _documents),
}
"""By name: what the file is loaded as, and its lines."""


if __name__ == "__main__":
    sys.exit(main())
