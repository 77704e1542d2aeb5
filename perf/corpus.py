"""Corpora at scale: seconds and peak memory of building, opening, looking up, BM25 and vector search, by size.

Every step is a process of its own, whose highest resident memory the kernel says (VmHWM; pages of mapped files that
were touched count). Dumps are made up: a hundred words each, one in a hundred passages a repetition, and their distinct
words grow by Heaps' law. What is said of Wikipedia's 21,015,324 passages is a least-squares line through all sizes: an
extrapolation, not a measurement.

python -m perf.corpus [--quick] [--sizes 100000 300000 …] [--steps build bm25 …] [--folder DIR]
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perf.measuring import peak_megabytes, record, say

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.schema import Passage
    from methods.api import Index
    from methods.baselines.bm25 import BM25Index

WIKIPEDIA = 21_015_324
MILLION = 1_000_000
MEMORY_MB = {"build": 1024, "open": 1024, "bm25": 1024, "bm25 query": 512, "static": 3072, "static query": 2048}
"""Targets: highest resident memory of a step up to a million passages. PyTorch and its libraries take 0.6 GB of the last two."""
LOOKUPS = 20_000
SEARCH_MOST = 300_000
DIMENSION = 384
STATIC_DIMENSION, VOCABULARY = 256, 30_000
QUERIES = 20
COMMON, TAIL, COMMON_SHARE = 2000, 0.82, 0.861
"""Words that all texts use, by Zipf's law with exponent 1; the exponent of rarer ones minus 1; the share of the former, with which
the two meet. A text of n words then has about n to the power of 1 / (1 + TAIL) distinct ones: Heaps' law with an exponent of 0.55."""
SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwxyz" for vowel in "aeiou"]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and record; exit code 0 if every step stays within its memory limit."""
    parser = argparse.ArgumentParser(prog="python -m perf.corpus", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, MILLION, 3 * MILLION])
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="10,000 and 30,000 passages, nothing recorded")
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
            # Most steps need a corpus; one that is not asked for is built, and not reported.
            for name in query.steps if "build" in query.steps else ["build", *query.steps]:
                if size <= LIMITS.get(name, size):
                    command = [sys.executable, "-m", "perf.corpus", "--step", name, folder, str(size)]
                    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                    if name in query.steps:
                        results.setdefault(name, {})[size] = json.loads(done.stdout.splitlines()[-1])
                        say(f"{name} {size:,}: {_shown(results[name][size])}")
        # The largest size takes longest: what was measured before it counts if it is stopped.
        if not query.quick:
            record("corpus", {name: _figure(name, by_size) for name, by_size in results.items()})
    met = True
    for name, by_size in results.items():
        if (fitted := _figure(name, by_size)["line_at_21015324"]) is not None:
            say(f"{name} {WIKIPEDIA:,} (extrapolated): {_shown(fitted)}")
        worst = max((values["MB"] for size, values in by_size.items() if size <= MILLION), default=0.0)
        if worst > MEMORY_MB.get(name, worst):
            met = False
            say(f"{name}: {worst:.0f} MB, target <= {MEMORY_MB[name]} MISSED")
    return 0 if met else 1


