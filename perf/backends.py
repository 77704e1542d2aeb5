"""What else can compute the vectors of MiniLM: seconds, and how many of the ten passages that torch in float32 finds it finds too.

`int8` rounds the weights of all linear layers without looking at data; ragmeter has no option for it, and the row says why.
Backends whose packages are missing are left out, with the reason.

python -m perf.backends [--quick] [--passages N]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.plain_encoder import PlainEncoder
from methods.models.towers import SentenceTower
from perf.measuring import Bench, parser, say

K = 10
SIDES = {
    "torch float32": EncoderConfig(),
    "torch bfloat16": EncoderConfig(dtype="bfloat16"),
    "torch int8": EncoderConfig(),
    "onnx": EncoderConfig(backend="onnx"),
    "openvino": EncoderConfig(backend="openvino"),
    "static": EncoderConfig(backend="static"),
}


def encoder(name: str) -> Encoder:
    """Load an encoder; the name `torch int8` quantizes its linear layers to eight bits."""
    made = Encoder(SIDES[name], "cpu")
    if name == "torch int8":
        import torch

        for tower in (made._passages, made._queries):
            assert isinstance(tower, SentenceTower)
            assert isinstance(tower._model, PlainEncoder)
            model = torch.ao.quantization.quantize_dynamic(tower._model.model, {torch.nn.Linear}, torch.qint8)
            tower._model = replace(tower._model, model=model)
    return made


def nearest(made: Encoder, queries: list[str], passages: list[str]) -> NDArray[np.int64]:
    """Return the nearest passages of each query, as row numbers."""
    return np.argsort(-(made.queries(queries) @ made.passages(passages).T), axis=1, kind="stable")[:, :K]


def overlap(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> float:
    """Return the mean share of passages that two rankings have in common."""
    return float(np.mean([len({*a.tolist()} & {*b.tolist()}) / K for a, b in zip(ours, theirs, strict=True)]))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the encoder backends and record the figures."""
    arguments = parser(__doc__)
    arguments.add_argument("--passages", type=int, default=1000)
    query = arguments.parse_args(argv)
    bench = Bench("backends", quick=query.quick)
    benchmark = load("worlds/multihop:test")
    passages = list(benchmark.corpus.full_texts())[: 100 if query.quick else query.passages]
    queries = [question.text for question in benchmark.questions[: 10 if query.quick else 100]]
    results = {}
    for name in SIDES:
        try:
            made = encoder(name)
        except UserError as error:
            say(f"{name}: left out: {error.what}")
            continue
        nearest(made, queries[:2], passages[:2])
        started = time.process_time()
        results[name] = nearest(made, queries, passages)
        seconds = time.process_time() - started
        shared = overlap(results[name], results["torch float32"])
        bench.figure(name, shared, f"overlap@{K} with torch float32", remark=f" ({len(passages) / seconds:,.0f} passages/s)", cpu_s=seconds)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
