"""Contrastive training: a step of ARK's trainer against sentence-transformers' stock losses on the same batch.

    python -m perf.contrastive            # MiniLM on CPU; --device cuda on a GPU

One step each: encode, loss, gradients, AdamW. The stock losses are `MultipleNegativesRankingLoss`, which holds all
activations, and `CachedMultipleNegativesRankingLoss`, which encodes twice as our gradient caching does. Rows are made
as ARK makes them: questions about a document, negatives from the same document. The stock losses encode a chunk as
often as rows bring it; ours encodes it once.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from methods.ark.config import LossConfig, TrainConfig
from methods.ark.data import TrainRow
from methods.ark.loss import batch_of
from methods.ark.tower import Prompts, Tower, load_tower
from methods.models.encoder import EncoderConfig
from perf.likelihood import words
from perf.measuring import Bench, medians

TARGET = 1.0
"""Ours must not be slower than the stock loss on a batch where no text occurs twice."""
TOLERANCE = 2e-3
"""Largest difference of the losses: texts are padded in other company."""
TEMPERATURE = 0.05


def batches(rows: int, negatives: int, chunks: int, length: int) -> tuple[list[TrainRow], dict[str, str]]:
    """Make training rows whose negatives are drawn from a number of chunks; each row has its own positive."""
    rng = random.Random(5)
    known = words(400, 1)
    texts = {f"c{n}": " ".join(rng.choices(known, k=length)) for n in range(chunks)}
    ids = list(texts)
    made = []
    for number in range(rows):
        pool = [item for item in ids[rows:] or ids if item != ids[number]]
        start = number * negatives
        chosen = pool[start : start + negatives] if len(pool) >= rows * negatives else rng.sample(pool, negatives)
        query = " ".join(rng.choices(known, k=10))
        made.append(TrainRow(f"q{number}", "d", "stage1", query, ids[number], tuple(chosen), (ids[number],)))
    return made, texts


def stock(model: Any, rows: Sequence[TrainRow], texts: dict[str, str], cached: bool, micro: int) -> Callable[[], float]:
    """Return a training step with sentence-transformers' loss."""
    import torch
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    loss = (
        CachedMultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE, mini_batch_size=micro)
        if cached
        else MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    columns = [[row.query for row in rows], [texts[row.positive_id] for row in rows]]
    columns += [[texts[row.negative_ids[n]] for row in rows] for n in range(len(rows[0].negative_ids))]

    def step() -> float:
        model.train()
        optimizer.zero_grad()
        features = [
            {name: value.to(model.device) if hasattr(value, "to") else value for name, value in item.items()}
            for item in (model.preprocess(column) for column in columns)
        ]
        value = loss(features, None)
        value.backward()
        optimizer.step()
        return float(value.detach())

    return step


def ours(model: Any, rows: Sequence[TrainRow], texts: dict[str, str], cached: bool, micro: int) -> Callable[[], float]:
    """Return a training step with ragmeter's trainer."""
    import torch

    tower = Tower(model, Prompts("", ""), TrainConfig(micro_batch=micro, held_tokens=1 if cached else 1 << 30))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    config = LossConfig(in_batch=("all", "all", "all"), mask_same_question=False, count_duplicates=True)

    def step() -> float:
        model.train()
        optimizer.zero_grad()
        value = tower.backward(batch_of(rows, texts, config), TEMPERATURE, (0,))
        optimizer.step()
        return value

    return step


def without_dropout(model: Any) -> Any:
    """Disable dropout in a model, so that losses can be compared."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout_prob"):
            module.dropout_prob = 0.0
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison.

    Returns:
        1 if the target was missed or losses differ, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=6)
    parser.add_argument("--negatives", type=int, default=3)
    parser.add_argument("--length", type=int, default=24, help="words of a chunk")
    parser.add_argument("--micro", type=int, default=16, help="texts encoded at once")
    parser.add_argument("--turns", type=int, default=3)
    value = parser.parse_args(arguments)
    import torch

    def clock() -> float:
        if value.device.startswith("cuda"):
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    config = EncoderConfig(model=value.model)
    texts_needed = value.rows * (1 + value.negatives)
    bench = Bench("contrastive")
    for name, chunks, target in (
        ("every text once", texts_needed, TARGET),
        ("negatives of one document", value.rows + value.negatives + 2, None),
    ):
        rows, texts = batches(value.rows, value.negatives, chunks, value.length)
        for cached in (False, True):
            sides = [make(without_dropout(load_tower(config, value.device)), rows, texts, cached, value.micro) for make in (ours, stock)]
            seconds, losses = medians(value.turns, *sides, warm=True, clock=clock)
            apart = abs(losses[0] - losses[1])
            label = f"{name}, {'gradients cached' if cached else 'all held'}"
            # A twentieth below parity is noise.
            least = None if target is None else target * 0.95
            bench.ratio(label, seconds[0], seconds[1], least, equal=apart <= TOLERANCE, remark=f"; losses differ by {apart:.1e}")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
