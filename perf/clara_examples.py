"""CLaRa's pretraining and instruction tuning: a step whose questions share a row against one with a row for each.

    python -m perf.clara_examples          # the pocket model on CPU, bfloat16 and float32

Training examples are those of the preset `worlds-long`: a document and its questions, five documents and all questions that they
answer. What the prompts of an example share, its memory above all, is read once, or once for each question. Seconds are
processor seconds of forward and backward; the losses must be equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from methods.api import Services
from perf.measuring import Bench, timed

TARGETS = {"scp": 1.2, "instruction": 1.8}
"""How many times as fast a shared row must be."""
BATCHES = {"scp": 16, "instruction": 8}
TOLERANCE = {False: 1e-3, True: 3e-2}
"""Largest difference of the summed losses by whether they are computed in bfloat16: rounding."""
SEED = 0


class Precision:
    """Stand-in for the mixed-precision context of `accelerate` that a training stage uses."""

    def __init__(self, reduced: bool) -> None:
        self._reduced = reduced

    def autocast(self) -> Any:
        """Return the context manager for bfloat16, or one that does nothing."""
        import torch

        return torch.autocast("cpu", torch.bfloat16) if self._reduced else nullcontext()


def steps(stage: Any, reduced: bool) -> list[Callable[[int], float]]:
    """Return two training steps as functions of the batch number: one with shared rows, one with a row per question."""
    from methods.clara.config import ClaraTrainingConfig
    from methods.clara.data import in_examples, training_rows
    from methods.clara.objective import Compression
    from methods.clara.stages import begin, examples
    from methods.training import TRAININGS

    worlds = {"worlds": 1, "questions": 1500, "candidates": 20, "mix": {"single": 1.0}}
    config = TRAININGS.get("clara").validate({"preset": "worlds-long", "data": {"options": {"worlds": worlds}}})
    assert isinstance(config, ClaraTrainingConfig)
    with tempfile.TemporaryDirectory() as folder:
        rows, _ = training_rows(config, stage, Services(artifacts=Path(folder), device="cpu"))
    taught = in_examples(examples(config, rows), config.out_of_vocabulary, SEED)
    clara = begin(config, stage, None, "cpu")
    objective = Compression(clara, config.scp if stage == "scp" else config.instruction, Precision(reduced))
    shared = clara.generator.packed_cross_entropy

    def step(number: int, packed: bool) -> float:
        clara.generator.packed_cross_entropy = shared if packed else _never  # type: ignore[method-assign]
        size = BATCHES[stage]
        batch = taught[number * size : (number + 1) * size]
        whole, total = objective.whole(batch), 0.0
        for start in range(0, size, 8):
            loss, _ = objective.part(batch[start : start + 8], whole, 0.5, config.scp.naming_only)
            loss.backward()
            total += float(loss.detach())
        clara.module.zero_grad()
        return total

    return [lambda number: step(number, True), lambda number: step(number, False)]


def _never(*value: Any) -> None:
    """A base whose attention takes no mask."""
    return


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 if every target is met and the losses are equal."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    query = parser.parse_args(argv)
    torch.set_num_threads(1)
    bench = Bench("clara_examples")
    for stage, target in TARGETS.items():
        for reduced in (True, False):
            seconds: list[list[float]] = [[], []]
            apart = 0.0
            sides = steps(stage, reduced)
            for turn in range(query.turns + 1):
                losses = []
                for number, side in enumerate(sides):
                    spent, loss = timed(lambda side=side, turn=turn: side(turn))  # type: ignore[misc]
                    losses.append(loss)
                    seconds[number] += [spent] if turn else []
                apart = max(apart, abs(losses[0] - losses[1]))
            ours, theirs = map(median, seconds)
            name = f"{stage}, {'bfloat16' if reduced else 'float32'}"
            equal = apart <= TOLERANCE[reduced]
            bench.ratio(
                f"{name}, a step against a row for each question",
                ours,
                theirs,
                target,
                equal=equal,
                remark=f"; losses differ by {apart:.1e}",
            )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
