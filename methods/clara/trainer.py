"""The steps of a stage, in the loop that all trainings share.

Losses are sums over a batch divided by what the whole batch holds, so a batch in parts has the gradient of the whole:
exactly, but for dropout, which is drawn from the seed, the step and the part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from methods.clara.config import ClaraTrainingConfig, StepOptions
from methods.training import Progress
from methods.training.loop import Loop, LoopOptions, Schedule, Validate

if TYPE_CHECKING:
    from torch import Tensor, nn

Row = TypeVar("Row", contravariant=True)
Sums = Mapping[str, float]
"""Figures of some rows: what they add to those of their batch. `loss` is what was differentiated."""


class Objective(Protocol[Row]):
    """What a stage learns."""

    def whole(self, batch: Sequence[Row]) -> Any:
        """What the losses of a batch are divided by; handed back with each of its parts."""
        ...

    def size(self, row: Row) -> int:
        """About how long a row is: rows of like size are read together."""
        ...

    def part(self, rows: Sequence[Row], whole: Any, done: float, step: int) -> tuple[Tensor | None, Sums]:
        """The loss of some rows of a batch, a scalar with its graph, and their figures.

        Args:
            rows: The rows.
            whole: Of their batch.
            done: Share of the stage's steps that lie behind.
            step: Number of this one.
        """
        ...


class StageTrainer:
    """Trains a stage.

    Args:
        name: Of the stage.
        module: What holds the trained parameters; others are left alone.
        objective: Its loss.
        rows: What is learnt from.
        train: Steps and rates.
        config: All options.
        folder: Where the curve and the point to go on from are kept.
        identity: Hash of everything that decides the result; a point of another training is not taken up.
        progress: Told of steps.
        process: Of `accelerate`; None: one process.
        validate: Called after each epoch, or more often.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        objective: Objective[Any],
        rows: Sequence[Any],
        train: StepOptions,
        config: ClaraTrainingConfig,
        folder: Path,
        identity: str,
        progress: Progress,
        process: Any = None,
        validate: Validate | None = None,
    ) -> None:
        self.objective, self._name, self._train, self._seed = objective, name, train, config.seed
        self._rows, self._process = list(rows), process
        self._order = lru_cache(2)(self._shuffled)
        self._epoch = -(-len(rows) // train.batch_size)
        every = train.epochs * self._epoch
        self.steps = every if train.steps is None else min(train.steps, every)
        schedule = Schedule(train.learning_rate, train.warm_up, train.schedule, floor=train.floor)
        options = LoopOptions(
            self.steps,
            config.validate_on.every or min(self._epoch, self.steps),
            schedule,
            config.weight_decay,
            "all",
            config.betas,
            config.max_grad_norm,
            train.save_every,
            trainable_only=True,
        )
        self.loop = Loop({"clara": module}, options, self._step, folder, identity, progress, f"clara {name}", process, validate)

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self._rows)))
        Draws("clara", self._name, self._seed, epoch).shuffle(order)
        return order

    def batch(self, step: int) -> list[Any]:
        """The rows of a step."""
        epoch, place = divmod(step, self._epoch)
        size = self._train.batch_size
        return [self._rows[row] for row in self._order(epoch)[place * size : (place + 1) * size]]

    def _step(self, step: int) -> dict[str, float]:
        """Add the gradient of a step's rows, in parts; each process adds that of its own parts."""
        rows = sorted(self.batch(step), key=self.objective.size)
        whole, done = self.objective.whole(rows), step / self.steps
        starts = range(0, len(rows), self._train.micro_batch)
        first, ranks = (self._process.process_index, self._process.num_processes) if self._process else (0, 1)
        sums: dict[str, float] = {}
        for number in range(first, len(starts), ranks):
            part = rows[starts[number] : starts[number] + self._train.micro_batch]
            for name, value in self._part(part, whole, done, step, number).items():
                sums[name] = sums.get(name, 0.0) + value
        return self._summed(sums) if ranks > 1 else sums

    def _part(self, rows: Sequence[Any], whole: Any, done: float, step: int, number: int) -> Sums:
        import torch

        devices = [self._process.device] if self._process is not None and self._process.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int(fingerprint(self._name, self._seed, step, number), 16) % 2**63)
            loss, sums = self.objective.part(rows, whole, done, step)
            if loss is None:
                return sums
            if self._process is None:
                loss.backward()
            else:
                self._process.backward(loss)
        return sums

    def _summed(self, sums: Sums) -> dict[str, float]:
        """Figures over processes."""
        from accelerate.utils import gather_object

        total: dict[str, float] = {}
        for found in gather_object([dict(sums)]):
            for name, value in found.items():
                total[name] = total.get(name, 0.0) + value
        return total
