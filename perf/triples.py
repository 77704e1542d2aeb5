"""Triples of a graph ranked for a question: encoded once and kept, against encoding them anew for each question.

    python -m perf.triples                # a graph of 10,000 triples, MiniLM on CPU; --device cuda on a GPU

The plain way is what a script does: `encode` of the question and of all triples of its graph by sentence-transformers,
a product and a sort. Ours is the retriever: `first` encodes the graph and writes its vectors to disk, `from disk` is a
later run that finds them there, `again` a further question to the same index.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Query, triple_id
from methods.api import Index
from methods.graphs.triples import linearized
from methods.models.encoder import Encoder, EncoderConfig
from methods.models.weights import locate
from methods.retrieval.triples import TripleRetriever
from perf.likelihood import words
from perf.measuring import Bench, in_turns, say

TARGETS = {"first": 0.8, "from disk": 20.0, "again": 100.0}
"""How many times as fast as the plain way a question is answered, at least; `first` also loads the model."""
NOISE = 1e-5
"""Cosines that differ by less are equal: a vector depends on its batch by float noise."""
K = 20
CACHED_TURNS = 5
PLAIN = "encoding for each question"


def graph(triples: int) -> TripleCorpus:
    """Generate a triple corpus with entities of two words and relations named as in Freebase."""
    rng = np.random.default_rng(4)
    known = words(2000, 3)
    relations = [f"{a}.{b}.{c}_of_{d}" for a, b, c, d in rng.choice(known, (400, 4)).tolist()]
    entities = [" ".join(pair) for pair in rng.choice(known, (max(2, triples // 3), 2)).tolist()]
    columns = (rng.integers(0, len(names), 2 * triples) for names in (entities, relations, entities))
    made = ((entities[h], relations[r], entities[t]) for h, r, t in zip(*columns, strict=True))
    return TripleCorpus.of_triples(list(dict.fromkeys(made))[:triples])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--triples", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    request = parser.parse_args(argv)
    from sentence_transformers import SentenceTransformer

    corpus = graph(request.triples)
    texts = linearized(corpus.triples)
    ids = tuple(triple_id(triple) for triple in corpus.triples)
    query = Query("q", " ".join(["what is", *texts[7].split()[:3]]) + "?", candidates=ids)
    plain = SentenceTransformer(locate("minilm"), device=request.device)
    options = EncoderConfig.model_validate({"batch_size": 32})

    scores = np.empty(len(corpus), np.float32)

    def reencoded() -> list[int]:
        settings: dict[str, Any] = {"batch_size": 32, "show_progress_bar": False}
        np.matmul(plain.encode(texts, **settings), plain.encode(query.text, **settings), out=scores)
        return np.argsort(-scores, kind="stable")[:K].tolist()

    def ranked(index: Index) -> list[int]:
        return [corpus.row(identifier) for identifier in index.retrieve([query], K)[0].ids]

    numbers = count()
    with tempfile.TemporaryDirectory() as folder:

        def fresh() -> Index:
            return TripleRetriever(Encoder(options, request.device, Path(folder) / str(next(numbers)))).index(corpus)

        plain.encode(texts[:64])  # what a model does the first time is no part of it
        seconds, result = in_turns(request.turns, {PLAIN: reencoded, "first": lambda: ranked(fresh())}, warm=False, clock=time.perf_counter)
        kept = TripleRetriever(Encoder(options, request.device, Path(folder) / "0"))
        again = kept.index(corpus)
        cached = {"again": lambda: ranked(again), "from disk": lambda: ranked(kept.index(corpus))}
        more = in_turns(CACHED_TURNS, cached, clock=time.perf_counter)
        seconds |= more[0]
        result |= more[1]
    say(f"a graph of {len(corpus):,} triples, MiniLM on {request.device}, the best {K}")
    bench = Bench("triples")
    bench.figure(PLAIN, len(corpus) / statistics.median(seconds[PLAIN]), "triples/s")
    for name, target in TARGETS.items():
        against = statistics.median(seconds[PLAIN]) / statistics.median(seconds[name])
        rate = len(corpus) / statistics.median(seconds[name])
        same = np.allclose(scores[result[name]], scores[result[PLAIN]], rtol=0, atol=NOISE)
        bench.figure(name, against, "x", at_least=target, equal=same, remark=f" ({rate:,.0f} triples/s)")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
