"""Train SARK (`ragmeter train sark`): a reranker from questions and candidates, with labels, orders and style pairs.

`objective` computes the gradient of a batch, `validation` the metrics; this module has the training loop, the model card, and
the registration.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filelock import FileLock

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.registry import Benchmark
from methods.models.rewriter import prompts_hash
from methods.sark.config import PRESETS, STAGE, SarkDataConfig, SarkTrainingConfig
from methods.sark.data import Material, SarkData, data_of, load_material
from methods.sark.model import encoder_of, last_layer, new_reranker, save
from methods.sark.objective import FORMAL, INFORMAL, TASKS, Objective, Task, groups_of, learnable
from methods.sark.planning import needs, work_of
from methods.sark.rows import SarkRow, batches
from methods.sark.validation import validator
from methods.training import TrainingContext, register_training
from methods.training.balance import Products, combined
from methods.training.loop import KeepBest, LoopPlace, Schedule, loop_over_rows
from methods.training.model_card import RERANKER, write_model_card
from methods.training.ranks import first
from methods.training.stages import OneStageTraining, PreparedRun, read_lines

if TYPE_CHECKING:
    from torch import Tensor

BY_EPOCH = {
    "lambda": "λ",
    "passage_loss": "passage loss",
    "list_loss": "list loss",
    **{f"validation_{name}": name for name in ("f1", "order")},
}
"""Columns of the card's table of epochs, by name in the loss curve."""


