"""Texts per second: our encoder against plain `SentenceTransformer.encode`, our cross-encoder against `CrossEncoder`.

Every side encodes the same passages of worlds, the sides taking turns, on the default encoder (MiniLM). Results must
agree; bfloat16, which pays on processors that multiply it in hardware and on accelerators, is reported with its cosine.
Exact search is measured beside it in both types, on random directions.

python -m perf.encoders [--texts N] [--turns N] [--device cpu|cuda]
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

from benchmarks.registry import load
from methods.models.cross_encoder import CrossEncoderConfig, CrossEncoderModel
from methods.models.embeddings import ExactSearch, exact_scores
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.pretrained import device_of
from methods.models.weights import locate
from methods.retrieval.ranking import best_rows
from perf.measuring import Bench, in_turns, ratio_of, say

PARITY = 0.9
"""The encoder adds prompts, lengths and a check to the library's own path, which may cost at most this share."""
CACHE = 20.0
"""Times faster that a passage known from disk must be."""
PLAIN = "SentenceTransformer.encode"


def encoders(bench: Bench, texts: list[str], turns: int, device: str) -> None:
    """Measure bi-encoders."""
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(locate("minilm"), device=device)
    ours = Encoder(EncoderConfig(), device)
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:
        warm = Encoder(EncoderConfig(), device, Path(folder) / "warm")

        def cold() -> np.ndarray:
            return Encoder(EncoderConfig(), device, Path(folder) / str(next(numbers))).passages(texts)

        seconds, result = in_turns(
            turns,
            clock=time.perf_counter,
            sides={
                PLAIN: lambda: plain.encode(texts, show_progress_bar=False),
                "encoder": lambda: ours.passages(texts),
                "encoder, empty cache (and loading)": cold,
                "encoder, from the cache": lambda: warm.passages(texts),
            },
        )
    for name, target in (("encoder", PARITY), ("encoder, empty cache (and loading)", None), ("encoder, from the cache", CACHE)):
        compared(bench, name, len(texts), seconds, result, 0.99999, target)
    # Fewer texts: without hardware for it bfloat16 is several times slower.
    few = texts[: max(8, len(texts) // 4)]
    half = Encoder(EncoderConfig(dtype="bfloat16"), device)
    sides = {PLAIN: lambda: plain.encode(few, show_progress_bar=False), "encoder, bfloat16": lambda: half.passages(few)}
    compared(bench, "encoder, bfloat16", len(few), *in_turns(turns, sides, clock=time.perf_counter), 0.99, None)


def compared(
    bench: Bench, name: str, texts: int, seconds: dict[str, list[float]], results: dict[str, Any], least: float, target: float | None
) -> None:
    """Print one variant next to the plain one."""
    cosine = float((results[name] * results[PLAIN]).sum(axis=1).min())
    against = ratio_of(seconds[PLAIN], seconds[name])
    rates = [texts / statistics.median(seconds[side]) for side in (PLAIN, name)]
    remark = f" ({rates[1]:.0f} texts/s, {PLAIN} {rates[0]:.0f}; lowest cosine {cosine:.6f})"
    bench.figure(name, against, "x", at_least=target, equal=cosine > least, remark=remark)


def cross_encoders(bench: Bench, queries: list[str], passages: list[str], turns: int, device: str) -> None:
    """Measure a cross-encoder (MiniLM with a random head)."""
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer, BertForSequenceClassification, logging

    # That the head is new is meant.
    logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        BertForSequenceClassification.from_pretrained(locate("minilm"), num_labels=1).save_pretrained(folder)
        AutoTokenizer.from_pretrained(locate("minilm")).save_pretrained(folder)
        plain = CrossEncoder(folder, device=device, activation_fn=torch.nn.Identity())
        ours = CrossEncoderModel(CrossEncoderConfig(model=folder), device)
        pairs = [(query, passage) for query in queries for passage in passages]
        seconds, result = in_turns(
            turns,
            clock=time.perf_counter,
            sides={
                "CrossEncoder.predict": lambda: plain.predict(pairs, show_progress_bar=False),
                "cross-encoder": lambda: np.concatenate(ours.many([(query, passages) for query in queries])),
            },
        )
    difference = float(np.abs(result["CrossEncoder.predict"] - result["cross-encoder"]).max())
    against = ratio_of(seconds["CrossEncoder.predict"], seconds["cross-encoder"])
    remark = f" ({len(pairs) / statistics.median(seconds['cross-encoder']):.0f} pairs/s, largest difference {difference:.1e})"
    bench.figure("cross-encoder", against, "x", at_least=PARITY, equal=difference < 1e-3, remark=remark)


def search(bench: Bench, vectors: int, dimension: int, turns: int, device: str) -> None:
    """Measure top-100 search for 64 queries against a plain float32 product."""
    import torch

    generator = np.random.default_rng(0)
    # Directions with a decaying spectrum, as embeddings have: isotropic ones have no near neighbors.
    scale = (1 / np.sqrt(1 + np.arange(dimension))).astype(np.float32)
    rows = generator.standard_normal((vectors, dimension), dtype=np.float32) * scale
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries = rows[:64] + 0.02 * generator.standard_normal((64, dimension), dtype=np.float32)
    on_device = torch.from_numpy(rows).to(device)

    def plain() -> list[set[int]]:
        result = (torch.from_numpy(queries).to(device) @ on_device.T).topk(100, dim=1).indices
        return [set(row) for row in result.cpu().tolist()]

    def ours(engine: ExactSearch) -> list[set[int]]:
        near = engine.near(queries, 100)
        return [
            set(near_by[best_rows(exact_scores(rows, query, near_by), 100)].tolist()) for query, near_by in zip(queries, near, strict=True)
        ]

    fine, rough = ExactSearch(rows, device, "float32"), ExactSearch(rows, device, "bfloat16")
    sides = {"torch matmul + topk": plain, "exact, float32": lambda: ours(fine), "exact, bfloat16": lambda: ours(rough)}
    seconds, result = in_turns(turns, sides, clock=time.perf_counter)
    same = result["exact, float32"] == result["exact, bfloat16"]
    overlap = np.mean([len(a & b) / 100 for a, b in zip(result["torch matmul + topk"], result["exact, float32"], strict=True)])
    for name in ("exact, float32", "exact, bfloat16"):
        remark = f" ({64 / statistics.median(seconds[name]):.0f} queries/s over {vectors:,} x {dimension}; overlap {overlap:.4f})"
        against = ratio_of(seconds["torch matmul + topk"], seconds[name])
        bench.figure(name, against, "x", equal=bool(same and overlap > 0.999), remark=remark)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure encoders, cross-encoders and vector search.

    Returns:
        1 if a target was missed or results differ, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=96)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--device", default=None)
    query = parser.parse_args(argv)
    device = device_of(query.device)
    benchmark = load("worlds/multihop:test")
    texts = list(benchmark.corpus.full_texts())[: query.texts]
    words = statistics.median(len(text.split()) for text in texts)
    say(f"{len(texts)} passages of worlds, median {words:g} words, on {device}")
    bench = Bench("encoders")
    encoders(bench, texts, query.turns, device)
    cross_encoders(bench, [q.text for q in benchmark.questions[:2]], texts[:40], query.turns, device)
    search(bench, query.vectors, 384, query.turns, device)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
