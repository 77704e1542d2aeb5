"""Contrastive training of rerankers: the positive text should score highest in a group of texts for one question.

    L = mean over groups of −log( exp(s_right) / Σ over the group's texts exp(s) )

A group is one question with a positive and several negative texts. Each training defines its own negatives, model and
checkpoint format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import resolve
from methods.models.weights import locate
from methods.training import TrainingConfig, TrainingContext
from methods.training.candidates import Mined
from methods.training.loop import Figures, KeepBest, LoopPlace, Validate, loop_over_rows
from methods.training.material import check_references
from methods.training.parts import MicroBatch, over_parts
from methods.training.ranks import backward
from methods.training.stages import PreparedRun

if TYPE_CHECKING:
    from torch import Tensor


class DataConfig(TrainingConfig):
    """Options of trainings that use questions of benchmarks."""

    data: tuple[str, ...] = Field(
        min_length=1, description="references of questions with evidence, such as nq:train, worlds/multihop:train"
    )
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")

    def preflight(self) -> None:
        """Check the data references."""
        check_references(self.data)


class HeldOutConfig(DataConfig):
    """Options of such trainings with validation data."""

    validation: tuple[str, ...] = Field((), description="references of held-out questions; the weights with the best validation are kept")
    validation_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="options of the loaders of validation, by dataset id"
    )

    def preflight(self) -> None:
        """Check the data references."""
        super().preflight()
        for reference in self.validation:
            resolve(reference, where="data")


class ContrastConfig(HeldOutConfig):
    """Options shared by contrastive trainings."""

    base: str = Field(description="folder or hub id of the model to train")
    revision: str | None = Field(None, description="revision of a hub id")
    negatives: int = Field(15, ge=1, description="negatives per positive")
    epochs: int = Field(1, ge=1, description="number of times that each positive is used")
    batch_size: int = Field(32, ge=1, description="positives per step")
    part: int = Field(64, ge=1, description="pairs read at once; limits memory and does not change results")
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate of AdamW")
    warm_up: float = Field(
        0.1, ge=0, description="steps in which the learning rate rises: a share of all steps if below 1, else their number"
    )
    weight_decay: float = Field(0.0, ge=0, description="weight decay of AdamW on matrices; biases and norms have none")
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of gradients; larger ones are scaled down")
    save_every: int = Field(50, ge=1, description="steps between two saved states from which an interrupted training resumes")

    def preflight(self) -> None:
        """Check the data references and the base model."""
        super().preflight()
        locate(self.base)


@dataclass(frozen=True, slots=True)
class Group:
    """Training row: a question with one positive and several negative texts.

    Attributes:
        question: Text of the question.
        texts: The texts, the positive one first.
    """

    question: str
    texts: tuple[str, ...]


def drawn(rows: Sequence[Mined], negatives: int, *key: str | int) -> list[Group]:
    """Draw an epoch's groups: one per positive, in random order; equal seed keys give equal groups."""
    result = []
    for row in rows:
        for number, text in enumerate(row.positives):
            draws = Draws(*key, row.id, number)
            wrong = draws.sample(row.near, negatives)
            wrong += draws.sample(row.others, negatives - len(wrong))
            result.append(Group(row.question, (text, *wrong)))
    Draws(*key).shuffle(result)
    return result


