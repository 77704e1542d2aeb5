"""Graph RAG: what building takes without a language model, what a question takes, and what the walk earns.

Steps of building are timed on worlds' text, the vectorized ones beside plain loops that give the same. A question is timed
at 20,000 phrases and 60,000 facts, with vectors drawn at random, so without the encoder. `--passages FOLDER` reads passages
with published triples and questions (the samples `hipporag`), and prints recall: HippoRAG 2 without a filter beside dense
retrieval, HippoRAG beside its restart alone. Seconds are the processor's, one thread (`OMP_NUM_THREADS=1`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import registry as datasets
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Ranking, Services, Usage
from methods.baselines.graph_rag.hipporag import Facts, Hippo2Config, Hippo2Index, HippoIndex, phrases_and_passages
from methods.flow import each
from methods.graphs.extraction import ChunkRead, triple_records
from methods.graphs.index import chunks_of
from methods.graphs.knowledge_graph import RelationRecord, clean_name, similar_pairs
from methods.graphs.noun_phrases import NounPhrases, near
from methods.graphs.pagerank import walk_over
from methods.registry import Component
from perf.measuring import Bench, timed

PHRASES, FACTS, PASSAGES, WIDTH = 20_000, 60_000, 5_000, 384
QUERY_S = 0.050
FASTER = 10.0


class Drawn:
    """Encoder that returns random vectors."""

    device = "cpu"

    def __init__(self) -> None:
        self._draws = np.random.default_rng(0)

    def passages(self, texts: Sequence[str], titles: Sequence[str] | None = None, *, cached: bool = True) -> np.ndarray:
        vectors = self._draws.standard_normal((len(texts), WIDTH), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    queries = passages


def building(bench: Bench) -> None:
    """Measure the indexing steps per 100,000 tokens."""
    texts = [passage.full_text for passage in datasets.load("worlds/long:validation", {"questions": 200}).corpus]
    tokens = sum(len(text) for text in texts) / 4
    texts = texts[: max(1, round(len(texts) * min(1.0, 100_000 / tokens)))]
    scale = 100_000 / (sum(len(text) for text in texts) / 4)
    names_s, records = timed(lambda: NounPhrases().records(chunks_of(texts)))
    facts_s, facts = timed(lambda: Facts.of([ChunkRead(item.entities, item.relations) for item in records]))
    vectors = Drawn().passages(facts.phrases[:2000])
    positions = np.sort(np.random.default_rng(0).integers(0, 40_000, 8000))
    rows: list[tuple[str, float, float | None]] = []
    rows += [("names and what is near them", names_s * scale, None), ("facts as arrays", facts_s * scale, None)]

    def loop_pairs() -> list[tuple[int, int]]:
        return [(i, j) for i in range(1000) for j in range(i + 1, len(positions)) if positions[j] - positions[i] <= 20]

    near_s, _ = timed(lambda: near(positions, 20))
    rows.append(("pairs within a window, of 8,000 mentions", near_s, timed(loop_pairs)[0] * 8))

    def loop_alike() -> list[tuple[int, int]]:
        return [(i, j) for i in range(50) for j in range(i + 1, len(vectors)) if float(vectors[i] @ vectors[j]) > 0.8]

    alike_s, _ = timed(lambda: list(similar_pairs(vectors, 0.8)))
    rows.append(("phrases that are alike, of 2,000", alike_s, timed(loop_alike)[0] * len(vectors) / 100))
    graph_s, graph = timed(lambda: phrases_and_passages(facts, {}))
    rows.append(("the graph", graph_s, None))
    rows.append(("the walk", timed(lambda: walk_over(graph, 0.5, weighted=True, dtype=np.float64))[0], None))
    for name, seconds, loop in rows:
        if loop is None:
            bench.figure(f"{name}, per 100,000 tokens", seconds, "s")
        else:
            bench.ratio(name, seconds, loop, FASTER)


def asking(bench: Bench) -> None:
    """Measure milliseconds per question."""
    draws = np.random.default_rng(1)
    ends = draws.integers(0, PHRASES, (FACTS, 2))
    reads: list[list[RelationRecord]] = [[] for _ in range(PASSAGES)]
    for number, (one, other) in enumerate(ends.tolist()):
        if one != other:
            reads[number % PASSAGES].append(RelationRecord(f"PHRASE {one}", f"PHRASE {other}", f"fact {number}", 1.0))
    corpus = Corpus.of([Passage(f"p{n}", "", f"passage {n}") for n in range(PASSAGES)])
    chunks = [ChunkRead((), tuple(some)) for some in reads]
    config = Hippo2Config.model_validate({"extractor": "noun_phrases", "scope": "corpus"})
    index = Hippo2Index(config, corpus, Drawn(), chunks, Usage(), lambda *_: None)
    first, _ = timed(lambda: each(index, "retrieve", [Query("q", "first")], 100))
    queries = [Query(f"q{n}", f"question {n}") for n in range(20)]
    own = [timed(partial(each, index, "retrieve", [query], 100))[0] for query in queries]
    name, remark = f"a question at {PHRASES:,} phrases and {FACTS:,} facts", f" (the first, with the graph: {first:.1f} s)"
    bench.figure(name, 1000 * float(np.median(own)), "ms", at_most=1000 * QUERY_S, remark=remark)


def found_by_rule(rows: Sequence[dict[str, Any]]) -> None:
    """Print which published names and triples the rules find, exactly, and up to a name that contains the other."""

    def held(name: str, names: Iterable[str]) -> bool:
        return any(name in other or other in name for other in names)

    shares: dict[str, list[bool]] = {"names": [], "names, nearly": [], "triples": [], "triples, nearly": []}
    texts = [f"{row['title']}\n{row['text']}" for row in rows]
    for row, records in zip(rows, NounPhrases().records(chunks_of(texts)), strict=True):
        names = {entity.name for entity in records.entities}
        pairs = {(relation.source, relation.target) for relation in records.relations}
        for name in filter(None, map(clean_name, row["entities"])):
            shares["names"].append(name in names)
            shares["names, nearly"].append(held(name, names))
        for relation in triple_records(json.dumps({"triples": row["triples"]})).relations:
            ends = sorted((relation.source, relation.target))
            shares["triples"].append(tuple(ends) in pairs)
            near_ends = [[pair for pair in pairs if held(ends[n], (pair[0],)) and held(ends[1 - n], (pair[1],))] for n in (0, 1)]
            shares["triples, nearly"].append(any(near_ends))
    for what, some in shares.items():
        print(f"{'found by rule: ' + what:<32}  {np.mean(some):.3f} of {len(some):,}", flush=True)


def earning(folder: Path) -> bool:
    """Measure recall on passages with published triples; return whether the graph walk improves it as required."""
    rows = [json.loads(line) for line in (folder / "passages.jsonl").read_text().splitlines()]
    questions = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    found_by_rule(rows)
    corpus = Corpus.of([Passage(str(n), row["title"], row["text"]) for n, row in enumerate(rows)])
    reads = [ChunkRead.of([triple_records(json.dumps({"triples": row["triples"]}))], []) for row in rows]
    queries = [Query(question["id"], question["question"]) for question in questions]

    def recalls(name: str, rankings: Sequence[Ranking]) -> dict[int, float]:
        pairs = list(zip(rankings, (question["supporting"] for question in questions), strict=True))
        shares = {k: [len(set(r.ids[:k]) & set(map(str, gold))) / len(gold) for r, gold in pairs] for k in (2, 5, 10)}
        means = {k: float(np.mean(values)) for k, values in shares.items()}
        print(f"{name:<32}" + "".join(f"  recall@{k} {mean:.3f}" for k, mean in means.items()), flush=True)
        return means

    services = Services(device="cpu")
    dense = recalls("dense (MiniLM)", each(Component.of("dense").build(services).index(corpus), "retrieve", queries, 100))
    index: dict[str, Any] = {}
    for name in ("hipporag2", "hipporag"):
        system = Component.of(name, {"extractor": "noun_phrases", "scope": "corpus"}).build(services)
        index[name] = system.opened(corpus, reads, Usage(), None)
    second = recalls("HippoRAG 2 without a filter", each(index["hipporag2"], "retrieve", queries, 100))
    first = recalls("HippoRAG, names by rule", each(index["hipporag"], "retrieve", queries, 100))
    alone = recalls("  its restart alone", [restart_alone(index["hipporag"], query) for query in queries])
    return abs(dense[10] - 0.70) <= 0.02 and abs(second[10] - 0.78) <= 0.02 and first[5] >= alone[5] + 0.05


def restart_alone(index: HippoIndex, query: Query) -> Ranking:
    """Compute HippoRAG's ranking from the restart vector only, without the graph walk."""
    group = index.group(query)
    chi, _ = index.restart(group, list(NounPhrases().names(query.text)))
    scores = index.passage_scores(group, chi) if chi.any() else index.dense(group, index.query_vector(query.text))
    return index.by_score(query, group, scores, 100, {})


def main(argv: Sequence[str] | None = None) -> int:
    """Measure graph RAG: building, asking and recall.

    Returns:
        1 if a target was missed, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=Path, help="folder of passages.jsonl and questions.jsonl")
    options = parser.parse_args(argv)
    if options.passages is not None:
        return 0 if earning(options.passages) else 1
    bench = Bench("graph_rag")
    building(bench)
    asking(bench)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
