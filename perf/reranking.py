"""Milliseconds per query of rerankers over 50 candidates (SARK, figure 6), on random weights of the real sizes.

On any machine, what is checked is a ratio in one run: SARK's head of two layers against the head that the same encoder
comes with, the two taking turns. With `--architectures` the figure itself is measured, for every type and batch, on the
device at hand; no weights are needed. What a checkpoint takes in a pipeline stands in `ragmeter show`, by stage.

python -m perf.reranking [--architectures sark-base,bge-large,…] [--dtypes float32,bfloat16] [--batches 16,64]
                         [--queries N] [--candidates N] [--tokens N] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from methods.models.weights import device_of
from methods.sark.efficiency import ARCHITECTURES, Timing, Workload, measure_stand_in, stand_in

PARITY = 0.9
"""Least speed of SARK's head beside the encoder's own."""
TURNS = 5
SIDES = ("minilm-l6", "sark-minilm")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def heads(work: Workload, device: str) -> bool:
    """Whether SARK's head costs no more than the encoder's own."""
    models = {name: stand_in(name, "float32", device) for name in SIDES}
    turns: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(TURNS):
        for name, model in models.items():
            turns[name].append(measure_stand_in(model, 1, work).ms_per_query)
    # The best turn of each: what a busy machine adds is in neither.
    plain, sark = (min(turns[name]) for name in SIDES)
    met = plain / sark >= PARITY
    say(f"{SIDES[1]:<14}{statistics.median(turns[SIDES[1]]):>10.1f} ms/query, {SIDES[0]} "
        f"{statistics.median(turns[SIDES[0]]):.1f}, ratio of the best turns {plain / sark:.2f} "
        f"(target >= {PARITY:g}: {'met' if met else 'MISSED'})")  # fmt: skip
    return met


def line(name: str, dtype: str, batch: int, timing: Timing) -> str:
    """One row of the figure."""
    return (
        f"{name:<14}{dtype:<10}{batch:>6}{timing.ms_per_query:>12.2f}{timing.queries_per_second:>12.2f}"
        f"{timing.percentile(50):>12.2f}{timing.percentile(95):>12.2f}"
    )


def figure(names: Sequence[str], dtypes: Sequence[str], work: Workload, batches: Sequence[int], queries: int,
           device: str) -> None:  # fmt: skip
    """Print the figure as a table; what ranks lists has no batch of pairs and stands once for each type."""
    say(f"{'reranker':<14}{'type':<10}{'batch':>6}{'ms/query':>12}{'queries/s':>12}{'p50 ms':>12}{'p95 ms':>12}")
    for name in names:
        for dtype in dtypes:
            model = stand_in(name, dtype, device)
            chosen = batches if model.architecture.family != "llm_listwise" else batches[:1]
            for batch in chosen:
                sized = Workload(work.candidates, work.pair_tokens, work.passage_tokens, batch, work.answer_tokens)
                say(line(name, dtype, batch, measure_stand_in(model, queries, sized)))
            del model
            _forget(device)


def _forget(device: str) -> None:
    """Give memory back before the next model, which may need all of it."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Returns:
        1 where the target was missed, else 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--architectures", default="", help=f"of {', '.join(ARCHITECTURES)}; or all")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--batches", default="64")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=None, help="of a pair; 168, without --architectures 64")
    parser.add_argument("--device", default=None)
    asked = parser.parse_args(argv)
    device = device_of(asked.device)
    if not asked.architectures:
        work = Workload(asked.candidates, asked.tokens or 64)
        say(f"{work.candidates} candidates of {work.pair_tokens} tokens, {device}, float32, random weights")
        return 0 if heads(work, device) else 1
    names = list(ARCHITECTURES) if asked.architectures == "all" else asked.architectures.split(",")
    plain = Workload()
    work = Workload(asked.candidates, asked.tokens or plain.pair_tokens)
    say(f"{work.candidates} candidates of {work.pair_tokens} tokens, {asked.queries} queries, {device}, random weights")
    figure(names, asked.dtypes.split(","), work, [int(one) for one in asked.batches.split(",")], asked.queries, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