class GroupObjective:
    """Contrastive objective: computes the gradient of a batch's loss for a model that scores pairs.

    Groups are processed a few at a time; the result is the same, because the loss is a mean over groups.

    Args:
        model: A `CrossEncoder` of sentence-transformers, unless a subclass overrides `scores`.
        part: Maximum pairs per forward pass.
        accelerator: `accelerate` process; None for a single process in the model's precision.
    """

    def __init__(self, model: Any, part: int, accelerator: Any = None) -> None:
        self.model, self.accelerator, self.micro = model, accelerator, MicroBatch(part, "part")

    def backward(self, batch: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Compute the gradient of a batch's loss and add it to the parameters; each process handles its own groups.

        Args:
            batch: The groups.
            seed: Seed parts for dropout: seed, step …

        Returns:
            The loss.
        """
        return over_parts(self._parts(batch), partial(self._learn, len(batch), seed), self.accelerator, _pairs)["loss"]

    def _learn(self, groups: int, seed: Sequence[str | int], number: int, part: Sequence[Group]) -> Figures:
        import torch

        torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
        loss = self._loss(part) / groups
        backward(loss, self.accelerator)
        return {"loss": float(loss.detach())}

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Compute the raw scores of (question, text) pairs: shape (pairs,)."""
        tokenizer = self.model.tokenizer
        questions, texts = map(list, zip(*pairs, strict=True))
        features = tokenizer(questions, texts, truncation=True, max_length=self.model.max_seq_length, padding=True, return_tensors="pt")
        with nullcontext() if self.accelerator is None else self.accelerator.autocast():
            result = self.model(dict(features.to(self.model.device)))["scores"]
        return result.float().reshape(len(pairs))

    def ranked(self, question: str, wrong: Sequence[str], right: Sequence[str]) -> NDArray[np.int64]:
        """Return the 0-based ranks of the positive texts, ascending, among all texts sorted by score; ties rank negatives
        first.
        """
        import torch

        pairs, size = [(question, text) for text in (*wrong, *right)], self.micro.size
        with torch.inference_mode():
            scores = torch.cat([self.scores(pairs[start : start + size]) for start in range(0, len(pairs), size)])
        order = np.argsort(-scores.cpu().numpy(), kind="stable")
        return np.flatnonzero(order >= len(wrong))

    def _parts(self, batch: Sequence[Group]) -> list[list[Group]]:
        """Split groups into parts of limited pairs, at least one group each."""
        parts: list[list[Group]] = []
        room = 0
        for group in batch:
            if not parts or room < len(group.texts):
                parts.append([])
                room = self.micro.size
            parts[-1].append(group)
            room -= len(group.texts)
        return parts

    def _loss(self, part: Sequence[Group]) -> Tensor:
        """Compute the summed loss of some groups."""
        scores = self.scores([(group.question, text) for group in part for text in group.texts])
        ends = np.cumsum([len(group.texts) for group in part]).tolist()
        starts = [0, *ends[:-1]]
        losses = [scores[start:end].logsumexp(0) - scores[start] for start, end in zip(starts, ends, strict=True)]
        return sum(losses)


def _pairs(part: Sequence[Group]) -> int:
    return sum(len(group.texts) for group in part)


def mrr(objective: GroupObjective, rows: Sequence[Mined]) -> float:
    """Compute the mean reciprocal rank of each question's first positive among its near negatives (or its other negatives, if
    it has none).
    """
    return float(np.mean([1 / (1 + objective.ranked(row.question, row.near or row.others, row.positives)[0]) for row in rows]))


def prepared(
    name: str,
    config: ContrastConfig,
    context: TrainingContext,
    identity: str,
    objective: GroupObjective,
    groups: Callable[[int], list[Group]],
    count: int,
    save: Callable[[Path, Figures], None],
    figures: Figures,
    *,
    validate: Validate | None = None,
    keep_best: KeepBest | None = None,
    trainable_only: bool = False,
) -> PreparedRun:
    """Assemble a contrastive training, ready to run.

    Args:
        name: Name for the progress display and the dropout seed.
        config: Options.
        context: Context of the training.
        identity: Hash of everything that determines the result.
        objective: Objective with the model.
        groups: Function from an epoch to its rows.
        count: Number of rows per epoch.
        save: Function that writes the checkpoint.
        figures: Figures known before training.
        validate: Function that computes validation metrics after each epoch.
        keep_best: Criterion for the best epoch, whose weights are the result; None for the last step.
        trainable_only: Whether snapshots contain only trainable parameters.
    """

    def step(rows: Sequence[Group], epoch: int, number: int) -> Figures:
        return {"loss": objective.backward(rows, (config.seed, name, number))}

    place = LoopPlace.of(context, identity, objective.accelerator, validate)
    more: dict[str, Any] = {"keep_best": keep_best, "trainable_only": trainable_only, "micro": objective.micro}
    loop = loop_over_rows(name, {"model": objective.model}, config, groups, count, step, place, **more)
    return PreparedRun(loop, save, figures)
