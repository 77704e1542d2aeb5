"""SARK's steps: each task's gradient by itself, λ from both, and their combination to the optimiser.

The gradients of both losses are accumulated one after the other and kept apart until λ is known. So λ is that of the
whole batch however it is parted, nothing is learnt through it, and no backward pass is made twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from methods.sark.balance import Products, combined
from methods.sark.config import SarkTrainingConfig
from methods.sark.model import encoder_of, last_layer
from methods.sark.objective import FORMAL, INFORMAL, TASKS, Objective, Task, groups_of
from methods.sark.rows import SarkRow, batches
from methods.torch_loop import KeepBest, Loop, LoopOptions, Schedule, Validate
from methods.training import Progress

Gradients = list[Any]
"""One tensor per trained parameter, None where nothing reached it."""
FIGURES = {"f1": "validation_f1", "order": "validation_order"}
"""The validation figure by which the best epoch is known."""


@dataclass(frozen=True)
class SlowSchedule(Schedule):
    """A schedule that counts each batch of an accumulated step as a step, as the released code does.

    Attributes:
        batches: Of a step.
    """

    batches: int = 1

    def rate(self, step: int, steps: int) -> float:
        """The rate of a step (from 0) of so many."""
        return super().rate(step, steps * self.batches)


class SarkTrainer:
    """Trains a reranker.

    Args:
        objective: The model and its losses.
        rows: Each with something that the active losses learn from.
        config: All options.
        folder: Where the curve and the point to go on from are kept.
        identity: Hash of everything that decides the result; a point of another training is not taken up.
        progress: Told of steps.
        validate: Called after each epoch.
    """

    def __init__(
        self,
        objective: Objective,
        rows: Sequence[SarkRow],
        config: SarkTrainingConfig,
        folder: Path,
        identity: str,
        progress: Progress,
        validate: Validate | None = None,
    ) -> None:
        self.objective, self.config = objective, config
        self._rows = list(rows)
        self._ordered = lru_cache(1)(self._batches)
        self._epoch = -(-len(self._ordered(0)) // config.train.accumulation)
        modules = {"model": objective.model}
        self.loop = Loop(modules, self._options(), self._step, folder, identity, progress, "sark", objective.accelerator, validate)
        self._parameters = self.loop.parameters()
        self._deciding = self._places()

    def _options(self) -> LoopOptions:
        train, keep = self.config.train, self.config.keep
        schedule = Schedule(train.learning_rate, train.warm_up, train.schedule)
        if train.schedule_over == "batches":
            schedule = SlowSchedule(train.learning_rate, train.warm_up, train.schedule, train.accumulation)
        return LoopOptions(
            train.epochs * self._epoch,
            self._epoch,
            schedule,
            train.weight_decay,
            max_grad_norm=train.max_grad_norm,
            save_every=train.save_every,
            keep_best=None if keep == "last" else KeepBest(FIGURES[keep], patience=train.patience),
        )

    def _places(self) -> list[int]:
        """The trained parameters whose gradients decide λ."""
        model = self.objective.model
        part = encoder_of(model) if self.config.loss.lambda_params == "backbone" else last_layer(model)
        deciding = {id(parameter) for parameter in part.parameters()}
        return [place for place, parameter in enumerate(self._parameters) if id(parameter) in deciding]

    def _batches(self, epoch: int) -> list[list[SarkRow]]:
        return batches(self._rows, self.config.train.batch_size, seed=self.config.seed, epoch=epoch)

    # -- a step ----------------------------------------------------------------------------------------------------

    def _step(self, step: int) -> dict[str, float]:
        """Add the gradient of the step's batches, and say what λ was; of several batches the means."""
        epoch, place = divmod(step, self._epoch)
        size = self.config.train.accumulation
        chosen = self._ordered(epoch)[place * size : (place + 1) * size]
        found = [self._batch(rows, (self.config.seed, step, number), len(chosen)) for number, rows in enumerate(chosen)]
        names = dict.fromkeys(name for figures in found for name in figures)
        return {name: _mean([figures[name] for figures in found if name in figures]) for name in names}

    def _batch(self, rows: Sequence[SarkRow], seed: tuple[int, ...], batches: int) -> dict[str, float]:
        """Add the gradient of one batch of so many.

        Returns:
            `loss`, that of each task, `lambda` and `1-lambda`, the norm of each task's gradient over the parameters
            that decide λ, and the cosine between both; the last three where both tasks have something to learn.
        """
        before = self._taken()
        losses: dict[Task, float] = {}
        gradients: dict[Task, Gradients] = {}
        for task in self._tasks:
            groups = groups_of(task, rows, self._styles)
            if groups:
                losses[task] = self.objective.backward(groups, (*seed, task))
                gradients[task] = self._taken()
        weight, figures = self._weight(gradients)
        nothing = [None] * len(self._parameters)
        step = combined(gradients.get("passage", nothing), gradients.get("list", nothing), weight)
        for parameter, one, other in zip(self._parameters, before, step, strict=True):
            parameter.grad = _sum(one, None if other is None else other.div_(batches))
        shares = {"passage": weight, "list": 1 - weight}
        loss = math.fsum(shares[task] * value for task, value in losses.items())
        named = {f"{task}_loss": value for task, value in losses.items()}
        return {"loss": loss, **named, "lambda": weight, "1-lambda": 1 - weight, **figures}

    @property
    def _tasks(self) -> tuple[Task, ...]:
        loss = self.config.loss
        return tuple(task for task, on in zip(TASKS, (loss.passage, loss.listwise), strict=True) if on)

    @property
    def _styles(self) -> tuple[int, ...]:
        return (FORMAL, INFORMAL) if self.config.loss.styles else (FORMAL,)

    def _taken(self) -> Gradients:
        """The gradients that lie on the parameters, which have none then."""
        found = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        return found

    # -- λ ---------------------------------------------------------------------------------------------------------

    def _weight(self, gradients: Mapping[Task, Gradients]) -> tuple[float, dict[str, float]]:
        """λ, and what is known of the gradients; a task that is alone has weight 1."""
        if len(gradients) < 2:
            return float("passage" in gradients), {}
        products = Products.of(*(self._deciding_part(gradients[task]) for task in TASKS))
        fixed = self.config.loss.lambda_value if self.config.loss.lambda_mode == "fixed" else None
        if not products.finite:
            # Half precision overflowed: the optimiser leaves this step out, and nothing is known of its gradients.
            return 0.5 if fixed is None else fixed, {}
        scale = self._scale
        return products.weight if fixed is None else fixed, {
            "passage_gradient": math.sqrt(products.passage) / scale,
            "list_gradient": math.sqrt(products.listwise) / scale,
            "cosine": products.cosine,
        }

    def _deciding_part(self, gradients: Gradients) -> Gradients:
        """The gradients that decide λ, summed over processes."""
        import torch

        chosen = [gradients[place] for place in self._deciding]
        accelerator = self.objective.accelerator
        if accelerator is None or accelerator.num_processes == 1:
            return chosen
        parameters = [self._parameters[place] for place in self._deciding]
        return [
            accelerator.reduce(torch.zeros_like(parameter) if one is None else one.clone(), "sum")
            for parameter, one in zip(parameters, chosen, strict=True)
        ]

    @property
    def _scale(self) -> float:
        """What half precision multiplied the gradients by."""
        scaler = getattr(self.objective.accelerator, "scaler", None)
        return float(scaler.get_scale()) if scaler is not None else 1.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one.add_(other)
