"""Corpora at scale: seconds and peak memory of building, opening, looking up, BM25 and vector search, by size.

Every step is a process of its own, whose highest resident memory the kernel says (VmHWM; pages of mapped files that
were touched count). Dumps are made up: a hundred words each, one in a hundred passages a repetition. What is said of
Wikipedia's 21,015,324 passages continues the line through the two largest sizes: an extrapolation, not a measurement.

python -m perf.corpus [--quick] [--sizes 100000 300000 1000000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from perf.measuring import peak_megabytes

WIKIPEDIA = 21_015_324
MEMORY_MB = 1024
"""Target: highest resident memory of building and of opening a million passages."""
MILLION = 1_000_000
LOOKUPS = 20_000
BM25_MOST, SEARCH_MOST = 300_000, 300_000
DIMENSION = 384


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 0 where the memory target is met."""
    parser = argparse.ArgumentParser(prog="python -m perf.corpus", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, MILLION])
    parser.add_argument("--quick", action="store_true", help="10,000 and 30,000 passages")
    parser.add_argument("--folder", help="where dumps and corpora go (deleted afterwards)")
    parser.add_argument("--step", nargs=3, metavar=("NAME", "FOLDER", "SIZE"), help=argparse.SUPPRESS)
    query = parser.parse_args(argv)
    if query.step:
        print(json.dumps(_measured(query.step[0], Path(query.step[1]), int(query.step[2]))))
        return 0
    sizes = [10_000, 30_000] if query.quick else sorted(query.sizes)
    results: dict[str, dict[int, dict[str, float]]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=query.folder) as folder:
            write_dump(Path(folder) / "dump.tsv", size)
            for name in STEPS:
                if size <= LIMITS.get(name, size):
                    command = [sys.executable, "-m", "perf.corpus", "--step", name, folder, str(size)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    results.setdefault(name, {})[size] = json.loads(done.stdout.splitlines()[-1])
                    print(f"{name} {size:,}: {_shown(results[name][size])}", flush=True)
    for name, by_size in results.items():
        if name == "look up":
            continue  # what a lookup takes grows with the logarithm, if at all
        print(f"{name} {WIKIPEDIA:,} (extrapolated): {_shown(_extrapolated(by_size))}")
    worst = max(results[name][size]["MB"] for name in ("build", "open") for size in sizes if size <= MILLION)
    print(f"most memory for building or opening: {worst:.0f} MB (target: under {MEMORY_MB})")
    return 0 if worst < MEMORY_MB else 1


def _shown(values: dict[str, float]) -> str:
    return ", ".join(f"{value:,.3g} {unit}" if value < 10 else f"{value:,.0f} {unit}" for unit, value in values.items())


def _extrapolated(by_size: dict[int, dict[str, float]]) -> dict[str, float]:
    if len(by_size) == 1:
        return {unit: value * WIKIPEDIA / size for size, values in by_size.items() for unit, value in values.items()}
    (small, before), (large, after) = sorted(by_size.items())[-2:]
    slope = {unit: (after[unit] - before[unit]) / (large - small) for unit in after}
    return {unit: max(0.0, after[unit] + slope[unit] * (WIKIPEDIA - large)) for unit in after}


def write_dump(path: Path, size: int) -> None:
    """A dump in DPR's layout: about 620 bytes a passage."""
    draw = np.random.default_rng(0)
    words = np.array(["".join(chr(97 + letter) for letter in draw.integers(0, 26, 2 + i % 9)) for i in range(60_000)])
    drawn = words[np.minimum(draw.zipf(1.3, (8_000, 25)), len(words) - 1)]
    phrases = [" ".join(line) for line in drawn]
    passage = ("", "")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(("id", "text", "title"))
        for start in range(0, size, 10_000):
            for row, parts in enumerate(draw.integers(0, len(phrases), (min(10_000, size - start), 4)), start):
                if row % 100 != 99:
                    text = " ".join(phrases[part] for part in parts)
                    passage = (f'Passage "{row}" {text}', f"Article {row // 30}")
                writer.writerow((str(row + 1), *passage))


def _measured(name: str, folder: Path, size: int) -> dict[str, float]:
    started, working = time.perf_counter(), time.process_time()
    values = STEPS[name](folder, size)
    spent = {"s": time.perf_counter() - started, "s of CPU": time.process_time() - working}
    return {**spent, **values, "MB": peak_megabytes()}


def _read(folder: Path, size: int) -> dict[str, float]:
    """The least that any build must do: Python's csv module over the dump."""
    with (folder / "dump.tsv").open(newline="", encoding="utf-8") as file:
        rows = sum(1 for _ in csv.reader(file, delimiter="\t"))
    assert rows == size + 1
    return {}


def _build(folder: Path, size: int) -> dict[str, float]:
    from benchmarks.corpus_build import build_corpus

    build_corpus(folder / "dump.tsv", folder / "corpus")
    stored = sum(file.stat().st_size for file in (folder / "corpus").iterdir())
    return {"MB on disk": stored / 2**20}


def _open(folder: Path, size: int) -> dict[str, float]:
    """Open, and the first lookup by id and by native id."""
    from benchmarks.corpus import Corpus

    started = time.perf_counter()
    corpus = Corpus.open(folder / "corpus")
    assert corpus.by_native_id(str(size)) == corpus.ids[-1]
    assert corpus.fingerprint
    return {"ms to open and find": 1000 * (time.perf_counter() - started)}


def _look_up(folder: Path, size: int) -> dict[str, float]:
    from benchmarks.corpus import Corpus

    corpus = Corpus.open(folder / "corpus")
    rows = np.random.default_rng(1).integers(0, len(corpus), LOOKUPS)
    ids = [corpus.ids[row] for row in rows]
    started = time.perf_counter()
    assert [corpus.row(identifier) for identifier in ids] == rows.tolist()
    spent = time.perf_counter() - started
    started = time.perf_counter()
    corpus.get(ids)
    fetched = time.perf_counter() - started
    return {"us a row by id": 1e6 * spent / LOOKUPS, "us a passage by id": 1e6 * fetched / LOOKUPS}


def _bm25(folder: Path, size: int) -> dict[str, float]:
    from benchmarks.corpus import Corpus
    from benchmarks.schema import Query
    from methods.api import Services
    from methods.baselines.bm25 import BM25, BM25Config

    corpus = Corpus.open(folder / "corpus")
    index = BM25(BM25Config(), Services()).index(corpus, folder / "bm25")
    texts = [corpus[row].text.split() for row in range(0, len(corpus), len(corpus) // 20)]
    queries = [Query(str(n), " ".join(words[5:13])) for n, words in enumerate(texts)]
    started = time.perf_counter()
    index.retrieve(queries, 20)
    stored = sum(file.stat().st_size for file in (folder / "bm25").iterdir())
    return {"ms a query": 1000 * (time.perf_counter() - started) / len(queries), "MB on disk": stored / 2**20}


def _search(folder: Path, size: int) -> dict[str, float]:
    """Exact search over vectors of MiniLM's size, mapped; encoding them is not part of it (perf.encoders)."""
    from methods.models.embeddings import ExactSearch

    draw = np.random.default_rng(2)
    vectors = np.lib.format.open_memmap(folder / "v.npy", mode="w+", dtype=np.float32, shape=(size, DIMENSION))
    for start in range(0, size, 8192):
        block = draw.standard_normal((min(8192, size - start), DIMENSION), dtype=np.float32)
        vectors[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    vectors.flush()
    search = ExactSearch(np.load(folder / "v.npy", mmap_mode="c"), precision="float32")
    queries = draw.standard_normal((64, DIMENSION), dtype=np.float32)
    search.near(queries[:1], 20)
    started = time.perf_counter()
    search.near(queries, 20)
    spent = time.perf_counter() - started
    return {"ms a query": 1000 * spent / len(queries), "MB on disk": size * DIMENSION * 4 / 2**20}


STEPS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "read": _read,
    "build": _build,
    "open": _open,
    "look up": _look_up,
    "bm25": _bm25,
    "search": _search,
}
LIMITS = {"bm25": BM25_MOST, "search": SEARCH_MOST}
"""Largest size at which a step is measured; beyond, it takes too long or too much memory for a benchmark."""


if __name__ == "__main__":
    sys.exit(main())