def _figure(name: str, by_size: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    # What a lookup takes grows with the logarithm, if at all.
    fitted = fitted_at(WIKIPEDIA, by_size) if name != "look up" and len(by_size) > 1 else None
    measured = {str(size): values for size, values in by_size.items()}
    return {"measured": measured, "line_at_21015324": fitted, "target_MB": MEMORY_MB.get(name)}


def _shown(values: dict[str, float]) -> str:
    return ", ".join(f"{value:,.3g} {unit}" if value < 10 else f"{value:,.0f} {unit}" for unit, value in values.items())


def fitted_at(passages: int, by_size: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Extrapolate values to a size with least-squares lines through all measured sizes."""
    sizes = list(by_size)
    units = by_size[sizes[-1]]
    lines = {unit: np.polyfit(sizes, [by_size[size][unit] for size in sizes], 1) for unit in units}
    return {unit: max(0.0, float(np.polyval(line, passages))) for unit, line in lines.items()}


@lru_cache(maxsize=200_000)
def word(rank: int) -> str:
    """Return the invented word of a rank: its digits in the base of the number of syllables."""
    rank, last = divmod(rank, len(SYLLABLES))
    return (word(rank - 1) if rank else "") + SYLLABLES[last]


def ranks(draw: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Draw word ranks from two regimes of Zipf's law, so that new rare words keep appearing."""
    chance = draw.random(count)
    common = np.exp(draw.random(count) * np.log(COMMON))
    rare = COMMON * (1 - draw.random(count)) ** (-1 / TAIL)
    return np.where(chance < COMMON_SHARE, common, np.minimum(rare, 1e15)).astype(np.int64)


def write_dump(path: Path, size: int) -> None:
    """Write a dump in DPR's layout with a hundred words per passage."""
    draw = np.random.default_rng(0)
    passage = ("", "")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
        writer.writerow(("id", "text", "title"))
        for start in range(0, size, 1000):
            for row, drawn in enumerate(ranks(draw, 100 * min(1000, size - start)).reshape(-1, 100).tolist(), start):
                if row % 100 != 99:
                    passage = (f'Passage "{row}" {" ".join(map(word, drawn))}', f"Article {row // 30}")
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
    _bm25_index(folder)
    stored = sum(file.stat().st_size for file in (folder / "bm25").iterdir())
    return {"MB on disk": stored / 2**20, "terms": float(len(np.load(folder / "bm25" / "indptr.csc.index.npy", mmap_mode="r")) - 1)}


def _bm25_query(folder: Path, size: int) -> dict[str, float]:
    """Search for eight words of twenty passages, with the index that is there."""
    from benchmarks.schema import Query

    index = _bm25_index(folder)
    texts = [passage.text.split() for passage in _passages(index._scope.corpus)]
    queries = [Query(str(n), " ".join(words[5:13])) for n, words in enumerate(texts)]
    started = time.perf_counter()
    index.retrieve(queries, 20)
    return {"ms a query": 1000 * (time.perf_counter() - started) / len(queries)}


def _passages(corpus: Corpus) -> list[Passage]:
    return [corpus[row] for row in range(0, len(corpus), len(corpus) // QUERIES)]


def _bm25_index(folder: Path) -> BM25Index:
    from benchmarks.corpus import Corpus
    from methods.api import Services
    from methods.baselines.bm25 import BM25, BM25RetrieverConfig

    return BM25(BM25RetrieverConfig(), Services()).index(Corpus.open(folder / "corpus"), folder / "bm25")


def _static(folder: Path, size: int) -> dict[str, float]:
    """Encode all passages with a static encoder and index the vectors in shards of FAISS (`search: ivfpq`)."""
    static_encoder(folder / "encoder")
    _static_index(folder)
    stored = sum(file.stat().st_size for file in (folder / "static").iterdir())
    return {"MB on disk": stored / 2**20}


def _static_query(folder: Path, size: int) -> dict[str, float]:
    """Search for the text of passages: each should be the first of its ranking."""
    from benchmarks.corpus import Corpus
    from benchmarks.schema import Query

    wanted = _passages(Corpus.open(folder / "corpus"))
    queries = [Query(str(n), f"{passage.title}\n{passage.text}") for n, passage in enumerate(wanted)]
    index = _static_index(folder)
    started = time.perf_counter()
    rankings = index.retrieve(queries, 20)
    spent = time.perf_counter() - started
    first = [ranking.ids[0] == passage.id for ranking, passage in zip(rankings, wanted, strict=True)]
    return {"ms a query": 1000 * spent / len(queries), "found first": float(np.mean(first))}


def static_encoder(folder: Path) -> None:
    """Write a static encoder with 30,000 tokens and random vectors, as fast and large as a trained one."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import BertPreTokenizer

    pieces = ["[UNK]", *(f"##{syllable}" for syllable in SYLLABLES), *map(word, range(VOCABULARY - len(SYLLABLES) - 1))]
    tokenizer = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    weights = np.random.default_rng(3).standard_normal((VOCABULARY, STATIC_DIMENSION), dtype=np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu").save_pretrained(str(folder))


def _static_index(folder: Path) -> Index:
    from benchmarks.corpus import Corpus
    from methods.api import Services
    from methods.registry import Component

    method = Component.of("dense", {"model": str(folder / "encoder"), "search": "ivfpq"}).build(Services(device="cpu"))
    return method.index(Corpus.open(folder / "corpus"), folder / "static")


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
    "bm25 query": _bm25_query,
    "static": _static,
    "static query": _static_query,
    "search": _search,
}
LIMITS = {"search": SEARCH_MOST, "static": MILLION, "static query": MILLION}
"""Largest size at which a step is measured; beyond, it takes too long for a benchmark."""


if __name__ == "__main__":
    sys.exit(main())