def by_epoch(curve: Sequence[Mapping[str, float]], steps: int) -> str:
    """Format λ, both losses and the validation metrics of each epoch as a Markdown table; losses are means over steps.

    Args:
        curve: Lines of the loss curve, for steps and validations.
        steps: Steps per epoch.
    """
    names = [name for name in BY_EPOCH if any(name in line for line in curve)]
    rows = [["epoch", *(BY_EPOCH[name] for name in names)], ["---"] * (len(names) + 1)]
    for epoch in range(1 + int(max(line["step"] for line in curve)) // steps if curve else 0):
        lines = [line for line in curve if int(line["step"]) // steps == epoch]
        means = [[line[name] for line in lines if name in line] for name in names]
        rows.append([str(epoch + 1), *(f"{_mean(values):.3f}" if values else "" for values in means)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write_card(folder: Path, config: SarkTrainingConfig, figures: Mapping[str, float], epochs: str = "") -> None:
    """Write the model card."""
    loss, train = config.loss, config.train
    weighed = "from both gradients" + (f", at most {loss.lambda_most:g}" if loss.lambda_most < 1 else "")
    on = {"style-augmented training": loss.styles, "passage labels": loss.passage, "lists": loss.listwise}
    left_out = [name for name, kept in on.items() if not kept]
    labels = "1 for gold evidence" if config.labels.by == "evidence" else "with this one a wrong answer turns right, or a right one wrong"
    styles = f"every passage is learned from in two styles, formal and {config.styles.style}" if loss.styles else "formal passages only"
    write_model_card(
        folder,
        RERANKER,
        "A reranker trained with SARK" + (f", without {' and '.join(left_out)}" if left_out else ""),
        f"SARK (style-adaptive reranker) learns which passages help a model to answer, from labels of passages ({labels}) "
        f"and from lists ordered from best to worst. Styles: {styles}. Both losses are weighed in every batch so that a step lowers "
        f"both.\n\nPairs are cut after {config.model.max_length} tokens, from the passage's end. "
        "`predict` gives σ(z). `curve.jsonl` has for every step both losses, the weights `lambda` and `1-lambda`, the norms of both "
        "gradients over the encoder, and the cosine between them.",
        base=[config.base],
        data=config.data,
        seed=config.seed,
        facts={
            "head": config.model.head,
            "λ": weighed if loss.lambda_fixed is None else f"fixed at {loss.lambda_fixed:g}",
            "gradients that decide λ": loss.lambda_params,
            "loss of lists": loss.list_loss,
            "styles of a list": loss.list_styles,
            "rows per batch": train.batch_size,
            "batches per step": train.accumulation,
            "epochs at most": train.epochs,
            "weights of": {"f1": "the best validation F1", "order": "the best validation order"}.get(config.keep, "the last step"),
            **figures,
        },
        after=epochs,
    )


# The gradients of both losses are accumulated one after the other, and are added only when λ is known. So λ is that of the
# whole batch, however it is divided. It has no gradient itself, and no backward pass is repeated.


Gradients = list["Tensor | None"]
"""One tensor per trained parameter; None if it has no gradient."""
FIGURES = {"f1": "validation_f1", "order": "validation_order"}
"""Validation metric for selecting the best epoch, by option value."""


@dataclass(frozen=True)
class SlowSchedule(Schedule):
    """Schedule that counts each batch of an accumulated step as a step, as in the released code.

    Attributes:
        batches: Batches per step.
    """

    batches: int = 1

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 0) out of `steps`."""
        return super().rate(step, steps * self.batches)


class SarkTrainer:
    """Training loop of the reranker.

    Args:
        objective: The model and its losses.
        rows: Training rows, each with a nonzero loss term.
        config: All options.
        place: Working folder and process of the loop.
    """

    def __init__(self, objective: Objective, rows: Sequence[SarkRow], config: SarkTrainingConfig, place: LoopPlace) -> None:
        self.objective, self.config = objective, config
        self._rows = list(rows)
        if config.model.level:
            objective.set_level(self._rows, self.styles)
        train, kept, count = config.train, config.keep, len(self._batches(0))
        more: dict[str, Any] = {"trainable_only": config.model.lora is not None}
        if kept != "last":
            more["keep_best"] = KeepBest(FIGURES[kept])
        if train.schedule_over == "batches":
            more["schedule"] = SlowSchedule(train.learning_rate, train.warm_up, train.schedule, train.accumulation)
        modules, size = {"model": objective.model}, train.accumulation
        self.loop = loop_over_rows(
            "sark", modules, train, self._batches, count, self._step, place, size=size, micro=objective.micro, **more
        )
        self._parameters = self.loop.parameters()
        self._deciding = self._positions()

    def _positions(self) -> list[int]:
        """Return the indices of trained parameters whose gradients determine λ."""
        model = self.objective.model
        part = encoder_of(model) if self.config.loss.lambda_params == "backbone" else last_layer(model)
        deciding = {id(parameter) for parameter in part.parameters()}
        return [position for position, parameter in enumerate(self._parameters) if id(parameter) in deciding]

    def _batches(self, epoch: int) -> list[list[SarkRow]]:
        return batches(self._rows, self.config.train.batch_size, seed=self.config.seed, epoch=epoch)

    def _step(self, chosen: Sequence[Sequence[SarkRow]], epoch: int, step: int) -> dict[str, float]:
        """Compute the gradient of a step's batches, and return metrics including λ (means over batches)."""
        results = [self._batch(rows, epoch, (self.config.seed, step, number), len(chosen)) for number, rows in enumerate(chosen)]
        names = dict.fromkeys(name for figures in results for name in figures)
        return {name: _mean([figures[name] for figures in results if name in figures]) for name in names}

    def _batch(self, rows: Sequence[SarkRow], epoch: int, seed: tuple[int, ...], batches: int) -> dict[str, float]:
        """Compute the gradient of one of the step's batches.

        Returns:
            `loss`, the loss of each task, `lambda` and `1-lambda`; if both tasks have terms, also the norm of each task's
            gradient and their cosine, over the parameters that determine λ.
        """
        before = self._taken()
        losses: dict[Task, float] = {}
        gradients: dict[Task, Gradients] = {}
        for task in self._tasks:
            groups = groups_of(task, rows, self.styles, self.config.loss, (self.config.seed, epoch))
            if groups:
                losses[task] = self.objective.backward(groups, (*seed, task))
                gradients[task] = self._taken()
        weight, figures = self._weight(gradients)
        nothing = [None] * len(self._parameters)
        step = combined(gradients.get("passage", nothing), gradients.get("list", nothing), weight)
        for parameter, item, other in zip(self._parameters, before, step, strict=True):
            parameter.grad = _sum(item, None if other is None else other.div_(batches))
        shares = {"passage": weight, "list": 1 - weight}
        loss = math.fsum(shares[task] * value for task, value in losses.items())
        named = {f"{task}_loss": value for task, value in losses.items()}
        return {"loss": loss, **named, "lambda": weight, "1-lambda": 1 - weight, **figures}

    @property
    def _tasks(self) -> tuple[Task, ...]:
        loss = self.config.loss
        return tuple(task for task, on in zip(TASKS, (loss.passage, loss.listwise), strict=True) if on)

    @property
    def styles(self) -> tuple[int, ...]:
        """Return the styles that are learned from."""
        return (FORMAL, INFORMAL) if self.config.loss.styles else (FORMAL,)

    def _taken(self) -> Gradients:
        """Take the gradients off the parameters, and return them."""
        results = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        return results

    def _weight(self, gradients: Mapping[Task, Gradients]) -> tuple[float, dict[str, float]]:
        """Return λ and statistics of the gradients; a single task has weight 1."""
        if len(gradients) < 2:
            return float("passage" in gradients), {}
        products = Products.of(*(self._deciding_part(gradients[task]) for task in TASKS))
        fixed = self.config.loss.lambda_fixed
        if not products.finite:
            # Half precision overflowed: the optimizer leaves this step out, and nothing is known of its gradients.
            return 0.5 if fixed is None else fixed, {}
        scale = self._scale
        return min(products.weight, self.config.loss.lambda_most) if fixed is None else fixed, {
            "passage_gradient": math.sqrt(products.passage) / scale,
            "list_gradient": math.sqrt(products.listwise) / scale,
            "cosine": products.cosine,
        }

    def _deciding_part(self, gradients: Gradients) -> Gradients:
        """Return the gradients that determine λ, summed over processes."""
        import torch

        chosen = [gradients[position] for position in self._deciding]
        accelerator = self.objective.accelerator
        if accelerator is None or accelerator.num_processes == 1:
            return chosen
        parameters = [self._parameters[position] for position in self._deciding]
        return [
            accelerator.reduce(torch.zeros_like(parameter) if item is None else item.clone(), "sum")
            for parameter, item in zip(parameters, chosen, strict=True)
        ]

    @property
    def _scale(self) -> float:
        """Return the loss scale of mixed precision."""
        scaler = getattr(self.objective.accelerator, "scaler", None)
        return float(scaler.get_scale()) if scaler is not None else 1.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sum(item: Tensor | None, other: Tensor | None) -> Tensor | None:
    if item is None or other is None:
        return other if item is None else item
    return item.add_(other)


CURVE = "curve.jsonl"
"""File in a checkpoint's folder with its loss curve."""


class RowSource(Protocol):
    """Protocol of sources of training rows."""

    def __call__(self, config: SarkTrainingConfig, benchmarks: Sequence[Benchmark], context: TrainingContext, folder: Path) -> SarkData:
        """Return the rows of benchmarks, stored in a folder; a second call reads them from there."""
        ...


@register_training(
    "sark",
    summary="a reranker trained on which passages help a model to answer, with every passage in two styles",
    stages=(STAGE,),
    paper="Zhang et al., Don't Be Misled by Style: A Style-Adaptive Reranker for Capturing Effective Knowledge in "
    "Retrieval-Augmented Generation",
    presets=PRESETS,
    work=work_of,
    needs=needs,
)
class SarkTraining(OneStageTraining):
    """Training of SARK.

    Args:
        config: Options.
        source: Source of rows that replaces the configured one.
    """

    stage = STAGE

    def __init__(self, config: SarkTrainingConfig, source: RowSource | None = None) -> None:
        super().__init__(config)
        self._source = source or _made

    def load(self) -> tuple[Material, Sequence[str]]:
        material = load_material(self.config)
        return material, [benchmark.fingerprint for benchmark in material.training]

    def inputs(self, data: Material) -> Sequence[str]:
        return fingerprint([benchmark.fingerprint for benchmark in data.validation]), *_files(self.config)

    def begin(self, data: Material, context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        config, work = self.config, context.work
        # The other processes read from its files what the main process generated.
        with first(process):
            training = self._source(config, data.training, context, work / "data")
            held_out = self._source(config.held_out, data.validation, context, work / "validation") if data.validation else None
        return _prepared(config, training, held_out, context, process, identity)


def _made(config: SarkTrainingConfig, benchmarks: Sequence[Benchmark], context: TrainingContext, folder: Path) -> SarkData:
    """Build rows, or reuse those of other trainings that differ only in their losses."""
    services = context.services
    made_of = config.model_dump(mode="json", include=set(SarkDataConfig.model_fields))
    shared = services.folder("sark", fingerprint(made_of, [benchmark.fingerprint for benchmark in benchmarks])) or folder
    with FileLock(f"{shared}.lock"):
        return data_of(config, benchmarks, services, shared, context.progress)


def _prepared(
    config: SarkTrainingConfig, training: SarkData, held_out: SarkData | None, context: TrainingContext, process: Any, identity: str
) -> PreparedRun:
    rows = [row for row in training.rows if _teaches(row, config)]
    if not rows:
        raise _nothing_to_train(config)
    labels = {row.label for row in rows}
    if len(labels) == 1 and not config.loss.listwise:
        raise UserError(
            f"every label is {labels.pop()}, so there is nothing to distinguish",
            code="equal-labels",
            where="labels",
            try_this="data with helpful and misleading passages, or loss.listwise: true",
        )
    objective = Objective(new_reranker(config, str(process.device)), config, process)
    same = fingerprint(identity, training.fingerprint, held_out.fingerprint if held_out is not None else None)
    validate = validator(objective, held_out.rows, config) if held_out is not None else None
    trainer = SarkTrainer(objective, rows, config, LoopPlace.of(context, same, process, validate))

    def write(folder: Path, figures: Mapping[str, float]) -> None:
        save(objective.model, folder)
        # λ, 1 − λ, norms and cosine of every step (the paper's figure 8).
        shutil.copyfile(trainer.loop.curve, folder / CURVE)
        write_card(folder, config, figures, by_epoch(read_lines(trainer.loop.curve), trainer.loop.options.epoch))

    counts = {**training.counts, "rows_trained_on": len(rows)}
    if cut := objective.cut(rows, trainer.styles):
        counts["pairs_cut"] = cut
    return PreparedRun(trainer.loop, write, {name: float(count) for name, count in counts.items()})


def _teaches(row: SarkRow, config: SarkTrainingConfig) -> bool:
    """Return whether a row has a nonzero loss term."""
    return (config.loss.passage and row.label is not None) or (config.loss.listwise and learnable(row, config.loss))


def _nothing_to_train(config: SarkTrainingConfig) -> UserError:
    needed = {(True, False): "a label", (False, True): "a list"}.get((config.loss.passage, config.loss.listwise), "a label or a list")
    return UserError(
        f"no training row has {needed}",
        code="no-training-row",
        where="data",
        try_this="use more questions, or another model to label and order; if a reader knows nothing, set `labels.known`",
    )


def _files(config: SarkTrainingConfig) -> list[str]:
    """Return hashes of the files named in options, by option."""
    judge, styles = config.wanted_judge, config.styles
    named = {
        "labels.prompt": config.labels.prompt,
        "labels.judge_options.prompt": judge[1].get("prompt") if judge is not None else None,
        "lists.prompt": config.lists.prompt,
        "styles.file": styles.file,
    }
    hashes = [f"{option}: {file_sha256(Path(item).expanduser())}" for option, item in named.items() if item is not None]
    if styles.by == "llm" and styles.rewriting.prompts is not None:
        hashes.append(f"styles.rewriting.prompts: {prompts_hash(styles.rewriting.prompts)}")
    return hashes
