"""What a batch adds to the parameters: a task's gradient, part by part as memory allows.

A group is what one term of a loss needs together: one labeled passage, or one whole list. The losses are sums over groups,
so a batch in parts has the gradient of the whole: exactly, but for dropout, which is drawn from the seed, the step, the
task and the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from methods.models.cross_encoder import Features, PairTokens
from methods.models.likelihood import by_length
from methods.sark.config import LossConfig, SarkTrainingConfig
from methods.sark.loss import classified, list_terms, pairs_of, passage_terms, ranked, softmax_terms
from methods.sark.model import last_bias
from methods.sark.rows import SarkRow
from methods.training.parts import Figures, MicroBatch, over_parts
from methods.training.ranks import backward

if TYPE_CHECKING:
    from torch import Tensor

Task = Literal["passage", "list"]
TASKS: tuple[Task, ...] = ("passage", "list")
QUERY_SHARE = 0.75
"""Largest part of a pair that a query may take."""
BLOCK = 6
"""Pairs that a CPU reads at once."""
FORMAL, INFORMAL = 0, 1
"""Places of both styles in a row's texts."""
MIXED = 0.5
"""Chance that a passage of a mixed list has the style that its list is first read in."""
PAPER = LossConfig.model_validate({})
LEVELED = 64
"""Labeled passages by which a head's level is set."""
REACH, HALVINGS = 40.0, 60
"""How far beyond all scores its shift is looked for, and how often that range is halved."""


@dataclass(frozen=True, slots=True)
class Group:
    """Texts of one question in one style.

    Attributes:
        query: The question.
        texts: One labeled passage; or a list, best first.
        label: 1 or 0; None of a list.
        evidence: Of a list, which of its passages are; None: its pairs are compared.
    """

    query: str
    texts: tuple[str, ...]
    label: int | None
    evidence: tuple[bool, ...] | None = None

    @property
    def terms(self) -> int:
        """Terms that it adds to its loss."""
        if self.label is not None:
            return 1
        return pairs_of(len(self.texts)) if self.evidence is None else sum(self.evidence)


Part = list[tuple[Group, list[Features]]]
"""Groups of one task and size that are read at once, with their pairs as tokens."""


def groups_of(
    task: Task, rows: Sequence[SarkRow], styles: Sequence[int], loss: LossConfig = PAPER, seed: Sequence[str | int] = ()
) -> list[Group]:
    """Return what rows give a task to learn from, style by style; both styles of a row stand in the same rows.

    Args:
        task: Which loss.
        rows: Of a batch.
        styles: `FORMAL`, or both.
        loss: How lists are compared, and in which styles they are read.
        seed: What mixed lists are drawn from, beside the question.
    """
    if task == "passage":
        return [
            Group(row.query, ((row.formal, row.informal)[style],), row.label) for style in styles for row in rows if row.label is not None
        ]
    results = []
    for style in styles:
        for row in rows:
            if row.list is None or not learnable(row, loss):
                continue
            chosen = [style] * len(row.list)
            if loss.list_styles == "mixed" and len(styles) > 1:
                draws = Draws("sark mixed list", *seed, row.question_id)
                # The second time every passage is in the style that it had not the first time.
                chosen = [style if draws.random() < MIXED else 1 - style for _ in row.list]
            evidence = row.list_evidence if loss.list_loss == "softmax" else None
            results.append(Group(row.query, tuple(both[item] for both, item in zip(row.list, chosen, strict=True)), None, evidence))
    return results


def learnable(row: SarkRow, loss: LossConfig) -> bool:
    """Return whether a list teaches: of one without evidence, or of nothing else, a softmax over evidence says nothing."""
    return row.list is not None and (loss.list_loss == "ranknet" or len(set(row.list_evidence)) > 1)


class Objective:
    """Scores pairs with a model in training, and adds gradients to its parameters.

    Args:
        model: The `CrossEncoder`.
        config: Head, lengths, and how many tokens are read at once.
        accelerator: Of `accelerate`; None: one process in the model's own precision.
    """

    def __init__(self, model: Any, config: SarkTrainingConfig, accelerator: Any = None) -> None:
        self.model, self.config, self.accelerator = model, config, accelerator
        self.micro = MicroBatch(config.train.token_budget, "train.token_budget")
        options = config.model
        self._pairs = PairTokens(model.tokenizer, options.max_length, QUERY_SHARE)

    def backward(self, groups: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Add the gradient of a loss to the parameters: the mean over all terms of its groups.

        With as many terms in each style, that is the mean over styles of the mean over terms. Of several processes each
        adds the gradient of its own parts.

        Args:
            groups: Of one task, in one style or both.
            seed: What dropout is drawn from: seed, step, task.

        Returns:
            The loss.

        Raises:
            TooLarge: A part does not fit into the device's memory.
        """
        learn = partial(self._learn, sum(group.terms for group in groups), seed)
        return over_parts(self._parts(groups), learn, self.accelerator, _tokens)["loss"]

    def _learn(self, terms: int, seed: Sequence[str | int], number: int, part: Part) -> Figures:
        """Add the gradient of a part's share of the loss."""
        import torch

        torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
        loss = self._terms(part).sum() / terms
        backward(loss, self.accelerator)
        return {"loss": float(loss.detach())}

    def logits(self, pairs: Sequence[Features]) -> Tensor:
        """Return the head's logits for encoded pairs, in float32: shape (pairs, labels).

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
            batches += [[positions[item] for item in batch] for batch in by_length(costs, self.micro.size)]
        return batches

    def set_level(self, rows: Sequence[SarkRow], styles: Sequence[int]) -> None:
        """Shift the head's bias so that the mean σ(z) of the first labeled passages is their share of label 1.

        No order changes. Where all labels are alike there is no such bias, and nothing is shifted.
        """
        import torch

        groups = groups_of("passage", [row for row in rows if row.label is not None][:LEVELED], styles)
        share = sum(group.label or 0 for group in groups) / max(1, len(groups))
        if not 0 < share < 1:
            return
        self.model.eval()
        with torch.inference_mode():
            encoded = [self.encoded(group) for group in groups]
            logits = torch.cat([self.logits([encoded[item][0] for item in batch]) for batch in self.batched(encoded)])
            scores = classified(logits, self.config.model.head).double().cpu()
        low, high = -float(scores.max()) - REACH, REACH - float(scores.min())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            below = float(torch.sigmoid(scores + middle).mean()) < share
            low, high = (middle, high) if below else (low, middle)
        last_bias(self.model)[-1] += low

    def _parts(self, groups: Sequence[Group]) -> list[Part]:
        encoded = [self.encoded(group) for group in groups]
        return [[(groups[position], encoded[position]) for position in batch] for batch in self.batched(encoded)]

    def _terms(self, part: Part) -> Tensor:
        """The terms of some groups of one task and size."""
        import torch

        head = self.config.model.head
        logits = self.logits([pair for _, encoded in part for pair in encoded])
        if part[0][0].label is None:
            scores = ranked(logits, head).reshape(len(part), -1)
            evidence = [group.evidence for group, _ in part]
            return list_terms(scores) if evidence[0] is None else softmax_terms(scores, torch.tensor(evidence, device=scores.device))
        labels = torch.tensor([float(group.label or 0) for group, _ in part], device=logits.device)
        return passage_terms(classified(logits, head), labels)


def _tokens(part: Part) -> int:
    """Tokens of a part, padding included."""
    return sum(len(pairs) for _, pairs in part) * max(len(pair["input_ids"]) for _, pairs in part for pair in pairs)
