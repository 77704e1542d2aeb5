"""`ragmeter train sark`: from questions and candidates to a reranker, by labels, orders and style pairs.

A task's gradient is taken over a batch in parts that fit into memory. A group is what one term of a loss needs
together: one labeled passage, or one whole list. The losses are sums over groups, so a batch in parts has the gradient
of the whole: exactly, but for dropout, which is drawn from the seed, the step, the task and the part. Where a part is
too large for the memory, the task begins anew in smaller ones.
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.registry import Benchmark
from methods.models.cross_encoder import Features, PairTokens
from methods.models.likelihood import by_length
from methods.models.rewriter import prompts_hash
from methods.registry import Component
from methods.sark.config import PRESETS, SarkDataConfig, SarkTrainingConfig
from methods.sark.data import SarkData, data_of, load_material
from methods.sark.loss import classified, list_terms, pairs_of, passage_terms, ranked
from methods.sark.model import encoder_of, last_layer, new_reranker, save
from methods.sark.prompts import load_prompt
from methods.sark.rows import LENGTH, SarkRow, batches
from methods.training import LengthsOf, Progress, TrainedStage, TrainingContext, register_training
from methods.training.balance import Products, combined
from methods.training.loop import KeepBest, Loop, LoopOptions, Schedule, Validate, accelerator
from methods.training.stages import PreparedRun, train_stage
from methods.work import (
    DATA,
    Checkpoint,
    Lengths,
    Needs,
    Once,
    StageWork,
    Work,
    all_needs,
    ask,
    learn,
    longest_reply,
    needs_of,
    resumable,
    saved_weights,
    steps,
    tokens,
    total,
)

if TYPE_CHECKING:
    from torch import Tensor

# -- The README of a reranker that SARK trained --


_CARD = """---
library_name: sentence-transformers
pipeline_tag: text-ranking
tags:
- sentence-transformers
- cross-encoder
- reranker
---

# A reranker trained with SARK{without}

Base: `{base}`. Training data: {data}. Seed {seed}.

SARK (style-adaptive reranker) learns which passages help a model to answer: from labels of passages (with this one a
wrong answer turns right, or a right one wrong) and from lists ordered from best to worst. Every passage is learned from
in two styles, {style}, so that its content counts and not its style. Both losses are weighed in every batch so
that a step lowers both.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("path/to/this/folder")
scores = model.predict([("Who built the old bridge?", "The bridge was built by a painter.")])
```

| | |
|---|---|
{rows}

Pairs are cut after {length} tokens, from the passage's end. `predict` gives σ(z); rankings are by z, in the same order.
`curve.jsonl` tells of every step both losses, the weights `lambda` and `1-lambda`, the norms of both gradients over the
encoder, and the cosine between them.
"""


def write_card(folder: Path, config: SarkTrainingConfig, figures: Mapping[str, float]) -> None:
    """Write the card; it holds nothing that changes between equal trainings."""
    loss, train = config.loss, config.train
    on = {"style-augmented training": loss.styles, "passage labels": loss.passage, "lists": loss.listwise}
    left_out = [name for name, kept in on.items() if not kept]
    facts: dict[str, object] = {
        "head": config.model.head,
        "λ": "from both gradients" if loss.lambda_mode == "mgda" else f"fixed at {loss.lambda_value:g}",
        "gradients that decide λ": loss.lambda_params,
        "rows per batch": train.batch_size,
        "batches per step": train.accumulation,
        "epochs at most": train.epochs,
        "weights of": {"f1": "the best validation F1", "order": "the best validation order"}.get(config.keep, "the last step"),
        **{name: f"{value:.6g}" for name, value in figures.items()},
    }
    text = _CARD.format(
        without=f", without {' and '.join(left_out)}" if left_out else "",
        base=config.base,
        data=", ".join(f"`{item}`" for item in config.data),
        seed=config.seed,
        style=f"formal and {config.styles.style}" if loss.styles else "of which this one has seen the formal alone",
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        length=config.model.max_length,
    )
    (folder / "README.md").write_text(text, "utf-8")


# -- The gradient of one task's loss over a batch, in parts that fit into memory --


Task = Literal["passage", "list"]
TASKS: tuple[Task, ...] = ("passage", "list")
BLOCK = 6
"""Pairs that a CPU reads at once."""
FORMAL, INFORMAL = 0, 1
"""Places of both styles in a row's texts."""


@dataclass(frozen=True, slots=True)
class Group:
    """Texts of one question in one style.

    Attributes:
        query: The question.
        texts: One labeled passage; or a list, best first.
        label: 1 or 0; None of a list.
    """

    query: str
    texts: tuple[str, ...]
    label: int | None

    @property
    def terms(self) -> int:
        """Terms that it adds to its loss."""
        return 1 if self.label is not None else pairs_of(len(self.texts))


Part = list[tuple[Group, list[Features]]]
"""Groups of one task and size that are read at once, with their pairs as tokens."""


def groups_of(task: Task, rows: Sequence[SarkRow], styles: Sequence[int]) -> list[Group]:
    """What rows give a task to learn from, style by style; both styles of a row stand in the same rows.

    Args:
        task: Which loss.
        rows: Of a batch.
        styles: `FORMAL`, or both.
    """
    if task == "passage":
        return [
            Group(row.query, ((row.formal, row.informal)[style],), row.label) for style in styles for row in rows if row.label is not None
        ]
    return [Group(row.query, tuple(styled[style] for styled in row.list), None) for style in styles for row in rows if row.list is not None]


class Objective:
    """Scores pairs with a model in training, and adds gradients to its parameters.

    Args:
        model: The `CrossEncoder`.
        config: Head, lengths, and how many tokens are read at once.
        accelerator: Of `accelerate`; None: one process in the model's own precision.
    """

    def __init__(self, model: Any, config: SarkTrainingConfig, accelerator: Any = None) -> None:
        self.model, self.config, self.accelerator = model, config, accelerator
        self._budget = config.train.token_budget
        options = config.model
        self._pairs = PairTokens(model.tokenizer, options.max_length, options.query_share)

    def backward(self, groups: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Put the gradient of a loss on the parameters, which have none yet: the mean over all terms of its groups.

        With as many terms in each style, that is the mean over styles of the mean over terms. Of several processes each
        adds the gradient of its own parts. Where a part does not fit into the memory, what was added is dropped, and
        the whole of it is read again in smaller parts; whatever comes later is parted likewise.

        Args:
            groups: Of one task, in one style or both.
            seed: What dropout is drawn from: seed, step, task.

        Returns:
            The loss.

        Raises:
            Broke: Not even a single group fits into the device's memory.
        """
        while (loss := self._added(groups, seed)) is None:
            pass
        return loss

    def _added(self, groups: Sequence[Group], seed: Sequence[str | int]) -> float | None:
        """The loss, its gradient added; None where a part was too large: nothing is added, and parts are smaller now.

        Raises:
            Broke: The part is a single group.
        """
        import torch

        terms, parts = sum(group.terms for group in groups), self._parts(groups)
        # The loss; whether a part was too large; whether that was a single group.
        results = [0.0, 0.0, 0.0]
        for number, part in self._own(parts):
            torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
            loss = self._learned(part, terms)
            if loss is None:
                results[1:] = [1.0, float(len(part) == 1)]
                break
            results[0] += loss
        if self.accelerator is not None and self.accelerator.num_processes > 1:
            # All must part alike, whichever of them ran out of memory.
            results = self.accelerator.reduce(torch.tensor(results, device=self.model.device), "sum").tolist()
        total, too_large, single = results
        if not too_large:
            return total
        if single:
            raise self._too_large(groups)
        self._make_room(max(map(_tokens, parts)))
        return None

    def _learned(self, part: Part, terms: int) -> float | None:
        """A part's share of the loss, its gradient added; None where it does not fit into the memory."""
        import torch

        try:
            loss = self._terms(part).sum() / terms
            self._backward(loss)
        except torch.OutOfMemoryError:
            return None
        return float(loss.detach())

    def _make_room(self, largest: int) -> None:
        """Drop all gradients, and from now on read half of what was too much."""
        import torch

        for parameter in self.model.parameters():
            parameter.grad = None
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        first = self._budget == self.config.train.token_budget
        before, self._budget = self._budget, min(self._budget, largest) // 2
        if first and (self.accelerator is None or self.accelerator.is_main_process):
            warnings.warn(
                f"{min(before, largest)} tokens at once are too many for the memory of {self.model.device}: the "
                f"training goes on with {self._budget}, or less where that is still too much; its options stay as they "
                "are",
                stacklevel=2,
            )

    def logits(self, pairs: Sequence[Features]) -> Tensor:
        """What the head gives for encoded pairs, in float32: shape (pairs, labels).

        On a CPU pairs of like length are read in small blocks: it gains nothing from large ones, and pads less.
        """
        import torch

        if self.model.device.type != "cpu" or len(pairs) <= BLOCK:
            return self._read(pairs)
        order = sorted(range(len(pairs)), key=lambda position: len(pairs[position]["input_ids"]))
        blocks = [order[start : start + BLOCK] for start in range(0, len(order), BLOCK)]
        result = torch.cat([self._read([pairs[position] for position in block]) for block in blocks])
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return result[back]

    def _read(self, pairs: Sequence[Features]) -> Tensor:
        features = self._pairs.padded(pairs, self.model.device)
        with nullcontext() if self.accelerator is None else self.accelerator.autocast():
            result = self.model(features)["scores"]
        return result.float()

    def encoded(self, group: Group) -> list[Features]:
        """A group's pairs as tokens."""
        return self._pairs.encoded(self._pairs.cut(group.query), group.texts)

    def batched(self, encoded: Sequence[Sequence[Features]]) -> list[list[int]]:
        """Places of groups that are read at once: of one size, of like length, within the budget of tokens."""
        by_size = sorted(range(len(encoded)), key=lambda position: len(encoded[position]))
        batches: list[list[int]] = []
        for size, result in groupby(by_size, key=lambda position: len(encoded[position])):
            positions = list(result)
            costs = [size * max(len(pair["input_ids"]) for pair in encoded[position]) for position in positions]
            batches += [[positions[item] for item in batch] for batch in by_length(costs, self._budget)]
        return batches

    def _parts(self, groups: Sequence[Group]) -> list[Part]:
        encoded = [self.encoded(group) for group in groups]
        return [[(groups[position], encoded[position]) for position in batch] for batch in self.batched(encoded)]

    def _own(self, parts: list[Part]) -> list[tuple[int, Part]]:
        """The parts of this process, with their numbers."""
        numbered = list(enumerate(parts))
        if self.accelerator is None:
            return numbered
        return numbered[self.accelerator.process_index :: self.accelerator.num_processes]

    def _terms(self, part: Part) -> Tensor:
        """The terms of some groups of one task and size."""
        import torch

        head = self.config.model.head
        logits = self.logits([pair for _, encoded in part for pair in encoded])
        if part[0][0].label is None:
            return list_terms(ranked(logits, head).reshape(len(part), -1))
        labels = torch.tensor([float(group.label or 0) for group, _ in part], device=logits.device)
        return passage_terms(classified(logits, head), labels)

    def _backward(self, loss: Tensor) -> None:
        if self.accelerator is None:
            loss.backward()
        else:
            self.accelerator.backward(loss)

    def _too_large(self, groups: Sequence[Group]) -> Broke:
        what = "one passage" if groups[0].label is not None else f"one list of {len(groups[0].texts)} passages"
        return Broke(
            f"{what} at once is too much for the memory of {self.model.device}",
            where="model.max_length",
            try_this="a device with more memory; or a new training with precision bf16, or a smaller model.max_length",
        )


def _tokens(part: Part) -> int:
    """Tokens of a part, padding included."""
    return sum(len(pairs) for _, pairs in part) * max(len(pair["input_ids"]) for _, pairs in part for pair in pairs)


# -- SARK's steps: each task's gradient by itself, λ from both, and their combination to the optimizer --
# The gradients of both losses are accumulated one after the other and kept apart until λ is known. So λ is that of the
# whole batch however it is parted, nothing is learned through it, and no backward pass is made twice.


Gradients = list["Tensor | None"]
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
        progress: Reports steps.
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
        self._deciding = self._positions()

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

    def _positions(self) -> list[int]:
        """The trained parameters whose gradients decide λ."""
        model = self.objective.model
        part = encoder_of(model) if self.config.loss.lambda_params == "backbone" else last_layer(model)
        deciding = {id(parameter) for parameter in part.parameters()}
        return [position for position, parameter in enumerate(self._parameters) if id(parameter) in deciding]

    def _batches(self, epoch: int) -> list[list[SarkRow]]:
        return batches(self._rows, self.config.train.batch_size, seed=self.config.seed, epoch=epoch)

    # -- a step ----------------------------------------------------------------------------------------------------

    def _step(self, step: int) -> dict[str, float]:
        """Add the gradient of the step's batches, and say what λ was; of several batches the means."""
        epoch, position = divmod(step, self._epoch)
        size = self.config.train.accumulation
        chosen = self._ordered(epoch)[position * size : (position + 1) * size]
        results = [self._batch(rows, (self.config.seed, step, number), len(chosen)) for number, rows in enumerate(chosen)]
        names = dict.fromkeys(name for figures in results for name in figures)
        return {name: _mean([figures[name] for figures in results if name in figures]) for name in names}

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
    def _styles(self) -> tuple[int, ...]:
        return (FORMAL, INFORMAL) if self.config.loss.styles else (FORMAL,)

    def _taken(self) -> Gradients:
        """The gradients that lie on the parameters, which have none then."""
        results = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        return results

    # -- λ ---------------------------------------------------------------------------------------------------------

    def _weight(self, gradients: Mapping[Task, Gradients]) -> tuple[float, dict[str, float]]:
        """λ, and what is known of the gradients; a task that is alone has weight 1."""
        if len(gradients) < 2:
            return float("passage" in gradients), {}
        products = Products.of(*(self._deciding_part(gradients[task]) for task in TASKS))
        fixed = self.config.loss.lambda_value if self.config.loss.lambda_mode == "fixed" else None
        if not products.finite:
            # Half precision overflowed: the optimizer leaves this step out, and nothing is known of its gradients.
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
        """What half precision multiplied the gradients by."""
        scaler = getattr(self.objective.accelerator, "scaler", None)
        return float(scaler.get_scale()) if scaler is not None else 1.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sum(item: Tensor | None, other: Tensor | None) -> Tensor | None:
    if item is None or other is None:
        return other if item is None else item
    return item.add_(other)


# -- What a reranker in training is worth on held-out rows: labels, orders, and how far style moves its scores --


Scores = NDArray[np.float64]


def validator(objective: Objective, rows: Sequence[SarkRow], config: SarkTrainingConfig) -> Validate:
    """The figures of held-out rows, each over both styles:

    `validation_f1`: of label 1, where σ(z) above ½ says so; `validation_order`: share of a list's pairs that are scored
    in its order; `validation_style_gap`: mean |z| between both styles of a passage, in units of the standard deviation
    of all scores.

    Raises:
        UserError: The rows do not hold what the best epoch is to be known by.
    """
    labeled = [row for row in rows if row.label is not None]
    lists = list({(row.question_id, row.query): row for row in rows if row.list is not None}.values())
    if config.keep == "f1" and not any(row.label for row in labeled):
        raise _without("a passage labeled 1", "order")
    if config.keep == "order" and not lists:
        raise _without("a list", "f1")

    styles = (FORMAL, INFORMAL)
    queries, ordered = groups_of("passage", labeled, styles), groups_of("list", lists, styles)

    def validate() -> Mapping[str, float]:
        result = _Scores(objective, [*queries, *ordered])
        figures: dict[str, float] = {}
        if queries:
            correct = np.concatenate([result.classified(group) for group in queries]) > 0
            figures["validation_f1"] = f1(correct, np.array([group.label == 1 for group in queries]))
        if ordered:
            figures["validation_order"] = float(np.mean([share_in_order(result.ranked(group)) for group in ordered]))
        gaps = [*_gaps(list(map(result.ranked, queries))), *_gaps(list(map(result.ranked, ordered)))]
        spread = result.spread
        if gaps and spread > 0:
            figures["validation_style_gap"] = float(np.concatenate(gaps).mean()) / spread
        return figures

    return validate


def _without(what: str, other: str) -> UserError:
    return UserError(
        f"the validation data hold not one row with {what}, by which the best epoch is to be known",
        where="validation",
        try_this=f"more validation data; or --set train.keep={other} or last",
    )


def _gaps(scores: Sequence[Scores]) -> list[Scores]:
    """|z| between both styles of groups, all formal ones first."""
    half = len(scores) // 2
    return [np.abs(item - other) for item, other in zip(scores[:half], scores[half:], strict=True)]


def f1(responses: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    """Of the positive class; 0 where nothing is positive on either side."""
    hits = float((responses & true).sum())
    positives = float(responses.sum() + true.sum())
    return 2 * hits / positives if positives else 0.0


def share_in_order(scores: Scores) -> float:
    """Share of the pairs, i before j in the list, with a higher score of i; an equal one counts half."""
    first, second = np.triu_indices(len(scores), 1)
    gaps = scores[first] - scores[second]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


class _Scores:
    """Scores of the texts of groups, every distinct pair read once."""

    def __init__(self, objective: Objective, groups: Sequence[Group]) -> None:
        import torch

        pairs = dict.fromkeys((group.query, text) for group in groups for text in group.texts)
        singles = [Group(query, (text,), None) for query, text in pairs]
        encoded = [objective.encoded(single) for single in singles]
        self._rows: dict[tuple[str, str], int] = {pair: row for row, pair in enumerate(pairs)}
        self._logits = np.zeros((len(singles), 2))
        head = objective.config.model.head
        with torch.inference_mode():
            for positions in objective.batched(encoded):
                result = objective.logits([pair for position in positions for pair in encoded[position]])
                self._logits[positions, 0] = classified(result, head).cpu().numpy()
                self._logits[positions, 1] = ranked(result, head).cpu().numpy()

    def classified(self, group: Group) -> Scores:
        """Logits of "holds the evidence"."""
        return self._of(group, 0)

    def ranked(self, group: Group) -> Scores:
        """Scores that order."""
        return self._of(group, 1)

    def _of(self, group: Group, column: int) -> Scores:
        result: Scores = self._logits[[self._rows[group.query, text] for text in group.texts], column]
        return result

    @property
    def spread(self) -> float:
        """Standard deviation of the scores that order."""
        return float(self._logits[:, 1].std())


STAGE = "reranker"
CURVE = "curve.jsonl"
"""Of a checkpoint's steps, in its folder."""


class RowSource(Protocol):
    """Where rows come from."""

    def __call__(self, config: SarkTrainingConfig, benchmarks: Sequence[Benchmark], context: TrainingContext, folder: Path) -> SarkData:
        """The rows of benchmarks, kept in a folder; a second call makes nothing anew."""
        ...


RESTYLING = 160
"""Tokens of the instructions to rewrite a passage in another style."""


def _needs(config: SarkTrainingConfig) -> Needs | None:
    parts = [*_retrievers(config), *([config.labels.component] if config.labels.by == "reader" else [])]
    own = Needs((Checkpoint(config.base, config.revision),)) + needs_of(*config.llms)
    return all_needs((own, *(part.needs for part in parts)))


def _retrievers(config: SarkDataConfig) -> list[Component]:
    wanted = [config.candidates.component] if config.candidates.source == "retriever" else []
    return wanted if config.labels.extra is None else [*wanted, config.labels.extra.component]


def _work(config: SarkTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Answers with each passage, verdicts, orders and restyled passages; then every row with its list, in both styles."""
    data = [(item, _used(config, of(item, config.data_options))) for item in config.data]
    held = [(item, _used(config.held_out, of(item, config.validation_options))) for item in config.validation]
    rows_of = [*((config, *item) for item in data), *((config.held_out, *item) for item in held)]
    prepared = total(_made_by(part, name, lengths) for part, name, lengths in rows_of)
    rows = sum(_labeled(config, lengths) for _, lengths in data)
    train, size = config.train, data[0][1].size(config.base, config.revision)
    texts = (2 if config.loss.styles else 1) * ((1 if config.loss.passage else 0) + (LENGTH if config.loss.listwise else 0))
    work = total(
        learn(
            Checkpoint(config.base, config.revision),
            train.epochs * _labeled(config, lengths) * texts,
            min(lengths.question + lengths.passage, config.model.max_length),
            train.precision,
        )
        for _, lengths in data
    )
    taken = steps(rows, train.batch_size * train.accumulation, train.epochs)
    return [StageWork(DATA, prepared, rows), StageWork(STAGE, work + saved_weights(size, config.base), rows, taken, resumable(size))]


def _used(config: SarkTrainingConfig, lengths: Lengths) -> Lengths:
    """With the questions that are mined, at most."""
    limits = [lengths.questions, config.questions or lengths.questions]
    if config.rows is not None and _tried(config, lengths) >= LENGTH:
        # A question gives a row at least, its list; that some orders cannot be read is left out of account.
        limits.append(config.rows)
    return replace(lengths, questions=min(limits))


def _tried(config: SarkTrainingConfig, lengths: Lengths) -> float:
    """Passages that a question is tried with at most: its candidates, or those of its list."""
    if config.labels.passages == "list":
        return float(LENGTH)
    depth = float(config.candidates.depth)
    return depth if config.candidates.source == "retriever" else min(depth, lengths.candidates)


def _labeled(config: SarkTrainingConfig, lengths: Lengths) -> float:
    """Rows at most: a label of every passage that was tried, as far as rows are wanted."""
    extra = config.labels.extra
    every = lengths.questions * (_tried(config, lengths) + (0 if extra is None else extra.most or extra.n))
    return min(every, every if config.rows is None else config.rows)


def _made_by(config: SarkTrainingConfig, name: str, lengths: Lengths) -> Work:
    """What rows take: searches and a local reader for each training, replies once for all that ask the same."""
    labels, lists, styles = config.labels, config.lists, config.styles
    attempts = lengths.questions * (1 + _tried(config, lengths) + (labels.extra.n if labels.extra else 0))

    def prompt(name: str, path: str | None) -> float:
        return sum(map(tokens, load_prompt(name, path).parts)) + lengths.question

    shared = ask(labels.active_llm, attempts, prompt("answer", labels.prompt) + lengths.passage)
    if (judge := config.wanted_judge) is not None:
        shared += lengths.judging(judge, attempts, 32 if labels.llm is None else longest_reply(labels.llm))
    shared += ask(lists.active_llm, lengths.questions, prompt("order", lists.prompt) + LENGTH * lengths.passage)
    if styles.active_llm is not None:
        # Those of the rows and of each question's list; no rewriting is much longer than its source.
        restyled = _labeled(config, lengths) + (0 if config.rows is None else LENGTH * lengths.questions)
        shared += ask(styles.active_llm, restyled, RESTYLING + lengths.passage, min(longest_reply(styles.active_llm), 2 * lengths.passage))
    parts = (config.candidates, labels, lists, styles)
    key = fingerprint("sark", name, config.rows, config.rows_seed, [part.model_dump(mode="json") for part in parts])
    own = total(retriever.work(lengths) for retriever in _retrievers(config))
    if labels.by == "reader":
        own += labels.component.work(replace(lengths, questions=attempts, k=1))
    return own + Work(once=(Once(shared, key),))


@register_training(
    "sark",
    summary="a reranker trained on what helps a model to answer, every passage in two styles",
    stages=(STAGE,),
    config=SarkTrainingConfig,
    paper="Zhang et al., Don't Be Misled by Style: A Style-Adaptive Reranker for Capturing Effective Knowledge in "
    "Retrieval-Augmented Generation",
    presets=PRESETS,
    work=_work,
    needs=_needs,
)
class SarkTraining:
    """The training.

    Args:
        config: Options.
        source: Where rows come from, in place of what the options say.
    """

    def __init__(self, config: SarkTrainingConfig, source: RowSource | None = None) -> None:
        self.config, self._source = config, source or _made

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Make rows and train.

        Raises:
            UserError: The data may not be trained on or give no row, or the folders hold other work.
            Broke: A model that is asked cannot be used.
        """
        config = self.config
        material = load_material(config)
        process = accelerator(config.train.precision, context.services.device)

        def begin(identity: str) -> PreparedRun:
            work = context.work
            # The other processes read from its files what the main process generated.
            with process.main_process_first():
                training = self._source(config, material.training, context, work / "data")
                held_out = None
                if material.validation:
                    held_out = self._source(config.held_out, material.validation, context, work / "validation")
            return _prepared(config, training, held_out, context, process, identity)

        data = [benchmark.fingerprint for benchmark in material.training]
        seen = fingerprint([benchmark.fingerprint for benchmark in material.validation])
        yield from train_stage(STAGE, config, (config.base, config.revision), data, context, process, begin, inputs=(seen, *_files(config)))


def _made(config: SarkTrainingConfig, benchmarks: Sequence[Benchmark], context: TrainingContext, folder: Path) -> SarkData:
    """Rows, kept beside those of other trainings where there is such a place: one with other losses shares them."""
    services = context.services
    made_of = config.model_dump(mode="json", include=set(SarkDataConfig.model_fields))
    shared = services.folder("sark", fingerprint(made_of, [benchmark.fingerprint for benchmark in benchmarks]))
    return data_of(config, benchmarks, services, shared or folder, context.progress)


def _prepared(
    config: SarkTrainingConfig, training: SarkData, held_out: SarkData | None, context: TrainingContext, process: Any, identity: str
) -> PreparedRun:
    rows = [row for row in training.rows if _teaches(row, config)]
    if not rows:
        raise _nothing_to_train(config)
    objective = Objective(new_reranker(config, str(process.device)), config, process)
    same = fingerprint(identity, training.fingerprint, held_out.fingerprint if held_out is not None else None)
    validate = validator(objective, held_out.rows, config) if held_out is not None else None
    trainer = SarkTrainer(objective, rows, config, context.work / "train", same, context.progress, validate)

    def write(folder: Path, figures: Mapping[str, float]) -> None:
        save(objective.model, folder)
        # λ, 1 − λ, norms and cosine of every step (the paper's figure 8).
        shutil.copyfile(trainer.loop.curve, folder / CURVE)
        write_card(folder, config, figures)

    counts = {name: float(count) for name, count in training.counts.items()}
    return PreparedRun(trainer.loop, write, {**counts, "rows_trained_on": float(len(rows))})


def _teaches(row: SarkRow, config: SarkTrainingConfig) -> bool:
    """Whether the active losses learn anything from a row."""
    return (config.loss.passage and row.label is not None) or (config.loss.listwise and row.list is not None)


def _nothing_to_train(config: SarkTrainingConfig) -> UserError:
    needed = {(True, False): "a label", (False, True): "a list"}.get((config.loss.passage, config.loss.listwise), "a label or a list")
    return UserError(
        f"no training row has {needed}",
        where="data",
        try_this="more questions, or another model to label and order; `labels.known` where a reader knows nothing",
    )


def _files(config: SarkTrainingConfig) -> list[str]:
    """Hashes of the files that options name, by option: a file that takes another's place is another input."""
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
